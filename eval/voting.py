"""Count-first voting: predictions become votes, votes become ranked candidates per test pair."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from arc_data.augment import parse_variant_name
from arc_data.tokens import NUM_COLORS, PAD
from eval.decoding import GridPool, decode, grid_digest
from eval.predictions import MAX_CANVAS, Predictions

BLANK_NAME = "<blank>"
NEUTRAL_CONFIDENCE = 0.5
"""Confidence of a plain vote that states none."""

TestPair = tuple[str, int]
"""A task's name and the index of one of its test pairs."""
Grids = Mapping[str, Sequence[NDArray[np.uint8] | None]]
"""Per task, one grid per test pair in the order of the data; None where unknown."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Votes:
    """n votes, as numbers into the test pairs and into the distinct grids."""

    pairs: tuple[TestPair, ...]
    """Every test pair of the data, voted for or not."""
    grids: Sequence[NDArray[np.uint8]]
    """The distinct grids, (r, c) each, in the original frame."""
    pair: NDArray[np.int64]
    """(n,), index into ``pairs``."""
    grid: NDArray[np.int64]
    """(n,), index into ``grids``."""
    confidence: NDArray[np.float64]
    """(n,), in [0, 1]."""
    weight: NDArray[np.float64]
    """(n,), what a vote adds to the count, > 0; 1 for every predicted canvas."""

    def __len__(self) -> int:
        return len(self.pair)


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One distinct grid that was voted for as the output of a test pair."""

    grid: NDArray[np.uint8]
    """(r, c) colours 0..9, read-only; the empty grid is (0, 0)."""
    digest: str
    """``decoding.grid_digest`` of the grid."""
    count: int | float
    """Sum of the weights of its votes; a float only where weights are not whole."""
    mean_confidence: float
    """Mean confidence over its votes, in [0, 1]."""


Ranking = dict[TestPair, list[Candidate]]
"""Per test pair of the data its candidates, best first; empty where nothing voted."""


def votes_from_predictions(predictions: Predictions, truth: Grids) -> Votes:
    """Turns a predictions store into votes.

    Args:
        predictions: The store's rows.
        truth: Outputs (or inputs) of every test pair; says which tasks and test pairs exist.

    Returns:
        One vote per row.

    Raises:
        ValueError: If a row names an unknown task or test pair, or if two rows have the same
            (task, test pair, variant, segment, source).
    """
    names, task = np.unique(predictions.task_id, return_inverse=True)
    pairs, first_pair, num_pairs = _index_pairs(truth)
    for name in names.tolist():
        if name not in truth:
            raise ValueError(_unknown_task(name, "predictions"))
    first = np.array([first_pair[name] for name in names.tolist()], dtype=np.int64)
    limit = np.array([num_pairs[name] for name in names.tolist()], dtype=np.int64)
    outside = np.flatnonzero((predictions.test_index < 0) | (predictions.test_index >= limit[task]))
    if len(outside):
        row = int(outside[0])
        name = str(names[task[row]])
        index = int(predictions.test_index[row])
        raise ValueError(_unknown_pair(name, index, num_pairs[name], f"predictions row {row}"))
    pair = first[task] + predictions.test_index
    _refuse_duplicates(predictions, pair)
    pool = GridPool()
    grid = decode(
        predictions.tokens, predictions.canvas, predictions.dihedral, predictions.color_map, pool
    )
    return _votes(pairs, pool, pair, grid, _sigmoid(predictions.q_halt_logit))


def votes_from_grids(grids: Sequence[Mapping[str, Any]], truth: Grids) -> Votes:
    """Turns plain grids in the original frame into votes, one each.

    Args:
        grids: Objects with ``task``, ``test_index``, ``grid`` (list of rows of colours 0..9, the
            empty grid is []) and, if wanted, one of ``confidence`` in [0, 1] and
            ``q_halt_logit``, and ``weight`` > 0, which adds to the count in place of 1. The mean
            confidence is over votes, whatever their weight.
        truth: Outputs (or inputs) of every test pair; says which tasks and test pairs exist.

    Returns:
        One vote per object.

    Raises:
        ValueError: If an object is malformed, or names an unknown task or test pair.
    """
    pairs, first_pair, num_pairs = _index_pairs(truth)
    pool = GridPool()
    pair = np.empty(len(grids), dtype=np.int64)
    grid = np.empty(len(grids), dtype=np.int64)
    confidence = np.empty(len(grids), dtype=np.float64)
    weight = np.ones(len(grids), dtype=np.float64)
    for i, vote in enumerate(grids):
        where = f"vote {i}"
        _check_keys(vote, where)
        name, index = vote["task"], vote["test_index"]
        if name not in truth:
            raise ValueError(_unknown_task(name, where))
        if type(index) is not int or not 0 <= index < num_pairs[name]:
            raise ValueError(_unknown_pair(name, index, num_pairs[name], where))
        pair[i] = first_pair[name] + index
        grid[i] = pool.add(_plain_grid(vote["grid"], where)[None])[0]
        confidence[i] = _plain_confidence(vote, where)
        weight[i] = _plain_weight(vote, where)
    return _votes(pairs, pool, pair, grid, confidence, weight)


def votes_from_published(
    names: Sequence[str],
    inputs: NDArray[Any],
    predicted: NDArray[Any],
    logits: NDArray[np.floating[Any]],
    test_inputs: Grids,
) -> Votes:
    """Turns predictions in the published form into votes.

    A vote finds its test pair by its undone input. Where a task has equal test inputs, the rows
    of one variant go to them in the order of the data. Padding rows (named ``<blank>``, all PAD)
    never vote.

    Args:
        names: Published variant names, n of them.
        inputs: Input tokens in the augmented frame, (n, canvas * canvas), any integer type.
        predicted: Predicted tokens, same shape.
        logits: Halting logits, (n,), taken as float32.
        test_inputs: Inputs of every test pair of every task.

    Returns:
        One vote per row that is not padding.

    Raises:
        ValueError: If the shapes differ, a name cannot be read, an input is no test input of its
            task, or a variant has more rows for a test pair than the data has.

    **Source**: HRM ``arc_eval.ipynb`` @ 42410da. Differs: equal test inputs of a task stay apart.
    """
    canvas = _check_published(names, inputs, predicted, logits)
    kept = [i for i, name in enumerate(names) if name != BLANK_NAME or (inputs[i] != PAD).any()]
    pairs, first_pair, _ = _index_pairs(test_inputs)
    variants = [parse_variant_name(names[i], test_inputs) for i in kept]
    dihedral = np.array([v[1] for v in variants], dtype=np.uint8)
    color_map = np.array([v[2] for v in variants], dtype=np.uint8).reshape(-1, NUM_COLORS)
    input_pool, pool = GridPool(), GridPool()
    undone = decode(_as_tokens(inputs[kept], "inputs"), canvas, dihedral, color_map, input_pool)
    grid = decode(_as_tokens(predicted[kept], "predicted"), canvas, dihedral, color_map, pool)

    places: dict[tuple[str, int], list[int]] = {}
    for task, task_inputs in test_inputs.items():
        for index, test_input in enumerate(task_inputs):
            number = None if test_input is None else input_pool.find(test_input)
            if number is not None:
                places.setdefault((task, number), []).append(index)
    met: Counter[tuple[str, int, bytes, int]] = Counter()
    pair = np.empty(len(kept), dtype=np.int64)
    for i, (task, turn, colors) in enumerate(variants):
        number = int(undone[i])
        equal_inputs = places.get((task, number))
        if equal_inputs is None:
            raise ValueError(
                f"row {kept[i]}: the undone input of {names[kept[i]]!r} must be a test input of"
                f" task {task!r}, found another grid; use the data set the predictions were made on"
            )
        key = (task, turn, colors.tobytes(), number)
        if met[key] == len(equal_inputs):
            raise ValueError(
                f"row {kept[i]}: {names[kept[i]]!r} must predict {task}/{equal_inputs[-1]} once,"
                " found it again; remove the duplicate predictions"
            )
        pair[i] = first_pair[task] + equal_inputs[met[key]]
        met[key] += 1
    return _votes(pairs, pool, pair, grid, _sigmoid(np.asarray(logits)[kept]))


def rank(votes: Votes) -> Ranking:
    """Ranks the distinct grids of every test pair: count, then mean confidence, then digest.

    A total order that does not depend on the order of the votes: sums are exact (``math.fsum``),
    and the digest decides what count and mean confidence leave equal.

    Args:
        votes: From one of the ``votes_from_`` functions.

    Returns:
        For every test pair of the data its candidates, best first.

    **Source**: HRM ``arc_eval.ipynb`` @ 42410da (count, then mean confidence). Differs: its ties
    fall to insertion order.
    """
    ranking: Ranking = {pair: [] for pair in votes.pairs}
    key = votes.pair * len(votes.grids) + votes.grid
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1)).tolist()
    confidence = votes.confidence[order].tolist()
    weight = votes.weight[order].tolist()
    digests = [grid_digest(grid) for grid in votes.grids]
    for start, end in pairwise([*starts, len(order)]):
        count = math.fsum(weight[start:end])
        grid = int(votes.grid[order[start]])
        ranking[votes.pairs[votes.pair[order[start]]]].append(
            Candidate(
                grid=votes.grids[grid],
                digest=digests[grid],
                count=int(count) if count.is_integer() else count,
                mean_confidence=math.fsum(confidence[start:end]) / (end - start),
            )
        )
    for candidates in ranking.values():
        candidates.sort(key=lambda c: (-c.count, -c.mean_confidence, c.digest))
    return ranking


def _votes(
    pairs: tuple[TestPair, ...],
    pool: GridPool,
    pair: NDArray[np.int64],
    grid: NDArray[np.int64],
    confidence: NDArray[np.float64],
    weight: NDArray[np.float64] | None = None,
) -> Votes:
    weight = np.ones(len(pair)) if weight is None else weight
    return Votes(
        pairs=pairs, grids=pool.grids, pair=pair, grid=grid, confidence=confidence, weight=weight
    )


def _index_pairs(truth: Grids) -> tuple[tuple[TestPair, ...], dict[str, int], dict[str, int]]:
    """All test pairs, and per task the number of its first one and how many it has."""
    pairs = tuple((name, index) for name, grids in truth.items() for index in range(len(grids)))
    num_pairs = {name: len(grids) for name, grids in truth.items()}
    ends = np.cumsum([0, *num_pairs.values()]).tolist()
    return pairs, dict(zip(truth, ends[:-1], strict=True)), num_pairs


def _sigmoid(logits: NDArray[Any]) -> NDArray[np.float64]:
    single = np.asarray(logits, dtype=np.float32)
    wrong = np.flatnonzero(np.isnan(single))
    if len(wrong):
        raise ValueError(f"q_halt_logit must be a number, found nan in vote {wrong[0]}; remove it")
    return expit(single.astype(np.float64))


def _unknown_task(name: Any, where: str) -> str:
    return f"{where}: unknown task {name!r}; use the data set the predictions were made on"


def _unknown_pair(name: str, index: Any, num_pairs: int, where: str) -> str:
    return (
        f"{where}: test_index of task {name!r} must be a whole number in 0..{num_pairs - 1}, found"
        f" {index!r}; use the data set the predictions were made on"
    )


def _refuse_duplicates(predictions: Predictions, pair: NDArray[np.int64]) -> None:
    digits = predictions.color_map.astype(np.int64) @ 10 ** np.arange(NUM_COLORS)[::-1]
    _, source = np.unique(predictions.source, return_inverse=True)
    keys = np.stack([pair, predictions.dihedral, digits, predictions.segment, source])
    order = np.lexsort(keys)
    equal = (keys[:, order[1:]] == keys[:, order[:-1]]).all(axis=0)
    if equal.any():
        row = int(order[1:][equal].min())
        raise ValueError(
            f"predictions row {row}: {predictions.task_id[row]}/{predictions.test_index[row]},"
            f" variant t{predictions.dihedral[row]}_{digits[row]:010d}, segment"
            f" {predictions.segment[row]}, source {str(predictions.source[row])!r} must occur once,"
            " found it twice; remove the duplicate predictions"
        )


def _check_published(
    names: Sequence[str], inputs: NDArray[Any], predicted: NDArray[Any], logits: NDArray[Any]
) -> int:
    canvas = math.isqrt(inputs.shape[-1])
    expected = (len(names), canvas * canvas)
    if inputs.shape != expected or predicted.shape != expected or logits.shape != expected[:1]:
        raise ValueError(
            f"names, inputs, predicted and logits must have one row each and square canvases,"
            f" found {len(names)} names, {inputs.shape}, {predicted.shape} and {logits.shape};"
            " give the rows of one file"
        )
    return canvas


def _as_tokens(values: NDArray[Any], where: str) -> NDArray[np.uint8]:
    tokens = values.astype(np.uint8)
    if values.dtype.kind not in "iu" or not np.array_equal(tokens, values):
        raise ValueError(
            f"{where}: tokens must be whole numbers in 0..255, found {values.dtype};"
            " give token ids, not logits"
        )
    return tokens


def _check_keys(vote: Mapping[str, Any], where: str) -> None:
    required = {"task", "test_index", "grid"}
    optional = {"confidence", "q_halt_logit", "weight"}
    for key in sorted(required - set(vote)):
        raise ValueError(
            f"{where}: must have task, test_index and grid, {key!r} is missing; add it"
        )
    for key in sorted(set(vote) - required - optional):
        raise ValueError(f"{where}: unknown key {key!r}; use {sorted(required | optional)}")
    if "confidence" in vote and "q_halt_logit" in vote:
        raise ValueError(f"{where}: has confidence and q_halt_logit; give one of them")


def _plain_grid(grid: Any, where: str) -> NDArray[np.uint8]:
    expected = "a list of equally long rows of whole numbers 0..9, or [] for the empty grid"
    rows = grid.tolist() if isinstance(grid, np.ndarray) else grid
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ValueError(f"{where}: grid must be {expected}, found {type(rows).__name__}; fix it")
    if not any(rows):
        return np.empty((0, 0), dtype=np.uint8)
    if len({len(row) for row in rows}) != 1 or max(len(rows), len(rows[0])) > MAX_CANVAS:
        raise ValueError(
            f"{where}: grid must be {expected}, found rows of {sorted({len(r) for r in rows})}"
            f" cells, {len(rows)} of them; fix it"
        )
    for row in rows:
        for cell in row:
            if type(cell) is not int or not 0 <= cell < NUM_COLORS:
                raise ValueError(f"{where}: grid must be {expected}, found {cell!r}; fix it")
    return np.array(rows, dtype=np.uint8)


def _plain_confidence(vote: Mapping[str, Any], where: str) -> float:
    if "q_halt_logit" in vote:
        logit = vote["q_halt_logit"]
        if isinstance(logit, bool) or not isinstance(logit, int | float) or math.isnan(logit):
            raise ValueError(f"{where}: q_halt_logit must be a number, found {logit!r}; fix it")
        return float(_sigmoid(np.array([logit]))[0])
    confidence = vote.get("confidence", NEUTRAL_CONFIDENCE)
    is_number = isinstance(confidence, int | float) and not isinstance(confidence, bool)
    if not is_number or not 0 <= confidence <= 1:
        raise ValueError(f"{where}: confidence must be in [0, 1], found {confidence!r}; fix it")
    return float(confidence)


def _plain_weight(vote: Mapping[str, Any], where: str) -> float:
    weight = vote.get("weight", 1)
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not 0 < weight < math.inf:
        raise ValueError(
            f"{where}: weight must be a finite number above 0, found {weight!r}; fix it"
        )
    return float(weight)
