"""What votes would give if fewer variants voted: many random subsets, in the exact order."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eval.decoding import grid_digest
from eval.voting import Grids, Votes

_CLOSE = 1e-9
"""Mean confidences nearer than this are compared exactly."""


def right_votes(votes: Votes, truth: Grids) -> NDArray[np.int8]:
    """Says of every vote whether its grid is right: 1, 0, or -1 where that is not known, (n,)."""
    numbers = _right_numbers(votes, truth)[votes.pair]  # (n,)
    is_known = np.array([truth[task][i] is not None for task, i in votes.pairs])[votes.pair]
    return np.where(is_known, (votes.grid == numbers).astype(np.int8), np.int8(-1))


def _right_numbers(votes: Votes, truth: Grids) -> NDArray[np.int64]:
    """Number of each test pair's right grid among the distinct ones, -1 if nobody voted for it."""
    numbers = {grid_digest(grid): number for number, grid in enumerate(votes.grids)}
    right = [truth[task][index] for task, index in votes.pairs]
    return np.array(
        [-1 if grid is None else numbers.get(grid_digest(grid), -1) for grid in right],
        dtype=np.int64,
    )


def random_orders(
    votes: Votes, variant: NDArray[np.int64], resamples: int, rng: np.random.Generator
) -> list[NDArray[np.int32]]:
    """Puts every task's variants in random orders, the same for all its test pairs.

    Args:
        votes: All votes.
        variant: A number per vote that names its variant, (n,).
        resamples: Random orders.
        rng: Random stream.

    Returns:
        Per test pair, the places of its votes' variants, (resamples, votes of the pair), the
        votes in the order of the rows.
    """
    rows = np.split(np.argsort(votes.pair, kind="stable"), _boundaries(votes))
    tasks: dict[str, list[int]] = {}
    for pair, (task, _) in enumerate(votes.pairs):
        tasks.setdefault(task, []).append(pair)
    positions: list[NDArray[np.int32]] = [np.empty((resamples, 0), np.int32)] * len(votes.pairs)
    for pairs in tasks.values():
        # Sorted, so that the orders depend on the variants and not on the order of the rows.
        known = np.unique(np.concatenate([variant[rows[pair]] for pair in pairs]))
        order = np.tile(np.arange(len(known), dtype=np.int32), (resamples, 1))
        order = rng.permuted(order, axis=1)
        for pair in pairs:
            positions[pair] = order[:, np.searchsorted(known, variant[rows[pair]])]
    return positions


def _boundaries(votes: Votes) -> NDArray[np.int64]:
    return np.cumsum(np.bincount(votes.pair, minlength=len(votes.pairs)))[:-1]


def hits_by_count(
    votes: Votes,
    orders: list[NDArray[np.int32]],
    truth: Grids,
    counts: Sequence[int],
    top_k: Sequence[int],
) -> NDArray[np.bool_]:
    """Says whether each task is solved when only the first variants of random orders vote.

    Args:
        votes: All votes.
        orders: From ``random_orders``.
        truth: Outputs of every test pair, None where unknown.
        counts: How many variants vote.
        top_k: The K.

    Returns:
        (tasks with a known output, resamples, counts, K).
    """
    rows = np.split(np.argsort(votes.pair, kind="stable"), _boundaries(votes))
    right = _right_numbers(votes, truth)
    digests = np.array([grid_digest(grid) for grid in votes.grids])
    tasks: dict[str, NDArray[np.bool_]] = {}
    for pair, (task, index) in enumerate(votes.pairs):
        if truth[task][index] is None:
            continue
        ranks = np.stack(
            [
                resampled_ranks(votes, rows[pair], orders[pair] < n, int(right[pair]), digests)
                for n in counts
            ],
            axis=1,
        )  # (resamples, counts)
        is_hit = ranks[..., None] <= np.array(top_k)
        tasks[task] = tasks[task] & is_hit if task in tasks else is_hit
    return np.stack(list(tasks.values()))


def resampled_ranks(
    votes: Votes,
    rows: NDArray[np.int64],
    is_in: NDArray[np.bool_],
    right: int,
    digests: NDArray[np.str_],
) -> NDArray[np.float64]:
    """Rank of the right grid when some votes count: the order of ``voting.rank``, for many subsets.

    Args:
        votes: All votes.
        rows: The votes of one test pair.
        is_in: Which of them count, (resamples, len(rows)).
        right: Number of the right grid, -1 if nobody voted for it.
        digests: Digest of each grid.

    Returns:
        The rank, infinite where the right grid has no vote, (resamples,).
    """
    ranks = np.full(len(is_in), np.inf)
    grids, local = np.unique(votes.grid[rows], return_inverse=True)
    if right not in grids:
        return ranks
    mine = int(np.searchsorted(grids, right))
    draw, vote = np.nonzero(is_in)
    cell = draw * len(grids) + local[vote]
    shape, size = (len(is_in), len(grids)), len(is_in) * len(grids)
    weight, confidence = votes.weight[rows], votes.confidence[rows]
    count = np.bincount(cell, weight[vote], size).reshape(shape)
    number = np.bincount(cell, minlength=size).reshape(shape)
    total = np.bincount(cell, confidence[vote], size).reshape(shape)
    mean = total / np.maximum(number, 1)
    ahead = count > count[:, [mine]]
    is_tied = (count == count[:, [mine]]) & (number > 0)
    is_tied[:, mine] = False
    lead = mean - mean[:, [mine]]
    ahead |= is_tied & (lead > _CLOSE)
    for d, c in np.argwhere(is_tied & (np.abs(lead) <= _CLOSE)).tolist():
        exact = [
            math.fsum(confidence[is_in[d] & (local == g)].tolist()) / number[d, g]
            for g in (c, mine)
        ]
        ahead[d, c] = (-exact[0], digests[grids[c]]) < (-exact[1], digests[grids[mine]])
    has_vote = number[:, mine] > 0
    ranks[has_vote] = 1 + ahead.sum(axis=1)[has_vote]
    return ranks
