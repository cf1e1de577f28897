"""Intervals over tasks against published and hand-made values."""

import numpy as np
import pytest

from eval.intervals import (
    bootstrap_mean,
    compare_tasks,
    percentile_interval,
    proportion,
    task_weights,
)


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [(81, 263, 25.53, 36.62), (15, 148, 6.24, 16.05), (0, 20, 0, 16.11), (1, 29, 0.61, 17.18)],
)
def test_wilson_as_published(hits: int, total: int, low: float, high: float) -> None:
    # Newcombe (1998), Statistics in Medicine 17, table I, method 3.
    found = proportion(hits, total)
    assert found["percent"] == pytest.approx(100 * hits / total)
    assert found["interval"] == pytest.approx([low, high], abs=0.006)


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="found 0 of 0"):
        proportion(0, 0)
    with pytest.raises(ValueError, match="found 3 of 2"):
        proportion(3, 2)


@pytest.mark.parametrize(("discordant", "p"), [(31, 0.029), (41, 0.060), (51, 0.092), (81, 0.182)])
def test_exact_mcnemar_of_thirteen_tasks_net(discordant: int, p: float) -> None:
    more = (discordant + 13) // 2
    first = np.zeros(400, dtype=bool)
    second = np.zeros(400, dtype=bool)
    second[:more] = True
    first[more:discordant] = True
    found = compare_tasks(first, second, task_weights(400, 0, 10))
    assert (found["only_first"], found["only_second"]) == (discordant - more, more)
    assert (found["both"], found["neither"]) == (0, 400 - discordant)
    assert found["difference"] == pytest.approx(3.25)
    assert found["mcnemar_p"] == pytest.approx(p, abs=5e-4)


def test_equal_results_do_not_differ() -> None:
    solved = np.array([True, False, True])
    found = compare_tasks(solved, solved, task_weights(3, 0, 10))
    assert found["mcnemar_p"] == 1
    assert found["interval"] == [0, 0]


def test_bootstrap_covers_the_mean_with_the_expected_width() -> None:
    weights = task_weights(200, 1)
    assert (weights.sum(axis=1) == 200).all()
    values = np.repeat([0.0, 1.0], 100)[:, None]
    ((low, high),) = bootstrap_mean(values, weights)
    half = 1.96 * 0.5 / np.sqrt(200)  # the normal interval of a share of one half
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), abs=0.01)
    assert bootstrap_mean(np.full((200, 1), 7.0), weights)[0] == pytest.approx([7, 7])


def test_percentiles_leave_the_outer_fortieths() -> None:
    ((low, high),) = percentile_interval(np.arange(1001.0)[:, None])
    assert (low, high) == pytest.approx((25, 975))
