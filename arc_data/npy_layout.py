"""The published repositories' .npy layout, written from a compiled data set.

The layout is a folder with ``identifiers.json`` and, in ``train/`` and ``test/``,
``dataset.json`` and ``all__{inputs,labels,puzzle_identifiers,puzzle_indices,group_indices}.npy``.

**Source**: HRM ``dataset/build_arc_dataset.py`` and ``dataset/common.py`` @ 42410da.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from tqdm import tqdm

from arc_data.compiled import CompiledDataset
from arc_data.files import new_folder
from arc_data.split import Split
from arc_data.tokens import PAD, VOCAB_SIZE

SPLITS = ("train", "test")
IDENTIFIERS_FILE = "identifiers.json"
DATASET_FILE = "dataset.json"
SET_NAME = "all"
TOKEN_ARRAYS = ("inputs", "labels")
INDEX_ARRAYS = ("puzzle_identifiers", "puzzle_indices", "group_indices")


def export(dataset: CompiledDataset, out: str | Path, *, progress: bool = False) -> None:
    """Writes a data set in the published layout, a few thousand rows at a time.

    The folder appears under its name only when it is complete.

    Args:
        dataset: The data set.
        out: Where to; must not exist. Missing parent folders are made.
        progress: Whether to show progress bars on stderr.

    Raises:
        ValueError: If ``out`` exists, a split is empty (the published loaders cannot read one),
            or the disk has too little room.
    """
    target = Path(out)
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        if split.num_examples == 0:
            raise ValueError(
                f"the published layout needs examples in both splits, found none in {name};"
                " export a data set with evaluation and training pairs"
            )
    with new_folder(target, "remove it or choose another OUT") as partial:
        _check_room(dataset, partial)
        for name, split in (("train", dataset.train), ("test", dataset.test)):
            (partial / name).mkdir()
            _write_tokens(split, dataset.canvas, partial / name, progress)
            for key in INDEX_ARRAYS:
                np.save(partial / name / array_file(key), getattr(split, key))
            _write_json(partial / name / DATASET_FILE, describe_split(split, dataset))
        _write_json(partial / IDENTIFIERS_FILE, dataset.identifiers())


def describe_split(split: Split, dataset: CompiledDataset) -> dict[str, Any]:
    """Returns what ``dataset.json`` says about one split."""
    return {
        "pad_id": PAD,
        "ignore_label_id": PAD,
        "blank_identifier_id": 0,
        "vocab_size": VOCAB_SIZE,
        "seq_len": dataset.canvas**2,
        "num_puzzle_identifiers": dataset.num_puzzle_identifiers,
        "total_groups": split.num_groups,
        "mean_puzzle_examples": split.num_examples / len(split.puzzle_identifiers),
        "sets": [SET_NAME],
    }


def array_file(key: str) -> str:
    """Returns the name of an array's file."""
    return f"{SET_NAME}__{key}.npy"


def _check_room(dataset: CompiledDataset, folder: Path) -> None:
    examples = dataset.train.num_examples + dataset.test.num_examples
    needed = 2 * examples * dataset.canvas**2
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"{folder.parent}: expected {needed / 1e9:.2f} GB of room, found {free / 1e9:.2f} GB;"
            " choose another disk"
        )


def _write_tokens(split: Split, canvas: int, folder: Path, progress: bool) -> None:
    shape = (split.num_examples, canvas**2)
    with ExitStack() as stack:
        files = {
            key: stack.enter_context(_new_array(folder / array_file(key), shape))
            for key in TOKEN_ARRAYS
        }
        for chunk in tqdm(split.chunks(), folder.name, split.num_chunks, disable=not progress):
            for key, file in files.items():
                file.write(np.ascontiguousarray(chunk[key]).data)


@contextmanager
def _new_array(path: Path, shape: tuple[int, ...]) -> Iterator[BinaryIO]:
    """Opens a .npy file of uint8 whose rows are still to be written."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "|u1", "fortran_order": False, "shape": shape}
        )
        yield file


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
