"""What people see of a sweep."""

import io

import pytest
from rich.console import Console

from hrm_deeploop.cli import sweep_display
from hrm_deeploop.cli.sweep_display import Pace, SweepDisplay, format_left, make_table
from hrm_deeploop.sweeps import RunReport


def report(name: str, state: str, step: int = 0, error: str | None = None) -> RunReport:
    metrics = {"lm_loss": 0.5, "exact_accuracy": 0.25} if step else {}
    return RunReport(name=name, state=state, step=step, num_steps=100, metrics=metrics, error=error)


def test_time_left_is_what_remains_at_the_pace_so_far() -> None:
    pace = Pace()
    assert pace.left_s([report("a", "running", 40), report("b", "waiting")], 10.0) is None
    runs = [report("a", "running", 60), report("b", "waiting")]
    assert pace.left_s(runs, 20.0) == 140 * 10 / 20
    runs.append(report("c", "failed", 0))
    assert pace.left_s(runs, 20.0) == 140 * 10 / 20  # nothing more comes of it
    assert pace.left_s([report("a", "running", 20)], 30.0) is None  # back at a checkpoint
    assert pace.left_s([report("a", "running", 30)], 35.0) == 70 * 5 / 10
    assert pace.left_s([report("a", "finished", 100)], 40.0) == 0
    assert [format_left(s) for s in (None, 89, 3600, 7260)] == [
        "?",
        "1 min",
        "1 h 00 min",
        "2 h 01 min",
    ]


def test_plain_lines_say_what_changed_and_now_and_then_how_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(sweep_display.time, "monotonic", lambda: now[0])
    with SweepDisplay() as display:
        display.show([report("a", "waiting"), report("b", "finished", 100)])
        display.show([report("a", "running", 10), report("b", "finished", 100)])
        now[0] = 50.0
        display.show([report("a", "running", 20), report("b", "finished", 100)])
        now[0] = 61.0
        display.show([report("a", "running", 71), report("b", "finished", 100)])
        display.show([report("a", "failed", 80, "ValueError: no"), report("b", "finished", 100)])
    assert capsys.readouterr().out.splitlines() == [
        "b finished  step 100/100  loss 0.5000  exact 25.0%",
        "a running  step 10/100  loss 0.5000  exact 25.0%",
        "1/2 finished, 1 running (a step 71/100)  left 0 min",
        "a failed  step 80/100  loss 0.5000  exact 25.0%  ValueError: no",
    ]


def test_the_table_takes_names_and_errors_as_they_are() -> None:
    table = make_table([report("a", "failed", 3, "no [red] file"), report("b", "waiting")], "2 min")
    console = Console(file=io.StringIO(), width=120)
    console.print(table)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0/2 runs finished, left 2 min" in text
    assert "step 3/100  loss 0.5000  exact 25.0%  no [red] file" in text
    assert "waiting" in text
