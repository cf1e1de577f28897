"""Planning: how many seeds find a difference, and what two single runs can say."""

import math
from typing import Any

from scipy import optimize, stats

from eval.sample_statistics import LEVEL
from eval.task_statistics import mcnemar_p, score_standard_error

POWERS = (0.8, 0.9)
MAX_SEEDS = 1_000_000
SMALLEST, LARGEST = 1e-6, 1e6
"""Standard deviations and differences that are taken, percentage points."""
NO_SHIFT, FULL_SHIFT = 1e-6, 1e6
"""Differences in standard errors below and above which power no longer changes."""
DISCORDANT_MORE = (18, 28, 38, 48, 68)
"""Discordant tasks beyond the net difference, in the table of ``single_runs``."""


def power(n: int, difference: float, sd: float, *, paired: bool) -> float:
    """Probability that a two-sided t-test at 5 % finds a true difference.

    Args:
        n: Seeds per arm, at least 2.
        difference: True difference of the means.
        sd: Standard deviation over seeds of each arm, or, paired, of the paired differences; > 0.
        paired: Whether the arms' seeds are paired.

    Returns:
        A number from 0.05 to 1.

    **Source**: noncentral t, Johnson, Kotz and Balakrishnan (1995), chapter 31.
    """
    df = n - 1 if paired else 2 * (n - 1)
    shift = abs(difference) / (sd * math.sqrt((1 if paired else 2) / n))
    if shift < NO_SHIFT:
        return 1 - LEVEL
    # The square of a noncentral t is a noncentral F; scipy's own t loses its far tail (NaN).
    edge = float(stats.t.ppf((1 + LEVEL) / 2, df)) ** 2
    return float(stats.ncf.sf(edge, 1, df, min(shift, FULL_SHIFT) ** 2))


def seeds_needed(difference: float, sd: float, *, paired: bool, wanted: float) -> int | None:
    """The smallest number of seeds per arm with at least a wanted power.

    Args:
        difference: True difference of the means, not 0.
        sd: As in ``power``.
        paired: As in ``power``.
        wanted: Power, between 0.05 and 1.

    Returns:
        At least 2; None where more than a million would be needed.
    """
    if power(MAX_SEEDS, difference, sd, paired=paired) < wanted:
        return None
    high = 2
    while power(high, difference, sd, paired=paired) < wanted:
        high *= 2
    low = max(high // 2, 1)  # too few, or one seed, which has no test
    while high - low > 1:
        middle = (low + high) // 2
        if power(middle, difference, sd, paired=paired) < wanted:
            low = middle
        else:
            high = middle
    return high


def detectable(n: int, sd: float, *, paired: bool, wanted: float) -> float:
    """The true difference that n seeds per arm find with a wanted power.

    Args:
        n: Seeds per arm, at least 2.
        sd: As in ``power``.
        paired: As in ``power``.
        wanted: Power, between 0.05 and 1.

    Returns:
        A difference in the unit of ``sd``.
    """
    high = sd
    while power(n, high, sd, paired=paired) < wanted:
        high *= 2
    root = optimize.brentq(lambda d: power(n, d, sd, paired=paired) - wanted, 0, high)
    return float(root)


def plan(
    *,
    sd: float,
    paired_sd: float | None = None,
    delta: float | None = None,
    seeds: int | None = None,
    powers: tuple[float, ...] = POWERS,
    tasks: int = 400,
    score: float = 40.0,
) -> dict[str, Any]:
    """Seeds for a difference, or the difference for a number of seeds.

    Args:
        sd: Standard deviation over seeds of one arm, percentage points, assumed for both; > 0.
        paired_sd: Standard deviation of the paired differences; None: sd * sqrt 2, that of arms
            whose scores do not vary together.
        delta: True difference, not 0; give it or ``seeds``.
        seeds: Seeds per arm, at least 2.
        powers: Wanted powers, each between 0.05 and 1.
        tasks: Tasks of the split, at least 1.
        score: Expected strict score, percent.

    Returns:
        The arguments, ``rows`` [{power, unpaired, paired}] of seeds per arm or of differences,
        and ``task_standard_error``.

    Raises:
        ValueError: If an argument is out of its range, or not exactly one of delta and seeds is
            given.
    """
    _check_plan(sd, paired_sd, delta, seeds, powers, tasks, score)
    spread = sd * math.sqrt(2) if paired_sd is None else paired_sd
    rows: list[dict[str, Any]] = []
    for wanted in powers:
        row: dict[str, Any] = {"power": wanted}
        for name, is_paired, s in (("unpaired", False, sd), ("paired", True, spread)):
            if delta is not None:
                row[name] = seeds_needed(delta, s, paired=is_paired, wanted=wanted)
            else:
                assert seeds is not None
                row[name] = detectable(seeds, s, paired=is_paired, wanted=wanted)
        rows.append(row)
    return {
        "sd": sd,
        "paired_sd": spread,
        "delta": delta,
        "seeds": seeds,
        "tasks": tasks,
        "score": score,
        "rows": rows,
        "task_standard_error": score_standard_error(score, tasks),
    }


def _check_plan(
    sd: float,
    paired_sd: float | None,
    delta: float | None,
    seeds: int | None,
    powers: tuple[float, ...],
    tasks: int,
    score: float,
) -> None:
    if (delta is None) == (seeds is None):
        raise ValueError("give exactly one of --delta (a difference) and --seeds (per arm)")
    for name, value in (("--sd", sd), ("--paired-sd", paired_sd), ("--delta", delta)):
        if value is not None:
            _check_size(name, abs(value) if name == "--delta" else value)
    if seeds is not None and not 2 <= seeds <= MAX_SEEDS:
        raise ValueError(
            f"--seeds must be 2 (one seed has no spread) to {MAX_SEEDS}, found {seeds}"
        )
    for wanted in powers:
        if not 1 - LEVEL < wanted < 1:
            raise ValueError(f"--power must be between {1 - LEVEL:.2f} and 1, found {wanted:g}")
    if tasks < 1:
        raise ValueError(f"--tasks must be at least 1, found {tasks}")
    if not 0 <= score <= 100:
        raise ValueError(f"--score must be a percentage, 0 to 100, found {score:g}")


def _check_size(name: str, value: float) -> None:
    if not SMALLEST <= value <= LARGEST:  # NaN too
        raise ValueError(f"{name} must be from {SMALLEST:g} to {LARGEST:g}, found {value:g}")


def single_runs(
    control: float, treatment: float, *, sd: float, sd_runs: int, tasks: int
) -> dict[str, Any]:
    """What two single runs say, given a standard deviation from elsewhere.

    Args:
        control: Strict score of the one run, percent.
        treatment: That of the other.
        sd: Standard deviation over seeds, percentage points, assumed for both arms; > 0.
        sd_runs: Runs behind ``sd``, at least 2.
        tasks: Tasks of the split.

    Returns:
        difference; t = difference / (sd * sqrt 2), its df = sd_runs - 1 and p (two-sided);
        sd_interval (chi-square, 95 %); net_tasks and discordant [{tasks, p}], McNemar's p for some
        numbers of discordant tasks, both None where the scores are no whole tasks.

    Raises:
        ValueError: If an argument is out of its range.

    **Source**: t with an independent estimate of the variance, Student (1908).
    """
    for name, score in (("--control", control), ("--treatment", treatment)):
        if not 0 <= score <= 100:
            raise ValueError(f"{name} must be a percentage, 0 to 100, found {score:g}")
    _check_size("--sd", sd)
    if sd_runs < 2 or tasks < 1:
        raise ValueError(
            f"--sd-runs must be at least 2 and --tasks at least 1, found {sd_runs} and {tasks}"
        )
    df = sd_runs - 1
    t = (treatment - control) / (sd * math.sqrt(2))
    low, high = stats.chi2.ppf([(1 + LEVEL) / 2, (1 - LEVEL) / 2], df)
    solved = [score * tasks / 100 for score in (control, treatment)]
    is_whole = all(abs(number - round(number)) < 0.01 for number in solved)
    net = round(solved[1]) - round(solved[0]) if is_whole else None
    return {
        "control": control,
        "treatment": treatment,
        "sd": sd,
        "sd_runs": sd_runs,
        "tasks": tasks,
        "difference": treatment - control,
        "t": t,
        "df": df,
        "p": float(2 * stats.t.sf(abs(t), df)),
        "sd_interval": [sd * math.sqrt(df / low), sd * math.sqrt(df / high)],
        "net_tasks": net,
        "discordant": None if net is None else _discordant(abs(net), tasks),
    }


def _discordant(net: int, tasks: int) -> list[dict[str, Any]]:
    totals = [net + more for more in DISCORDANT_MORE if net + more <= tasks]
    return [{"tasks": n, "p": mcnemar_p((n + net) // 2, (n - net) // 2)} for n in totals]
