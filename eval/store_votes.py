"""Rows of a predictions store become votes, shard by shard."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from eval.decoding import GridPool, decode
from eval.predictions import Predictions
from eval.voting import Grids, PairIndex, Votes, confidences, variant_codes

_SEGMENT_BASE = 2**32


class StoreVotes:
    """Collects votes from the rows of a store; keeps no tokens, only the distinct grids.

    Args:
        truth: Outputs (or inputs) of every test pair; says which tasks and test pairs exist.

    Attributes:
        sources: Names of the sources met, in order.
        segments: Segment -> number of rows.
    """

    def __init__(self, truth: Grids) -> None:
        self._index = PairIndex(truth)
        self._pool = GridPool()
        self._numbers: dict[tuple[str, int], int] = {}
        self._parts: list[tuple[NDArray[np.int64], ...]] = []
        self._logits: list[NDArray[np.float32]] = []
        self._num_rows = 0
        self.sources: list[str] = []
        self.segments: Counter[int] = Counter()

    def add(self, rows: Predictions) -> None:
        """Takes the rows of one shard.

        Args:
            rows: Any number of rows.

        Raises:
            ValueError: If a row names an unknown task or test pair.
        """
        if len(rows) == 0:
            return
        pair = self._pair_numbers(rows)
        grid = decode(rows.tokens, rows.canvas, rows.dihedral, rows.color_map, self._pool)
        names, place = np.unique(rows.source, return_inverse=True)
        self.sources += [name for name in names.tolist() if name not in self.sources]
        numbers = [self.sources.index(name) for name in names.tolist()]
        source = np.array(numbers, dtype=np.int64)[place]
        variant = variant_codes(rows.dihedral, rows.color_map)
        self._parts.append((pair, grid, variant, source * _SEGMENT_BASE + rows.segment))
        self._logits.append(rows.q_halt_logit)
        segments, counts = np.unique(rows.segment, return_counts=True)
        self.segments.update(dict(zip(segments.tolist(), counts.tolist(), strict=True)))
        self._num_rows += len(rows)

    def votes(self) -> Votes:
        """One vote per row.

        Raises:
            ValueError: If two rows have the same (task, test pair, variant, segment, source).
        """
        pair, grid, variant, origin = self._columns()
        self._refuse_duplicates(pair, variant, origin)
        logits = self._logits or [np.empty(0, np.float32)]
        return Votes(
            pairs=self._index.pairs,
            grids=self._pool,
            pair=pair,
            grid=grid,
            confidence=confidences(np.concatenate(logits)),
            weight=np.ones(len(pair)),
            variant=variant,
        )

    def num_answered(self) -> list[int]:
        """Of each source, how many (test pair, variant) it answers."""
        pair, _, variant, origin = self._columns()
        keys = np.stack([origin // _SEGMENT_BASE, pair, variant])
        order = np.lexsort(keys[::-1])
        is_new = (np.diff(keys[:, order], axis=1, prepend=-1) != 0).any(axis=0)
        return np.bincount(keys[0, order][is_new], minlength=len(self.sources)).tolist()

    def _columns(self) -> list[NDArray[np.int64]]:
        empty = (np.empty(0, np.int64),) * 4
        return [np.concatenate(part) for part in zip(*(self._parts or [empty]), strict=True)]

    def _pair_numbers(self, rows: Predictions) -> NDArray[np.int64]:
        _, place = np.unique(rows.task_id, return_inverse=True)
        # A task's name and an index below 2**31 as one number, so that each is looked up once.
        told, first, back = np.unique(
            place.astype(np.int64) * 2**31 + rows.test_index, return_index=True, return_inverse=True
        )
        numbers = np.empty(len(told), dtype=np.int64)
        for i, row in enumerate(first.tolist()):
            where = f"predictions row {self._num_rows + row}"
            task, index = str(rows.task_id[row]), int(rows.test_index[row])
            numbers[i] = self._index.number(task, index, where)
        return numbers[back]

    def _refuse_duplicates(
        self, pair: NDArray[np.int64], variant: NDArray[np.int64], origin: NDArray[np.int64]
    ) -> None:
        keys = np.stack([pair, variant, origin])
        order = np.lexsort(keys)
        equal = (keys[:, order[1:]] == keys[:, order[:-1]]).all(axis=0)
        if equal.any():
            row = int(order[1:][equal].min())
            task, index = self._index.pairs[pair[row]]
            dihedral, digits = divmod(int(variant[row]), 10**10)
            source, segment = divmod(int(origin[row]), _SEGMENT_BASE)
            raise ValueError(
                f"predictions row {row}: {task}/{index}, variant t{dihedral}_{digits:010d},"
                f" segment {segment}, source {self.sources[source]!r} must occur once, found it"
                " twice; remove the duplicate predictions"
            )


def votes_from_predictions(shards: Iterable[Predictions] | Predictions, truth: Grids) -> Votes:
    """Turns a predictions store into votes.

    Args:
        shards: The store's rows, all at once or shard by shard.
        truth: Outputs (or inputs) of every test pair; says which tasks and test pairs exist.

    Returns:
        One vote per row.

    Raises:
        ValueError: See ``StoreVotes``.
    """
    collected = StoreVotes(truth)
    for rows in [shards] if isinstance(shards, Predictions) else shards:
        collected.add(rows)
    return collected.votes()
