"""Votes and their ranking: count-first, and other rules by name for comparison."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from arc_data.augment import NUM_DIHEDRAL
from arc_data.tokens import NUM_COLORS
from eval.decoding import GridPool

TestPair = tuple[str, int]
"""A task's name and the index of one of its test pairs."""
Grids = Mapping[str, Sequence[NDArray[np.uint8] | None]]
"""Per task, one grid per test pair in the order of the data; None where unknown."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Votes:
    """n votes, as numbers into the test pairs and into the distinct grids."""

    pairs: tuple[TestPair, ...]
    """Every test pair of the data, voted for or not."""
    grids: GridPool
    """The distinct grids, in the original frame."""
    pair: NDArray[np.int64]
    """(n,), index into ``pairs``."""
    grid: NDArray[np.int64]
    """(n,), index into ``grids``."""
    confidence: NDArray[np.float64]
    """(n,), in [0, 1]."""
    weight: NDArray[np.float64]
    """(n,), what a vote adds to the count, > 0; 1 for every predicted canvas."""
    variant: NDArray[np.int64] | None
    """(n,), from ``variant_codes``; None for plain grids, which have no variant."""

    def __len__(self) -> int:
        return len(self.pair)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One distinct grid that was voted for as the output of a test pair."""

    pool: GridPool
    number: int
    """The grid's number in ``pool``."""
    digest: str
    """``decoding.grid_digest`` of the grid."""
    count: int | float
    """Sum of the weights of its votes; a float only where weights are not whole."""
    mean_confidence: float
    """Mean confidence over its votes, in [0, 1]."""

    @property
    def grid(self) -> NDArray[np.uint8]:
        """(r, c) colours 0..9, read-only; the empty grid is (0, 0)."""
        return self.pool[self.number]


Ranking = dict[TestPair, list[Candidate]]
"""Per test pair of the data its candidates, best first; empty where nothing voted."""


COUNT_FIRST = "count-first"
_VARIANT_BASE = 10**NUM_COLORS
_ORIGINAL = 123_456_789  # no turn, and the digits 0123456789


def variant_codes(dihedral: NDArray[np.uint8], color_map: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Packs variants into one number each: the dihedral id, then the ten digits of the colours.

    Args:
        dihedral: (n,), 0..7.
        color_map: (n, 10), a permutation of 0..9 per row.

    Returns:
        (n,) int64; equal exactly for equal variants.
    """
    digits = color_map.astype(np.int64) @ 10 ** np.arange(NUM_COLORS)[::-1]
    return dihedral.astype(np.int64) * _VARIANT_BASE + digits


def _as_given(votes: Votes) -> Votes:
    return votes


def _originals(votes: Votes) -> Votes:
    kept = _variants(votes) == _ORIGINAL
    return replace(
        votes,
        pair=votes.pair[kept],
        grid=votes.grid[kept],
        confidence=votes.confidence[kept],
        weight=votes.weight[kept],
        variant=_variants(votes)[kept],
    )


def _turns_alike(votes: Votes) -> Votes:
    group = votes.pair * NUM_DIHEDRAL + _variants(votes) // _VARIANT_BASE
    return replace(votes, weight=votes.weight / np.bincount(group)[group])


def _variants(votes: Votes) -> NDArray[np.int64]:
    if votes.variant is None:
        raise ValueError(
            "the rule needs the variant of every vote, and plain grids have none; use count-first,"
            " confidence-first or count-x-confidence"
        )
    return votes.variant


_Key = Callable[["Candidate"], tuple[Any, ...]]


def _count_first(candidate: Candidate) -> tuple[Any, ...]:
    return (-candidate.count, -candidate.mean_confidence, candidate.digest)


def _confidence_first(candidate: Candidate) -> tuple[Any, ...]:
    return (-candidate.mean_confidence, -candidate.count, candidate.digest)


def _product_first(candidate: Candidate) -> tuple[Any, ...]:
    return (-candidate.count * candidate.mean_confidence, *_count_first(candidate))


RULES: dict[str, tuple[Callable[[Votes], Votes], _Key]] = {
    COUNT_FIRST: (_as_given, _count_first),
    "confidence-first": (_as_given, _confidence_first),
    "count-x-confidence": (_as_given, _product_first),
    "original-only": (_originals, _count_first),
    "uniform-dihedral": (_turns_alike, _count_first),
}
"""Rule -> which votes count how much, and what orders the candidates.

The first is the rule; the others are for comparison. ``original-only``: the un-augmented pass
alone. ``uniform-dihedral``: the votes of each of the eight turns of a test pair add up to 1, so
that a turn with more variants has no more say.
"""


def rank(votes: Votes, rule: str = COUNT_FIRST) -> Ranking:
    """Ranks the distinct grids of every test pair.

    By default by count, then mean confidence, then digest: a total order that does not depend on
    the order of the votes, because sums are exact (``math.fsum``) and the digest decides what
    count and mean confidence leave equal.

    Args:
        votes: From one of the modules that make votes.
        rule: A name in ``RULES``.

    Returns:
        For every test pair of the data its candidates, best first.

    Raises:
        ValueError: If there is no such rule, or it needs variants and the votes have none.

    **Source**: HRM ``arc_eval.ipynb`` @ 42410da (count, then mean confidence). Differs: its ties
    fall to insertion order.
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, found {rule!r}; correct it")
    prepare, key_of = RULES[rule]
    votes = prepare(votes)
    ranking: Ranking = {pair: [] for pair in votes.pairs}
    key = votes.pair * len(votes.grids) + votes.grid
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1)).tolist()
    confidence = votes.confidence[order].tolist()
    weight = votes.weight[order].tolist()
    pair, grid = votes.pair[order].tolist(), votes.grid[order].tolist()
    for start, end in pairwise([*starts, len(order)]):
        count = math.fsum(weight[start:end])
        ranking[votes.pairs[pair[start]]].append(
            Candidate(
                pool=votes.grids,
                number=grid[start],
                digest=votes.grids.digest(grid[start]),
                count=int(count) if count.is_integer() else count,
                mean_confidence=math.fsum(confidence[start:end]) / (end - start),
            )
        )
    for candidates in ranking.values():
        candidates.sort(key=key_of)
    return ranking


class PairIndex:
    """Numbers all test pairs of the data, and says what is wrong with one it does not have.

    Args:
        truth: Outputs (or inputs) of every test pair.
    """

    def __init__(self, truth: Grids) -> None:
        self.pairs = tuple((name, i) for name, grids in truth.items() for i in range(len(grids)))
        self._num_pairs = {name: len(grids) for name, grids in truth.items()}
        ends = np.cumsum([0, *self._num_pairs.values()]).tolist()
        self._first = dict(zip(truth, ends[:-1], strict=True))

    def number(self, name: Any, index: Any, where: str) -> int:
        """The number of one test pair.

        Raises:
            ValueError: If the task or the index is none of the data's; the message starts with
                ``where``.
        """
        if not isinstance(name, str) or name not in self._first:
            raise ValueError(
                f"{where}: unknown task {name!r}; use the data set the predictions were made on"
            )
        if type(index) is not int or not 0 <= index < self._num_pairs[name]:
            raise ValueError(
                f"{where}: test_index of task {name!r} must be a whole number in"
                f" 0..{self._num_pairs[name] - 1}, found {index!r}; use the data set the"
                " predictions were made on"
            )
        return self._first[name] + index


def confidences(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Sigmoid, in float64, of halting logits taken as float32.

    Args:
        logits: (n,).

    Raises:
        ValueError: If one is not a number.
    """
    single = np.asarray(logits, dtype=np.float32)
    wrong = np.flatnonzero(np.isnan(single))
    if len(wrong):
        raise ValueError(f"q_halt_logit must be a number, found nan in vote {wrong[0]}; remove it")
    return expit(single.astype(np.float64))
