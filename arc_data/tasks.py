"""ARC tasks: strict reading of the JSON form, and the content hash.

Every value is checked before it becomes an array, so that nothing is silently cast, wrapped
or cut: a colour of 256 or 1.5, a ragged row and an unknown key are all errors.
"""

import hashlib
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arc_data.tokens import NUM_COLORS

MAX_SIDE = 30
"""Most rows or columns a grid may have."""


@dataclass(frozen=True, eq=False)
class Pair:
    """One input grid with its output grid.

    Attributes:
        input: Colours 0..9, (r, c) uint8, read-only.
        output: The same for the output, or None where it is not known (test pairs only).
    """

    input: NDArray[np.uint8]
    output: NDArray[np.uint8] | None


@dataclass(frozen=True, eq=False)
class Task:
    """One task: its name, train pairs and test pairs, each in the order of the file."""

    name: str
    train: tuple[Pair, ...]
    test: tuple[Pair, ...]

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Train pairs, then test pairs."""
        return self.train + self.test


def read_grid(value: object, where: str) -> NDArray[np.uint8]:
    """Reads one grid.

    Args:
        value: A list of 1..30 equally long lists of 1..30 integers 0..9.
        where: The place to name in errors, such as ``"x.json: train pair 0 input"``.

    Returns:
        The grid, (r, c) uint8, read-only.

    Raises:
        ValueError: If ``value`` is anything else; the message names the cell or row.
    """
    if not isinstance(value, list):
        raise ValueError(f"{where}: a grid must be a list of rows, found {_show(value)}; fix it")
    if not 1 <= len(value) <= MAX_SIDE:
        raise ValueError(
            f"{where}: a grid must have 1..{MAX_SIDE} rows, found {len(value)}; resize the grid"
        )
    for r, row in enumerate(value):
        _check_row(row, f"{where} row {r}")
        if len(row) != len(value[0]):
            raise ValueError(
                f"{where} row {r}: all rows must have the {len(value[0])} cells of row 0,"
                f" found {len(row)}; make the rows equally long"
            )
    grid = np.array(value, dtype=np.uint8)  # (r, c)
    grid.setflags(write=False)
    return grid


def read_task(name: str, obj: object, where: str) -> Task:
    """Reads one task from its parsed JSON.

    Args:
        name: The task's name; a ``"name"`` key in ``obj`` must agree with it.
        obj: ``{"train": [pair, ...], "test": [pair, ...]}``, each pair an object with
            ``"input"`` and ``"output"`` grids; a test pair may lack its output. Other keys of
            the task are ignored, other keys of a pair are errors.
        where: The file or place to name in errors.

    Returns:
        The task, with at least one train pair and one test pair.

    Raises:
        ValueError: If anything departs from that form.
    """
    if name.splitlines() != [name] or name.encode("utf-8", "ignore").decode("utf-8") != name:
        raise ValueError(
            f"{ascii(where)[1:-1]}: a task name must be one non-empty line of Unicode text, found"
            f" {name!a}; rename the task"
        )
    if isinstance(obj, list) and obj and isinstance(obj[0], dict) and "input" in obj[0]:
        raise ValueError(
            f"{where}: a task must be an object with train and test, found a bare list of pairs;"
            " it looks like RE-ARC, whose pairs have no train or test role"
        )
    if not isinstance(obj, dict):
        raise ValueError(
            f"{where}: a task must be an object with train and test, found {_show(obj)};"
            " give a file in the ARC JSON form"
        )
    if obj.get("name", name) != name:
        raise ValueError(
            f"{where}: the name key must equal the task's name {name!r},"
            f" found {_show(obj['name'])}; rename the file or correct the key"
        )
    return Task(
        name=name,
        train=_read_pairs(obj, "train", where),
        test=_read_pairs(obj, "test", where),
    )


def content_sha256(task: Task) -> str:
    """Hashes a task's grids, their roles and their order; its name plays no part.

    Byte form: for the train pairs, then the test pairs: their number as 4 bytes, big-endian;
    for each pair the input, then the output: one byte of rows, one byte of columns, the cells
    row by row, one byte each. An unknown output is 0 rows and 0 columns.

    Args:
        task: The task.

    Returns:
        The sha256 of that byte form, 64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for pairs in (task.train, task.test):
        digest.update(len(pairs).to_bytes(4, "big"))
        for pair in pairs:
            for grid in (pair.input, pair.output):
                digest.update(bytes(2) if grid is None else bytes(grid.shape) + grid.tobytes())
    return digest.hexdigest()


def _check_row(row: object, where: str) -> None:
    if not isinstance(row, list):
        raise ValueError(f"{where}: a row must be a list of colours, found {_show(row)}; fix it")
    if not 1 <= len(row) <= MAX_SIDE:
        raise ValueError(
            f"{where}: a row must have 1..{MAX_SIDE} cells, found {len(row)}; resize the grid"
        )
    for c, cell in enumerate(row):
        # bool is a subclass of int: `true` is no colour.
        if type(cell) is not int or not 0 <= cell < NUM_COLORS:
            raise ValueError(
                f"{where} column {c}: a colour must be an integer 0..{NUM_COLORS - 1},"
                f" found {_show(cell)}; correct the cell"
            )


def _read_pairs(obj: Mapping[str, object], role: str, where: str) -> tuple[Pair, ...]:
    if role not in obj:
        raise ValueError(f"{where}: key {role!r} must be there, found {_show(sorted(obj))}; add it")
    pairs = obj[role]
    if not isinstance(pairs, list) or not pairs:
        raise ValueError(
            f"{where}: {role!r} must be a non-empty list of pairs, found {_show(pairs)};"
            f" a task needs at least one {role} pair"
        )
    return tuple(
        _read_pair(pair, role, f"{where}: {role} pair {index}") for index, pair in enumerate(pairs)
    )


def _read_pair(pair: object, role: str, where: str) -> Pair:
    if not isinstance(pair, dict):
        raise ValueError(
            f"{where}: a pair must be an object with input and output, found {_show(pair)}; fix it"
        )
    unknown = sorted(set(pair) - {"input", "output"})
    if unknown:
        raise ValueError(
            f"{where}: a pair may hold only input and output, found {_show(unknown)}; remove it"
        )
    if "input" not in pair:
        raise ValueError(f"{where}: key 'input' must be there, found {_show(pair)}; add it")
    if "output" not in pair and role == "train":
        raise ValueError(f"{where}: a train pair must have an 'output', found none; add it")
    output = read_grid(pair["output"], f"{where} output") if "output" in pair else None
    return Pair(input=read_grid(pair["input"], f"{where} input"), output=output)


def _show(value: object) -> str:
    """Returns a short form of ``value`` on one line."""
    return " ".join(reprlib.repr(value).split())
