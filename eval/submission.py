"""The ARC Prize / Kaggle ``submission.json``: two attempts per test pair."""

from dataclasses import dataclass

from eval.voting import Grids, Ranking

FILLER = ((0,),)
"""Stands where there is no candidate or the candidate is the empty grid."""

Attempts = dict[str, list[dict[str, list[list[int]]]]]


@dataclass(frozen=True)
class Submission:
    """A submission and what in it is not a prediction."""

    attempts: Attempts
    """Task -> per test pair ``attempt_1`` and ``attempt_2``; the content of submission.json."""
    fillers: tuple[str, ...]
    """The attempts, ``task/index/attempt_1``, that hold the filler."""


def build_submission(ranking: Ranking, truth: Grids) -> Submission:
    """Puts the first two candidates of every test pair into a submission.

    A single candidate fills both attempts. Where there is no candidate, or it is the empty grid,
    the attempt is the 1 x 1 grid of colour 0 and is listed.

    Args:
        ranking: Candidates per test pair, best first.
        truth: Outputs (or inputs) of every test pair, known or not: which there are, and in which
            order.

    Returns:
        The submission; ``arc_data.json_files.write_json`` writes its ``attempts``.

    Raises:
        ValueError: If the ranking has a test pair that the truth lacks.

    **Source**: the ARC Prize 2024 and 2025 competition pages on Kaggle (submission format).
    """
    for task, index in ranking:
        if task not in truth or not 0 <= index < len(truth[task]):
            raise ValueError(
                f"ranking: test pair {task}/{index} must be in the data, found only other pairs;"
                " use the data set the predictions were made on"
            )
    attempts: Attempts = {}
    fillers = []
    for task, outputs in truth.items():
        attempts[task] = []
        for index in range(len(outputs)):
            candidates = ranking.get((task, index), [])
            pair = {}
            for place, key in enumerate(("attempt_1", "attempt_2")):
                chosen = candidates[min(place, len(candidates) - 1)] if candidates else None
                if chosen is None or chosen.grid.size == 0:
                    fillers.append(f"{task}/{index}/{key}")
                    pair[key] = [list(row) for row in FILLER]
                else:
                    pair[key] = chosen.grid.tolist()
            attempts[task].append(pair)
    return Submission(attempts=attempts, fillers=tuple(fillers))
