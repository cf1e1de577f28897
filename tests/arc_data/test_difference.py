"""What ``diff`` names: the cell, the pair, the split, the variants, the options."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.difference import differences
from arc_data.manifest import verify
from arc_data.sources import Source, mini
from arc_data.tasks import Pair, Task

OPTIONS = BuildOptions(num_aug=2, canvas=6)


def test_equal_data_sets(mini_dataset: CompiledDataset) -> None:
    again = build([mini()], BuildOptions(num_aug=8, seed=42, canvas=6))
    assert list(differences(mini_dataset, again)) == []


def test_one_changed_cell_is_found_by_verify_and_named(
    mini_dataset: CompiledDataset, tmp_path: Path
) -> None:
    mini_dataset.save(tmp_path / "a")
    mini_dataset.save(tmp_path / "b")
    grids = np.load(tmp_path / "b" / "grids.npy", mmap_mode="r+")
    pair = int(np.flatnonzero(mini_dataset.plan.pair_is_test)[0])
    task = mini_dataset.task_names[mini_dataset.plan.pair_task[pair]]
    old = int(grids[pair, 1, 0, 1])
    grids[pair, 1, 0, 1] = 9 - old
    grids.flush()
    with pytest.raises(ValueError, match=r"grids\.npy: sha256 must be"):
        verify(tmp_path / "b")
    found = differences(CompiledDataset.load(tmp_path / "a"), CompiledDataset.load(tmp_path / "b"))
    assert list(found) == [f"task {task}: test pair 0 output row 0 column 1: {old} -> {9 - old}"]


def _lines(a: Source, b: Source, options: BuildOptions = OPTIONS) -> list[str]:
    return list(differences(build([a], OPTIONS), build([b], options)))


def test_changed_tasks(two_folders: Source, make_task: Callable[..., Task]) -> None:
    folders = dict(two_folders.folders)
    c, d = folders["evaluation"]
    bar = np.ones((1, 6), dtype=np.uint8)
    new_c = Task("c", (Pair(bar, c.train[0].output), *c.train[1:]), c.test)
    new_d = Task("d", d.train[:2], d.test)
    other = replace(
        two_folders,
        folders=(
            ("evaluation", (new_c, new_d)),
            ("training", (make_task("e"), folders["training"][0])),
        ),
    )
    lines = _lines(two_folders, other)
    rows, cols = c.train[0].input.shape
    assert "task b: only in the first" in lines
    assert "task e: only in the second" in lines
    assert f"task c: train pair 0 input: {rows} x {cols} -> 1 x 6" in lines
    assert "task d: 3 -> 2 train pairs" in lines
    assert all(len(line.splitlines()) == 1 for line in lines)


def test_a_task_that_changed_its_split(two_folders: Source) -> None:
    other = replace(two_folders, evaluation_folders=frozenset())
    lines = _lines(two_folders, other)
    assert "task d: test pair 1: split test -> train" in lines
    assert "split test: 9 -> 0 examples" in lines
    strict = replace(OPTIONS, protocol="strict")
    lines = _lines(two_folders, two_folders, strict)
    assert lines[0] == "data.protocol: published -> strict"
    assert "task c: train pair 2: split train -> none" in lines


def test_other_variants_and_offsets(two_folders: Source) -> None:
    lines = _lines(two_folders, two_folders, replace(OPTIONS, num_aug=3))
    assert lines[0] == "data.num_aug: 2 -> 3"
    assert "task a: 2 -> 3 variants" in lines
    lines = _lines(two_folders, two_folders, replace(OPTIONS, seed=1))
    assert lines[0] == "data.seed: 42 -> 1"
    assert any("of 2 variants are others, the first is number 1" in line for line in lines)
    assert any(line.endswith("stand elsewhere") or "another order" in line for line in lines)


def test_moved_examples_only(mini_dataset: CompiledDataset) -> None:
    pads = mini_dataset.plan.train_pads.copy()
    pads[[3, 5]] += 1
    moved = CompiledDataset(replace(mini_dataset.plan, train_pads=pads), mini_dataset.manifest)
    assert list(differences(mini_dataset, moved)) == [
        "split train: 2 of 1584 examples stand elsewhere"
    ]
