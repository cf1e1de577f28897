"""What to predict and how: which variants, under which puzzle ids, with how many segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from arc_data.compiled import CompiledDataset
from hrm_deeploop.settings import nearest

BLANK_ID = 0
SHUFFLE_SEED = 0
"""Draws the cycle of tasks of puzzle-id mode ``shuffled``: the same for every checkpoint."""


@dataclass(frozen=True, kw_only=True)
class PredictionMode:
    """How a store of predictions is made; part of what makes two results comparable."""

    puzzle_id: Literal["right", "blank", "shuffled"] = "right"
    """Table row that an example is shown with: its own, row 0, or a row of another task."""
    halting: Literal["fixed", "adaptive"] = "fixed"
    """All halt_max_steps segments, or each example until its q values say halt."""
    every_segment: bool = False
    """Whether each segment's prediction is kept (and votes), not only the last one's."""
    tasks: Sequence[str] | None = None
    """The only tasks to predict; None: all that have held-out test pairs."""
    num_aug: int | None = None
    """Variants per task beside the original, at most; None: all."""

    def __post_init__(self) -> None:
        for name, choices in (
            ("puzzle_id", ("right", "blank", "shuffled")),
            ("halting", ("fixed", "adaptive")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be one of {', '.join(choices)}; got {getattr(self, name)!r}"
                )

    @property
    def halting_words(self) -> str:
        """The halting mode as headers and results state it."""
        return f"{self.halting}, every segment" if self.every_segment else self.halting


class Selection:
    """The test examples that a mode asks for, and how they are shown to the model.

    Args:
        dataset: The data set.
        mode: The mode.

    Attributes:
        rows: Example indices of the test split, ascending, (n,) int64.
        tasks: The tasks asked for, in the data set's order; None: all.
        num_aug: Variants per task beside the original that were asked for.

    Raises:
        ValueError: If a task is unknown or nothing of it is held out, ``num_aug`` is out of
            range, or ``shuffled`` is asked for where there is one task only.
    """

    def __init__(self, dataset: CompiledDataset, mode: PredictionMode) -> None:
        self._dataset = dataset
        self._mode = mode
        test = dataset.test
        self._task_names = np.array(dataset.task_names)
        known = test.describe(np.arange(test.num_examples))
        kept = np.ones(test.num_examples, dtype=bool)
        self.tasks: list[str] | None = None
        if mode.tasks is not None:
            self.tasks = _in_order(mode.tasks, dataset)
            chosen = [dataset.task_names.index(name) for name in self.tasks]
            kept &= np.isin(known["task"], chosen)
        self.num_aug = dataset.num_aug if mode.num_aug is None else mode.num_aug
        if not 0 <= self.num_aug <= dataset.num_aug:
            raise ValueError(
                f"num_aug must be in 0..{dataset.num_aug}, the data set's; got {self.num_aug}"
            )
        kept &= known["variant"] <= self.num_aug
        self.rows = np.flatnonzero(kept)
        if len(self.rows) == 0:
            raise ValueError("the data set holds out no test pair; there is nothing to predict")
        if mode.puzzle_id == "shuffled":
            self._other_task = _cycle(np.unique(known["task"]), len(dataset.task_names))

    def keys(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Task, test index and variant of examples, as the columns of a store."""
        known = self._dataset.test.describe(rows)
        return {
            "task_id": self._task_names[known["task"]],
            "test_index": known["test_index"],
            "dihedral": known["dihedral"],
            "color_map": known["color_map"],
        }

    def materialise(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Examples as the model is to see them: ``Split.materialise`` with the mode's ids."""
        arrays = self._dataset.test.materialise(rows)
        if self._mode.puzzle_id == "blank":
            arrays["puzzle_identifiers"] = np.full(len(rows), BLANK_ID, dtype=np.int32)
        elif self._mode.puzzle_id == "shuffled":
            arrays["puzzle_identifiers"] = self._shuffled(rows)
        return arrays

    def _shuffled(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """Of each example, the id of the variant with its number in the next task of a cycle."""
        known = self._dataset.test.describe(rows)
        other = self._other_task[known["task"]]
        variant_task = self._dataset.plan.variant_task
        first, end = (np.searchsorted(variant_task, other, side) for side in ("left", "right"))
        return (first + known["variant"] % (end - first) + 1).astype(np.int32)


def _in_order(names: Sequence[str], dataset: CompiledDataset) -> list[str]:
    held_out = dataset.test_inputs()
    if not names:
        raise ValueError("tasks must name at least one task; got none")
    for name in names:
        if name not in held_out:
            raise ValueError(
                f"task {name!r} has no held-out test pair in the data set{nearest(name, held_out)}"
            )
    return [name for name in held_out if name in set(names)]


def _cycle(tasks: NDArray[np.int32], num_tasks: int) -> NDArray[np.int64]:
    """Maps each of the tasks to the next one in a random cycle through all of them."""
    if len(tasks) < 2:
        raise ValueError("puzzle ids can be shuffled between two or more tasks; there is one")
    order = np.random.default_rng(SHUFFLE_SEED).permutation(tasks)
    other = np.zeros(num_tasks, dtype=np.int64)
    other[order] = np.roll(order, 1)
    return other
