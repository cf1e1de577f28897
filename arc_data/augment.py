"""Augmentations of a grid: one of eight dihedral transforms and a colour map, and their names.

A variant of a task is (dihedral id, colour map): colours are mapped first, then the grid is
turned. Digit ``c`` of a colour map is the *new* colour of old colour ``c``.

**Source**: HRM ``dataset/common.py`` and ``build_arc_dataset.py`` @ 42410da; the names with
``|||`` are TRM's @ e7b6871.
"""

import re
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from arc_data.tokens import NUM_COLORS

NUM_DIHEDRAL = 8
INVERSE_DIHEDRAL = (0, 3, 2, 1, 4, 5, 6, 7)

_NAME_FORMS = (
    re.compile(r"(?P<task>.*)_t(?P<dihedral>[0-7])_(?P<digits>[0-9]{10})", re.DOTALL),
    re.compile(r"(?P<task>.*)\|\|\|t(?P<dihedral>[0-7])\|\|\|(?P<digits>[0-9]{10})", re.DOTALL),
)


def identity_color_map() -> NDArray[np.uint8]:
    """Returns the colour map that changes nothing, (10,) uint8."""
    return np.arange(NUM_COLORS, dtype=np.uint8)


def invert_color_map(color_map: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns the colour map that undoes ``color_map``.

    Args:
        color_map: A permutation of 0..9, (10,).

    Returns:
        The inverse permutation, (10,) uint8.

    Raises:
        ValueError: If ``color_map`` is not a permutation of 0..9.
    """
    if sorted(np.asarray(color_map).tolist()) != list(range(NUM_COLORS)):
        raise ValueError(
            f"color_map must be a permutation of 0..{NUM_COLORS - 1},"
            f" found {np.asarray(color_map).tolist()}; entry c is the new colour of old colour c"
        )
    return np.argsort(color_map).astype(np.uint8)


def apply_dihedral(grids: NDArray[np.uint8], dihedral: int) -> NDArray[np.uint8]:
    """Turns or mirrors the last two axes.

    Args:
        grids: (..., r, c), any dtype.
        dihedral: 0 identity, 1-3 rotations by that many quarter turns (numpy's direction),
            4 left-right flip, 5 up-down flip, 6 transpose, 7 left-right flip after one rotation.

    Returns:
        A view of ``grids``, (..., r, c) or (..., c, r).

    Raises:
        ValueError: If ``dihedral`` is not in 0..7.

    **Source**: HRM ``dihedral_transform`` @ 42410da.
    """
    if dihedral in (0, 1, 2, 3):
        return np.rot90(grids, k=int(dihedral), axes=(-2, -1))
    if dihedral == 4:
        return np.flip(grids, axis=-1)
    if dihedral == 5:
        return np.flip(grids, axis=-2)
    if dihedral == 6:
        return np.swapaxes(grids, -2, -1)
    if dihedral == 7:
        return np.flip(np.rot90(grids, k=1, axes=(-2, -1)), axis=-1)
    raise ValueError(f"dihedral must be in 0..{NUM_DIHEDRAL - 1}, found {dihedral!r}; see augment")


def apply(
    grid: NDArray[np.uint8], dihedral: int, color_map: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Augments grids of one shape: colours first, then the dihedral transform.

    Args:
        grid: Colours 0..9, (..., r, c).
        dihedral: In 0..7, see ``apply_dihedral``.
        color_map: (10,) uint8; entry c is the new colour of old colour c.

    Returns:
        The augmented grids, (..., r, c) or (..., c, r), uint8.

    Raises:
        ValueError: If ``dihedral`` is not in 0..7.
    """
    return apply_dihedral(color_map[grid], dihedral)


def invert(
    grid: NDArray[np.uint8], dihedral: int, color_map: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Undoes ``apply`` with the same arguments.

    Args:
        grid: Augmented colours 0..9, (..., r, c).
        dihedral: In 0..7, the id that was applied.
        color_map: (10,) uint8, the map that was applied.

    Returns:
        The grids in the original frame, (..., r, c) or (..., c, r), uint8.

    Raises:
        ValueError: If ``dihedral`` is not in 0..7 or ``color_map`` is not a permutation.
    """
    if not 0 <= dihedral < NUM_DIHEDRAL:
        raise ValueError(f"dihedral must be in 0..{NUM_DIHEDRAL - 1}, found {dihedral!r}")
    turned = apply_dihedral(grid, INVERSE_DIHEDRAL[dihedral])
    return invert_color_map(color_map)[turned]


def variant_name(task: str, dihedral: int, color_map: NDArray[np.uint8]) -> str:
    """Names a variant as published.

    The original, identity in both parts, has the plain task name; no other variant can be the
    identity in both, because it would equal the original.

    Args:
        task: The task's name.
        dihedral: In 0..7.
        color_map: (10,) uint8.

    Returns:
        ``TASK`` or ``TASK_t{dihedral}_{ten digits of the colour map}``.

    **Source**: HRM ``build_arc_dataset.py`` @ 42410da.
    """
    digits = "".join(map(str, np.asarray(color_map).tolist()))
    if dihedral == 0 and digits == "0123456789":
        return task
    return f"{task}_t{dihedral}_{digits}"


def parse_variant_name(
    name: str, task_names: Collection[str]
) -> tuple[str, int, NDArray[np.uint8]]:
    """Reads a published variant name, HRM's ``_`` form or TRM's ``|||`` form.

    A name that is itself a task's name is that task, whatever it looks like.

    Args:
        name: The name to read.
        task_names: All known task names; a set or dict makes this quick.

    Returns:
        Task name, dihedral id in 0..7, colour map (10,) uint8.

    Raises:
        ValueError: If the name has neither form, its task is unknown, or its digits are not a
            permutation of 0..9 that fixes 0.
    """
    if name in task_names:
        return name, 0, identity_color_map()
    for form in _NAME_FORMS:
        match = form.fullmatch(name)
        if match is None:
            continue
        task, digits = match["task"], match["digits"]
        if task not in task_names:
            raise ValueError(
                f"variant name {name!r} must belong to a known task, found task {task!r};"
                " use the data set the names were made from"
            )
        if digits[0] != "0" or len(set(digits)) != NUM_COLORS:
            raise ValueError(
                f"variant name {name!r} must end in a permutation of 0123456789 that keeps 0"
                f" first, found {digits!r}; correct the name"
            )
        return task, int(match["dihedral"]), np.array([int(d) for d in digits], dtype=np.uint8)
    raise ValueError(
        f"variant name {name!r} must be a task's name, TASK_t0..7_ten-digits or"
        " TASK|||t0..7|||ten-digits, found neither; use the data set the names were made from"
    )
