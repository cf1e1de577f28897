"""A folder in the published .npy layout, read into a compiled data set and proven equal to it.

Base grids come from the originals, variants from the identifiers' names, offsets from the
inputs. Then every row is made anew and compared, so that what is returned *is* the folder.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from arc_data.augment import identity_color_map, parse_variant_name
from arc_data.build import Group, make_plan
from arc_data.compiled import BLANK_NAME, PUBLISHED, STRICT, CompiledDataset
from arc_data.json_files import read_json
from arc_data.manifest import make_manifest
from arc_data.npy_layout import (
    DATASET_FILE,
    IDENTIFIERS_FILE,
    INDEX_ARRAYS,
    SPLITS,
    TOKEN_ARRAYS,
    array_file,
)
from arc_data.sources import Source
from arc_data.split import CHUNK_ROWS, Split
from arc_data.tasks import Pair, Task
from arc_data.tokens import COLOR_OFFSET, VOCAB_SIZE

SOURCE_NAME = "npy"


@dataclass(frozen=True, eq=False)
class _SplitFiles:
    """One split of the folder: its arrays, memory-mapped, and where each puzzle id stands."""

    folder: Path
    arrays: dict[str, NDArray[Any]]
    position: NDArray[np.int64]  # (ids,), -1: not in this split

    def rows(self, puzzle_id: int) -> range:
        at = self.position[puzzle_id]
        indices = self.arrays["puzzle_indices"]
        return range(int(indices[at]), int(indices[at + 1])) if at >= 0 else range(0)


def read_layout(path: str | Path, *, progress: bool = False) -> CompiledDataset:
    """Reads a published data folder, HRM's or TRM's names alike.

    The layout does not say which pairs of a training task are its test pairs: all of them become
    train pairs. It does not know the seed either: ``seed`` is None.

    Args:
        path: The folder with ``train/``, ``test/`` and ``identifiers.json``.
        progress: Whether to show progress bars on stderr.

    Returns:
        A data set whose rows, ids and groups are those of the folder, byte for byte.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is damaged, or the rows are not what their names say.
    """
    root = Path(path)
    names = read_json(root / IDENTIFIERS_FILE)
    tasks, dihedrals, color_maps = _read_names(names, root / IDENTIFIERS_FILE)
    files = [_open_split(root / name, len(names)) for name in SPLITS]
    canvas = _canvas(files)
    groups = _read_groups(files, tasks, dihedrals, color_maps, canvas)
    held_out = [group for group in groups if group.held_out]
    is_strict = not any(group.task.train for group in held_out)
    protocol = STRICT if held_out and is_strict else PUBLISHED
    pads = [_read_pads(split, canvas, progress) for split in files]
    plan = make_plan(groups, canvas, protocol, train_pads=pads[0], test_pads=pads[1])
    options = {
        "num_aug": max(len(group.dihedrals) for group in groups) - 1,
        "seed": None,
        "canvas": canvas,
        "protocol": protocol,
        "leave_out_large": False,
    }
    folders: dict[str, list[Task]] = {}
    for group in groups:
        folders.setdefault("evaluation" if group.held_out else "training", []).append(group.task)
    source = Source(
        name=SOURCE_NAME,
        upstream=None,
        folders=tuple((name, tuple(members)) for name, members in folders.items()),
        evaluation_folders=frozenset({"evaluation"} & folders.keys()),
    )
    ordered = [group.task for group in groups]
    dataset = CompiledDataset(plan, make_manifest([source], options, ordered, plan, {}))
    for split, split_files in zip((dataset.train, dataset.test), files, strict=True):
        _check_equal(split, split_files, names, progress)
    return dataset


def _read_names(
    names: Any, path: Path
) -> tuple[list[tuple[str, int]], NDArray[np.uint8], NDArray[np.uint8]]:
    """Returns each task with its first id, and the variants' dihedral ids and colour maps."""
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or names[:1] != [BLANK_NAME] or len(names) < 2:
        raise ValueError(
            f"{path}: expected a list of names with {BLANK_NAME} first, found something else;"
            " give a folder of the published layout"
        )
    tasks: dict[str, int] = {}
    dihedrals = np.zeros(len(names) - 1, dtype=np.uint8)
    color_maps = np.tile(identity_color_map(), (len(names) - 1, 1))
    current = None
    for puzzle_id, name in enumerate(names[1:], start=1):
        try:
            task, dihedral, color_map = parse_variant_name(name, tasks)
        except ValueError:  # no variant of a task met so far: a task's first id
            tasks[name], current = puzzle_id, name
            continue
        if task != current or name == task:
            raise ValueError(
                f"{path}: expected the ids of one task to follow each other, the original first,"
                f" found {name!r} at {puzzle_id}; build the folder anew"
            )
        dihedrals[puzzle_id - 1], color_maps[puzzle_id - 1] = dihedral, color_map
    return list(tasks.items()), dihedrals, color_maps


def _open_split(folder: Path, num_ids: int) -> _SplitFiles:
    said = read_json(folder / DATASET_FILE)
    arrays = {}
    for key in (*TOKEN_ARRAYS, *INDEX_ARRAYS):
        file = folder / array_file(key)
        if not file.is_file():
            raise FileNotFoundError(f"{file}: expected an array, found no file; copy it again")
        try:
            arrays[key] = np.load(file, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise ValueError(
                f"{file}: expected a whole .npy file, found a damaged one ({error}); copy it again"
            ) from error
    variants = len(arrays["puzzle_identifiers"])
    rows, seq_len = len(arrays["inputs"]), said.get("seq_len")
    for key, shape, dtype in (
        ("inputs", (rows, seq_len), np.uint8),
        ("labels", (rows, seq_len), np.uint8),
        ("puzzle_identifiers", (variants,), np.int32),
        ("puzzle_indices", (variants + 1,), np.int32),
        ("group_indices", (said.get("total_groups", -1) + 1,), np.int32),
    ):
        if arrays[key].shape != shape or arrays[key].dtype != dtype:
            raise ValueError(
                f"{folder / array_file(key)}: expected {np.dtype(dtype)} of shape {shape}, found"
                f" {arrays[key].dtype} of shape {arrays[key].shape}; build the folder anew"
            )
    ids, indices = arrays["puzzle_identifiers"], arrays["puzzle_indices"]
    if not (
        np.all((ids > 0) & (ids < num_ids))
        and (indices[0], indices[-1]) == (0, rows)
        and np.all(np.diff(indices) > 0)
    ):
        raise ValueError(
            f"{folder}: expected ids of {IDENTIFIERS_FILE} and ascending puzzle_indices that end"
            f" at {rows}, found others; build the folder anew"
        )
    position = np.full(num_ids, -1, dtype=np.int64)
    position[ids] = np.arange(variants)
    return _SplitFiles(folder, arrays, position)


def _canvas(files: list[_SplitFiles]) -> int:
    lengths = {split.arrays["inputs"].shape[1] for split in files}
    side = round(max(lengths) ** 0.5)
    if lengths != {side * side}:
        raise ValueError(
            f"{files[0].folder.parent}: seq_len must be one square number, found {sorted(lengths)};"
            " build the folder anew"
        )
    return side


def _read_groups(
    files: list[_SplitFiles],
    tasks: list[tuple[str, int]],
    dihedrals: NDArray[np.uint8],
    color_maps: NDArray[np.uint8],
    canvas: int,
) -> list[Group]:
    ends = [first for _, first in tasks[1:]] + [len(dihedrals) + 1]
    groups = []
    for (name, first), end in zip(tasks, ends, strict=True):
        train, test = (
            tuple(_read_pair(split, row, canvas, name) for row in split.rows(first))
            for split in files
        )
        if not train and not test:
            raise ValueError(
                f"{files[0].folder.parent}: expected examples of task {name!r}, found none;"
                " build the folder anew"
            )
        variants = slice(first - 1, end - 1)
        groups.append(
            Group(Task(name, train, test), bool(test), dihedrals[variants], color_maps[variants])
        )
    return groups


def _read_pair(split: _SplitFiles, row: int, canvas: int, name: str) -> Pair:
    grids: list[NDArray[np.uint8] | None] = []
    for key in TOKEN_ARRAYS:
        tokens = split.arrays[key][row].reshape(canvas, canvas)
        rows, cols = np.nonzero((tokens >= COLOR_OFFSET) & (tokens < VOCAB_SIZE))
        if len(rows) == 0:
            grids.append(None)
            continue
        grid = tokens[rows.min() : rows.max() + 1, cols.min() : cols.max() + 1] - COLOR_OFFSET
        grids.append(grid.astype(np.uint8))
    if grids[0] is None:
        raise ValueError(
            f"{split.folder / array_file('inputs')}: row {row} ({name}) must show a grid,"
            " found no colour; build the folder anew"
        )
    return Pair(grids[0], grids[1])


def _read_pads(split: _SplitFiles, canvas: int, progress: bool) -> NDArray[np.uint8]:
    """Returns where the first row and column with a colour stand, (examples, 2)."""
    inputs = split.arrays["inputs"]
    pads = np.zeros((len(inputs), 2), dtype=np.uint8)
    starts = range(0, len(inputs), CHUNK_ROWS)
    for start in tqdm(starts, f"{split.folder.name} offsets", disable=not progress):
        stop = start + CHUNK_ROWS
        is_color = inputs[start:stop].reshape(-1, canvas, canvas) >= COLOR_OFFSET
        pads[start:stop, 0] = is_color.any(axis=2).argmax(axis=1)
        pads[start:stop, 1] = is_color.any(axis=1).argmax(axis=1)
    return pads


def _check_equal(split: Split, files: _SplitFiles, names: list[str], progress: bool) -> None:
    for key in INDEX_ARRAYS:
        if not np.array_equal(getattr(split, key), files.arrays[key]):
            raise ValueError(
                f"{files.folder / array_file(key)}: expected every variant of a task with the same"
                " number of examples, tasks in the order of their ids, found otherwise; build the"
                " folder anew"
            )
    start = 0
    bar = tqdm(split.chunks(), f"{files.folder.name} rows", split.num_chunks, disable=not progress)
    for chunk in bar:
        for key in TOKEN_ARRAYS:
            made = chunk[key]
            other = (made != files.arrays[key][start : start + len(made)]).any(axis=1)
            if other.any():
                at = int(other.argmax())
                raise ValueError(
                    f"{files.folder / array_file(key)}: row {start + at} must be the variant"
                    f" {names[chunk['puzzle_identifiers'][at]]!r} of its task's original, found"
                    " other tokens; build the folder anew"
                )
        start += len(made)
