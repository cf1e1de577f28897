"""Plain votes: grids in the original frame, from any solver, one object each."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arc_data.tokens import NUM_COLORS
from eval.decoding import GridPool
from eval.header import MAX_CANVAS
from eval.predictions import read_json_lines
from eval.voting import Grids, PairIndex, Votes, confidences

NEUTRAL_CONFIDENCE = 0.5
"""Confidence of a plain vote that states none."""


def votes_from_json_lines(path: str | Path, truth: Grids) -> Votes:
    """Turns a file of plain votes, one JSON object per line, into votes.

    Args:
        path: The file; it is never held as a whole.
        truth: As for ``votes_from_grids``.

    Returns:
        One vote per line.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is malformed or names an unknown task or test pair; the message
            names the line.
    """
    return _votes(read_json_lines(path), truth)


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
    return _votes(((f"vote {i}", vote) for i, vote in enumerate(grids)), truth)


def _votes(named: Iterable[tuple[str, Mapping[str, Any]]], truth: Grids) -> Votes:
    index = PairIndex(truth)
    pool = GridPool()
    # Numbers in plain lists; the arrays are made once, at the end.
    pair: list[int] = []
    grid: list[int] = []
    confidence: list[float] = []
    weight: list[float] = []
    for where, vote in named:
        _check_keys(vote, where)
        pair.append(index.number(vote["task"], vote["test_index"], where))
        grid.append(int(pool.add(_plain_grid(vote["grid"], where)[None])[0]))
        confidence.append(_plain_confidence(vote, where))
        weight.append(_plain_weight(vote, where))
    return Votes(
        pairs=index.pairs,
        grids=pool,
        pair=np.array(pair, dtype=np.int64),
        grid=np.array(grid, dtype=np.int64),
        confidence=np.array(confidence, dtype=np.float64),
        weight=np.array(weight, dtype=np.float64),
        variant=None,
    )


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
    cells = [cell for row in rows for cell in row]
    if set(map(type, cells)) != {int} or not 0 <= min(cells) <= max(cells) < NUM_COLORS:
        wrong = next(c for c in cells if type(c) is not int or not 0 <= c < NUM_COLORS)
        raise ValueError(f"{where}: grid must be {expected}, found {wrong!r}; fix it")
    return np.frombuffer(bytes(cells), dtype=np.uint8).reshape(len(rows), -1)


def _plain_confidence(vote: Mapping[str, Any], where: str) -> float:
    if "q_halt_logit" in vote:
        logit = vote["q_halt_logit"]
        if isinstance(logit, bool) or not isinstance(logit, int | float) or math.isnan(logit):
            raise ValueError(f"{where}: q_halt_logit must be a number, found {logit!r}; fix it")
        return float(confidences(np.array([logit]))[0])
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
