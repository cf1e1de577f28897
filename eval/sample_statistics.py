"""Sigma for plain numbers: one sample, two samples, and differences paired by seed.

Every result is a dict for JSON. A number that does not exist (the spread of one value, an effect
over a spread of zero) is None, and ``undefined`` says why; it is never 0.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.95
RESOLUTION = 1e-9
"""Percentage points; unequal scores differ by far more, rounding by far less."""
MAX_EXACT_FLIPS = 16
"""Up to this many differences all 2^n sign flips are tried."""
NUM_RANDOM_FLIPS = 100_000
_FLIP_CHUNK = 10_000
_ONE_VALUE = "needs at least 2 values"
_NO_SPREAD = "the spread is 0"


def describe(values: Sequence[float]) -> dict[str, Any]:
    """Describes one sample.

    Args:
        values: At least one finite number, in percent for scores.

    Returns:
        n, values, mean, s (n - 1 in the divisor), standard_error (s / sqrt n), mean_interval (t)
        and s_interval (chi-square), both 95 %, and undefined {name: reason}. With n = 1 all but
        the mean are None; with a spread of 0 the intervals are, as equal values do not show that
        others would be equal too.

    Raises:
        ValueError: If there is no value, or one is not finite.
    """
    sample = _sample(values)
    n = len(sample)
    mean = math.fsum(sample) / n
    result: dict[str, Any] = {"n": n, "values": sample, "mean": mean}
    names = ("s", "standard_error", "mean_interval", "s_interval")
    if n == 1:
        return {**result, **dict.fromkeys(names), "undefined": dict.fromkeys(names, _ONE_VALUE)}
    s = _spread(sample)
    standard_error = s / math.sqrt(n)
    if s == 0:
        result.update({"s": s, "standard_error": standard_error, **dict.fromkeys(names[2:])})
        return {**result, "undefined": dict.fromkeys(names[2:], _NO_SPREAD)}
    low, high = stats.chi2.ppf([(1 + LEVEL) / 2, (1 - LEVEL) / 2], n - 1)
    s_interval = [s * math.sqrt((n - 1) / low), s * math.sqrt((n - 1) / high)]
    interval = t_interval(mean, standard_error, n - 1)
    return {
        **result,
        **dict(zip(names, (s, standard_error, interval, s_interval), strict=True)),
        "undefined": {},
    }


def welch(control: Sequence[float], treatment: Sequence[float]) -> dict[str, Any]:
    """Compares two independent samples without assuming equal spreads.

    Args:
        control: At least one finite number.
        treatment: Likewise.

    Returns:
        difference of the means (treatment - control), standard_error of that difference, df,
        interval (95 %), p (two-sided), the effects difference_over_standard_error and
        difference_over_control_s, and undefined {name: reason}.

    Raises:
        ValueError: If a sample is empty or not finite.

    **Source**: Welch (1947), degrees of freedom by Satterthwaite (1946).
    """
    samples = [_sample(control), _sample(treatment)]
    means = [math.fsum(sample) / len(sample) for sample in samples]
    result: dict[str, Any] = {"difference": means[1] - means[0]}
    names = ("standard_error", "df", "interval", "p")
    effects = ("difference_over_standard_error", "difference_over_control_s")
    result.update(dict.fromkeys((*names, *effects)))
    undefined: dict[str, str] = {}
    result["undefined"] = undefined
    if len(samples[0]) > 1:
        _divide(result, "difference_over_control_s", _spread(samples[0]))
    else:
        undefined["difference_over_control_s"] = _ONE_VALUE + " in the control arm"
    if min(map(len, samples)) == 1:
        undefined.update(dict.fromkeys((*names, effects[0]), _ONE_VALUE + " in both arms"))
        return result
    parts = [_spread(sample) ** 2 / len(sample) for sample in samples]
    standard_error = math.sqrt(sum(parts))
    result["standard_error"] = standard_error
    _divide(result, "difference_over_standard_error", standard_error)
    if standard_error == 0:
        undefined.update(dict.fromkeys(("df", "interval", "p"), _NO_SPREAD))
        return result
    # The shares are taken first: squares of tiny spreads would leave nothing to divide.
    shares = [part / sum(parts) for part in parts]
    df = 1 / sum(
        share**2 / (len(sample) - 1) for share, sample in zip(shares, samples, strict=True)
    )
    t = result["difference_over_standard_error"]
    result["df"] = df
    result["interval"] = t_interval(result["difference"], standard_error, df)
    result["p"] = float(2 * stats.t.sf(abs(t), df))
    return result


def paired(
    differences: Sequence[float], control_s: float | None = None, flip_seed: int = 0
) -> dict[str, Any]:
    """Describes differences paired by seed.

    Args:
        differences: Treatment - control, at least one finite number.
        control_s: Spread of the control arm, None if it is undefined.
        flip_seed: Seed of the random sign flips, used above 16 differences only.

    Returns:
        n, differences, difference (their mean), s, standard_error, interval (t, 95 %), t_p
        (two-sided), sign_flip (see ``sign_flip``), the effects difference_over_standard_error,
        difference_over_control_s and difference_over_paired_s, and undefined {name: reason}.

    Raises:
        ValueError: If there is no difference, or one is not finite.
    """
    about = describe(differences)
    result: dict[str, Any] = {
        "n": about["n"],
        "differences": about["values"],
        "difference": about["mean"],
        "s": about["s"],
        "standard_error": about["standard_error"],
        "interval": about["mean_interval"],
        "t_p": None,
        "sign_flip": sign_flip(differences, flip_seed),
        "difference_over_standard_error": None,
        "difference_over_control_s": None,
        "difference_over_paired_s": None,
        "undefined": {},
    }
    undefined = result["undefined"]
    if control_s is None:
        undefined["difference_over_control_s"] = _ONE_VALUE + " in the control arm"
    else:
        _divide(result, "difference_over_control_s", control_s)
    if about["n"] == 1:
        names = ("s", "standard_error", "interval", "t_p")
        effects = ("difference_over_standard_error", "difference_over_paired_s")
        undefined.update(dict.fromkeys((*names, *effects), _ONE_VALUE))
        return result
    _divide(result, "difference_over_standard_error", about["standard_error"])
    _divide(result, "difference_over_paired_s", about["s"])
    t = result["difference_over_standard_error"]
    if t is None:
        undefined.update(dict.fromkeys(("interval", "t_p"), _NO_SPREAD))
    else:
        result["t_p"] = float(2 * stats.t.sf(abs(t), about["n"] - 1))
    return result


def sign_flip(differences: Sequence[float], seed: int = 0) -> dict[str, Any]:
    """Tests whether the mean difference is zero by flipping signs.

    Under the null hypothesis each difference is as likely to have the other sign; p is the share
    of sign patterns whose mean is at least as far from 0 as the observed one.

    Args:
        differences: At least one finite number.
        seed: Seed of the random patterns above 16 differences.

    Returns:
        p (two-sided), smallest_p (what p cannot go below with so many differences), num_flips,
        exact (whether all patterns were tried) and seed (None where exact).

    Raises:
        ValueError: If there is no difference, or one is not finite.

    **Source**: Fisher (1935), The Design of Experiments, section 21; random patterns with the
    observed one counted in: Phipson and Smyth (2010).
    """
    sample = np.array(_sample(differences))
    n = len(sample)
    exact = n <= MAX_EXACT_FLIPS
    num_flips = 2**n if exact else NUM_RANDOM_FLIPS
    rng = np.random.default_rng(seed)
    # Equal sums must compare as equal whatever the order of their additions.
    threshold = abs(math.fsum(sample)) - n * RESOLUTION
    hits = 0
    for start in range(0, num_flips, _FLIP_CHUNK):
        patterns = np.arange(start, min(start + _FLIP_CHUNK, num_flips))
        if exact:
            bits = patterns[:, None] >> np.arange(n) & 1  # (patterns, n)
        else:
            bits = rng.integers(0, 2, (len(patterns), n))
        hits += int(np.count_nonzero(np.abs((1 - 2 * bits) @ sample) >= threshold))
    return {
        "p": hits / num_flips if exact else (hits + 1) / (num_flips + 1),
        "smallest_p": 2.0 ** (1 - n) if exact else 1 / (num_flips + 1),
        "num_flips": num_flips,
        "exact": exact,
        "seed": None if exact else seed,
    }


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusts p values of several tests, so that any false positive among them stays at 5 %.

    Args:
        p_values: Each from 0 to 1, in any order.

    Returns:
        The adjusted values, in the same order, at most 1.

    **Source**: Holm (1979).
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def _sample(values: Sequence[float] | NDArray[np.float64]) -> list[float]:
    sample = [float(value) for value in values]
    if not sample or not all(map(math.isfinite, sample)):
        raise ValueError(f"values must be at least one finite number, found {sample}; correct them")
    return sample


def _spread(sample: list[float]) -> float:
    """Standard deviation with n - 1, exactly 0 for values that are equal up to rounding."""
    if max(sample) - min(sample) <= RESOLUTION:
        return 0.0
    mean = math.fsum(sample) / len(sample)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in sample) / (len(sample) - 1))


def t_interval(mean: float, standard_error: float, df: float) -> list[float]:
    """The 95 % interval of a mean with so many degrees of freedom behind its standard error."""
    half = float(stats.t.ppf((1 + LEVEL) / 2, df)) * standard_error
    return [mean - half, mean + half]


def _divide(result: dict[str, Any], effect: str, spread: float) -> None:
    if spread == 0:
        result["undefined"][effect] = _NO_SPREAD
    else:
        result[effect] = result["difference"] / spread
