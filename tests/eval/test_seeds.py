"""The sigma summary: what it holds, in whatever order the files come."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sigma_runs import Ranks, make_result, ranks_of, write_result, write_run

from eval.seeds import summarise
from eval.sigma_inputs import Inputs, collect, read_result
from eval.sigma_text import format_markdown, format_summary

STRICT = "task_accuracy_strict"


def inputs(folder: Path, *results: dict[str, Any]) -> Inputs:
    paths = [write_result(folder / f"{i}.json", result) for i, result in enumerate(results)]
    return Inputs(results=tuple(map(read_result, paths)), unfinished=())


def summary_of(folder: Path, *results: dict[str, Any], **options: Any) -> dict[str, Any]:
    return summarise(inputs(folder, *results), num_draws=200, **options)


def arm(name: str, solved: dict[int, int], num_tasks: int = 100) -> list[dict[str, Any]]:
    return [make_result(seed, ranks_of(n, num_tasks), name) for seed, n in solved.items()]


VANILLA = arm("vanilla-last_step", {0: 40, 1: 41, 2: 45})
DEEPLOOP = arm("deeploop-last_step", {1: 44, 2: 46, 3: 47, 0: 42})


def test_worked_examples(tmp_path: Path) -> None:
    about = summary_of(tmp_path, *VANILLA)["arms"][0]["scores"][STRICT]["2"]
    assert about["values"] == [40, 41, 45]
    assert (round(about["mean"], 3), round(about["s"], 3)) == (42.0, 2.646)
    two = arm("vanilla-last_step", {3: 5749, 1: 5537}, num_tasks=10_000)
    about = summary_of(tmp_path, *two)["arms"][0]["scores"][STRICT]["2"]
    assert about["values"] == [55.37, 57.49]
    assert (round(about["mean"], 3), round(about["s"], 3)) == (56.43, 1.499)


def test_a_contrast(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, *DEEPLOOP, *VANILLA)
    assert summary["primary"] == {
        "treatment": "deeploop-last_step",
        "control": "vanilla-last_step",
        "score": STRICT,
        "k": "2",
    }
    (contrast,) = summary["contrasts"]
    assert contrast["paired"]
    assert contrast["paired_seeds"] == [0, 1, 2]
    assert contrast["unpaired_seeds"] == {"control": [], "treatment": [3]}
    at_2 = contrast["scores"][STRICT]["2"]
    assert at_2["unpaired"]["difference"] == pytest.approx(44.75 - 42)
    assert at_2["paired"]["differences"] == [2, 3, 1]
    assert at_2["paired"]["difference_over_control_s"] == pytest.approx(2 / 7**0.5)
    assert at_2["paired"]["difference_over_paired_s"] == pytest.approx(2)
    assert contrast["tests"]["2"] == {
        "test": "sign-flip", "p": 0.25, "role": "primary", "holm_p": None,
    }  # fmt: skip
    assert contrast["tests"]["10"]["holm_p"] == 0.5  # 0.25, one of two secondary tests
    at_2 = contrast["tasks"]["by_k"]["2"]
    assert [(m["seed"], m["treatment_only"], m["control_only"]) for m in at_2["mcnemar"]] == [
        (0, 2, 0), (1, 3, 0), (2, 1, 0),
    ]  # fmt: skip
    assert at_2["bootstrap"]["difference"] == pytest.approx(2)
    assert at_2["discordant_tasks"] == {
        "t040": [2, 3], "t041": [1, 3], "t042": [1, 2], "t043": [1, 2], "t045": [0, 1],
    }  # fmt: skip
    assert summary["arms"][0]["missing_seeds"] == [3]
    assert summary["arms"][0]["seeds_that_solve"]["2"][39:46] == [3, 2, 1, 1, 1, 1, 0]
    json.dumps(summary, allow_nan=False)


def test_one_seed_has_no_sigma(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, VANILLA[0], DEEPLOOP[-1])
    for about in (arm["scores"][STRICT]["2"] for arm in summary["arms"]):
        assert [about[name] for name in ("s", "standard_error", "mean_interval")] == [None] * 3
    (contrast,) = summary["contrasts"]
    at_2 = contrast["scores"][STRICT]["2"]
    effects = ("difference_over_standard_error", "difference_over_control_s")
    assert [at_2[way][name] for way in ("paired", "unpaired") for name in effects] == [None] * 4
    assert contrast["tests"]["2"]["p"] is None
    assert contrast["planning"]["2"] is None
    assert contrast["tasks"]["by_k"]["2"]["bootstrap"]["over"] == "tasks only"
    text = format_summary(summary)
    assert "every sigma of this difference are undefined" in text
    assert "0.000" not in text


def test_equal_scores_give_no_interval(tmp_path: Path) -> None:
    same = {0: 40, 1: 40, 2: 40}
    summary = summary_of(
        tmp_path, *arm("vanilla-last_step", same), *arm("deeploop-last_step", same)
    )
    for text in (format_summary(summary), format_markdown(summary)):
        assert "[" not in text.replace("[95 %", "")
    assert "the spread over seeds is 0" in summary["words"][0]


def test_without_common_seeds_welch_counts(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, *VANILLA, *arm("deeploop-last_step", {5: 44, 6: 47, 2: 50}))
    (contrast,) = summary["contrasts"]
    assert not contrast["paired"]  # one common seed is no sample
    at_2 = contrast["scores"][STRICT]["2"]
    assert at_2["paired"]["n"] == 1
    assert contrast["tests"]["2"]["test"] == "Welch"
    assert contrast["tests"]["2"]["p"] == at_2["unpaired"]["p"]
    assert contrast["tasks"]["by_k"]["2"]["mcnemar"] == []
    assert contrast["planning"]["2"]["seeds"] == 3
    # Arms of equal size: the pooled s.
    spreads = [a["scores"][STRICT]["2"]["s"] ** 2 for a in summary["arms"]]
    assert contrast["planning"]["2"]["sd"] == pytest.approx((sum(spreads) / 2) ** 0.5)


def test_foreign_solvers(tmp_path: Path) -> None:
    foreign = [make_result(None, ranks_of(n), "solver", digest=None) for n in (8, 9)]
    summary = summary_of(tmp_path, *foreign)
    assert [a["seeds"] for a in summary["arms"]] == [[None], [None]]
    assert [a["missing_seeds"] for a in summary["arms"]] == [[], []]
    assert summary["contrasts"][0]["scores"][STRICT]["2"]["paired"] is None
    assert summary["primary"] is None


@pytest.mark.parametrize("shuffle", range(4))
def test_permutations_change_nothing(tmp_path: Path, shuffle: int) -> None:
    runs = []
    for name in ("vanilla-last_step", "deeploop-last_step", "deepnorm-last_step"):
        for seed in range(3):
            rng = np.random.default_rng([len(name), seed])
            ranks: Ranks = [int(r) if r < 12 else None for r in rng.integers(1, 16, 40)]
            losses = rng.normal(2, 0.1, 30).tolist()
            run = write_run(
                tmp_path / f"{name}{seed}", make_result(seed, ranks, name), losses=losses
            )
            runs.append(run)
    write_run(tmp_path / "dead", state="interrupted")
    whole = summarise(collect([tmp_path]), num_draws=300)
    order = random.Random(shuffle).sample([*runs, tmp_path / "dead"], len(runs) + 1)
    assert summarise(collect(order), num_draws=300) == whole
    assert list(whole["arms"][0]["curves"]) == ["lm_loss"]


@given(st.permutations(range(7)))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_order_of_tasks_and_results_changes_nothing(tmp_path: Path, order: list[int]) -> None:
    results = [*VANILLA, *DEEPLOOP]
    paths = [write_result(tmp_path / f"{i}.json", result) for i, result in enumerate(results)]
    expected = summarise(Inputs(results=tuple(map(read_result, paths)), unfinished=()), num_draws=9)
    for path, result in zip(paths, results, strict=True):
        tasks = list(result["tasks"].items())
        write_result(path, {**result, "tasks": dict(random.Random(order[0]).sample(tasks, 100))})
    turned = Inputs(results=tuple(read_result(paths[i]) for i in order), unfinished=())
    assert summarise(turned, num_draws=9) == expected


def test_holm_is_over_everything_but_the_primary(tmp_path: Path) -> None:
    third = arm("deepnorm-last_step", {0: 38, 1: 43, 2: 44})
    summary = summary_of(tmp_path, *third, *VANILLA, *DEEPLOOP)
    tests = [test for c in summary["contrasts"] for test in c["tests"].values()]
    assert [test["role"] for test in tests].count("primary") == 1
    assert {test.get("num_tests") for test in tests if test["role"] == "secondary"} == {8}
    assert summary["contrasts"][0]["treatment"] == "deeploop-last_step"


def test_the_primary_contrast_is_declared_or_of_equal_names(tmp_path: Path) -> None:
    scope = arm("vanilla-last_cycle", {0: 38, 1: 43})
    assert summary_of(tmp_path, *scope, *DEEPLOOP)["primary"] is None
    other_lr = arm("deeploop-last_step-lr=0.001", {0: 38, 1: 43})
    assert summary_of(tmp_path, *VANILLA, *other_lr)["primary"] is None
    both = [*VANILLA, *DEEPLOOP, *scope, *arm("deeploop-last_cycle", {0: 44})]
    summary = summary_of(tmp_path, *both)
    assert summary["primary"] is None
    assert "No primary contrast is declared" in summary["words"][0]
    chosen = ("vanilla-last_step", "digest of deeploop-last_step")
    summary = summary_of(tmp_path, *both, contrast=chosen)
    assert summary["contrasts"][0]["control"] == "deeploop-last_step"
    assert len(summary["contrasts"]) == 6
    for wrong, message in (
        (("deeploop-last_step", "nothing"), r"--contrast must name arms of .*found 'nothing'"),
        (("vanilla-last_step", "vanilla-last_step"), "must name two arms"),
    ):
        with pytest.raises(ValueError, match=message):
            summary_of(tmp_path, *both, contrast=wrong)
    twice = [*VANILLA, make_result(0, ranks_of(40, 100), digest="other")]
    with pytest.raises(ValueError, match="found 2 arms named 'vanilla-last_step'"):
        summary_of(tmp_path, *twice, contrast=("vanilla-last_step", "digest of vanilla-last_step"))


def test_no_primary_without_k_2(tmp_path: Path) -> None:
    results = [*VANILLA, *DEEPLOOP]
    for result in (json.loads(json.dumps(r)) for r in results):
        for ladder in result["scores"].values():
            del ladder["2"]
        write_result(tmp_path / f"{result['arm']['name']}{result['seed']}.json", result)
    found = Inputs(results=tuple(map(read_result, sorted(tmp_path.iterdir()))), unfinished=())
    summary = summarise(found, num_draws=9)
    assert summary["primary"] is None
    assert "no score at K = 2" in summary["words"][0]


def test_unfinished_runs_lower_n_visibly(tmp_path: Path) -> None:
    for result in VANILLA:
        write_run(tmp_path / f"v{result['seed']}", result)
    early = make_result(7, ranks_of(30, 100), rule="step", step=4)
    dead = write_run(tmp_path / "v7", early, state="interrupted")
    (dead / "config.yaml").write_text("seed: 7\n")
    summary = summarise(collect([tmp_path]), num_draws=9)
    assert summary["arms"][0]["seeds"] == [0, 1, 2]
    assert summary["arms"][0]["missing_seeds"] == [7]
    assert [run["path"] for run in summary["unfinished"]] == [str(dead)]
    text = format_summary(summary)
    assert f"not counted: {dead} (arm unknown, seed 7) is interrupted" in text
    assert "missing seeds of vanilla-last_step: 7; n is 3" in text
    pooled = summarise(collect([tmp_path]), num_draws=9, pool_anyway=True)
    assert pooled["arms"][0]["seeds"] == [0, 1, 2, 7]
    assert any("interrupted" in warning for warning in pooled["warnings"])
    with pytest.raises(
        ValueError, match=r"needs a finished run, found 1 unfinished; .*v7 is inter"
    ):
        summarise(collect([dead]))
