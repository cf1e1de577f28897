"""A task and some of its variants, drawn in the terminal or into a PNG file.

Each line is a pair, each column a variant: the original first. An unknown output is a question
mark.
"""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from arc_data.augment import apply, variant_name
from arc_data.compiled import CompiledDataset

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from rich.console import Console
    from rich.text import Text

PALETTE = (
    "#000000",
    "#0074d9",
    "#ff4136",
    "#2ecc40",
    "#ffdc00",
    "#aaaaaa",
    "#f012be",
    "#ff851b",
    "#7fdbff",
    "#870c25",
)
"""The customary colour of each of 0..9."""

DEFAULT_VARIANTS = 2
_GRID_PX, _MIN_CELL_PX = 180, 4  # about the longest side of any grid in a picture; a cell
_GAP_PX = 14
_TEXT_PX = 13
_LINE_COLOR, _TEXT_COLOR, _PAPER = "#555555", "#222222", "#ffffff"


_Pair = tuple[str, NDArray[np.uint8], NDArray[np.uint8] | None]
"""Label, input and output of one pair."""


@dataclass(frozen=True, eq=False)
class _Column:
    """One variant: its name and its pairs."""

    name: str
    pairs: list[_Pair]


def show_task(
    dataset: CompiledDataset,
    task: str,
    *,
    variants: int = DEFAULT_VARIANTS,
    console: "Console | None" = None,
) -> None:
    """Draws a task and its first variants: colour blocks, or digits where there is no colour.

    Args:
        dataset: The data set.
        task: The task's name.
        variants: How many besides the original, 0 or more; fewer if there are fewer.
        console: Where to; None: standard output.

    Raises:
        ValueError: If the data set has no such task or ``variants`` is negative.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console() if console is None else console
    in_color = can_draw(console)
    for column in _columns(dataset, task, variants):
        console.print(Text(column.name, style="bold"))
        for label, input_grid, output_grid in column.pairs:
            console.print(Text(f"  {label}"))
            left = grid_lines(input_grid, in_color)
            right = [Text("?")] if output_grid is None else grid_lines(output_grid, in_color)
            for number in range(max(len(left), len(right))):
                line = Text("    ")
                line.append_text(left[number] if number < len(left) else Text(" " * len(left[0])))
                line.append("   " if number else " > ")
                if number < len(right):
                    line.append_text(right[number])
                console.print(line, no_wrap=True, crop=False, overflow="ignore")


def save_png(
    dataset: CompiledDataset, task: str, path: str | Path, *, variants: int = DEFAULT_VARIANTS
) -> None:
    """Draws a task and its first variants into a PNG file.

    Args:
        dataset: The data set.
        task: The task's name.
        path: The file, which is replaced.
        variants: How many besides the original, 0 or more; fewer if there are fewer.

    Raises:
        ValueError: If the data set has no such task or ``variants`` is negative.
    """
    from PIL import Image, ImageDraw, ImageFont

    columns = _columns(dataset, task, variants)
    side = max(
        max(grid.shape)
        for column in columns
        for _, *grids in column.pairs
        for grid in grids
        if grid is not None
    )
    cell = max(_MIN_CELL_PX, _GRID_PX // side)
    text_height = _TEXT_PX + _GAP_PX // 2
    heights = [
        text_height + _GAP_PX + cell * max(_height(column.pairs[row]) for column in columns)
        for row in range(len(columns[0].pairs))
    ]
    column_width = 2 * side * cell + 4 * _GAP_PX
    size = (_GAP_PX + len(columns) * column_width, _GAP_PX + text_height + sum(heights))
    image = Image.new("RGB", size, _PAPER)
    draw = ImageDraw.Draw(image)
    draw.font = ImageFont.load_default(_TEXT_PX)
    for number, column in enumerate(columns):
        left, top = _GAP_PX + number * column_width, _GAP_PX
        draw.text((left, top), column.name, fill=_TEXT_COLOR)
        top += text_height
        for height, pair in zip(heights, column.pairs, strict=True):
            _draw_pair(draw, left, top, pair, cell)
            top += height
    image.save(path, format="PNG")


def _columns(dataset: CompiledDataset, task: str, variants: int) -> list[_Column]:
    if variants < 0:
        raise ValueError(f"--variants must be 0 or more, found {variants}; give a number of them")
    if task not in dataset.task_names:
        near = difflib.get_close_matches(task, dataset.task_names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "choose one of its tasks"
        raise ValueError(f"task {task!r} must be in the data set, found no such task; {hint}")
    plan, index = dataset.plan, dataset.task_names.index(task)
    first, stop = np.searchsorted(plan.variant_task, [index, index + 1]).tolist()
    pairs = np.flatnonzero(plan.pair_task == index).tolist()
    columns = []
    for variant in range(first, min(stop, first + 1 + variants)):
        dihedral, color_map = int(plan.variant_dihedral[variant]), plan.variant_color_map[variant]
        drawn = []
        for pair in pairs:
            grids = [
                apply(plan.grids[pair, side, :rows, :cols], dihedral, color_map) if rows else None
                for side, (rows, cols) in enumerate(plan.shapes[pair].tolist())
            ]
            assert grids[0] is not None
            drawn.append(("{} {}".format(*plan.role(pair)), grids[0], grids[1]))
        columns.append(_Column(variant_name(task, dihedral, color_map), drawn))
    return columns


def can_draw(console: "Console") -> bool:
    """Whether a console shows colours and half blocks; where not, grids are digits."""
    return console.color_system is not None and console.encoding.startswith("utf")


def grid_lines(grid: NDArray[np.uint8], in_color: bool) -> list["Text"]:
    """Returns a grid as lines of text: two rows of half blocks to a line, or digits.

    Args:
        grid: Colours 0..9, (r, c).
        in_color: See ``can_draw``.
    """
    from rich.text import Text

    if not in_color:
        return [Text("".join(map(str, row))) for row in grid.tolist()]
    lines = []
    for row in range(0, len(grid), 2):
        line = Text()
        lower = grid[row + 1].tolist() if row + 1 < len(grid) else [None] * grid.shape[1]
        for above, below in zip(grid[row].tolist(), lower, strict=True):
            ground = "" if below is None else f" on {PALETTE[below]}"
            line.append("\u2580", style=f"{PALETTE[above]}{ground}")  # the upper half block
        lines.append(line)
    return lines


def _height(pair: _Pair) -> int:
    return max(grid.shape[0] for grid in pair[1:] if grid is not None)


def _draw_pair(draw: "ImageDraw", left: int, top: int, pair: _Pair, cell: int) -> None:
    label, input_grid, output_grid = pair
    draw.text((left, top), label, fill=_TEXT_COLOR)
    middle = top + _TEXT_PX + _GAP_PX // 2 + cell * _height(pair) // 2
    _draw_grid(draw, left, middle, input_grid, cell)
    left += input_grid.shape[1] * cell
    tip = left + 3 * _GAP_PX // 2
    draw.line((left + _GAP_PX // 2, middle, tip, middle), fill=_TEXT_COLOR)
    draw.polygon((tip, middle - 3, tip, middle + 3, tip + 4, middle), fill=_TEXT_COLOR)
    left += 2 * _GAP_PX
    if output_grid is None:
        draw.text((left, middle - _TEXT_PX // 2), "?", fill=_TEXT_COLOR)
    else:
        _draw_grid(draw, left, middle, output_grid, cell)


def _draw_grid(
    draw: "ImageDraw", left: int, middle: int, grid: NDArray[np.uint8], cell: int
) -> None:
    top = middle - len(grid) * cell // 2
    for (row, col), color in np.ndenumerate(grid):
        x, y = left + col * cell, top + row * cell
        draw.rectangle((x, y, x + cell, y + cell), fill=PALETTE[color], outline=_LINE_COLOR)
