"""Planning against simulation, tables and scipy; the worked example of two single runs."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from eval.power import detectable, plan, power, seeds_needed, single_runs


def test_the_paper_s_claim():
    found = single_runs(36.5, 39.75, sd=0.5, sd_runs=4, tasks=400)
    assert found["difference"] == 3.25
    assert round(found["t"], 3) == 4.596
    assert (found["df"], round(found["p"], 3)) == (3, 0.019)
    assert [round(end, 3) for end in found["sd_interval"]] == [0.283, 1.864]
    assert found["net_tasks"] == 13
    assert [(row["tasks"], round(row["p"], 3)) for row in found["discordant"]] == [
        (31, 0.029), (41, 0.060), (51, 0.092), (61, 0.124), (81, 0.182),
    ]  # fmt: skip


def test_claims_of_no_whole_tasks_and_of_few_tasks():
    assert single_runs(36.6, 39.75, sd=0.5, sd_runs=4, tasks=400)["net_tasks"] is None
    few = single_runs(50, 40, sd=1, sd_runs=2, tasks=40)
    assert few["net_tasks"] == -4
    assert [row["tasks"] for row in few["discordant"]] == [22, 32]


def test_power_is_that_of_a_simulation():
    rng = np.random.default_rng(0)
    control, treatment = rng.normal(0, 1, (4000, 5)), rng.normal(1.8, 1, (4000, 5))
    unpaired = np.mean(stats.ttest_ind(treatment, control, axis=1).pvalue <= 0.05)
    assert power(5, 1.8, 1, paired=False) == pytest.approx(unpaired, abs=0.025)
    paired = np.mean(stats.ttest_rel(treatment, control, axis=1).pvalue <= 0.05)
    assert power(5, 1.8, math.sqrt(2), paired=True) == pytest.approx(paired, abs=0.025)


def test_cohen_s_tables():
    # Cohen (1988), tables 2.4.1: d = 0.5 and 0.8, two-sided 5 %, power 0.8: 64 and 26 per group.
    assert seeds_needed(0.5, 1, paired=False, wanted=0.8) == 64
    assert seeds_needed(-0.8, 1, paired=False, wanted=0.8) == 26
    assert seeds_needed(0.5, 1, paired=True, wanted=0.8) == 34


@given(
    st.floats(0.05, 50), st.floats(0.05, 10), st.booleans(), st.sampled_from([0.1, 0.8, 0.9, 0.99])
)
@settings(max_examples=40, deadline=None)
def test_seeds_are_the_fewest(difference, sd, paired, wanted):
    n = seeds_needed(difference, sd, paired=paired, wanted=wanted)
    assert n is not None
    assert power(n, difference, sd, paired=paired) >= wanted
    assert n == 2 or power(n - 1, difference, sd, paired=paired) < wanted


@given(st.integers(2, 50), st.floats(0.01, 20), st.booleans())
@settings(max_examples=25, deadline=None)
def test_what_n_seeds_detect_takes_n_seeds(n, sd, paired):
    difference = detectable(n, sd, paired=paired, wanted=0.8)
    assert power(n, difference, sd, paired=paired) == pytest.approx(0.8, abs=1e-6)


def test_no_number_of_seeds_finds_next_to_nothing():
    assert seeds_needed(1e-4, 5, paired=False, wanted=0.8) is None


def test_a_huge_difference_needs_two_seeds_or_three():
    for paired in (True, False):
        assert power(3, 1e9, 1, paired=paired) == 1
        assert seeds_needed(1e9, 1, paired=paired, wanted=0.99) == 2


def test_plan():
    found = plan(sd=0.5, delta=1.0)
    assert found["rows"] == [
        {"power": 0.8, "unpaired": 6, "paired": 7},
        {"power": 0.9, "unpaired": 7, "paired": 8},
    ]
    assert found["paired_sd"] == pytest.approx(0.5 * math.sqrt(2))
    assert found["task_standard_error"] == pytest.approx(2.449, abs=5e-4)
    (row,) = plan(sd=5, seeds=6, paired_sd=3, powers=(0.8,))["rows"]
    assert row["paired"] == pytest.approx(detectable(6, 3, paired=True, wanted=0.8))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sd": 1}, "exactly one of --delta"),
        ({"sd": 1, "delta": 1, "seeds": 3}, "exactly one of --delta"),
        ({"sd": 0, "delta": 1}, "--sd must be from 1e-06 to 1e.06, found 0"),
        ({"sd": math.nan, "delta": 1}, "--sd must be from 1e-06 to 1e.06, found nan"),
        ({"sd": math.inf, "delta": 1}, "--sd must be from 1e-06 to 1e.06, found inf"),
        ({"sd": 1, "paired_sd": -1, "delta": 1}, "--paired-sd must be from"),
        ({"sd": 1, "delta": 0}, "--delta must be from 1e-06"),
        ({"sd": 1, "delta": math.nan}, "--delta must be from 1e-06"),
        ({"sd": 1, "seeds": 10**7}, "--seeds must be 2 .* to 1000000, found 10000000"),
        ({"sd": 1, "seeds": 1}, "--seeds must be 2 .*, found 1"),
        ({"sd": 1, "delta": 1, "powers": (80,)}, "--power must be between 0.05 and 1, found 80"),
        ({"sd": 1, "delta": 1, "powers": (math.nan,)}, "--power must be between"),
        ({"sd": 1, "delta": 1, "tasks": 0}, "--tasks must be at least 1"),
        ({"sd": 1, "delta": 1, "score": 101}, "--score must be a percentage"),
    ],
)
def test_plans_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        plan(**arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"control": 101}, "--control must be a percentage"),
        ({"treatment": math.nan}, "--treatment must be a percentage"),
        ({"sd": 0}, "--sd must be from"),
        ({"sd_runs": 1}, "--sd-runs must be at least 2"),
        ({"tasks": 0}, "--tasks at least 1"),
    ],
)
def test_claims_out_of_range(changes, message):
    claim = {"control": 36.5, "treatment": 39.75, "sd": 0.5, "sd_runs": 4, "tasks": 400}
    claim.update(changes)
    control, treatment = claim.pop("control"), claim.pop("treatment")
    with pytest.raises(ValueError, match=message):
        single_runs(control, treatment, **claim)
