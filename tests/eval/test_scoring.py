"""Scores, outcomes, results.json and the ladder."""

import json

import numpy as np
import pytest

from arc_data.json_files import read_json, write_json
from eval.plain_votes import votes_from_grids
from eval.scoring import check_top_k, format_ladder, results, score
from eval.voting import rank


def grid(color):
    return np.array([[color]], dtype=np.uint8)


def ranking_of(answers, truth):
    """Ranks plain answers {(task, index): [colour of the first candidate, ...]}."""
    votes = [
        {"task": task, "test_index": index, "grid": [[color]], "weight": 10 - place}
        for (task, index), colors in answers.items()
        for place, color in enumerate(colors)
    ]
    return rank(votes_from_grids(votes, truth))


TRUTH = {"one": [grid(1)], "two": [grid(1), grid(2)], "none": [grid(4)], "hidden": [None, grid(5)]}
ANSWERS = {
    ("one", 0): [3, 1],
    ("two", 0): [1],
    ("two", 1): [1, 3, 2],
    ("hidden", 0): [9],
    ("hidden", 1): [5],
}

METADATA = {
    "protocol": "published",
    "split": "mini",
    "dataset": {"name": "mini", "manifest_sha256": "ab"},
    "voting": {
        "rule": "count",
        "halting": "halt_max_steps",
        "num_aug": 8,
        "sources": ["a"],
        "puzzle_id": "right",
        "partial": False,
    },
    "checkpoint": {"run": "r", "step": 5, "weights": "ema", "sha256": "cd", "rule": "final"},
    "seed": 0,
    "arm": {
        "name": "vanilla",
        "digest": "ef",
        "residual": {"p": 1},
        "grad_scope": "last_step",
        "residual_sum": "sum",
        "carry_dtype": "float32",
    },
    "num_predictions": 8,
}


def test_three_scores_by_hand():
    scores = score(ranking_of(ANSWERS, TRUTH), TRUTH, top_k=(1, 2, 3))
    assert (scores.num_tasks, scores.num_test_pairs) == (4, 5)
    # K = 1 hits two/0 and hidden/1; K = 2 also one/0; K = 3 also two/1.
    assert scores.percent == {
        "task_accuracy_strict": {1: 25.0, 2: 50.0, 3: 75.0},
        "task_accuracy_fraction": {1: 37.5, 2: 62.5, 3: 75.0},
        "test_pair_accuracy": {1: 40.0, 2: 60.0, 3: 80.0},
    }
    assert scores.num_tasks_solved == {1: 1, 2: 2, 3: 3}
    assert scores.num_test_pairs_hit == {1: 2, 2: 3, 3: 4}
    assert scores.missing == ("none/0",)
    assert scores.unscored == ("hidden/0",)
    assert [o.rank for task in TRUTH for o in scores.outcomes[task]] == [2, 1, 3, None, None, 1]


def test_the_truth_gives_the_denominators():
    ranking = ranking_of({("one", 0): [1]}, TRUTH)
    for part in (ranking, {("one", 0): ranking[("one", 0)]}):
        scores = score(part, TRUTH, top_k=[1])
        assert scores.percent["task_accuracy_strict"][1] == 25.0
        assert scores.percent["test_pair_accuracy"][1] == 20.0
        assert scores.missing == ("two/0", "two/1", "none/0", "hidden/0", "hidden/1")


def test_a_hidden_output_never_counts():
    truth = {"a": [None], "b": [grid(1)]}
    scores = score(ranking_of({("a", 0): [1], ("b", 0): [1]}, truth), truth, top_k=[1])
    assert (scores.num_tasks, scores.num_test_pairs) == (1, 1)
    assert scores.percent["task_accuracy_strict"][1] == 100.0
    assert scores.outcomes["a"][0].rank is None
    with pytest.raises(ValueError, match="must have a test pair with a known output"):
        score({}, {"a": [None]})


def test_ties_are_counted():
    truth = {"a": [grid(1)]}
    plain = [
        {"task": "a", "test_index": 0, "grid": [[color]], "confidence": confidence}
        for color, confidence in [(1, 0.5), (2, 0.5), (3, 0.4), (4, 0.3), (4, 0.3)]
    ]
    outcome = score(rank(votes_from_grids(plain, truth)), truth).outcomes["a"][0]
    assert (outcome.top_count, outcome.tied_on_count, outcome.tied_on_confidence) == (2, 1, 1)
    outcome = score(rank(votes_from_grids(plain[:3], truth)), truth).outcomes["a"][0]
    assert (outcome.candidates, outcome.votes) == (3, 3)
    assert (outcome.top_count, outcome.tied_on_count, outcome.tied_on_confidence) == (1, 3, 2)
    outcome = score({}, truth).outcomes["a"][0]
    assert (outcome.candidates, outcome.votes, outcome.top_count) == (0, 0, 0)
    assert (outcome.tied_on_count, outcome.tied_on_confidence) == (0, 0)


@pytest.mark.parametrize("pair", [("other", 0), ("one", 1), ("one", -1)])
def test_a_ranking_must_be_of_the_truth(pair):
    with pytest.raises(ValueError, match=f"test pair {pair[0]}/{pair[1]} must be in the truth"):
        score({pair: []}, TRUTH)


@pytest.mark.parametrize("top_k", [[], [0, 1], [-1], [2, 1], [1, 1], [1.0], [True, 2], ["1"]])
def test_top_k_is_checked(top_k):
    with pytest.raises(ValueError, match="top_k must be increasing whole numbers of at least 1"):
        check_top_k(top_k)


def test_any_ladder_will_do():
    assert check_top_k([3]) == (3,)
    assert list(score({}, TRUTH, top_k=(7, 10**9)).percent["test_pair_accuracy"]) == [7, 10**9]


def test_results_have_every_key_and_survive_json(tmp_path):
    scores = score(ranking_of(ANSWERS, TRUTH), TRUTH, top_k=(1, 2, 10))
    found = results(scores, **METADATA)
    assert list(found) == [
        *("schema", "protocol", "split", "dataset", "voting", "checkpoint", "seed", "arm"),
        *("num_tasks", "num_test_pairs", "num_predictions", "scores", "missing", "unscored"),
        "tasks",
    ]
    assert found["scores"]["task_accuracy_strict"] == {"1": 25.0, "2": 50.0, "10": 75.0}
    assert found["tasks"]["two"][1] == {
        "rank": 3,
        "candidates": 3,
        "votes": 27,
        "top_count": 10,
        "tied_on_count": 1,
        "tied_on_confidence": 1,
    }
    write_json(tmp_path / "results.json", found)
    assert read_json(tmp_path / "results.json") == found
    assert format_ladder(read_json(tmp_path / "results.json")) == format_ladder(found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": "loose"}, "protocol must be one of"),
        (
            {"dataset": {"name": "mini"}},
            "dataset must have the keys .* 'manifest_sha256' is missing",
        ),
        ({"arm": {**METADATA["arm"], "seed": 1}}, "arm must have .* 'seed' is unknown"),
        ({"voting": {**METADATA["voting"], "partial": 0}}, "voting.partial must be true or false"),
        ({"voting": {**METADATA["voting"], "puzzle_id": "wrong"}}, "voting.puzzle_id must be one"),
        ({"checkpoint": {**METADATA["checkpoint"], "rule": "best"}}, "checkpoint.rule must be one"),
        ({"checkpoint": {**METADATA["checkpoint"], "weights": "EMA"}}, "checkpoint.weights must"),
        ({"seed": "0"}, "seed must be a whole number or None"),
    ],
)
def test_metadata_is_checked(change, message):
    scores = score({}, TRUTH)
    with pytest.raises(ValueError, match=message):
        results(scores, **{**METADATA, **change})


def test_json_is_atomic_stable_and_strict(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"2": 1, "10": "é"})
    first = path.read_bytes()
    write_json(path, {"2": 1, "10": "é"})
    assert path.read_bytes() == first
    assert list(json.loads(first)) == ["2", "10"]
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"x": float("nan")})
    assert path.read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
    with pytest.raises(FileNotFoundError, match=r"absent\.json: expected a JSON file"):
        read_json(tmp_path / "absent.json")


def test_ladder():
    scores = score(ranking_of(ANSWERS, TRUTH), TRUTH, top_k=(1, 2, 10))
    text = format_ladder(results(scores, **METADATA))
    assert text.splitlines() == [
        " K  strict %  fraction %  pairs %  tasks  test pairs",
        " 1     25.00       37.50    40.00    1/4         2/5",
        " 2     50.00       62.50    60.00    2/4         3/5",
        "10     75.00       75.00    80.00    3/4         4/5",
        "1 missing; 1 unscored",
    ]
    partial = {**METADATA["voting"], "partial": True}
    text = format_ladder(results(scores, **{**METADATA, "voting": partial}))
    assert text.endswith("partial: not comparable with whole evaluations")
