"""The rules that rank for comparison, and what holds under every rule."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arc_data.augment import apply, apply_dihedral
from arc_data.tokens import encode
from eval.plain_votes import votes_from_grids
from eval.predictions import Predictions
from eval.scoring import SCORE_NAMES, score
from eval.store_votes import votes_from_predictions
from eval.voting import COUNT_FIRST, RULES, rank
from hrm_deeploop.cli.vote import RULES as OFFERED

CANVAS = 3
TRUTH = {"a b|_t1": [np.array([[1]], np.uint8), np.array([[1]], np.uint8)], "": [None]}
PAIRS = [(task, index) for task, grids in TRUTH.items() for index in range(len(grids))]
IDENTITY = tuple(range(10))
SWAPPED = (0, 2, 1, *range(3, 10))


def store(rows: list[tuple]) -> Predictions:
    """Rows of (pair, grid, dihedral, colour map, logit), each of a segment of its own."""
    tokens = [
        encode(np.ascontiguousarray(apply(np.array(g, np.uint8), d, np.array(c, np.uint8))), CANVAS)
        for _, g, d, c, _ in rows
    ]
    return Predictions(
        header={"canvas": CANVAS},
        task_id=np.array([PAIRS[row[0]][0] for row in rows], dtype=np.str_),
        test_index=np.array([PAIRS[row[0]][1] for row in rows], dtype=np.int32),
        dihedral=np.array([row[2] for row in rows], dtype=np.uint8),
        color_map=np.array([row[3] for row in rows], dtype=np.uint8).reshape(-1, 10),
        segment=np.arange(len(rows), dtype=np.int32),
        source=np.array([f"s{i % 3}" for i in range(len(rows))], dtype=np.str_),
        tokens=np.array(tokens, dtype=np.uint8).reshape(-1, CANVAS * CANVAS),
        q_halt_logit=np.array([row[4] for row in rows], dtype=np.float32),
    )


def order(rows: list[tuple], rule: str) -> list[tuple[list, float]]:
    ranking = rank(votes_from_predictions(store(rows), TRUTH), rule)
    return [(c.grid.tolist(), c.count) for c in ranking[PAIRS[0]]]


ROWS = [
    (0, [[1]], 0, IDENTITY, -2.0),
    *[(0, [[2]], 1, IDENTITY, logit) for logit in (-1.0, -1.0, -1.0)],
    *[(0, [[3]], 2, IDENTITY, 1.0)] * 2,
    (0, [[4]], 0, SWAPPED, 4.0),
]


def test_what_each_rule_ranks_first() -> None:
    assert [g for g, _ in order(ROWS, COUNT_FIRST)] == [[[2]], [[3]], [[4]], [[1]]]
    assert [g for g, _ in order(ROWS, "confidence-first")] == [[[4]], [[3]], [[2]], [[1]]]
    # 3 * 0.27, 2 * 0.73, 1 * 0.98, 1 * 0.12
    assert [g for g, _ in order(ROWS, "count-x-confidence")] == [[[3]], [[4]], [[2]], [[1]]]
    assert order(ROWS, "original-only") == [([[1]], 1)]
    # Turns 1 and 2 have one grid each; turn 0 is shared by two.
    assert order(ROWS, "uniform-dihedral") == [
        ([[3]], 1),
        ([[2]], 1),
        ([[4]], 0.5),
        ([[1]], 0.5),
    ]


def test_rules_are_checked_and_offered() -> None:
    assert tuple(RULES) == OFFERED
    assert next(iter(RULES)) == COUNT_FIRST
    votes = votes_from_grids([{"task": "", "test_index": 0, "grid": [[1]]}], TRUTH)
    with pytest.raises(ValueError, match=r"rule must be one of count-first, .*found 'majority'"):
        rank(votes, "majority")
    for rule in ("original-only", "uniform-dihedral"):
        with pytest.raises(ValueError, match="plain grids have none"):
            rank(votes, rule)
    assert rank(votes, "confidence-first")[("", 0)][0].count == 1


grids = st.sampled_from([[[1]], [[2]], [[1, 1]], [[1], [1]], [[0, 3], [3, 0]]])
vote_rows = st.tuples(
    st.integers(0, 2),
    grids,
    st.integers(0, 7),
    st.permutations(range(10)).map(tuple),
    st.sampled_from([-1.0, 0.0, 0.1, 1 / 3, 2.0]),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(vote_rows, min_size=1, max_size=25),
    st.sampled_from(OFFERED),
    st.randoms(use_true_random=False),
)
def test_shards_their_order_and_memory_layout_change_nothing(
    rows: list[tuple], rule: str, random: object
) -> None:
    whole = store(rows)
    places = list(range(len(rows)))
    random.shuffle(places)  # type: ignore[attr-defined]
    cuts = sorted(random.sample(places, min(3, len(places))))  # type: ignore[attr-defined]
    shards = [whole.select(part) for part in np.split(np.array(places), cuts)]
    strided = [
        Predictions(
            header=whole.header,
            **{
                field: np.asfortranarray(np.repeat(getattr(shard, field), 2, axis=0))[::2]
                for field in vars(whole)
                if field != "header"
            },
        )
        for shard in shards
    ]
    expected = rank(votes_from_predictions(whole, TRUTH), rule)
    found = rank(votes_from_predictions(strided, TRUTH), rule)
    for pair, candidates in expected.items():
        told = [(c.digest, c.count, c.mean_confidence) for c in candidates]
        assert [(c.digest, c.count, c.mean_confidence) for c in found[pair]] == told
        assert [c.grid.tolist() for c in found[pair]] == [c.grid.tolist() for c in candidates]


@settings(max_examples=60, deadline=None)
@given(st.lists(vote_rows, max_size=25), st.sampled_from(OFFERED))
def test_accuracy_never_falls_with_k(rows: list[tuple], rule: str) -> None:
    scores = score(rank(votes_from_predictions(store(rows), TRUTH), rule), TRUTH, range(1, 8))
    for name in SCORE_NAMES:
        values = list(scores.percent[name].values())
        assert values == sorted(values)
        assert all(0 <= value <= 100 for value in values)


def test_the_same_key_in_two_shards_is_an_error() -> None:
    shard = store(ROWS)
    again = shard.select(np.array([5]))
    with pytest.raises(ValueError, match=r"row 7: a b\|_t1/0, variant t2_\d+, segment 5, source"):
        votes_from_predictions([shard, again], TRUTH)


def plain_grid(tokens: np.ndarray, dihedral: int, color_map: tuple) -> list[list[int]]:
    """The vote of a canvas by loops over cells: crop, turn back, colours back."""
    square = tokens.reshape(CANVAS, CANVAS).tolist()
    best: tuple[int, int] = (0, 0)
    for rows in range(1, CANVAS + 1):
        for cols in range(1, CANVAS + 1):
            good = all(2 <= square[r][c] <= 11 for r in range(rows) for c in range(cols))
            if good and rows * cols > best[0] * best[1]:
                best = (rows, cols)
    grid = [[square[r][c] - 2 for c in range(best[1])] for r in range(best[0])]
    moved = [apply_dihedral(apply_dihedral(MARKED, dihedral), back) for back in range(8)]
    back = next(i for i, grid_back in enumerate(moved) if np.array_equal(grid_back, MARKED))
    turned = apply_dihedral(np.array(grid, np.uint8).reshape(best), back).tolist()
    return [[color_map.index(cell) for cell in row] for row in turned]


MARKED = np.arange(6, dtype=np.uint8).reshape(2, 3)
canvases = st.lists(st.sampled_from([0, 1, 2, 5, 11, 12, 255]), min_size=9, max_size=9)


@settings(max_examples=80, deadline=None)
@given(canvases, st.integers(0, 7), st.permutations(range(10)).map(tuple))
def test_any_canvas_votes_as_loops_say(tokens: list[int], dihedral: int, colors: tuple) -> None:
    row = (0, [[1]], dihedral, colors, 0.0)
    told = np.array([tokens], dtype=np.uint8)
    rows = dataclasses.replace(store([row]), tokens=told)
    votes = votes_from_predictions(rows, TRUTH)
    assert votes.grids[votes.grid[0]].tolist() == plain_grid(told[0], dihedral, colors)
