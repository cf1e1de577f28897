"""Progress: a tqdm bar on a terminal, plain lines with the time left everywhere else."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence

PLAIN_LINE_EVERY_S = 5.0  # units can be slow: the next line then still comes within 10 s


class Progress:
    """Shows how far a long loop is, on stderr.

    Args:
        total: Units of work in all.
        unit: What a unit is called.
        start: Units that were done before.
        shown: Off: nothing is shown.
    """

    def __init__(self, total: int, unit: str, start: int = 0, *, shown: bool = True) -> None:
        self.total = total
        self.unit = unit
        self.start = start
        self.shown = shown
        self.start_time = time.perf_counter()
        self.last_line_time = self.start_time
        self.bar = None
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total, initial=start, unit=unit, unit_scale=total > 10_000)

    def show(self, done: int, values: Mapping[str, str] | None = None) -> None:
        """Says that ``done`` units are done and shows ``values`` beside."""
        values = values or {}
        if self.bar is not None:
            self.bar.set_postfix(values, refresh=False)
            self.bar.update(done - self.bar.n)
            return
        now = time.perf_counter()
        if not self.shown:
            return
        if now - self.last_line_time < PLAIN_LINE_EVERY_S and done < self.total:
            return
        self.last_line_time = now
        left_s = (now - self.start_time) / max(1, done - self.start) * (self.total - done)
        text = "".join(f"  {key} {value}" for key, value in values.items())
        line = f"{self.unit} {done}/{self.total}{text}  left {left_s / 60:.1f} min"
        print(line, file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Writes a line of its own."""
        if self.bar is not None:
            self.bar.write(text, file=sys.stderr)
        elif self.shown:
            print(text, file=sys.stderr, flush=True)

    def track(self, starts: Sequence[int], size: int) -> Iterator[int]:
        """Yields the starts of pieces of ``size`` units, showing each piece once it is done."""
        for start in starts:
            yield start
            self.show(min(start + size, self.total))

    def close(self) -> None:
        """Ends the bar."""
        if self.bar is not None:
            self.bar.close()
