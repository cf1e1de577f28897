"""The predictions store: a folder of ``header.json`` and complete shards ``part-00000.npz``.

A row is one predicted canvas: the test pair it answers, the variant it was predicted under, the
segment and source it comes from, its tokens in the augmented frame and its halting logit. Shards
are written beside and renamed, so a killed run leaves complete shards only, and resuming adds
more.
"""

import json
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arc_data.json_files import read_json, write_beside, write_json
from arc_data.tokens import NUM_COLORS
from eval.columns import (
    DTYPES,
    FIELDS,
    as_column,
    check_dtypes,
    check_fields,
    check_shapes,
    check_values,
)

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
)
_SHARD_NAME = re.compile(r"part-(\d{5})\.npz")
_UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """All rows of a store, n of them, in the order they were appended."""

    header: dict[str, Any]
    """What ``header.json`` holds; ``canvas`` is the side of the token canvas."""
    task_id: NDArray[np.str_]
    """Task names, (n,)."""
    test_index: NDArray[np.int32]
    """Index among the task's test pairs, (n,), from 0."""
    dihedral: NDArray[np.uint8]
    """Dihedral id, (n,), 0..7."""
    color_map: NDArray[np.uint8]
    """New colour of each old colour, (n, 10), a permutation of 0..9 per row."""
    segment: NDArray[np.int32]
    """Segments that had been run when the prediction was read, (n,); 0 where there are none."""
    source: NDArray[np.str_]
    """What produced the row, (n,): a checkpoint, an ensemble member, ..."""
    tokens: NDArray[np.uint8]
    """Tokens in the augmented frame, (n, canvas * canvas)."""
    q_halt_logit: NDArray[np.float32]
    """Logit of the halting head, (n,), not NaN."""

    @property
    def canvas(self) -> int:
        """Side of the token canvas in cells."""
        return int(self.header["canvas"])

    def __len__(self) -> int:
        return len(self.test_index)

    def select(self, rows: NDArray[Any]) -> "Predictions":
        """Keeps some of the rows.

        Args:
            rows: Boolean mask (n,) or integer row numbers.

        Returns:
            The same store restricted to those rows, in their order.
        """
        return Predictions(header=self.header, **{f: getattr(self, f)[rows] for f in FIELDS})


def make_header(
    *,
    data_manifest_sha256: str | None,
    canvas: int,
    split: str,
    num_aug: int | None,
    producer: Mapping[str, Any],
    puzzle_id: str,
    halting: str,
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
    }
    _check_header(header, "header")
    return header


class PredictionsWriter:
    """Adds shards to a store, one per ``append``; one writer per folder at a time."""

    def __init__(self, path: str | Path, header: Mapping[str, Any]) -> None:
        """Creates the folder, or reopens one that has the same header.

        Args:
            path: Folder of the store; its parent must exist.
            header: From ``make_header``.

        Raises:
            FileNotFoundError: If the parent folder does not exist, or the folder exists but is
                no store.
            ValueError: If the header is malformed, or the existing folder's header differs, or
                one of its shards is damaged.
        """
        self.path = Path(path)
        header = json.loads(json.dumps(dict(header)))  # as it reads back: tuples become lists
        _check_header(header, "header")
        if self.path.exists():
            _check_same_header(read_header(self.path), header, self.path)
        else:
            _create_store(self.path, header)
        self._canvas = int(header["canvas"])
        shards = _shard_paths(self.path)
        self._num_shards = len(shards)
        self._num_rows = sum(
            len(_read_shard(shard, self._canvas, ("test_index",))["test_index"]) for shard in shards
        )

    @property
    def num_rows(self) -> int:
        """Rows in all shards, those found on reopening included."""
        return self._num_rows

    def append(self, **columns: Any) -> None:
        """Writes the next shard.

        Args:
            **columns: Exactly the fields of ``Predictions``, each of n rows, n at least 1; whole
                numbers of another integer type are accepted where they fit.

        Raises:
            ValueError: If a field is missing, unknown, of the wrong type, shape or range.
        """
        shard = self.path / f"part-{self._num_shards:05d}.npz"
        check_fields(columns, shard)
        arrays = {field: as_column(columns[field], field, shard) for field in FIELDS}
        num_rows = check_shapes(arrays, self._canvas, shard)
        if num_rows == 0:
            raise ValueError(f"{shard}: a shard must have rows, found none; append rows only")
        check_values(arrays, shard)
        if shard.exists():
            raise ValueError(
                f"{shard}: must not exist yet, found another writer's; use one writer per store"
            )
        with write_beside(shard) as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        self._num_shards += 1
        self._num_rows += num_rows


def read_header(path: str | Path) -> dict[str, Any]:
    """Reads and checks the header of a store.

    Args:
        path: Folder of the store.

    Returns:
        The header.

    Raises:
        FileNotFoundError: If the folder or its header is missing.
        ValueError: If the header is malformed or of another schema.
    """
    path = Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: no such predictions folder; check the path")
    if not (path / "header.json").is_file():
        raise FileNotFoundError(
            f"{path / 'header.json'}: missing, so the folder is no predictions store; check the"
            " path"
        )
    header = read_json(path / "header.json")
    _check_header(header, path / "header.json")
    return header


def read(path: str | Path) -> Predictions:
    """Reads a whole store, strictly.

    Args:
        path: Folder of the store.

    Returns:
        All rows of all shards, in order; a store without shards has 0 rows.

    Raises:
        FileNotFoundError: If the folder or its header is missing.
        ValueError: If a shard is missing, truncated or malformed; the message names it.
    """
    header = read_header(path)
    canvas = int(header["canvas"])
    shards = _shard_paths(Path(path))
    narrow = tuple(field for field in FIELDS if field != "tokens")
    parts = [_read_shard(shard, canvas, narrow) for shard in shards]
    empty = {"color_map": (0, NUM_COLORS)}
    columns = {
        field: np.concatenate(
            [np.empty(empty.get(field, (0,)), dtype=DTYPES[field]), *(p[field] for p in parts)]
        )
        for field in narrow
    }
    # Filled in place: the tokens are nearly all of the memory and must not stand there twice.
    tokens = np.empty((len(columns["test_index"]), canvas * canvas), dtype=np.uint8)
    start = 0
    for shard, part in zip(shards, parts, strict=True):
        num_rows = len(part["test_index"])
        block = _read_shard(shard, canvas, ("tokens",))
        check_shapes(block, canvas, shard, num_rows)
        tokens[start : start + num_rows] = block["tokens"]
        start += num_rows
    return Predictions(header=header, tokens=tokens, **columns)


def read_json_lines(path: str | Path) -> list[dict[str, Any]]:
    """Reads plain votes: one object {task, test_index, grid, confidence?, weight?} per line.

    Args:
        path: The file to read; empty lines are skipped.

    Returns:
        The objects in order, for ``voting.votes_from_grids``, which checks their content.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is no JSON object; the message names the line.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; check the path")
    votes = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                vote = json.loads(line)
            except ValueError as error:
                raise ValueError(
                    f"{path}: line {number} must be a JSON object, found {error}; correct the line"
                ) from error
            if not isinstance(vote, dict):
                raise ValueError(
                    f"{path}: line {number} must be a JSON object, found {type(vote).__name__};"
                    " write one vote per line"
                )
            votes.append(vote)
    return votes


def _create_store(path: Path, header: Mapping[str, Any]) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: no such folder; create it before writing {path}")
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    temporary.chmod(0o755)
    write_json(temporary / "header.json", dict(header))
    os.rename(temporary, path)


def _check_header(header: Any, where: str | Path) -> None:
    if not isinstance(header, Mapping):
        raise ValueError(f"{where}: must be an object, found {type(header).__name__}; rewrite it")
    if header.get("schema") != SCHEMA:
        raise ValueError(
            f"{where}: schema must be {SCHEMA!r}, found {header.get('schema')!r};"
            " predict again or use the version that wrote it"
        )
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


def _check_same_header(found: Mapping[str, Any], header: Mapping[str, Any], path: Path) -> None:
    for key in _HEADER_KEYS:
        if found[key] != header[key]:
            raise ValueError(
                f"{path / 'header.json'}: {key} must be {header[key]!r} to resume, found"
                f" {found[key]!r}; write to another folder"
            )


def _shard_paths(path: Path) -> list[Path]:
    shards = sorted(path.glob("part-*"))
    for number, shard in enumerate(shards):
        match = _SHARD_NAME.fullmatch(shard.name)
        if match is None:
            raise ValueError(f"{shard}: a shard must be named part-00000.npz; remove or rename it")
        if int(match[1]) != number:
            raise ValueError(
                f"{path / f'part-{number:05d}.npz'}: missing, while {shard.name} exists; restore"
                " it, or remove the later shards and predict again"
            )
    return shards


def _read_shard(shard: Path, canvas: int, fields: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Reads some fields of one shard; the rows are checked wherever a field is read."""
    try:
        with open(shard, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("a single array")
            with archive:
                names = list(archive.files)
                arrays = {field: archive[field] for field in fields if field in names}
    except _UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{shard}: must be a complete .npz shard, found a truncated or damaged file"
            f" ({reason}); remove it and the later shards and predict again"
        ) from error
    check_fields(names, shard)
    check_dtypes(arrays, shard)
    check_shapes(arrays, canvas, shard)
    check_values(arrays, shard)
    return arrays
