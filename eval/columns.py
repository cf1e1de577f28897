"""The columns of a predictions store: names, types, shapes and ranges, checked in one place."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arc_data.augment import NUM_DIHEDRAL
from arc_data.tokens import NUM_COLORS

DTYPES: dict[str, type[np.generic]] = {
    "task_id": np.str_,
    "test_index": np.int32,
    "dihedral": np.uint8,
    "color_map": np.uint8,
    "segment": np.int32,
    "source": np.str_,
    "tokens": np.uint8,
    "q_halt_logit": np.float32,
}
"""Type of each field; text has any fixed width."""
FIELDS = tuple(DTYPES)


def check_fields(names: Iterable[str], shard: Path) -> None:
    """Checks that exactly the fields of a store are there.

    Args:
        names: The names found.
        shard: The shard's path, for the message.

    Raises:
        ValueError: If a field is missing or unknown; the message names both.
    """
    found = set(names)
    for field in FIELDS:
        if field not in found:
            raise ValueError(f"{shard}: must have {list(FIELDS)}, {field!r} is missing; add it")
    for name in sorted(found.difference(FIELDS)):
        raise ValueError(f"{shard}: must have only {list(FIELDS)}, found {name!r}; remove it")


def as_column(value: Any, field: str, shard: Path) -> NDArray[Any]:
    """Brings a producer's values to the type of their field.

    Args:
        value: An array or list; whole numbers of another integer type may be given where they
            fit, and any float type for the logits.
        field: One of ``FIELDS``.
        shard: The shard's path, for the message.

    Returns:
        The values in the field's type.

    Raises:
        ValueError: If the values are of another kind or do not fit.
    """
    array = np.asarray(value)
    expected = np.dtype(DTYPES[field])
    if expected.kind == array.dtype.kind == "U":
        return array
    if expected.kind == array.dtype.kind == "f":
        return array.astype(expected)
    if array.dtype.kind not in "iu" or expected.kind not in "iu":
        raise ValueError(
            f"{shard}: {field} must be {expected.name}, found {array.dtype.name}; convert it first"
        )
    cast = array.astype(expected)
    if not np.array_equal(cast, array):
        raise ValueError(
            f"{shard}: {field} must fit {expected.name}, found {array.min()}..{array.max()};"
            " correct the values"
        )
    return cast


def check_dtypes(arrays: Mapping[str, NDArray[Any]], shard: Path) -> None:
    """Checks the exact type of every column given.

    Args:
        arrays: Some or all fields.
        shard: The shard's path, for the message.

    Raises:
        ValueError: If a column has another type.
    """
    for field, array in arrays.items():
        expected = np.dtype(DTYPES[field])
        if array.dtype.kind != expected.kind or (expected.kind != "U" and array.dtype != expected):
            raise ValueError(
                f"{shard}: {field} must be {expected.name}, found {array.dtype.name}; predict again"
            )


def check_shapes(
    arrays: Mapping[str, NDArray[Any]], canvas: int, shard: Path, num_rows: int | None = None
) -> int:
    """Checks that all columns given have the same rows and their own width.

    Args:
        arrays: Some or all fields, at least one.
        canvas: Side of the token canvas in cells.
        shard: The shard's path, for the message.
        num_rows: Rows that there must be; None takes the first column's.

    Returns:
        The number of rows.

    Raises:
        ValueError: If a column has another shape.
    """
    trailing = {"color_map": (NUM_COLORS,), "tokens": (canvas * canvas,)}
    if num_rows is None:
        first = next(iter(arrays.values()))
        num_rows = len(first) if first.ndim else 0
    for field, array in arrays.items():
        expected = (num_rows, *trailing.get(field, ()))
        if array.shape != expected:
            raise ValueError(
                f"{shard}: {field} must have shape {expected}, found {array.shape}; every field"
                " has one row per prediction"
            )
    return num_rows


def check_values(arrays: Mapping[str, NDArray[Any]], shard: Path) -> None:
    """Checks the ranges that voting relies on.

    Args:
        arrays: Some or all fields, of the right types and shapes.
        shard: The shard's path, for the message.

    Raises:
        ValueError: If a value is out of range; the message names the first such row.
    """
    checks: dict[str, tuple[str, Callable[[NDArray[Any]], NDArray[np.bool_]]]] = {
        "test_index": ("at least 0", lambda a: a < 0),
        "segment": ("at least 0", lambda a: a < 0),
        "dihedral": (f"in 0..{NUM_DIHEDRAL - 1}", lambda a: a >= NUM_DIHEDRAL),
        "color_map": (
            f"a permutation of 0..{NUM_COLORS - 1}",
            lambda a: (np.sort(a, axis=1) != np.arange(NUM_COLORS)).any(axis=1),
        ),
        "q_halt_logit": ("a number", np.isnan),
    }
    for field, (expected, is_wrong) in checks.items():
        if field not in arrays:
            continue
        wrong = np.flatnonzero(is_wrong(arrays[field]))
        if len(wrong):
            row = int(wrong[0])
            raise ValueError(
                f"{shard}: {field} must be {expected}, found {arrays[field][row].tolist()} in row"
                f" {row}; correct the producer"
            )
