"""Ranking and scores of the golden votes: the published form and plain grids."""

import json
from pathlib import Path

import numpy as np
import pytest

from arc_data.tokens import COLOR_OFFSET, crop
from eval.decoding import grid_digest
from eval.plain_votes import votes_from_grids
from eval.predictions import Predictions
from eval.published_votes import votes_from_published
from eval.scoring import SCORE_NAMES, score
from eval.store_votes import votes_from_predictions
from eval.voting import rank

GOLDEN = Path(__file__).parents[1] / "golden"
CONFIDENCE_TOLERANCE = 1e-9
PERCENT_TOLERANCE = 1e-6
CANVAS = 30


def load(name):
    return json.loads((GOLDEN / name).read_text())


def check_ranking(ranking, golden):
    assert sorted(f"{task}/{index}" for task, index in ranking) == sorted(golden["ranking"])
    for (task, index), candidates in ranking.items():
        expected = golden["ranking"][f"{task}/{index}"]
        assert [c.digest for c in candidates] == [e["grid_sha256"] for e in expected]
        assert [c.count for c in candidates] == [e["count"] for e in expected]
        for candidate, entry in zip(candidates, expected, strict=True):
            assert candidate.mean_confidence == pytest.approx(
                entry["mean_q"], abs=CONFIDENCE_TOLERANCE, rel=0
            )
            assert grid_digest(candidate.grid) == candidate.digest


def check_scores(scores, golden):
    assert scores.top_k == tuple(golden["top_k"])
    assert scores.num_tasks == golden["num_tasks"]
    assert scores.num_test_pairs == golden["num_test_pairs"]
    for name in SCORE_NAMES:
        found = [scores.percent[name][k] for k in golden["top_k"]]
        assert found == pytest.approx(golden[f"{name}_percent"], abs=PERCENT_TOLERANCE, rel=0)


@pytest.fixture(scope="module")
def public():
    with np.load(GOLDEN / "votes_public.npz", allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="module")
def public_pairs(public):
    """Inputs and outputs of every test pair, read off the rows that are not augmented."""
    inputs, outputs = {}, {}
    for row, name in enumerate(public["puzzle_name"].tolist()):
        if "_t" not in name:
            inputs.setdefault(name, []).append(one_grid(public["inputs"][row]))
            outputs.setdefault(name, []).append(one_grid(public["labels"][row]))
    return inputs, outputs


def one_grid(tokens):
    rows, cols = crop(tokens[None], CANVAS)
    return tokens.reshape(CANVAS, CANVAS)[: rows[0], : cols[0]] - COLOR_OFFSET


def published_votes(public, inputs, order=None):
    order = np.arange(len(public["puzzle_name"])) if order is None else order
    return votes_from_published(
        public["puzzle_name"][order].tolist(),
        public["inputs"][order],
        public["preds"][order],
        public["q_halt_logits"][order],
        inputs,
    )


def test_published_form(public, public_pairs):
    golden = load("votes_public.json")
    inputs, outputs = public_pairs
    digests = {task: [grid_digest(grid) for grid in grids] for task, grids in outputs.items()}
    assert digests == golden["labels"]
    votes = published_votes(public, inputs)
    assert len(votes) == golden["num_predictions"]
    ranking = rank(votes)
    check_ranking(ranking, golden)
    check_scores(score(ranking, outputs), golden)


def test_published_form_does_not_depend_on_row_order(public, public_pairs):
    order = np.random.default_rng(0).permutation(len(public["puzzle_name"]))
    check_ranking(rank(published_votes(public, public_pairs[0], order)), load("votes_public.json"))


def test_the_same_votes_through_the_store_form(public, public_pairs):
    """Variant and test index stated per row instead of read from name and input."""
    _, outputs = public_pairs
    task_id, dihedral, color_map, test_index = [], [], [], []
    met = {}
    for name in public["puzzle_name"].tolist():
        task, _, variant = name.partition("_t")
        turn, _, digits = (variant or "0_0123456789").partition("_")
        task_id.append(task)
        dihedral.append(int(turn))
        color_map.append([int(digit) for digit in digits])
        # Rows of one variant stand in the order of the test pairs.
        test_index.append(met.get(name, 0))
        met[name] = met.get(name, 0) + 1
    num_rows = len(task_id)
    predictions = Predictions(
        header={"canvas": CANVAS},
        task_id=np.array(task_id),
        test_index=np.array(test_index, dtype=np.int32),
        dihedral=np.array(dihedral, dtype=np.uint8),
        color_map=np.array(color_map, dtype=np.uint8),
        segment=np.full(num_rows, 15, dtype=np.int32),
        source=np.full(num_rows, "public"),
        tokens=public["preds"],
        q_halt_logit=public["q_halt_logits"],
    )
    golden = load("votes_public.json")
    ranking = rank(votes_from_predictions(predictions, outputs))
    check_ranking(ranking, golden)
    check_scores(score(ranking, outputs), golden)


def test_plain_grids():
    golden = load("votes_edge.json")
    truth = {
        task: [np.array(grid, dtype=np.uint8) for grid in grids]
        for task, grids in golden["truth"].items()
    }
    votes = votes_from_grids(golden["votes"], truth)
    assert len(votes) == len(golden["votes"])
    ranking = rank(votes)
    check_ranking(ranking, golden)
    scores = score(ranking, truth)
    check_scores(scores, golden)
    assert list(scores.missing) == golden["missing"]
    assert scores.outcomes["rank_seven"][0].rank == 7
    assert scores.outcomes["rank_past_hundred"][0].rank > 100
    assert scores.outcomes["exact_tie"][0].tied_on_confidence == 2
    assert rank(votes)[("empty_first", 0)][0].grid.shape == (0, 0)
