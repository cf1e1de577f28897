"""McNemar, the floor of task sampling, and the bootstrap over tasks and seeds."""

import itertools
import math

import numpy as np
import pytest

from eval.task_statistics import bootstrap, mcnemar, mcnemar_p, score_standard_error


@pytest.mark.parametrize(
    ("discordant", "p"), [(31, 0.029), (41, 0.060), (51, 0.092), (61, 0.124), (81, 0.182)]
)
def test_net_13_of_400(discordant, p):
    gained = (discordant + 13) // 2
    assert round(mcnemar_p(gained, discordant - gained), 3) == p
    assert mcnemar_p(discordant - gained, gained) == mcnemar_p(gained, discordant - gained)


def test_mcnemar_counts_and_agrees_with_the_binomial_sum():
    control = np.array([1, 1, 0, 0, 0, 0, 0, 0, 1], bool)
    treatment = np.array([1, 0, 1, 1, 1, 1, 1, 0, 1], bool)
    found = mcnemar(control, treatment)
    p = 2 * sum(math.comb(6, i) for i in range(2)) / 2**6
    assert found == {
        **{"both": 2, "treatment_only": 5, "control_only": 1, "neither": 1},
        "p": pytest.approx(p),
    }
    assert mcnemar(control, control)["p"] == 1.0
    with pytest.raises(ValueError, match="equal shapes"):
        mcnemar(control, treatment[:3])


def test_task_floor():
    assert score_standard_error(40, 400) == pytest.approx(2.449, abs=5e-4)
    assert score_standard_error(0, 400) == 0


def random_arms(seed=0, shape=(2, 3, 12)):
    rng = np.random.default_rng(seed)
    return rng.random(shape) < 0.4, rng.random(shape) < 0.6


@pytest.mark.parametrize("paired", [True, False])
def test_the_draws_are_those_of_the_spec(paired):
    """Against a plain loop: tasks once per draw, seeds once for all tasks of the draw."""
    control, treatment = random_arms()
    found = bootstrap(control, treatment, paired=paired, seed=5, num_draws=40)
    rng = np.random.default_rng(5)
    times = {
        name: rng.multinomial(num, np.full(num, 1 / num), size=40)
        for name, num in (("tasks", 12), ("old", 3), *([] if paired else [("new", 3)]))
    }
    times.setdefault("new", times["old"])
    for k in range(2):
        draws = []
        for d in range(40):
            tasks = np.repeat(np.arange(12), times["tasks"][d])
            old = np.repeat(np.arange(3), times["old"][d])
            new = np.repeat(np.arange(3), times["new"][d])
            draws.append(
                100 * np.mean([treatment[k, s, t] for s, t in itertools.product(new, tasks)])
                - 100 * np.mean([control[k, s, t] for s, t in itertools.product(old, tasks)])
            )
        assert found[k]["interval"] == pytest.approx(np.quantile(draws, [0.025, 0.975]))
        expected = 100 * (treatment[k].mean() - control[k].mean())
        assert found[k]["difference"] == pytest.approx(expected)
        assert (found[k]["over"], found[k]["seed"]) == ("tasks and seeds", 5)


def test_resampled_seeds_show_the_variance_of_runs():
    # Every task alike in a run: only the runs vary, and tasks alone would give no width at all.
    control = np.zeros((1, 4, 50), bool)
    treatment = np.zeros((1, 4, 50), bool)
    treatment[0, :2] = True
    (found,) = bootstrap(control, treatment, paired=True)
    assert found["interval"] == [0, 100]
    assert bootstrap(control, treatment, paired=True)[0] == found
    assert bootstrap(control, control, paired=True)[0]["undefined"] == {
        "interval": "the draws do not differ"
    }


def test_one_seed_is_over_tasks_only():
    control, treatment = random_arms(shape=(1, 1, 40))
    (found,) = bootstrap(control, treatment, paired=True, num_draws=500)
    assert found["over"] == "tasks only"


def test_shapes():
    control, treatment = random_arms()
    with pytest.raises(ValueError, match="equal K and tasks"):
        bootstrap(control, treatment[:, :, :5], paired=False)
    with pytest.raises(ValueError, match="paired equal seeds"):
        bootstrap(control, treatment[:, :2], paired=True)
    assert bootstrap(control, treatment[:, :2], paired=False, num_draws=10)


class World:
    """Tasks whose chances have mean 0.4 and sd 0.3; runs shift all of them by a common amount."""

    def __init__(self, run_sd, seed):
        self.run_sd = run_sd
        self.rng = np.random.default_rng(seed)
        control, treatment = self.chances(1, 2_000_000)
        self.difference = 100 * float(np.mean(treatment) - np.mean(control))

    def chances(self, n, num_tasks):
        rate = 0.4 * 0.6 / 0.09 - 1
        shape = (n, num_tasks)
        base = self.rng.beta(0.4 * rate, 0.6 * rate, num_tasks)
        effect = self.rng.normal(0.02, 0.1, num_tasks)
        # The large sample that fixes the truth draws a run for each task.
        runs = shape if n == 1 else (n, 1)
        shifts = self.rng.normal(0, self.run_sd / 100, (2, *runs))
        return np.clip(base + shifts[0], 0, 1), np.clip(base + effect + shifts[1], 0, 1)

    def coverage(self, n, num_tasks, num_simulations, num_draws=400):
        hits = 0
        for i in range(num_simulations):
            control, treatment = (
                self.rng.random((1, n, num_tasks)) < chance for chance in self.chances(n, num_tasks)
            )
            (found,) = bootstrap(control, treatment, paired=True, seed=i, num_draws=num_draws)
            low, high = found["interval"]
            hits += low <= self.difference <= high
        return hits / num_simulations


def test_bootstrap_covers_a_small_world():
    assert World(1.5, seed=1).coverage(6, 100, 150, num_draws=200) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run_sd", "n", "expected"),
    [(1.5, 3, 98), (1.5, 6, 99), (1.5, 12, 99), (6, 3, 85), (6, 6, 92), (6, 12, 95)],
)
def test_the_stated_coverage_is_measured(run_sd, n, expected):
    # 1000 simulations: a standard error of 1.1 points at 85 %.
    found = World(run_sd, seed=1).coverage(n, 400, 1000)
    assert found == pytest.approx(expected / 100, abs=0.03)
