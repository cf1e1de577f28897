"""The pilot's climb in learning rate, and what it concludes."""

from typing import Any

import pytest

from eval.phase import RunOutcome
from hrm_deeploop.psweep import MAX_ROUNDS, Round, climb, conclude, round_of
from hrm_deeploop.sweep_terms import TERMS


def climbed(fails_from: int, *, budget_s: float = 1e9, round_s: float = 60) -> tuple[Any, str]:
    """vanilla fails at C_L 2 from this round on, at C_L 16 one round earlier."""
    now = 0.0

    def try_rate(number: int, lr: float) -> Round:
        nonlocal now
        now += round_s
        successes = {2: int(number < fails_from), 16: int(number < fails_from - 1)}
        return Round(lr=lr, successes=successes, runs={2: 1, 16: 1})

    return climb(1e-3, try_rate, budget_s=budget_s, clock=lambda: now)


def test_rates_double_until_vanilla_no_longer_trains() -> None:
    rounds, end = climbed(3)
    assert [each.lr for each in rounds] == [1e-3, 2e-3, 4e-3, 8e-3]
    found = conclude(rounds, end, TERMS["arc"])
    assert (found["lr"], found["can_fail"], found["ended_by"]) == (4e-3, [16], "failed")
    assert "trains at C_L 2: 0.004; there it fails at C_L 16" in found["words"]


def test_no_round_begins_that_would_end_after_the_budget() -> None:
    rounds, end = climbed(99, budget_s=200)
    assert (len(rounds), end) == (3, "time")
    found = conclude(rounds, end, TERMS["arc"])
    assert found["can_fail"] == []
    assert "0.004 (at least; ended by time)" in found["words"]
    assert "expect a flat p-sweep" in found["words"]
    assert climbed(99)[1] == "rounds"
    assert len(climbed(99)[0]) == MAX_ROUNDS


def test_vanilla_that_never_trains() -> None:
    found = conclude(*climbed(0), TERMS["arc"])
    assert (found["lr"], found["can_fail"]) == (None, [])
    assert "does not train at learning rate 0.001 and C_L 2" in found["words"]


def outcome(L_cycles: int, state: str, loss: float, error: str | None = None) -> RunOutcome:
    return RunOutcome(
        name="run",
        point="run",
        arm="vanilla",
        preset="vanilla",
        exponents={"H": None, "L": None},
        loops=L_cycles,
        loop_name="C_L",
        lr=1e-3,
        settings="",
        seed=0,
        state=state,
        error=error,
        floor=2.0,
        losses={10: loss},
    )


def test_a_round_counts_runs_that_are_not_finite_and_refuses_unfinished_ones() -> None:
    runs = [
        outcome(2, "finished", 1.0),
        outcome(16, "finished", 1.0),
        outcome(16, "failed", 1.0, "FloatingPointError: lm_loss is nan at step 12"),
    ]
    found = round_of(runs, 1e-3)
    assert (found.successes, found.runs) == ({2: 1, 16: 1}, {2: 1, 16: 2})
    assert found.trains(2)
    assert not found.trains(16)
    with pytest.raises(RuntimeError, match="run is failed: OSError: disk full"):
        round_of([outcome(2, "failed", 1.0, "OSError: disk full")], 1e-3)
