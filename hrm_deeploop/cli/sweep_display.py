"""How a sweep goes: a live table on a terminal, plain lines everywhere else."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from hrm_deeploop.sweeps import RunReport

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

PLAIN_LINE_EVERY_S = 60.0
STYLES = {"finished": "green", "running": "cyan", "failed": "red", "interrupted": "yellow"}
METRICS = (("lm_loss", "loss", "{:.4f}"), ("exact_accuracy", "exact", "{:.1%}"))


class SweepDisplay:
    """Shows reports on stdout while entered."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._states: dict[str, str] = {}
        self._pace = Pace()
        self._last_line_time = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(auto_refresh=False)
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def show(self, reports: Sequence[RunReport]) -> None:
        """Shows how the runs stand."""
        left = format_left(self._pace.left_s(reports, time.monotonic()))
        if self._live is not None:
            self._live.update(make_table(reports, left), refresh=True)
            return
        for report in reports:
            if self._states.get(report.name, "waiting") != report.state:
                shown = "  ".join(describe(report))
                print(f"{report.name} {report.state}  {shown}".rstrip(), flush=True)
            self._states[report.name] = report.state
        now = time.monotonic()
        if now - self._last_line_time >= PLAIN_LINE_EVERY_S:
            self._last_line_time = now
            counts = [sum(r.state == state for r in reports) for state in ("finished", "running")]
            running = [f"{r.name} {describe(r)[0]}" for r in reports if r.state == "running"]
            print(
                f"{counts[0]}/{len(reports)} finished, {counts[1]} running"
                f" ({', '.join(running)})  left {left}",
                flush=True,
            )


class Pace:
    """Estimates the time left from the steps done while watching; evaluations count as they come.

    A run that goes back to its checkpoint lowers the sum: then the estimate begins anew.
    """

    def __init__(self) -> None:
        self._start: tuple[float, int] | None = None

    def left_s(self, reports: Sequence[RunReport], now: float) -> float | None:
        """Seconds until all runs are finished at the pace so far; None: not known yet.

        Args:
            reports: How the runs stand; failed ones are not waited for.
            now: Seconds on a clock that only this object's calls share.
        """
        done = sum(report.step for report in reports)
        if self._start is None or done < self._start[1]:
            self._start = now, done
        start, done_before = self._start
        remaining = sum(r.num_steps - r.step for r in reports if r.state != "failed")
        if remaining == 0:
            return 0.0
        return remaining * (now - start) / (done - done_before) if done > done_before else None


def format_left(seconds: float | None) -> str:
    """Time left for people."""
    if seconds is None:
        return "?"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def describe(report: RunReport) -> list[str]:
    """Steps, metrics and error of a run, as far as there are any."""
    words = [f"step {report.step}/{report.num_steps}"]
    words += [
        f"{name} {form.format(report.metrics[key])}"
        for key, name, form in METRICS
        if key in report.metrics
    ]
    return words if report.error is None else [*words, report.error]


def make_table(reports: Sequence[RunReport], left: str) -> "Table":
    """The table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    finished = sum(report.state == "finished" for report in reports)
    table = Table("run", "state", "", title=f"{finished}/{len(reports)} runs finished, left {left}")
    for report in reports:
        state = Text(report.state, style=STYLES.get(report.state, ""))
        table.add_row(Text(report.name), state, Text("  ".join(describe(report))))
    return table
