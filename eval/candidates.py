"""A task's candidates in the terminal: what was asked, what was answered, where it differs."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from arc_data.compiled import CompiledDataset
from arc_data.show import can_draw, grid_lines
from eval.voting import Candidate, Ranking

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

NUM_SHOWN = 3
"""Candidates drawn of each test pair; the right one is added where it ranks behind them."""
_GAP = "   "


def show_candidates(
    ranking: Ranking, dataset: CompiledDataset, task: str, *, console: "Console | None" = None
) -> None:
    """Draws input, right output and the first candidates of every test pair of a task.

    Beside a wrong candidate of the right shape, its cells that differ are marked ``x``.

    Args:
        ranking: The candidates.
        dataset: The data set.
        task: The task's name.
        console: Where to; None: standard output.

    Raises:
        ValueError: If the task has no held-out test pair.
    """
    from rich.console import Console
    from rich.text import Text

    check_shown(dataset, task)
    inputs, truth = dataset.test_inputs(), dataset.truth()
    console = Console() if console is None else console
    in_color = can_draw(console)
    for index, (given, right) in enumerate(zip(inputs[task], truth[task], strict=True)):
        candidates = ranking.get((task, index), [])
        console.print(Text(f"{task}/{index}", style="bold"))
        console.print(Text("  input, right output" if right is not None else "  input"))
        _print_row(console, [grid_lines(g, in_color) for g in (given, right) if g is not None])
        if not candidates:
            console.print(Text("  no candidate"))
        for place, candidate in enumerate(candidates, start=1):
            is_right = right is not None and np.array_equal(candidate.grid, right)
            if place > NUM_SHOWN and not is_right:
                continue
            console.print(Text(f"  {_caption(place, candidate, right)}"))
            drawn = [grid_lines(candidate.grid, in_color)]
            if right is not None and not is_right and candidate.grid.shape == right.shape:
                drawn.append(_difference(candidate.grid, right, in_color))
            _print_row(console, drawn)


def check_shown(dataset: CompiledDataset, task: str) -> None:
    """Checks that there is something to draw.

    Raises:
        ValueError: If the task has no held-out test pair.
    """
    if task not in dataset.truth():
        raise ValueError(
            f"--show: task {task!r} must have held-out test pairs, found none; choose another task"
        )


def _caption(place: int, candidate: Candidate, right: NDArray[np.uint8] | None) -> str:
    text = f"candidate {place}: {candidate.count} votes, confidence {candidate.mean_confidence:.3f}"
    if right is None:
        return text
    if candidate.grid.shape != right.shape:
        rows, cols = candidate.grid.shape
        return f"{text}, {rows} x {cols} in place of {right.shape[0]} x {right.shape[1]}"
    num_wrong = int((candidate.grid != right).sum())
    return f"{text}, {f'{num_wrong} of {right.size} cells differ' if num_wrong else 'right'}"


def _difference(grid: NDArray[np.uint8], right: NDArray[np.uint8], in_color: bool) -> list["Text"]:
    """Marks the cells that differ; two rows to a line where the grids are drawn so."""
    from rich.text import Text

    wrong = grid != right
    if not in_color:
        return [Text("".join("x" if cell else "." for cell in row)) for row in wrong.tolist()]
    lines = []
    for row in range(0, len(wrong), 2):
        pair = np.zeros((2, wrong.shape[1]), dtype=bool)
        pair[: len(wrong[row : row + 2])] = wrong[row : row + 2]
        # Both halves, the upper, the lower or neither.
        marks = np.array(list("\u00b7\u2584\u2580\u2588"))[pair[0] * 2 + pair[1]]
        lines.append(Text("".join(marks.tolist()), style="red"))
    return lines


def _print_row(console: "Console", grids: list[list["Text"]]) -> None:
    """Prints grids beside each other."""
    from rich.text import Text

    widths = [max((len(line) for line in lines), default=0) for lines in grids]
    for number in range(max((len(lines) for lines in grids), default=0)):
        line = Text("    ")
        for lines, width in zip(grids, widths, strict=True):
            line.append_text(lines[number] if number < len(lines) else Text(" " * width))
            line.append(_GAP)
        console.print(line, no_wrap=True, crop=False, overflow="ignore")
