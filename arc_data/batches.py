"""Epochs and batches: which rows a batch holds, as a function of seed and position alone.

Nothing is carried from batch to batch, so a run resumes at any position at once, on any number
of ranks.
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from arc_data.split import Split

_EPOCHS_KEPT = 2


class EpochStream(ABC):
    """A stream of joined epochs of equal size, and its batches.

    Batch b of B examples is ``[b * B, (b + 1) * B)`` of the joined stream and may cross epochs.

    Args:
        examples_per_epoch: E, 1 or more.
        seed: The run's data order seed, 0 or more.

    Attributes:
        examples_per_epoch: E.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(self, examples_per_epoch: int, seed: int) -> None:
        if type(seed) is not int or seed < 0:
            raise ValueError(f"seed must be an integer of 0 or more, found {seed!r}; set seed")
        if examples_per_epoch < 1:
            raise ValueError("an epoch needs examples, found an empty split; check the data set")
        self._seed = seed
        self.examples_per_epoch = examples_per_epoch
        self._kept: dict[int, NDArray[np.int64]] = {}

    @abstractmethod
    def _draw_epoch(self, epoch: int) -> NDArray[np.int64]:
        """An epoch's rows in order, (E,)."""

    def _random_of(self, epoch: int) -> np.random.RandomState:
        """An epoch's own generator."""
        # RandomState's stream is frozen; a Generator's may change with numpy's version.
        seeds = np.random.SeedSequence([self._seed, epoch])
        return np.random.RandomState(np.random.MT19937(seeds))

    def epoch_rows(self, epoch: int) -> NDArray[np.int64]:
        """Returns the rows of one epoch in order.

        Args:
            epoch: Counted from 0.

        Returns:
            Row indices into the split, (examples_per_epoch,) int64.
        """
        if epoch not in self._kept:
            while len(self._kept) >= _EPOCHS_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[epoch] = self._draw_epoch(epoch)
        return self._kept[epoch]

    def batch_rows(
        self, index: int, batch_size: int, *, rank: int = 0, world_size: int = 1
    ) -> NDArray[np.int64]:
        """Returns the rows of one rank's part of a batch.

        Args:
            index: The batch, counted from 0.
            batch_size: Global batch size, a multiple of ``world_size``.
            rank: In [0, world_size); parts follow each other in rank order.
            world_size: Number of ranks.

        Returns:
            Row indices into the split, (batch_size / world_size,) int64.

        Raises:
            ValueError: If an argument is out of range or the batch cannot be divided.
        """
        if batch_size < 1 or world_size < 1 or batch_size % world_size:
            raise ValueError(
                f"batch size must be a positive multiple of the number of ranks, found"
                f" {batch_size} for {world_size} ranks; change global_batch_size"
            )
        if index < 0 or not 0 <= rank < world_size:
            raise ValueError(
                f"batch index must be 0 or more and rank in 0..{world_size - 1},"
                f" found index {index} and rank {rank}; correct the position"
            )
        part = batch_size // world_size
        start = index * batch_size + rank * part
        epoch, skip = divmod(start, self.examples_per_epoch)
        pieces = []
        missing = part
        while missing:
            piece = self.epoch_rows(epoch)[skip : skip + missing]
            pieces.append(piece)
            missing -= len(piece)
            epoch, skip = epoch + 1, 0
        return np.concatenate(pieces)  # (batch_size / world_size,)

    def total_steps(self, epochs: int, batch_size: int) -> int:
        """Returns floor(epochs * E / B), the number of whole batches in ``epochs`` epochs."""
        return epochs * self.examples_per_epoch // batch_size


class EpochOrder(EpochStream):
    """The stream of examples a run sees.

    Epoch e takes the groups in random order, one variant of each drawn uniformly, and all of
    that variant's examples in random order.

    Args:
        split: The split to draw from.
        seed: The run's data order seed, 0 or more.

    Raises:
        ValueError: If the seed is negative or the split is empty.

    **Source**: HRM ``puzzle_dataset.py`` @ 42410da (one variant per group and epoch). Differs:
    examples that would not fit a batch are kept, and nothing depends on the evaluation cadence.
    """

    def __init__(self, split: Split, seed: int) -> None:
        self._puzzle_indices = split.puzzle_indices.astype(np.int64)
        self._first_variant = split.group_indices[:-1].astype(np.int64)
        self._num_variants = np.diff(split.group_indices)
        sizes = np.diff(self._puzzle_indices)
        self._group_sizes = sizes[self._first_variant]  # (groups,)
        assert np.array_equal(sizes, np.repeat(self._group_sizes, self._num_variants))
        super().__init__(int(self._group_sizes.sum()), seed)

    def _draw_epoch(self, epoch: int) -> NDArray[np.int64]:
        stream = self._random_of(epoch)
        groups = stream.permutation(len(self._num_variants))
        variants = self._first_variant[groups] + stream.randint(0, self._num_variants[groups])
        sizes = self._group_sizes[groups]
        place = np.repeat(np.arange(len(groups)), sizes)  # (E,)
        first_in_epoch = np.cumsum(sizes) - sizes
        rows = np.arange(len(place)) - first_in_epoch[place] + self._puzzle_indices[variants][place]
        # Sorting by place first shuffles inside each group only.
        order = np.lexsort((stream.random_sample(len(rows)), place))
        return np.take(rows, order)  # (E,)
