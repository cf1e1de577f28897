"""From tokens and plain grids to ranked candidates."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arc_data.augment import apply, variant_name
from arc_data.tokens import encode
from eval.decoding import GridPool, grid_digest
from eval.plain_votes import votes_from_grids
from eval.predictions import Predictions
from eval.published_votes import votes_from_published
from eval.store_votes import votes_from_predictions
from eval.voting import Votes, rank

CANVAS = 5
IDENTITY = np.arange(10, dtype=np.uint8)
TRUTH = {"a": [np.array([[1, 2]], dtype=np.uint8), None], "b": [np.array([[3]], dtype=np.uint8)]}


def store(rows, canvas=CANVAS):
    """Predictions from dicts of task, test_index, tokens and whatever departs from the default."""
    default = {"dihedral": 0, "color_map": IDENTITY, "segment": 0, "source": "s", "logit": 0.0}
    rows = [{**default, **row} for row in rows]
    return Predictions(
        header={"canvas": canvas},
        task_id=np.array([row["task"] for row in rows], dtype=np.str_),
        test_index=np.array([row["test_index"] for row in rows], dtype=np.int32),
        dihedral=np.array([row["dihedral"] for row in rows], dtype=np.uint8),
        color_map=np.array([row["color_map"] for row in rows], dtype=np.uint8).reshape(-1, 10),
        segment=np.array([row["segment"] for row in rows], dtype=np.int32),
        source=np.array([row["source"] for row in rows], dtype=np.str_),
        tokens=np.array([row["tokens"] for row in rows], np.uint8).reshape(-1, canvas * canvas),
        q_halt_logit=np.array([row["logit"] for row in rows], dtype=np.float32),
    )


def tokens_of(grid, dihedral=0, color_map=IDENTITY, canvas=CANVAS):
    grid = np.array(grid, dtype=np.uint8)
    return encode(np.ascontiguousarray(apply(grid, dihedral, color_map)), canvas)


def summary(ranking):
    return {
        pair: [(c.digest, c.grid.tolist(), c.count, c.mean_confidence) for c in candidates]
        for pair, candidates in ranking.items()
    }


grids = st.integers(1, CANVAS).flatmap(
    lambda rows: st.integers(1, CANVAS).flatmap(
        lambda cols: st.lists(
            st.lists(st.integers(0, 9), min_size=cols, max_size=cols),
            min_size=rows,
            max_size=rows,
        )
    )
)
color_maps = st.permutations(range(10)).map(lambda p: np.array(p, dtype=np.uint8))


@given(st.lists(st.tuples(grids, st.integers(0, 7), color_maps), min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_a_vote_is_the_grid_in_its_own_frame(variants):
    predictions = store(
        [
            {
                "task": "b",
                "test_index": 0,
                "tokens": tokens_of(grid, dihedral, color_map),
                "dihedral": dihedral,
                "color_map": color_map,
                "segment": i,
            }
            for i, (grid, dihedral, color_map) in enumerate(variants)
        ]
    )
    votes = votes_from_predictions(predictions, TRUTH)
    assert [votes.grids[number].tolist() for number in votes.grid] == [v[0] for v in variants]
    plain = [{"task": "b", "test_index": 0, "grid": grid} for grid, _, _ in variants]
    assert summary(rank(votes)) == summary(rank(votes_from_grids(plain, TRUTH)))


plain_votes = st.lists(
    st.fixed_dictionaries(
        {
            "task": st.just("a"),
            "test_index": st.integers(0, 1),
            "grid": st.sampled_from([[], [[0]], [[1]], [[0, 0]], [[0], [0]], [[2, 3]]]),
            "confidence": st.sampled_from([0.1, 0.2, 0.3, 1 / 3, 0.7]),
            "weight": st.sampled_from([1, 2, 0.1, 0.7]),
        }
    ),
    max_size=40,
)


@given(plain_votes, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_rank_ignores_vote_order(votes, random):
    shuffled = random.sample(votes, len(votes))
    ranking = rank(votes_from_grids(votes, TRUTH))
    assert summary(ranking) == summary(rank(votes_from_grids(shuffled, TRUTH)))
    keys = [(-c.count, -c.mean_confidence, c.digest) for c in ranking[("a", 0)]]
    assert keys == sorted(keys)


def test_digest_is_sha256_of_shape_and_cells():
    grid = np.array([[1, 2, 3], [4, 5, 6]])
    expected = hashlib.sha256(bytes([2, 3, 1, 2, 3, 4, 5, 6])).hexdigest()
    assert grid_digest(grid.astype(np.uint8)) == expected
    assert grid_digest(grid.astype(np.int64)) == expected
    assert grid_digest(np.asfortranarray(grid).astype(np.uint8)) == expected
    assert grid_digest(np.empty((0, 0), np.uint8)) == hashlib.sha256(bytes([0, 0])).hexdigest()


def test_equal_cells_of_another_shape_are_another_grid():
    wide, tall = [[1] * 4] * 2, [[1] * 2] * 4
    rows = [
        {"task": "b", "test_index": 0, "tokens": tokens_of(grid), "segment": i}
        for i, grid in enumerate([wide, wide, tall])
    ]
    candidates = rank(votes_from_predictions(store(rows), TRUTH))[("b", 0)]
    assert [(c.grid.shape, c.count) for c in candidates] == [((2, 4), 2), ((4, 2), 1)]


def test_a_canvas_without_colours_votes_for_the_empty_grid():
    blank = np.zeros(CANVAS * CANVAS, dtype=np.uint8)
    rows = [{"task": "b", "test_index": 0, "tokens": blank, "dihedral": 3}]
    candidates = rank(votes_from_predictions(store(rows), TRUTH))[("b", 0)]
    assert [(c.grid.shape, c.count) for c in candidates] == [((0, 0), 1)]
    plain = votes_from_grids([{"task": "b", "test_index": 0, "grid": []}], TRUTH)
    assert rank(plain)[("b", 0)][0].digest == candidates[0].digest


def test_without_votes_every_test_pair_has_an_empty_list():
    expected = {("a", 0): [], ("a", 1): [], ("b", 0): []}
    assert rank(votes_from_predictions(store([]), TRUTH)) == expected
    assert rank(votes_from_grids([], TRUTH)) == expected


def test_count_then_confidence_then_digest():
    votes = [("x", 0.1), ("x", 0.1), ("y", 0.9), ("z", 0.8), ("v", 0.8)]
    cells = {"x": [[1]], "y": [[2]], "z": [[3]], "v": [[4]]}
    plain = [
        {"task": "b", "test_index": 0, "grid": cells[name], "confidence": confidence}
        for name, confidence in votes
    ]
    found = [c.grid.tolist() for c in rank(votes_from_grids(plain, TRUTH))[("b", 0)]]
    tied = sorted([cells["z"], cells["v"]], key=lambda g: grid_digest(np.array(g)))
    assert found == [cells["x"], cells["y"], *tied]


def test_weight_adds_to_the_count_and_not_to_the_confidence():
    plain = [
        {"task": "b", "test_index": 0, "grid": [[1]], "weight": 3, "confidence": 1.0},
        {"task": "b", "test_index": 0, "grid": [[1]], "confidence": 0.0},
        {"task": "b", "test_index": 0, "grid": [[2]], "weight": 0.5},
    ]
    first, second = rank(votes_from_grids(plain, TRUTH))[("b", 0)]
    assert (first.count, first.mean_confidence) == (4, 0.5)
    assert isinstance(first.count, int)
    assert (second.count, second.mean_confidence) == (0.5, 0.5)


def test_fractional_weights_add_up_exactly():
    tenth = {"task": "b", "test_index": 0, "grid": [[1]], "weight": 0.1}
    whole = {"task": "b", "test_index": 0, "grid": [[2]]}
    first, second = rank(votes_from_grids([tenth] * 10 + [whole], TRUTH))[("b", 0)]
    assert first.count == second.count == 1


def test_confidence_is_the_sigmoid_of_the_float32_logit():
    logit = 0.1234567890123
    rows = [{"task": "b", "test_index": 0, "tokens": tokens_of([[1]]), "logit": logit}]
    expected = 1 / (1 + np.exp(-np.float64(np.float32(logit))))
    plain = votes_from_grids(
        [{"task": "b", "test_index": 0, "grid": [[1]], "q_halt_logit": logit}], TRUTH
    )
    for votes in (votes_from_predictions(store(rows), TRUTH), plain):
        assert votes.confidence[0] == pytest.approx(expected, abs=1e-15)
        assert abs(votes.confidence[0] - 1 / (1 + np.exp(-logit))) > 1e-10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "c"}, "predictions row 1: unknown task 'c'"),
        ({"test_index": 2}, "predictions row 1: test_index of task 'a' must be .* 0..1, found 2"),
        ({"test_index": -1}, "test_index of task 'a' must be a whole number in 0..1, found -1"),
    ],
)
def test_predictions_must_be_of_the_data(change, message):
    row = {"task": "a", "test_index": 0, "tokens": tokens_of([[1]])}
    with pytest.raises(ValueError, match=message):
        votes_from_predictions(store([row, {**row, "segment": 1, **change}]), TRUTH)


def test_the_same_key_twice_is_an_error():
    swapped = IDENTITY.copy()
    swapped[[1, 2]] = 2, 1
    row = {"task": "a", "test_index": 0, "tokens": tokens_of([[1]])}
    different = [
        {"test_index": 1},
        {"dihedral": 1},
        {"color_map": swapped},
        {"segment": 1},
        {"source": "other"},
    ]
    rows = [row, *({**row, **change} for change in different)]
    assert len(votes_from_predictions(store(rows), TRUTH)) == 6
    again = {**row, "color_map": swapped, "tokens": tokens_of([[2]]), "logit": 1.0}
    with pytest.raises(ValueError, match="predictions row 6: a/0, variant t0_0213456789") as error:
        votes_from_predictions(store([*rows, again]), TRUTH)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "c"}, "vote 1: unknown task 'c'"),
        ({"task": None}, "vote 1: unknown task None"),
        ({"test_index": 2}, "vote 1: test_index of task 'a' .* found 2"),
        ({"test_index": True}, "found True"),
        ({"test_index": "0"}, "found '0'"),
        ({"grid": [[1], [1, 2]]}, r"rows of \[1, 2\] cells"),
        ({"grid": [[10]]}, "found 10"),
        ({"grid": [[-1]]}, "found -1"),
        ({"grid": [[1.0]]}, "found 1.0"),
        ({"grid": [[True]]}, "found True"),
        ({"grid": [1, 2]}, "grid must be a list"),
        ({"grid": "12"}, "grid must be a list .* found str"),
        ({"grid": [[0] * 256]}, r"rows of \[256\] cells"),
        ({"confidence": 1.5}, r"confidence must be in \[0, 1\], found 1.5"),
        ({"confidence": float("nan")}, "confidence must be"),
        ({"confidence": "high"}, "confidence must be"),
        ({"q_halt_logit": float("nan")}, "q_halt_logit must be a number"),
        ({"q_halt_logit": 0.0, "confidence": 0.5}, "has confidence and q_halt_logit"),
        ({"weight": 0}, "weight must be a finite number above 0, found 0"),
        ({"weight": float("inf")}, "weight must be"),
        ({"weight": True}, "weight must be"),
        ({"wieght": 2}, "unknown key 'wieght'"),
    ],
)
def test_plain_votes_are_checked(change, message):
    good = {"task": "a", "test_index": 0, "grid": [[1]]}
    with pytest.raises(ValueError, match=message) as error:
        votes_from_grids([good, {**good, **change}], TRUTH)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"vote 0: must have .* 'grid' is missing"):
        votes_from_grids([{"task": "a", "test_index": 0}], TRUTH)


def published(rows, inputs, canvas=CANVAS):
    """Votes from (name, input tokens, predicted tokens)."""
    return votes_from_published(
        [row[0] for row in rows],
        np.array([row[1] for row in rows], dtype=np.int32).reshape(-1, canvas * canvas),
        np.array([row[2] for row in rows], dtype=np.int32).reshape(-1, canvas * canvas),
        np.zeros(len(rows), dtype=np.float32),
        inputs,
    )


def test_equal_test_inputs_are_told_apart_by_the_order_of_the_rows():
    same, other = np.array([[1, 2], [3, 4]], np.uint8), np.array([[5]], np.uint8)
    inputs = {"task_t1": [same, other, same]}
    color_map = np.array([0, 2, 3, 1, 4, 5, 6, 7, 8, 9], dtype=np.uint8)
    rows = []
    for dihedral, colors in ((0, IDENTITY), (1, color_map)):
        name = variant_name("task_t1", dihedral, colors)
        for test_input, answer in ((same, [[6]]), (other, [[7]]), (same, [[8]])):
            rows.append(
                (name, tokens_of(test_input, dihedral, colors), tokens_of(answer, dihedral, colors))
            )
    ranking = rank(published(rows, inputs))
    found = {pair: [(c.grid.tolist(), c.count) for c in cs] for pair, cs in ranking.items()}
    assert found == {
        ("task_t1", 0): [([[6]], 2)],
        ("task_t1", 1): [([[7]], 2)],
        ("task_t1", 2): [([[8]], 2)],
    }
    with pytest.raises(ValueError, match="row 6: 'task_t1' must predict task_t1/2 once"):
        published([*rows, rows[0]], inputs)


def test_padding_rows_never_vote_and_foreign_rows_are_errors():
    inputs = {"t": [np.array([[1]], np.uint8)]}
    blank = np.zeros(CANVAS * CANVAS)
    row = ("t", tokens_of([[1]]), tokens_of([[2]]))
    padding = ("<blank>", blank, tokens_of([[3]]))
    assert len(published([padding, row, padding], inputs)) == 1
    assert len(published([], inputs)) == 0
    with pytest.raises(ValueError, match="row 1: the undone input of 't' must be a test input"):
        published([padding, ("t", tokens_of([[9]]), tokens_of([[2]]))], inputs)
    with pytest.raises(ValueError, match="'<blank>'"):
        published([("<blank>", row[1], row[2])], inputs)
    with pytest.raises(ValueError, match="'u_t0_0123456789' must belong to a known task"):
        published([("u_t0_0123456789", row[1], row[2])], inputs)
    with pytest.raises(ValueError, match="found 1 names"):
        votes_from_published(["t"], np.zeros((2, 25)), np.zeros((2, 25)), np.zeros(2), inputs)
    with pytest.raises(ValueError, match="predicted: tokens must be whole numbers"):
        votes_from_published(["t"], row[1][None], row[2][None] / 1.5, np.zeros(1), inputs)
    with pytest.raises(ValueError, match="found nan"):
        votes_from_published(["t"], row[1][None], row[2][None], np.array([np.nan]), inputs)


def test_grid_pool_numbers_distinct_grids():
    pool = GridPool()
    first = np.array([[[1, 2]], [[1, 2]], [[2, 1]]], dtype=np.uint8)
    assert pool.add(first).tolist() == [0, 0, 1]
    assert pool.add(first.transpose(0, 2, 1)).tolist() == [2, 2, 3]
    assert pool.add(np.empty((2, 0, 0), np.uint8)).tolist() == [4, 4]
    assert pool.find(np.array([[2], [1]])) == 3
    assert pool.find(np.array([[9]])) is None


def test_decoding_in_chunks_changes_nothing(monkeypatch):
    rng = np.random.default_rng(3)
    rows = [
        {
            "task": "a",
            "test_index": int(rng.integers(2)),
            "tokens": rng.integers(1, 4, CANVAS * CANVAS),
            "dihedral": int(rng.integers(8)),
            "segment": i,
        }
        for i in range(50)
    ]
    whole: Votes = votes_from_predictions(store(rows), TRUTH)
    monkeypatch.setattr("eval.decoding.CHUNK_ROWS", 7)
    chunked = votes_from_predictions(store(rows), TRUTH)
    assert summary(rank(whole)) == summary(rank(chunked))
