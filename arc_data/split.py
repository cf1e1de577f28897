"""One split of a compiled data set, and the making of its rows."""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arc_data.augment import NUM_DIHEDRAL, apply_dihedral
from arc_data.tokens import COLOR_OFFSET, EOS, PAD, VOCAB_SIZE

if TYPE_CHECKING:
    from arc_data.compiled import Plan

CHUNK_ROWS = 4096
"""Rows made at a time where a whole split is gone through."""


class CanvasFrames:
    """All base grids in all eight turns as tokens, laid out so that moving one is one copy.

    A turned grid, always with its EOS row and column, stands at the top left of a square one
    cell wider than the canvas. Moving it by (pad_r, pad_c) moves its flat form by
    ``pad_r * side + pad_c`` cells: nothing wraps, because the extra column and row take the EOS
    that no longer fits and are cut off in the end. Zeros in front of the flat form are what
    moves in. The store is made at the first use.

    Args:
        grids: Base colours, (pairs, 2, canvas, canvas) uint8.
        shapes: Rows and columns, (pairs, 2, 2) uint8; 0, 0 gives PAD only.

    Attributes:
        canvas: Side of the canvas in cells.
    """

    def __init__(self, grids: NDArray[np.uint8], shapes: NDArray[np.uint8]) -> None:
        self._grids = grids
        self._shapes = shapes
        self.canvas = grids.shape[-1]
        self._side = self.canvas + 1
        # The longest move is that of a 1 x 1 grid to the last cell of the canvas.
        self._lead = (self.canvas - 1) * (self._side + 1)

    def take(
        self,
        pairs: NDArray[np.int64],
        dihedrals: NDArray[np.uint8],
        pads: NDArray[np.uint8],
    ) -> NDArray[np.uint8]:
        """Returns the turned and moved grids of some pairs, in base colours.

        Args:
            pairs: Pair indices, (n,).
            dihedrals: Dihedral ids 0..7, (n,).
            pads: (pad_r, pad_c) at which both grids fit the canvas, (n, 2).

        Returns:
            Tokens of input and output, (n, 2, canvas, canvas) uint8, a view.
        """
        shift = pads[:, 0].astype(np.int64) * self._side + pads[:, 1]  # (n,)
        flat = self._windows[pairs, dihedrals, :, self._lead - shift]  # (n, 2, side * side)
        squares = flat.reshape(-1, 2, self._side, self._side)
        return squares[:, :, : self.canvas, : self.canvas]  # (n, 2, canvas, canvas)

    @cached_property
    def _windows(self) -> NDArray[np.uint8]:
        """All moves of all frames, (pairs, 8, 2, lead + 1, side * side), a view of the store."""
        area = self._side * self._side
        store = np.full((len(self._grids), NUM_DIHEDRAL, 2, self._lead + area), PAD, dtype=np.uint8)
        frames = store[..., self._lead :].reshape(*store.shape[:3], self._side, self._side)
        assert np.shares_memory(frames, store)
        for side in (0, 1):
            shapes, group = np.unique(self._shapes[:, side], axis=0, return_inverse=True)
            for index, (rows, cols) in enumerate(shapes.tolist()):
                if rows == 0:
                    continue
                members = np.flatnonzero(group == index)
                block = self._grids[members, side, :rows, :cols] + COLOR_OFFSET
                for dihedral in range(NUM_DIHEDRAL):
                    turned = apply_dihedral(block, dihedral)  # (members, r, c)
                    r, c = turned.shape[1:]
                    frames[members, dihedral, side, :r, :c] = turned
                    frames[members, dihedral, side, r, :c] = EOS
                    frames[members, dihedral, side, :r, c] = EOS
        return np.lib.stride_tricks.sliding_window_view(store, area, axis=-1)


class Split:
    """The examples of one split: variant by variant, in each the task's pairs in order.

    Args:
        plan: The arrays of the data set.
        code: 0 for train, 1 for test.
        pads: (pad_r, pad_c) of each example, (num_examples, 2) uint8.
        frames: The frames of ``plan.grids``.

    Attributes:
        num_examples: Number of examples over all variants.
        num_groups: Number of tasks with examples in this split.
        puzzle_identifiers: Puzzle id of each variant, (variants,) int32.
        puzzle_indices: First example of each variant, then their number, (variants + 1,) int32.
        group_indices: First variant of each group, then their number, (groups + 1,) int32.
    """

    def __init__(
        self, plan: "Plan", code: int, pads: NDArray[np.uint8], frames: CanvasFrames
    ) -> None:
        self._plan = plan
        self._pads = pads
        self._frames = frames
        self._is_test = code == 1
        num_tasks = int(plan.variant_task[-1]) + 1
        every_pair = np.arange(len(plan.pair_task))
        every_variant = np.arange(len(plan.variant_task))
        here = np.flatnonzero(plan.pair_split == code)
        self._task_pair, _ = _first_and_count(plan.pair_task, every_pair, num_tasks)
        self._split_pair, pair_count = _first_and_count(plan.pair_task, here, num_tasks)
        self._task_variant, variant_count = _first_and_count(
            plan.variant_task, every_variant, num_tasks
        )
        self._variants = np.flatnonzero(pair_count[plan.variant_task])
        self.puzzle_identifiers = (self._variants + 1).astype(np.int32)  # 0 is blank
        self.puzzle_indices = _offsets(pair_count[plan.variant_task[self._variants]])
        self.group_indices = _offsets(variant_count[pair_count > 0])
        self.num_groups = len(self.group_indices) - 1
        self.num_examples = int(self.puzzle_indices[-1])

    def materialise(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Makes rows of the published arrays, byte for byte.

        Args:
            rows: Example indices in [0, num_examples), (n,), any order, repeats allowed.

        Returns:
            ``inputs`` and ``labels``, tokens 0..11, (n, canvas * canvas) uint8, and
            ``puzzle_identifiers``, (n,) int32. An unknown output gives a label of PAD only.

        Raises:
            ValueError: If a row is out of range.
        """
        plan = self._plan
        variants, pairs = self._locate(rows)
        tokens = self._frames.take(pairs, plan.variant_dihedral[variants], self._pads[rows])
        recolor = np.empty((len(variants), VOCAB_SIZE), dtype=np.uint8)
        recolor[:, :COLOR_OFFSET] = np.arange(COLOR_OFFSET)
        recolor[:, COLOR_OFFSET:] = plan.variant_color_map[variants] + COLOR_OFFSET
        first = np.arange(len(variants)) * VOCAB_SIZE
        colored = recolor.reshape(-1)[tokens + first[:, None, None, None]]
        flat = colored.reshape(len(variants), 2, self._frames.canvas**2)  # (n, 2, canvas * canvas)
        return {
            "inputs": flat[:, 0],
            "labels": flat[:, 1],
            "puzzle_identifiers": (variants + 1).astype(np.int32),
        }

    @property
    def num_chunks(self) -> int:
        """Number of pieces that ``chunks`` yields."""
        return -(-self.num_examples // CHUNK_ROWS)

    def chunks(self) -> Iterator[dict[str, NDArray[Any]]]:
        """Yields all rows in order, ``CHUNK_ROWS`` at a time, as ``materialise`` returns them."""
        for start in range(0, self.num_examples, CHUNK_ROWS):
            yield self.materialise(np.arange(start, min(start + CHUNK_ROWS, self.num_examples)))

    def describe(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Says what each row is.

        Args:
            rows: Example indices in [0, num_examples), (n,).

        Returns:
            ``task``: index into ``task_names``, (n,) int32. ``test_index``, (n,) int32: in the
            test split the pair's index among the task's test pairs, in the train split its
            index among train and test pairs together. ``dihedral``, (n,) uint8. ``color_map``,
            (n, 10) uint8. ``variant``, (n,) int32: 0 is the original, counted in the task.

        Raises:
            ValueError: If a row is out of range.
        """
        plan = self._plan
        variants, pairs = self._locate(rows)
        tasks = plan.variant_task[variants]
        first_pair = self._split_pair if self._is_test else self._task_pair
        return {
            "task": tasks.astype(np.int32),
            "test_index": (pairs - first_pair[tasks]).astype(np.int32),
            "dihedral": np.array(plan.variant_dihedral[variants]),
            "color_map": np.array(plan.variant_color_map[variants]),
            "variant": (variants - self._task_variant[tasks]).astype(np.int32),
        }

    def _locate(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the variant and the pair of each row, both (n,) int64."""
        if rows.size and not 0 <= rows.min() <= rows.max() < self.num_examples:
            raise ValueError(
                f"rows must be in [0, {self.num_examples}), found {rows.min()}..{rows.max()};"
                " take them from this split"
            )
        local = np.searchsorted(self.puzzle_indices, rows, side="right") - 1
        variants = self._variants[local]
        pairs = self._split_pair[self._plan.variant_task[variants]]
        return variants, pairs + rows - self.puzzle_indices[local]


def _first_and_count(
    tasks: NDArray[np.int32], members: NDArray[np.int64], num_tasks: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns, per task, the first of the ascending ``members`` it owns and how many it owns."""
    owners = tasks[members]
    first = np.zeros(num_tasks, dtype=np.int64)
    first[owners[::-1]] = members[::-1]  # of repeated indices the last assignment stays
    return first, np.bincount(owners, minlength=num_tasks)


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Returns the published layout of counts: 0, then their running sums, (n + 1,) int32."""
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
