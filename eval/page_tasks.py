"""What the page's task browser shows, as compact data: grids, candidates, votes, marks.

A grid is one text, its rows joined by ``/``, the empty grid ``""``; a candidate that equals the
right grid is ``"="``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arc_data.compiled import TEST, CompiledDataset
from eval.voting import Candidate, Ranking

NUM_CANDIDATES = 10
"""Candidates shown per test pair, the right one beyond them besides."""
NEAR_SHARE = 0.05
"""A first candidate of the right shape with at most this share of wrong cells, or one, is near."""


def grid_text(grid: NDArray[np.uint8]) -> str:
    """Writes a grid, (r, c) of 0..9, as text."""
    return "/".join("".join(map(str, row)) for row in grid.tolist())


def is_near(candidates: list[Candidate], right: NDArray[np.uint8]) -> bool:
    """Whether votes came near the right grid of a test pair.

    Args:
        candidates: Best first.
        right: The right grid.

    Returns:
        True if it is among the candidates at any rank, or the first has its shape and at most
        5 % of its cells, or one cell, wrong.
    """
    if any(np.array_equal(candidate.grid, right) for candidate in candidates):
        return True
    if not candidates or candidates[0].grid.shape != right.shape:
        return False
    wrong = int(np.count_nonzero(candidates[0].grid != right))
    return wrong <= max(1, NEAR_SHARE * right.size)


def page_tasks(
    dataset: CompiledDataset, ranking: Ranking, results: Mapping[str, Any]
) -> dict[str, Any]:
    """Gathers everything the task browser shows.

    Args:
        dataset: The data set.
        ranking: The candidates of every test pair, best first.
        results: Content of the results.json that was made from them.

    Returns:
        For JSON: ``top_k``; ``tasks``, each with ``id``, ``train`` [[input, output]] and ``test``
        [{input, output (None where unknown), seen (in training), rank, distinct, votes, near,
        candidates [{rank, grid, votes, confidence}]}].

    Raises:
        ValueError: If the ranking is not the one behind ``results``.
    """
    unseen = results.get("without_seen_pairs") or {"seen": []}
    seen = set(unseen["seen"])
    truth, inputs = dataset.truth(), dataset.test_inputs()
    demonstrations = _demonstrations(dataset)
    tasks = []
    for task, outcomes in results["tasks"].items():
        pairs = []
        for index, (right, outcome) in enumerate(zip(truth[task], outcomes, strict=True)):
            candidates = ranking.get((task, index), [])
            rank = _rank(candidates, right)
            if rank != outcome["rank"] or len(candidates) != outcome["candidates"]:
                raise ValueError(
                    f"{task}/{index}: results.json must be made from these predictions, found rank"
                    f" {outcome['rank']} of {outcome['candidates']} there and {rank} of"
                    f" {len(candidates)} here; vote again"
                )
            pairs.append(
                {
                    "input": grid_text(inputs[task][index]),
                    "output": None if right is None else grid_text(right),
                    "seen": f"{task}/{index}" in seen,
                    "rank": rank,
                    "distinct": len(candidates),
                    "votes": outcome["votes"],
                    "near": right is not None and is_near(candidates, right),
                    "candidates": _shown(candidates, right, rank),
                }
            )
        tasks.append({"id": task, "train": demonstrations.get(task, []), "test": pairs})
    return {"top_k": [int(k) for k in results["scores"]["task_accuracy_strict"]], "tasks": tasks}


def _rank(candidates: list[Candidate], right: NDArray[np.uint8] | None) -> int | None:
    if right is None:
        return None
    places = (i for i, c in enumerate(candidates, start=1) if np.array_equal(c.grid, right))
    return next(places, None)


def _shown(
    candidates: list[Candidate], right: NDArray[np.uint8] | None, rank: int | None
) -> list[dict[str, Any]]:
    shown = list(range(1, min(NUM_CANDIDATES, len(candidates)) + 1))
    if rank is not None and rank > NUM_CANDIDATES:
        shown.append(rank)
    return [
        {
            "rank": place,
            "grid": "=" if place == rank else grid_text(candidates[place - 1].grid),
            "votes": candidates[place - 1].count,
            "confidence": round(candidates[place - 1].mean_confidence, 4),
        }
        for place in shown
    ]


def _demonstrations(dataset: CompiledDataset) -> dict[str, list[list[str]]]:
    """Train pairs of the tasks that are evaluated, in the order of the data."""
    plan = dataset.plan
    evaluated = np.unique(plan.pair_task[plan.pair_split == TEST])
    found: dict[str, list[list[str]]] = {}
    for pair in np.flatnonzero(np.isin(plan.pair_task, evaluated) & ~plan.pair_is_test).tolist():
        texts = []
        for side in (0, 1):
            rows, cols = plan.shapes[pair, side].tolist()
            texts.append(grid_text(plan.grids[pair, side, :rows, :cols]))
        found.setdefault(dataset.task_names[plan.pair_task[pair]], []).append(texts)
    return found
