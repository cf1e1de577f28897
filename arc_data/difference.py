"""What differs between two data sets: options, tasks, splits, pairs, cells, variants, offsets.

The arrays themselves are compared, not their recorded hashes, so that a file that was changed
behind the manifest is found too.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from arc_data.compiled import TEST, TRAIN, CompiledDataset, Plan

_SPLIT_NAMES = ("train", "test", "none")
_SIDES = ("input", "output")


def differences(a: CompiledDataset, b: CompiledDataset) -> Iterator[str]:
    """Says line by line how ``b`` differs from ``a``.

    Args:
        a: One data set.
        b: The other.

    Yields:
        One line for each differing option, task in one of them only, pair, split and cell;
        for each task with other variants; and for each kind of the rest. Nothing if all arrays
        and names are equal.
    """
    for key in sorted({**a.manifest["options"], **b.manifest["options"]}):
        ours, theirs = (dataset.manifest["options"].get(key) for dataset in (a, b))
        if ours != theirs:
            yield f"data.{key}: {ours} -> {theirs}"
    tasks_a, tasks_b = ({name: i for i, name in enumerate(d.task_names)} for d in (a, b))
    for name in sorted(tasks_a.keys() - tasks_b.keys()):
        yield f"task {name}: only in the first"
    for name in sorted(tasks_b.keys() - tasks_a.keys()):
        yield f"task {name}: only in the second"
    both = sorted(tasks_a.keys() & tasks_b.keys())
    for name in both:
        yield from _task_differences(name, a.plan, tasks_a[name], b.plan, tasks_b[name])
    if a.task_names != b.task_names:
        if tasks_a.keys() == tasks_b.keys():
            yield "the tasks are in another order"
        return
    yield from _offset_differences(a.plan, b.plan)


def _task_differences(name: str, a: Plan, task_a: int, b: Plan, task_b: int) -> Iterator[str]:
    pairs_a, pairs_b = _pairs(a, task_a), _pairs(b, task_b)
    for role in (0, 1):
        role_name = ("train", "test")[role]
        ours = pairs_a[a.pair_is_test[pairs_a] == role].tolist()
        theirs = pairs_b[b.pair_is_test[pairs_b] == role].tolist()
        if len(ours) != len(theirs):
            yield f"task {name}: {len(ours)} -> {len(theirs)} {role_name} pairs"
        for index, (pair_a, pair_b) in enumerate(zip(ours, theirs, strict=False)):
            where = f"task {name}: {role_name} pair {index}"
            split_a = _SPLIT_NAMES[int(a.pair_split[pair_a])]
            split_b = _SPLIT_NAMES[int(b.pair_split[pair_b])]
            if split_a != split_b:
                yield f"{where}: split {split_a} -> {split_b}"
            yield from _pair_differences(where, a, pair_a, b, pair_b)
    yield from _variant_differences(name, a, task_a, b, task_b)


def _pair_differences(where: str, a: Plan, pair_a: int, b: Plan, pair_b: int) -> Iterator[str]:
    for side, side_name in enumerate(_SIDES):
        shape_a, shape_b = tuple(a.shapes[pair_a, side]), tuple(b.shapes[pair_b, side])
        if shape_a != shape_b:
            yield (
                f"{where} {side_name}: {shape_a[0]} x {shape_a[1]} -> {shape_b[0]} x {shape_b[1]}"
            )
            continue
        # Cells outside the grid are compared too: they should be 0 and are hashed.
        size = min(a.grids.shape[-1], b.grids.shape[-1])
        ours, theirs = a.grids[pair_a, side, :size, :size], b.grids[pair_b, side, :size, :size]
        for row, col in np.argwhere(ours != theirs).tolist():
            yield (
                f"{where} {side_name} row {row} column {col}:"
                f" {ours[row, col]} -> {theirs[row, col]}"
            )


def _variant_differences(name: str, a: Plan, task_a: int, b: Plan, task_b: int) -> Iterator[str]:
    ours, theirs = _variants(a, task_a), _variants(b, task_b)
    if len(ours) != len(theirs):
        yield f"task {name}: {len(ours) - 1} -> {len(theirs) - 1} variants"
    shared = min(len(ours), len(theirs))
    other = (ours[:shared] != theirs[:shared]).any(axis=1)
    if other.any():
        yield (
            f"task {name}: {int(other.sum())} of {shared - 1} variants are others,"
            f" the first is number {int(other.argmax())}"
        )


def _offset_differences(a: Plan, b: Plan) -> Iterator[str]:
    for split_name, split in (("train", TRAIN), ("test", TEST)):
        ours, theirs = ((p.train_pads, p.test_pads)[split] for p in (a, b))
        if len(ours) != len(theirs):
            yield f"split {split_name}: {len(ours)} -> {len(theirs)} examples"
        elif other := int((ours != theirs).any(axis=1).sum()):
            yield f"split {split_name}: {other} of {len(ours)} examples stand elsewhere"


def _pairs(plan: Plan, task: int) -> NDArray[np.int64]:
    first, stop = np.searchsorted(plan.pair_task, [task, task + 1])
    return np.arange(first, stop)


def _variants(plan: Plan, task: int) -> NDArray[np.uint8]:
    """Returns dihedral id and colour map of a task's variants, (variants, 11)."""
    first, stop = np.searchsorted(plan.variant_task, [task, task + 1])
    return np.column_stack([plan.variant_dihedral[first:stop], plan.variant_color_map[first:stop]])
