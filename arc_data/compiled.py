"""The compiled data set: a plan from which any row of the published arrays is made on the fly.

A variant is (task, dihedral id, colour map) and an example adds the offset of its grids on the
canvas. Together with the base grids that is all the published arrays hold, in a small fraction
of the space. Pairs are stored task by task, train pairs before test pairs.
"""

import json
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arc_data.augment import variant_name
from arc_data.files import new_folder
from arc_data.json_files import read_json
from arc_data.split import CanvasFrames, Split

SCHEMA = 1
MANIFEST_FILE = "manifest.json"
BLANK_NAME = "<blank>"
TRAIN, TEST, UNUSED = 0, 1, 2
"""Splits of a pair's examples; unused: in neither."""
PUBLISHED, STRICT = PROTOCOLS = ("published", "strict")
"""Whether demonstrations of evaluation tasks are trained on, or nothing of these tasks."""

_MANIFEST_KEYS: dict[str, type] = {
    "schema": int,
    "builder": int,
    "options": dict,
    "sources": list,
    "tasks": dict,
    "task_names": list,
    "plan": dict,
    "digest": str,
}


@dataclass(frozen=True, eq=False)
class Plan:
    """The arrays of a compiled data set; each is the file ``<field>.npy``.

    Attributes:
        grids: Base colours at the top left, zeros elsewhere, (pairs, 2, canvas, canvas) uint8;
            index 0 of the second axis is the input, 1 the output.
        shapes: Rows and columns of each grid, (pairs, 2, 2) uint8; 0, 0 is an unknown output.
        pair_task: Index of the pair's task in group order, ascending, (pairs,) int32.
        pair_is_test: Whether the pair is a test pair of its task, (pairs,) bool.
        pair_split: The split its examples are in, 0 train, 1 test, 2 none, (pairs,) uint8.
        variant_task: Index of the variant's task, ascending, (variants,) int32; the first
            variant of each task is the original.
        variant_dihedral: Dihedral id 0..7, (variants,) uint8.
        variant_color_map: Entry c is the new colour of old colour c, (variants, 10) uint8.
        train_pads: (pad_r, pad_c) of each train-split example, (examples, 2) uint8.
        test_pads: The same for the test split.
    """

    grids: NDArray[np.uint8]
    shapes: NDArray[np.uint8]
    pair_task: NDArray[np.int32]
    pair_is_test: NDArray[np.bool_]
    pair_split: NDArray[np.uint8]
    variant_task: NDArray[np.int32]
    variant_dihedral: NDArray[np.uint8]
    variant_color_map: NDArray[np.uint8]
    train_pads: NDArray[np.uint8]
    test_pads: NDArray[np.uint8]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the arrays by field name, in the order of the fields."""
        return {name: getattr(self, name) for name in _PLAN_FIELDS}

    def role(self, pair: int) -> tuple[str, int]:
        """Says of a pair whether it is a ``train`` or ``test`` pair, and its number among these."""
        is_test = bool(self.pair_is_test[pair])
        first = int(np.searchsorted(self.pair_task, self.pair_task[pair]))
        number = int((self.pair_is_test[first:pair] == is_test).sum())
        return ("test" if is_test else "train"), number

    def num_examples(self, split: int) -> int:
        """Returns how many examples ``split`` (0 train, 1 test) has over all variants."""
        pairs_of_task = np.bincount(self.pair_task[self.pair_split == split])
        variants_of_task = np.bincount(self.variant_task, minlength=len(pairs_of_task))
        return int(pairs_of_task @ variants_of_task[: len(pairs_of_task)])


_PLAN_FIELDS = [field.name for field in fields(Plan)]


class CompiledDataset:
    """Tasks, variants and offsets of a build, with the two splits made from them.

    Args:
        plan: The arrays.
        manifest: What the data set was made of, see ``manifest.make_manifest``.
    """

    def __init__(self, plan: Plan, manifest: dict[str, Any]) -> None:
        self.plan = plan
        self.manifest = manifest
        self.task_names: list[str] = list(manifest["task_names"])
        """Task names in group order."""

    @property
    def canvas(self) -> int:
        """Side of the token canvas in cells."""
        return int(self.manifest["options"]["canvas"])

    @property
    def num_aug(self) -> int:
        """Most variants per task besides the original."""
        return int(self.manifest["options"]["num_aug"])

    @property
    def seed(self) -> int | None:
        """Seed of the build's random stream; None where it is not known."""
        seed: int | None = self.manifest["options"]["seed"]
        return seed

    @property
    def protocol(self) -> str:
        """``published`` or ``strict``, see ``build.BuildOptions``."""
        return str(self.manifest["options"]["protocol"])

    @property
    def digest(self) -> str:
        """Names what the data set is made of, see ``manifest.manifest_digest``."""
        return str(self.manifest["digest"])

    @property
    def num_puzzle_identifiers(self) -> int:
        """Number of puzzle ids, the blank id 0 included."""
        return len(self.plan.variant_task) + 1

    def identifiers(self) -> list[str]:
        """Returns the published variant names by puzzle id, ``<blank>`` first."""
        plan = self.plan
        return [BLANK_NAME] + [
            variant_name(self.task_names[task], dihedral, color_map)
            for task, dihedral, color_map in zip(
                plan.variant_task.tolist(),
                plan.variant_dihedral.tolist(),
                plan.variant_color_map,
                strict=True,
            )
        ]

    @cached_property
    def train(self) -> Split:
        """The examples that are trained on."""
        return Split(self.plan, TRAIN, self.plan.train_pads, self._frames)

    @cached_property
    def test(self) -> Split:
        """The examples that are held out."""
        return Split(self.plan, TEST, self.plan.test_pads, self._frames)

    def truth(self) -> dict[str, list[NDArray[np.uint8] | None]]:
        """Returns the right outputs of the held-out test pairs.

        Returns:
            For each task with pairs in the test split, the outputs of its test pairs in order,
            (r, c) uint8 in the original frame, None where unknown.
        """
        return self._held_out(1)

    def test_inputs(self) -> dict[str, list[NDArray[np.uint8]]]:
        """Returns the inputs of the held-out test pairs, laid out as ``truth``."""
        return {
            name: [grid for grid in grids if grid is not None]
            for name, grids in self._held_out(0).items()
        }

    def save(self, path: str | Path) -> None:
        """Writes the data set as a folder of .npy files and ``manifest.json``.

        The folder appears under its name only when it is complete.

        Args:
            path: Where to; must not exist. Missing parent folders are made.

        Raises:
            ValueError: If ``path`` exists.
        """
        with new_folder(Path(path), "remove it or choose another data_dir") as partial:
            for name, array in self.plan.arrays().items():
                np.save(partial / f"{name}.npy", array, allow_pickle=False)
            text = json.dumps(self.manifest, indent=1, ensure_ascii=False) + "\n"
            (partial / MANIFEST_FILE).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "CompiledDataset":
        """Opens a saved data set; the arrays stay on disk until they are read.

        Shapes and dtypes are checked here, contents by ``manifest.verify``.

        Args:
            path: The folder written by ``save``.

        Returns:
            The data set.

        Raises:
            FileNotFoundError: If the folder or one of its files is missing.
            ValueError: If a file is damaged, or the files do not belong together.
        """
        root = Path(path)
        manifest = load_manifest(root / MANIFEST_FILE)
        plan = load_plan(root)
        _check_plan(plan, int(manifest["options"]["canvas"]), len(manifest["task_names"]), root)
        return cls(plan, manifest)

    @cached_property
    def _frames(self) -> CanvasFrames:
        return CanvasFrames(self.plan.grids, self.plan.shapes)

    def _held_out(self, side: int) -> dict[str, list[NDArray[np.uint8] | None]]:
        plan = self.plan
        grids: dict[str, list[NDArray[np.uint8] | None]] = {}
        for pair in np.flatnonzero(plan.pair_split == TEST).tolist():
            rows, cols = plan.shapes[pair, side].tolist()
            grid = np.array(plan.grids[pair, side, :rows, :cols]) if rows else None
            grids.setdefault(self.task_names[plan.pair_task[pair]], []).append(grid)
        return grids


def load_manifest(path: Path) -> dict[str, Any]:
    """Reads a manifest and checks its form, not its hashes.

    Args:
        path: The file.

    Returns:
        The manifest. Settings it does not name have the meaning they had before they could be
        set: protocol ``published``, no task left out.

    Raises:
        FileNotFoundError: If the file is missing.
        ValueError: If it is not JSON, lacks a key, or has another schema.
    """
    fix = "rebuild the data set"
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path.parent}: expected a compiled data set, found no folder; run data build"
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a manifest, found no file; {fix}")
    manifest = read_json(path)
    if not isinstance(manifest, dict):
        raise ValueError(f"{path}: expected a JSON object, found another value; {fix}")
    if manifest.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema must be {SCHEMA}, found {manifest.get('schema')}; {fix}")
    for key, kind in _MANIFEST_KEYS.items():
        if not isinstance(manifest.get(key), kind):
            raise ValueError(
                f"{path}: key {key!r} must be of type {kind.__name__},"
                f" found {type(manifest.get(key)).__name__}; {fix}"
            )
    manifest.setdefault("left_out", {})
    options = manifest["options"]
    options.setdefault("protocol", PUBLISHED)
    options.setdefault("leave_out_large", False)
    for key, kinds in (("num_aug", (int,)), ("canvas", (int,)), ("seed", (int, type(None)))):
        if type(options.get(key, "nothing")) not in kinds:
            raise ValueError(
                f"{path}: options.{key} must be an integer, found {options.get(key)!r}; {fix}"
            )
    if options["protocol"] not in PROTOCOLS:
        raise ValueError(
            f"{path}: options.protocol must be one of {', '.join(PROTOCOLS)},"
            f" found {options['protocol']!r}; {fix}"
        )
    return manifest


def load_plan(root: Path) -> Plan:
    """Opens the arrays of a saved data set without checking that they belong together.

    Args:
        root: The folder.

    Returns:
        The arrays, memory-mapped.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is no whole .npy file.
    """
    return Plan(**{name: _load_array(root / f"{name}.npy") for name in _PLAN_FIELDS})


def _load_array(path: Path) -> NDArray[Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected an array, found no file; rebuild the data set")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{path}: expected a whole .npy file, found a damaged one ({error});"
            " rebuild the data set"
        ) from error
    if not isinstance(array, np.memmap) or array.offset + array.nbytes != path.stat().st_size:
        raise ValueError(
            f"{path}: expected one array and nothing else, found other content;"
            " rebuild the data set"
        )
    return array


def _check_plan(plan: Plan, canvas: int, num_tasks: int, root: Path) -> None:
    """Checks that the arrays belong together; errors name the first file that does not fit."""
    pairs, variants = len(plan.grids), len(plan.variant_task)
    _check_array(plan.grids, "grids", (pairs, 2, canvas, canvas), "uint8", root)
    _check_array(plan.shapes, "shapes", (pairs, 2, 2), "uint8", root)
    _check_array(plan.pair_task, "pair_task", (pairs,), "int32", root)
    _check_array(plan.pair_is_test, "pair_is_test", (pairs,), "bool", root)
    _check_array(plan.pair_split, "pair_split", (pairs,), "uint8", root)
    _check_array(plan.variant_task, "variant_task", (variants,), "int32", root)
    _check_array(plan.variant_dihedral, "variant_dihedral", (variants,), "uint8", root)
    _check_array(plan.variant_color_map, "variant_color_map", (variants, 10), "uint8", root)
    for name, tasks in (("pair_task", plan.pair_task), ("variant_task", plan.variant_task)):
        if not np.array_equal(np.unique(tasks), np.arange(num_tasks)) or (np.diff(tasks) < 0).any():
            raise ValueError(
                f"{root / name}.npy: expected the tasks 0..{num_tasks - 1} in ascending order,"
                " found otherwise; rebuild the data set"
            )
    for name, split in (("train_pads", TRAIN), ("test_pads", TEST)):
        examples = plan.num_examples(split)
        _check_array(getattr(plan, name), name, (examples, 2), "uint8", root)


def _check_array(
    array: NDArray[Any], name: str, shape: tuple[int, ...], dtype: str, root: Path
) -> None:
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise ValueError(
            f"{root / name}.npy: expected {dtype} of shape {shape},"
            f" found {array.dtype} of shape {array.shape}; rebuild the data set"
        )
