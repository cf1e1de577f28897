"""The header of a predictions store: what was predicted, from what, and how it is written down."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SCHEMA = "hrm_deeploop.predictions/1"
MAX_CANVAS = 255  # a grid's digest stores its rows and columns in one byte each
DIHEDRAL_CONVENTION = (
    "applied after the colours; 0 identity, 1-3 numpy.rot90 with k = 1-3, 4 left-right flip,"
    " 5 up-down flip, 6 transpose, 7 left-right flip after one rot90"
)
COLOR_MAP_CONVENTION = "entry c is the new colour of old colour c; applied before the dihedral"

_HEADER_KEYS = (
    "schema",
    "data_manifest_sha256",
    "canvas",
    "split",
    "num_aug",
    "producer",
    "dihedral_convention",
    "color_map_convention",
    "puzzle_id",
    "halting",
    "tasks",
)

_LATER_KEYS = {"tasks": None}
"""Keys that stores of older versions lack, with what their absence means."""


def make_header(
    *,
    data_manifest_sha256: str | None,
    canvas: int,
    split: str,
    num_aug: int | None,
    producer: Mapping[str, Any],
    puzzle_id: str,
    halting: str,
    tasks: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Builds the header of a store.

    Args:
        data_manifest_sha256: Digest of the data set's manifest, None for a foreign data set.
        canvas: Side of the token canvas in cells, 1..255.
        split: Name of the evaluated split, for example ``arc1-evaluation``.
        num_aug: Variants per task that were asked for, None for all of the data set.
        producer: What made the predictions: program, version, checkpoint, ...
        puzzle_id: Puzzle-id mode, for example ``right``, ``blank`` or ``shuffled``.
        halting: Halting mode, in words.
        tasks: The only tasks that were asked for, None for all of the data set.

    Returns:
        The header, ready for ``PredictionsWriter``.

    Raises:
        ValueError: If the canvas is out of range.
    """
    header = {
        "schema": SCHEMA,
        "data_manifest_sha256": data_manifest_sha256,
        "canvas": canvas,
        "split": split,
        "num_aug": num_aug,
        "producer": dict(producer),
        "dihedral_convention": DIHEDRAL_CONVENTION,
        "color_map_convention": COLOR_MAP_CONVENTION,
        "puzzle_id": puzzle_id,
        "halting": halting,
        "tasks": None if tasks is None else list(tasks),
    }
    return checked_header(header, "header")


def checked_header(header: Any, where: str | Path) -> dict[str, Any]:
    """Checks a header.

    Args:
        header: What should be one, of this version or an older one.
        where: Its place, for the message.

    Returns:
        The header with every key of this version.

    Raises:
        ValueError: If it is none.
    """
    if not isinstance(header, Mapping):
        raise ValueError(f"{where}: must be an object, found {type(header).__name__}; rewrite it")
    if header.get("schema") != SCHEMA:
        raise ValueError(
            f"{where}: schema must be {SCHEMA!r}, found {header.get('schema')!r};"
            " predict again or use the version that wrote it"
        )
    header = {**_LATER_KEYS, **header}
    wrong = sorted(set(header) ^ set(_HEADER_KEYS))
    if wrong:
        raise ValueError(
            f"{where}: keys must be {list(_HEADER_KEYS)}, found {wrong[0]!r} missing or unknown;"
            " use make_header"
        )
    conventions = {
        "dihedral_convention": DIHEDRAL_CONVENTION,
        "color_map_convention": COLOR_MAP_CONVENTION,
    }
    for key, expected in conventions.items():
        if header[key] != expected:
            raise ValueError(
                f"{where}: {key} must be {expected!r}, found {header[key]!r}; convert the store"
            )
    canvas = header["canvas"]
    if type(canvas) is not int or not 1 <= canvas <= MAX_CANVAS:
        raise ValueError(
            f"{where}: canvas must be a whole number in 1..{MAX_CANVAS}, found {canvas!r};"
            " give the side of the token canvas"
        )
    num_aug = header["num_aug"]
    if num_aug is not None and (type(num_aug) is not int or num_aug < 0):
        raise ValueError(
            f"{where}: num_aug must be a whole number or null, found {num_aug!r}; give the number"
            " of variants per task"
        )
    tasks = header["tasks"]
    if tasks is not None and not (
        isinstance(tasks, list) and tasks and all(isinstance(name, str) for name in tasks)
    ):
        raise ValueError(
            f"{where}: tasks must be a list of names or null, found {tasks!r}; name the tasks"
        )
    return header


def check_same_header(found: Mapping[str, Any], header: Mapping[str, Any], path: Path) -> None:
    """Checks that a store's header is the one that is to be written.

    Args:
        found: The store's.
        header: The new one.
        path: The store's folder, for the message.

    Raises:
        ValueError: If not; the message names the first key that differs.
    """
    for key in _HEADER_KEYS:
        if found[key] != header[key]:
            raise ValueError(
                f"{path / 'header.json'}: {key} must be {header[key]!r} to resume, found"
                f" {found[key]!r}; write to another folder"
            )
