"""Plain statistics against hand sums, tables, scipy, and brute force."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from eval.sample_statistics import describe, holm, paired, sign_flip, welch

scores = st.integers(0, 400).map(lambda solved: 100 * solved / 419)


def test_published_examples():
    two = describe([57.49, 55.37])
    assert two["mean"] == pytest.approx(56.43, abs=1e-9)
    assert two["s"] == pytest.approx(1.499, abs=5e-4)
    three = describe([40, 41, 45])
    assert three["mean"] == pytest.approx(42.0, abs=1e-9)
    assert three["s"] == pytest.approx(2.646, abs=5e-4)
    assert three["standard_error"] == pytest.approx(math.sqrt(7 / 3), abs=1e-12)
    # t of a table: 4.303 with 2 degrees of freedom.
    assert three["mean_interval"] == pytest.approx(
        [42 - 4.303 * 1.5275, 42 + 4.303 * 1.5275], abs=2e-3
    )


def test_interval_of_s_from_four_runs():
    # Four values of s = 0.5: the chi-square interval is 0.28 to 1.86.
    values = np.array([-1, 1, -1, 1]) * 0.5 * math.sqrt(3) / 2
    about = describe(values.tolist())
    assert about["s"] == pytest.approx(0.5, abs=1e-12)
    assert about["s_interval"] == pytest.approx([0.28, 1.86], abs=5e-3)


def test_one_value_has_no_spread_and_says_so():
    about = describe([40.5])
    assert (about["n"], about["mean"]) == (1, 40.5)
    for name in ("s", "standard_error", "mean_interval", "s_interval"):
        assert about[name] is None
        assert about["undefined"][name] == "needs at least 2 values"


def test_equal_values_have_spread_zero_and_no_interval():
    about = describe([0.1 + 0.2, 0.3, 0.3])
    assert about["s"] == about["standard_error"] == 0
    for name in ("mean_interval", "s_interval"):
        assert about[name] is None
        assert about["undefined"][name] == "the spread is 0"


@pytest.mark.parametrize("values", [[], [float("nan")], [1.0, float("inf")]])
def test_values_must_be_finite(values):
    for function in (describe, paired, sign_flip):
        with pytest.raises(ValueError, match="at least one finite number"):
            function(values)
    with pytest.raises(ValueError, match="at least one finite number"):
        welch([1.0], values)


@given(st.lists(scores, min_size=2, max_size=8), st.lists(scores, min_size=2, max_size=8))
@settings(max_examples=50, deadline=None)
def test_welch_agrees_with_scipy(control, treatment):
    assume(min(len(set(control)), len(set(treatment))) > 1)
    found = welch(control, treatment)
    expected = stats.ttest_ind(treatment, control, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert found["p"] == pytest.approx(expected.pvalue, rel=1e-6)
    assert found["df"] == pytest.approx(expected.df, rel=1e-6)
    assert found["interval"] == pytest.approx([interval.low, interval.high], rel=1e-6, abs=1e-6)
    assert found["difference_over_standard_error"] == pytest.approx(expected.statistic, rel=1e-6)
    assert found["difference_over_control_s"] == pytest.approx(
        (np.mean(treatment) - np.mean(control)) / np.std(control, ddof=1), rel=1e-6, abs=1e-9
    )


def test_welch_undefined():
    found = welch([40.0], [41.0, 43.0])
    assert found["difference"] == 2.0
    for name in ("standard_error", "df", "interval", "p", "difference_over_standard_error"):
        assert found[name] is None
        assert "at least 2 values" in found["undefined"][name]
    assert found["undefined"]["difference_over_control_s"].endswith("in the control arm")
    assert welch([41.0, 43.0], [40.0])["difference_over_control_s"] == pytest.approx(
        -2 / math.sqrt(2)
    )
    flat = welch([40.0, 40.0], [41.0, 41.0])
    assert flat["standard_error"] == 0
    assert [flat[name] for name in ("p", "interval", "df")] == [None] * 3
    assert flat["undefined"]["difference_over_standard_error"] == "the spread is 0"
    assert flat["undefined"]["difference_over_control_s"] == "the spread is 0"


@given(st.lists(scores, min_size=2, max_size=8))
@settings(max_examples=50, deadline=None)
def test_paired_agrees_with_scipy(differences):
    assume(len(set(differences)) > 1)
    found = paired(differences, control_s=2.0)
    expected = stats.ttest_1samp(differences, 0)
    interval = expected.confidence_interval(0.95)
    assert found["t_p"] == pytest.approx(expected.pvalue, rel=1e-6)
    assert found["interval"] == pytest.approx([interval.low, interval.high], rel=1e-6, abs=1e-6)
    assert found["difference_over_standard_error"] == pytest.approx(expected.statistic, rel=1e-6)
    assert found["difference_over_control_s"] == pytest.approx(np.mean(differences) / 2)
    assert found["difference_over_paired_s"] == pytest.approx(
        np.mean(differences) / np.std(differences, ddof=1), rel=1e-6
    )


def test_paired_undefined():
    single = paired([1.5])
    assert (single["difference"], single["sign_flip"]["p"]) == (1.5, 1.0)
    assert set(single["undefined"]) == {
        *("s", "standard_error", "interval", "t_p", "difference_over_standard_error"),
        *("difference_over_control_s", "difference_over_paired_s"),
    }
    # Equal differences up to rounding, as differences of percentages are.
    equal = paired([100 * 7 / 37 - 100 * 4 / 37, 100 * 9 / 37 - 100 * 6 / 37], control_s=0.0)
    assert equal["s"] == 0
    assert set(equal["undefined"].values()) == {"the spread is 0"}
    assert set(equal["undefined"]) == {
        *("interval", "t_p", "difference_over_standard_error"),
        *("difference_over_control_s", "difference_over_paired_s"),
    }
    assert equal["t_p"] is None
    assert equal["interval"] is None
    assert equal["difference_over_paired_s"] is None
    assert equal["difference_over_control_s"] is None


@pytest.mark.parametrize(("n", "smallest"), [(1, 1.0), (4, 0.125), (6, 0.03125), (16, 2**-15)])
def test_sign_flip_cannot_go_below_its_patterns(n, smallest):
    found = sign_flip(np.linspace(1, 2, n).tolist())
    assert found["p"] == found["smallest_p"] == smallest
    assert (found["exact"], found["num_flips"], found["seed"]) == (True, 2**n, None)


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_sign_flip_agrees_with_trying_all_patterns(solved):
    # In whole solved tasks the comparison is exact; percentages must not change it.
    patterns = list(itertools.product((1, -1), repeat=len(solved)))
    hits = sum(
        abs(sum(s * d for s, d in zip(signs, solved, strict=True))) >= abs(sum(solved))
        for signs in patterns
    )
    assert sign_flip([100 * d / 37 for d in solved])["p"] == hits / len(patterns)


def test_many_differences_are_flipped_at_random_with_a_seed():
    differences = (np.random.default_rng(0).normal(size=20) + 0.4).tolist()
    found = sign_flip(differences, seed=3)
    assert (found["exact"], found["num_flips"], found["seed"]) == (False, 100_000, 3)
    assert found == sign_flip(differences, seed=3)
    assert found["p"] != sign_flip(differences, seed=4)["p"]
    # The t-test is no reference to the last digit, but must be near.
    assert found["p"] == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, rel=0.25)
    assert sign_flip([1.0] * 20)["p"] <= 5e-5


def test_holm_by_hand():
    # Sorted: 0.01 * 4, 0.02 * 3, 0.03 * 2 (not below the one before), 0.9.
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([0.4, 0.6]) == pytest.approx([0.8, 0.8])
    assert holm([0.7, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_holm_agrees_with_its_definition(p_values):
    ordered = sorted(p_values)
    m = len(ordered)
    expected = {
        p: max(min(1.0, (m - j) * ordered[j]) for j in range(ordered.index(p) + 1)) for p in ordered
    }
    # Equal values: the first place gives the largest factor, and later ones cannot exceed it.
    assert holm(p_values) == pytest.approx([expected[p] for p in p_values])


def coverage(num_draws, n, seed):
    rng = np.random.default_rng(seed)
    samples = rng.normal(40, 1.5, (num_draws, n))
    intervals = [describe(sample)["mean_interval"] for sample in samples]
    return np.mean([low <= 40 <= high for low, high in intervals])


def false_positives(num_draws, n, seed, draw):
    rng = np.random.default_rng(seed)
    return np.mean([sign_flip(draw(rng, n))["p"] <= 0.05 for _ in range(num_draws)])


def whole_tasks(rng, n):
    """Differences of solved tasks: few values, many ties, some zeros."""
    return (rng.binomial(46, 0.3, n) - rng.binomial(46, 0.3, n)) / 0.46


def test_the_t_interval_covers():
    assert 0.93 <= coverage(2000, 6, seed=0) <= 0.97


def test_the_sign_flip_test_is_wrong_at_most_as_often_as_it_says():
    # 2000 draws of a rate of 0.05 stay below 0.05 + 3 standard errors.
    limit = 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
    assert 0 < false_positives(2000, 6, 0, lambda rng, n: rng.normal(0, 1.5, n)) <= limit
    assert 0 < false_positives(2000, 8, 1, whole_tasks) <= limit
    assert false_positives(200, 4, 2, whole_tasks) == 0  # cannot go below 0.125


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 6, 12])
def test_coverage_and_false_positives_of_many_draws(n):
    assert 0.94 <= coverage(20_000, n, seed=n) <= 0.96
    limit = 0.05 + 3 * math.sqrt(0.05 * 0.95 / 5000)
    assert false_positives(5000, n, n, whole_tasks) <= limit
