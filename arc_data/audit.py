"""What a score on a data set can mean: counts, duplicates, and test pairs seen in training.

A test pair is *seen* if its input and output equal, in this order, those of a pair that is
trained on. *Up to dihedral and colours* means after one of the eight turns and one colour map
that keeps 0, the same for input and output: what augmentation shows the model anyway.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arc_data.augment import NUM_DIHEDRAL, apply_dihedral
from arc_data.compiled import TEST, TRAIN, Plan
from arc_data.tokens import NUM_COLORS

ERRATA_FILE = "errata.json"
_NAMES_PER_LINE = 12


def audit_plan(plan: Plan, task_names: Sequence[str], num_aug: int) -> dict[str, Any]:
    """Counts and compares what a plan holds.

    Args:
        plan: The arrays of a data set.
        task_names: Task names in group order.
        num_aug: Most variants per task besides the original.

    Returns:
        JSON values only. ``tasks``: how many act as ``evaluation`` and how many as
        ``training``. ``pairs``: pairs of the originals in the splits ``train`` and ``test``.
        ``test_pairs_per_task``: {number of test pairs: tasks}. ``short_of_num_aug``: ``tasks``
        {name: variants besides the original}, ``variants`` missing in all.
        ``same_pairs``: groups of tasks with the same pairs in any role and order, ``within`` a
        kind of task and ``across``. ``evaluation_demonstrations_in_train``: whether train pairs
        of evaluation tasks are trained on. ``test_pairs_seen``: {``TASK/INDEX``: pairs trained
        on, as ``TASK ROLE INDEX``}, ``exact``, and up to dihedral and colours in ``other_task``
        and ``own_task``; an exact one is there too.
        ``errata``: entries of the list of known errata whose task is there.
    """
    held_out = np.zeros(len(task_names), dtype=bool)
    held_out[plan.pair_task[plan.pair_split == TEST]] = True
    is_train = plan.pair_split == TRAIN
    test_pairs = Counter(plan.pair_task[plan.pair_split == TEST].tolist())
    return {
        "tasks": {"evaluation": int(held_out.sum()), "training": int((~held_out).sum())},
        "pairs": {"train": int(is_train.sum()), "test": sum(test_pairs.values())},
        "test_pairs_per_task": {
            str(pairs): tasks for pairs, tasks in sorted(Counter(test_pairs.values()).items())
        },
        "short_of_num_aug": _short(plan, task_names, num_aug),
        "same_pairs": _same_pairs(plan, task_names, held_out),
        "evaluation_demonstrations_in_train": bool(
            (is_train & held_out[plan.pair_task] & ~plan.pair_is_test).any()
        ),
        "test_pairs_seen": _seen(plan, task_names),
        "errata": [entry for entry in load_errata() if entry["task"] in set(task_names)],
    }


def load_errata() -> list[dict[str, str]]:
    """Returns the list of known errata: entries of task, source and note."""
    text = (resources.files("arc_data") / ERRATA_FILE).read_text(encoding="utf-8")
    entries: list[dict[str, str]] = json.loads(text)["tasks"]
    return entries


def format_audit(findings: Mapping[str, Any]) -> list[str]:
    """Puts findings of ``audit_plan`` into lines of text."""
    tasks, pairs, short = findings["tasks"], findings["pairs"], findings["short_of_num_aug"]
    per_task = ", ".join(
        f"{count} with {number}" for number, count in findings["test_pairs_per_task"].items()
    )
    shown = findings["evaluation_demonstrations_in_train"]
    lines = [
        f"tasks: {tasks['evaluation']} evaluation, {tasks['training']} training",
        f"pairs: {pairs['train']} in train, {pairs['test']} in test",
        f"test pairs per evaluation task: {per_task or 'none'}",
        f"tasks short of num_aug: {len(short['tasks'])}, by {short['variants']} variants in all",
        *_listed(f"{name} has {number}" for name, number in short["tasks"].items()),
        f"evaluation demonstrations in train: {'yes' if shown else 'no'}",
    ]
    same = findings["same_pairs"]
    for key, label in (
        ("training", "two training tasks"),
        ("evaluation", "two evaluation tasks"),
        ("across", "a training and an evaluation task"),
    ):
        lines.append(f"the same pairs in {label}: {len(same[key])}")
        lines += _listed(" = ".join(names) for names in same[key])
    seen = findings["test_pairs_seen"]
    for key, label in (
        ("exact", "exactly"),
        ("other_task", "in another task, up to dihedral and colours"),
        ("own_task", "in their own task, up to dihedral and colours"),
    ):
        lines.append(f"evaluation test pairs seen in training {label}: {len(seen[key])}")
        lines += _listed(f"{pair} = {', '.join(like)}" for pair, like in seen[key].items())
    every = {pair for found in seen.values() for pair in found}
    lines.append(f"evaluation test pairs seen in training in any of these ways: {len(every)}")
    errata = findings["errata"]
    lines.append(f"tasks on the list of known errata: {len(errata)}")
    lines += [f"  {entry['task']}: {entry['note']} ({entry['source']})" for entry in errata]
    return lines


def _short(plan: Plan, task_names: Sequence[str], num_aug: int) -> dict[str, Any]:
    made = np.bincount(plan.variant_task, minlength=len(task_names)) - 1
    tasks = {
        name: number
        for name, number in sorted(zip(task_names, made.tolist(), strict=True))
        if number < num_aug
    }
    return {"tasks": tasks, "variants": sum(num_aug - number for number in tasks.values())}


def _same_pairs(
    plan: Plan, task_names: Sequence[str], held_out: NDArray[np.bool_]
) -> dict[str, list[list[str]]]:
    contents: dict[int, list[bytes]] = defaultdict(list)
    for pair, task in enumerate(plan.pair_task.tolist()):
        contents[task].append(_exact_key(*_grids(plan, pair)))
    groups: dict[tuple[bytes, ...], list[int]] = defaultdict(list)
    for task, keys in contents.items():
        groups[tuple(sorted(keys))].append(task)
    found: dict[str, list[list[str]]] = {"training": [], "evaluation": [], "across": []}
    for tasks in groups.values():
        if len(tasks) > 1:
            kinds = {"evaluation" if held_out[task] else "training" for task in tasks}
            kind = "across" if len(kinds) == 2 else kinds.pop()
            found[kind].append(sorted(task_names[task] for task in tasks))
    return {kind: sorted(names) for kind, names in found.items()}


def _seen(plan: Plan, task_names: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    exact: dict[bytes, list[int]] = defaultdict(list)
    turned: dict[bytes, list[int]] = defaultdict(list)
    for pair in np.flatnonzero(plan.pair_split == TRAIN).tolist():
        grids = _grids(plan, pair)
        exact[_exact_key(*grids)].append(pair)
        turned[_canonical_key(*grids)].append(pair)

    def name(pair: int) -> str:
        role, number = plan.role(pair)
        return f"{task_names[plan.pair_task[pair]]} {role} {number}"

    found: dict[str, dict[str, list[str]]] = {"exact": {}, "other_task": {}, "own_task": {}}
    for pair in np.flatnonzero(plan.pair_split == TEST).tolist():
        grids = _grids(plan, pair)
        if grids[1].size == 0:  # the output is not known
            continue
        task = plan.pair_task[pair]
        like = turned[_canonical_key(*grids)]
        for kind, pairs in (
            ("exact", exact[_exact_key(*grids)]),
            ("other_task", [other for other in like if plan.pair_task[other] != task]),
            ("own_task", [other for other in like if plan.pair_task[other] == task]),
        ):
            if pairs:
                found[kind][f"{task_names[task]}/{plan.role(pair)[1]}"] = sorted(map(name, pairs))
    return {kind: dict(sorted(pairs.items())) for kind, pairs in found.items()}


def _grids(plan: Plan, pair: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Returns input and output of a pair; an unknown output is 0 x 0."""
    (r_in, c_in), (r_out, c_out) = plan.shapes[pair].tolist()
    return plan.grids[pair, 0, :r_in, :c_in], plan.grids[pair, 1, :r_out, :c_out]


def _exact_key(*grids: NDArray[np.uint8]) -> bytes:
    shapes = b"".join(bytes(grid.shape) for grid in grids)
    return shapes + b"".join(grid.tobytes() for grid in grids)


def _canonical_key(*grids: NDArray[np.uint8]) -> bytes:
    """Returns a key that is equal for two pairs exactly if a turn and a colour map join them.

    Of each turn the colours but 0 are numbered in order of their first appearance; the least of
    the eight results stands for all of them.
    """
    keys = []
    for dihedral in range(NUM_DIHEDRAL):
        turned = [apply_dihedral(grid, dihedral) for grid in grids]
        shapes = b"".join(bytes(grid.shape) for grid in turned)
        cells = b"".join(grid.tobytes() for grid in turned)
        order = [color for color in dict.fromkeys(cells) if color]
        numbered = bytes.maketrans(bytes(order), bytes(range(1, len(order) + 1)))
        assert len(order) < NUM_COLORS
        keys.append(shapes + cells.translate(numbered))
    return min(keys)


def _listed(items: Any) -> list[str]:
    """Returns items in indented lines, several to a line."""
    texts = list(items)
    starts = range(0, len(texts), _NAMES_PER_LINE)
    return ["  " + "; ".join(texts[start : start + _NAMES_PER_LINE]) for start in starts]
