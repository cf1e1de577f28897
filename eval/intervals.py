"""Intervals over tasks: how far a score would move with other tasks of the same kind."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.95
NUM_DRAWS = 10_000
Interval = list[float]
"""Lower and upper end."""


def proportion(hits: int, total: int) -> dict[str, Any]:
    """Describes a share of tasks.

    Args:
        hits: Tasks that count, 0..total.
        total: Tasks, at least 1.

    Returns:
        hits, total, percent and interval (percent, 95 %).

    Raises:
        ValueError: If ``total`` is 0 or ``hits`` is not in 0..total.

    **Source**: Wilson (1927); unlike the normal interval it has a width at 0 and 100 percent.
    """
    if not 0 <= hits <= total or total == 0:
        raise ValueError(f"hits must be in 0..total with total above 0, found {hits} of {total}")
    interval = stats.binomtest(hits, total).proportion_ci(LEVEL, method="wilson")
    return {
        "hits": hits,
        "total": total,
        "percent": 100 * hits / total,
        "interval": [100 * float(interval.low), 100 * float(interval.high)],
    }


def task_weights(num_tasks: int, seed: int, num_draws: int = NUM_DRAWS) -> NDArray[np.float64]:
    """Draws tasks with replacement, once for everything that is compared on them.

    Args:
        num_tasks: Tasks, at least 1.
        seed: Of the random stream.
        num_draws: Bootstrap draws.

    Returns:
        How often each task is drawn, (num_draws, num_tasks); each row sums to ``num_tasks``.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(num_tasks, np.full(num_tasks, 1 / num_tasks), size=num_draws)
    return drawn.astype(np.float64)


def bootstrap_mean(values: NDArray[Any], weights: NDArray[np.float64]) -> list[Interval]:
    """Percentile intervals (95 %) of means over tasks.

    Args:
        values: One number per task and column, (tasks, columns).
        weights: From ``task_weights``.

    Returns:
        One interval per column.

    **Source**: Efron (1979), percentile intervals.
    """
    means = weights @ np.asarray(values, dtype=np.float64) / len(values)  # (draws, columns)
    return percentile_interval(means)


def percentile_interval(draws: NDArray[np.float64]) -> list[Interval]:
    """The central 95 % of draws, (draws, columns), per column."""
    ends = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)  # (2, columns)
    return [[float(low), float(high)] for low, high in ends.T]


def compare_tasks(
    first: NDArray[np.bool_], second: NDArray[np.bool_], weights: NDArray[np.float64]
) -> dict[str, Any]:
    """Compares which tasks two results solve.

    Args:
        first: Whether each task is solved in the first, (tasks,).
        second: The same tasks in the second.
        weights: From ``task_weights``.

    Returns:
        both, only_first, only_second, neither (counts); difference in points (second - first)
        with its interval over tasks (95 %); mcnemar_p, exact and two-sided.

    **Source**: McNemar (1947), exact binomial form, not mid-p.
    """
    only_first = int(np.count_nonzero(first & ~second))
    only_second = int(np.count_nonzero(second & ~first))
    discordant = only_first + only_second
    difference = 100 * (second.astype(np.float64) - first)
    return {
        "both": int(np.count_nonzero(first & second)),
        "only_first": only_first,
        "only_second": only_second,
        "neither": int(np.count_nonzero(~first & ~second)),
        "difference": float(difference.mean()),
        "interval": bootstrap_mean(difference[:, None], weights)[0],
        "mcnemar_p": float(stats.binomtest(only_first, discordant).pvalue) if discordant else 1.0,
    }
