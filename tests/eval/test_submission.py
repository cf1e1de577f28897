"""submission.json: attempts, fillers, order."""

import json
import re

import numpy as np
import pytest

from eval.plain_votes import votes_from_grids
from eval.submission import build_submission, check_submission, read_challenges
from eval.voting import rank

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


CHALLENGES = {"b": 2, "a": 1}


def good_submission():
    pair = {"attempt_1": [[1, 2]], "attempt_2": [[0]]}
    return {"a": [pair], "b": [pair, pair]}


def test_a_submission_is_put_in_the_order_of_the_challenges(tmp_path):
    assert list(check_submission(good_submission(), CHALLENGES)) == ["b", "a"]
    grid = [[1]]
    task = {"train": [{"input": grid, "output": grid}], "test": [{"input": grid}] * 2}
    path = tmp_path / "arc_test_challenges.json"
    path.write_text(json.dumps({"x": task, "y": {**task, "test": [{"input": grid}]}}))
    assert read_challenges(path) == {"x": 2, "y": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": None}, "task 'a' must have a list of 1 test pairs, found NoneType"),
        ({"c": []}, "task 'c' must be one of the challenges"),
        ({"b": good_submission()["a"]}, "task 'b' must have a list of 2 test pairs, found 1"),
        ({"a": [{"attempt_1": [[1]]}]}, "a/0 must have attempt_1 and attempt_2 and nothing else"),
        ({"a": [{"attempt_1": [], "attempt_2": [[1]]}]}, "a/0/attempt_1: a grid must have 1..30"),
        ({"a": [{"attempt_1": [[1]], "attempt_2": [[10]]}]}, "a/0/attempt_2 row 0 column 0"),
        ({"a": [{"attempt_1": [[1]], "attempt_2": [[0] * 31]}]}, "must have 1..30 cells"),
        ({"a": [{"attempt_1": [[1], [1, 2]], "attempt_2": [[1]]}]}, "all rows must have the 1"),
    ],
)
def test_a_submission_must_fit_the_challenges(change, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        check_submission({**good_submission(), **change}, CHALLENGES)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="task 'a' of the challenges must be there, found none"):
        check_submission({"b": good_submission()["b"]}, CHALLENGES)
