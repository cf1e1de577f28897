"""The ARC Prize / Kaggle ``submission.json``: two attempts per test pair."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arc_data.files import read_kaggle
from arc_data.tasks import read_grid
from eval.voting import Grids, Ranking

ATTEMPTS = ("attempt_1", "attempt_2")
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
            for place, key in enumerate(ATTEMPTS):
                chosen = candidates[min(place, len(candidates) - 1)] if candidates else None
                if chosen is None or chosen.grid.size == 0:
                    fillers.append(f"{task}/{index}/{key}")
                    pair[key] = [list(row) for row in FILLER]
                else:
                    pair[key] = chosen.grid.tolist()
            attempts[task].append(pair)
    return Submission(attempts=attempts, fillers=tuple(fillers))


def read_challenges(path: str | Path) -> dict[str, int]:
    """Reads how many test pairs each task of an ARC Prize challenges file has, in its order.

    Args:
        path: The file; its name says training, evaluation or test.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is damaged.
    """
    _, tasks = read_kaggle(Path(path), None)
    return {task.name: len(task.test) for task in tasks}


def check_submission(attempts: Mapping[str, Any], challenges: Mapping[str, int]) -> Attempts:
    """Checks a submission against the challenges it answers, as strictly as the judges may.

    Args:
        attempts: What submission.json holds.
        challenges: Task -> test pairs, from ``read_challenges``.

    Returns:
        The submission, its tasks in the order of the challenges.

    Raises:
        ValueError: If a task is missing or unknown, has another number of test pairs, an attempt
            is missing, or a grid is not 1..30 equally long rows of 1..30 colours 0..9.
    """
    for task in challenges:
        if task not in attempts:
            raise ValueError(
                f"submission: task {task!r} of the challenges must be there, found none; use the"
                " data set that was built from these challenges"
            )
    for task, pairs in attempts.items():
        if task not in challenges:
            raise ValueError(
                f"submission: task {task!r} must be one of the challenges, found none such; use"
                " the data set that was built from these challenges"
            )
        if not isinstance(pairs, list) or len(pairs) != challenges[task]:
            found = len(pairs) if isinstance(pairs, list) else type(pairs).__name__
            raise ValueError(
                f"submission: task {task!r} must have a list of {challenges[task]} test pairs,"
                f" found {found}; give one entry per test input"
            )
        for index, pair in enumerate(pairs):
            if not isinstance(pair, dict) or sorted(pair) != list(ATTEMPTS):
                raise ValueError(
                    f"submission: {task}/{index} must have {' and '.join(ATTEMPTS)} and nothing"
                    f" else, found {sorted(pair) if isinstance(pair, dict) else pair!r}; fix it"
                )
            for key in ATTEMPTS:
                read_grid(pair[key], f"submission: {task}/{index}/{key}")
    return {task: attempts[task] for task in challenges}
