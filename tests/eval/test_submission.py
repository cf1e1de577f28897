"""submission.json: attempts, fillers, order."""

import numpy as np
import pytest

from eval.submission import build_submission
from eval.voting import rank, votes_from_grids

TRUTH = {"z": [None, np.array([[1]], np.uint8)], "a": [None], "m": [None], "e": [None]}


def test_attempts_and_fillers():
    answers = [("z", 0, [[1, 2]], 2), ("z", 0, [[3], [4]], 1), ("z", 0, [[5]], 0.5)]
    answers += [("z", 1, [[7]], 1), ("a", 0, [], 2), ("a", 0, [[8]], 1), ("e", 0, [], 1)]
    votes = [
        {"task": task, "test_index": index, "grid": grid, "weight": weight}
        for task, index, grid, weight in answers
    ]
    submission = build_submission(rank(votes_from_grids(votes, TRUTH)), TRUTH)
    assert list(submission.attempts) == ["z", "a", "m", "e"]
    assert submission.attempts == {
        "z": [
            {"attempt_1": [[1, 2]], "attempt_2": [[3], [4]]},
            {"attempt_1": [[7]], "attempt_2": [[7]]},
        ],
        "a": [{"attempt_1": [[0]], "attempt_2": [[8]]}],
        "m": [{"attempt_1": [[0]], "attempt_2": [[0]]}],
        "e": [{"attempt_1": [[0]], "attempt_2": [[0]]}],
    }
    assert submission.fillers == (
        "a/0/attempt_1",
        *("m/0/attempt_1", "m/0/attempt_2"),
        *("e/0/attempt_1", "e/0/attempt_2"),
    )


def test_test_pairs_that_the_ranking_lacks_are_filled():
    submission = build_submission({}, TRUTH)
    assert [len(pairs) for pairs in submission.attempts.values()] == [2, 1, 1, 1]
    assert len(submission.fillers) == 10


@pytest.mark.parametrize("pair", [("b", 0), ("z", 2)])
def test_a_ranking_must_be_of_the_data(pair):
    with pytest.raises(ValueError, match=f"test pair {pair[0]}/{pair[1]} must be in the data"):
        build_submission({pair: []}, TRUTH)
