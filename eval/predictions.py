"""The predictions store: a folder of ``header.json`` and complete shards ``part-00000.npz``.

A row is one predicted canvas: the test pair it answers, the variant it was predicted under, the
segment and source it comes from, its tokens in the augmented frame and its halting logit. Shards
are written beside and renamed, so a killed run leaves complete shards only, and resuming adds
the missing ones.
"""

import json
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
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
from eval.header import SCHEMA, check_same_header, checked_header, make_header

__all__ = [
    "FIELDS",
    "SCHEMA",
    "Predictions",
    "PredictionsWriter",
    "make_header",
    "read",
    "read_header",
    "read_json_lines",
    "read_shards",
]

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


class PredictionsWriter:
    """Adds shards to a store; one writer per shard at a time."""

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
        # As it reads back: tuples become lists.
        header = checked_header(json.loads(json.dumps(dict(header))), "header")
        if not self.path.exists():
            _create_store(self.path, header)
        check_same_header(read_header(self.path), header, self.path)
        self._canvas = int(header["canvas"])
        self._num_rows = {
            number: len(_read_shard(shard, self._canvas, ("test_index",))["test_index"])
            for number, shard in _numbered_shards(self.path)
        }

    @property
    def num_rows(self) -> int:
        """Rows in all shards, those found on reopening included."""
        return sum(self._num_rows.values())

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the shards that are there."""
        return frozenset(self._num_rows)

    def append(self, **columns: Any) -> None:
        """Writes the next shard; see ``write_shard``."""
        self.write_shard(max(self._num_rows, default=-1) + 1, **columns)

    def write_shard(self, number: int, **columns: Any) -> None:
        """Writes one shard.

        Args:
            number: Its number, from 0; a store is complete when no number is missing.
            **columns: Exactly the fields of ``Predictions``, each of n rows, n at least 1; whole
                numbers of another integer type are accepted where they fit.

        Raises:
            ValueError: If the shard exists, or a field is missing, unknown, of the wrong type,
                shape or range.
        """
        shard = self.path / f"part-{number:05d}.npz"
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
        self._num_rows[number] = num_rows

    def read_shard(self, number: int, fields: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Reads some fields of a shard that is there, strictly."""
        return _read_shard(self.path / f"part-{number:05d}.npz", self._canvas, fields)


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
    return checked_header(read_json(path / "header.json"), path / "header.json")


def read_shards(path: str | Path) -> Iterator[Predictions]:
    """Reads a store shard by shard, strictly; memory does not grow with the number of shards.

    Args:
        path: Folder of the store.

    Yields:
        The rows of each shard, in order.

    Raises:
        FileNotFoundError: If the folder or its header is missing.
        ValueError: If a shard is missing, truncated or malformed; the message names it.
    """
    header = read_header(path)
    for number, (found, shard) in enumerate(_numbered_shards(Path(path))):
        if found != number:
            raise ValueError(
                f"{Path(path) / f'part-{number:05d}.npz'}: missing, while {shard.name} exists;"
                " restore it or predict again into the same store"
            )
        yield Predictions(header=header, **_read_shard(shard, int(header["canvas"]), FIELDS))


def read(path: str | Path) -> Predictions:
    """Reads a whole store into memory; see ``read_shards``.

    Args:
        path: Folder of the store.

    Returns:
        All rows of all shards, in order; a store without shards has 0 rows.
    """
    header = read_header(path)
    widths = {"color_map": (NUM_COLORS,), "tokens": (int(header["canvas"]) ** 2,)}
    parts = list(read_shards(path))
    columns = {
        field: np.concatenate(
            [
                np.empty((0, *widths.get(field, ())), dtype=DTYPES[field]),
                *(getattr(part, field) for part in parts),
            ]
        )
        for field in FIELDS
    }
    return Predictions(header=header, **columns)


def read_json_lines(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Reads plain votes: one object {task, test_index, grid, confidence?, weight?} per line.

    Args:
        path: The file to read; empty lines are skipped.

    Yields:
        The place of each object, for messages, and the object; ``plain_votes`` checks its content.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is no JSON object; the message names the line.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; check the path")
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"{path}: line {number}"
            try:
                vote = json.loads(line)
            except ValueError as error:
                raise ValueError(
                    f"{where} must be a JSON object, found {error}; correct the line"
                ) from error
            if not isinstance(vote, dict):
                raise ValueError(
                    f"{where} must be a JSON object, found {type(vote).__name__};"
                    " write one vote per line"
                )
            yield where, vote


def _create_store(path: Path, header: Mapping[str, Any]) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: no such folder; create it before writing {path}")
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        temporary.chmod(0o755)
        write_json(temporary / "header.json", dict(header))
        with suppress(OSError):  # another writer was first; its header is compared next
            os.rename(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _numbered_shards(path: Path) -> list[tuple[int, Path]]:
    shards = []
    for shard in sorted(path.glob("part-*")):
        match = _SHARD_NAME.fullmatch(shard.name)
        if match is None:
            raise ValueError(f"{shard}: a shard must be named part-00000.npz; remove or rename it")
        shards.append((int(match[1]), shard))
    return shards


def _read_shard(shard: Path, canvas: int, fields: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Reads some fields of one shard and checks their rows."""
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
            f" ({reason}); remove it and predict again"
        ) from error
    check_fields(names, shard)
    check_dtypes(arrays, shard)
    check_shapes(arrays, canvas, shard)
    check_values(arrays, shard)
    return arrays
