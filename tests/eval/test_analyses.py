"""The analyses against small cases whose answers can be counted by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import made_up_dataset, write_votes

from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.sources import Source
from arc_data.tasks import read_task
from arc_data.tokens import encode
from eval.analyses import read_results, read_store, solved, up_to_segment, write
from eval.breakdowns import (
    analyse_halting,
    analyse_sizes,
    describe_tasks,
    draw_halting,
    draw_sizes,
)
from eval.comparisons import (
    analyse_discordant,
    analyse_puzzle_ids,
    draw_discordant,
    draw_puzzle_ids,
)
from eval.decoding import GridPool, grid_digest
from eval.ladder import vote
from eval.predictions import FIELDS, Predictions, make_header
from eval.resampling import resampled_ranks
from eval.vote_curves import (
    analyse_segments,
    analyse_variants,
    draw_segments,
    draw_variants,
    variant_counts,
)
from eval.voting import Votes, rank

CANVAS = 4
RIGHT, WRONG, OTHER = [[1, 2]], [[3, 3]], [[4], [4]]
IDENTITY = np.arange(10, dtype=np.uint8)


def grid(rows: list[list[int]]) -> np.ndarray:
    return np.array(rows, np.uint8)


@pytest.fixture(scope="module")
def dataset() -> CompiledDataset:
    """Tasks a and b with one test pair, c with two; RIGHT is right everywhere."""

    def task(name: str, num_test: int, colors: int) -> Any:
        inputs = [list(range(colors))[:4], list(range(colors))[-4:]]
        pairs = {"train": 1, "test": num_test}
        pair = {"input": inputs, "output": RIGHT}
        return read_task(name, {role: [pair] * n for role, n in pairs.items()}, name)

    tasks = (task("a", 1, 4), task("b", 1, 6), task("c", 2, 8))
    source = Source(
        name="hand",
        upstream=None,
        folders=(("evaluation", tasks),),
        evaluation_folders=frozenset({"evaluation"}),
    )
    return build([source], BuildOptions(num_aug=0, canvas=CANVAS))


def store(
    dataset: CompiledDataset,
    rows: Sequence[tuple[str, int, int, list[list[int]], float]],
    *,
    segment: Sequence[int] | int = 1,
    puzzle_id: str = "right",
    checkpoint: str = "one",
) -> Predictions:
    """Rows of (task, test index, variant, grid, logit); the variant is a swap of two colours."""
    maps = np.tile(IDENTITY, (len(rows), 1))
    for row, (_, _, variant, _, _) in enumerate(rows):
        maps[row, [variant, 9]] = maps[row, [9, variant]]
    header = make_header(
        data_manifest_sha256=dataset.digest,
        canvas=CANVAS,
        split="hand",
        num_aug=0,
        producer={"checkpoint": checkpoint},
        puzzle_id=puzzle_id,
        halting="fixed",
    )
    tokens = [encode(m[grid(g)], CANVAS) for m, (*_, g, _) in zip(maps, rows, strict=True)]
    segments = [segment] * len(rows) if isinstance(segment, int) else segment
    columns = {
        "task_id": np.array([r[0] for r in rows]),
        "test_index": np.array([r[1] for r in rows], np.int32),
        "dihedral": np.zeros(len(rows), np.uint8),
        "color_map": maps,
        "segment": np.array(segments, np.int32),
        "source": np.full(len(rows), "hand"),
        "tokens": np.array(tokens),
        "q_halt_logit": np.array([r[4] for r in rows], np.float32),
    }
    assert set(columns) == set(FIELDS)
    return Predictions(header=header, **columns)


def result(ranks: dict[str, list[int | None]], name: str, **changes: Any) -> dict[str, Any]:
    """A results.json with what the analyses read of it."""
    return {
        "split": "hand",
        "protocol": "published",
        "dataset": {"name": "hand", "manifest_sha256": "0"},
        "voting": {"partial": False},
        "num_tasks": len(ranks),
        "arm": {"name": name},
        "seed": 0,
        "scores": {"task_accuracy_strict": {"1": 0, "2": 0}},
        "unscored": [],
        "tasks": {task: [{"rank": r} for r in found] for task, found in ranks.items()},
        **changes,
    }


def test_the_latest_segment_of_each_variant_counts(dataset: CompiledDataset) -> None:
    rows = [("a", 0, 0, RIGHT, 0.0), ("a", 0, 1, WRONG, 0.0), ("a", 0, 0, OTHER, 0.0)]
    predictions = store(dataset, rows, segment=[2, 1, 1])
    last = up_to_segment(predictions)
    assert last.segment.tolist() == [2, 1]  # the second variant stopped after one segment
    assert up_to_segment(predictions, 1).segment.tolist() == [1, 1]
    assert np.array_equal(up_to_segment(predictions, 1).tokens[1], predictions.tokens[2])


def test_a_task_is_solved_when_all_its_pairs_are() -> None:
    ranks = {"a": [1], "b": [2, 1], "c": [None, 1]}
    assert solved(ranks, (1, 2, 10)).tolist() == [
        [True, True, True],
        [False, True, True],
        [False, False, False],
    ]


def test_counts_of_variants() -> None:
    assert variant_counts(1) == [1]
    assert variant_counts(9) == [1, 2, 5, 9]
    assert variant_counts(1000) == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]


def test_variants_by_hand(dataset: CompiledDataset, tmp_path: Path) -> None:
    # a: always right. b: one variant of four right, another grid has two. c: pairs right in
    # two variants, but only together when the same variant votes for both.
    rows = [("a", 0, v, RIGHT, 0.0) for v in range(4)]
    rows += [("b", 0, v, g, 0.0) for v, g in enumerate((RIGHT, WRONG, WRONG, OTHER))]
    rows += [("c", i, v, RIGHT if v < 2 else WRONG, 1.0 - v) for i in (0, 1) for v in range(4)]
    found = analyse_variants(store(dataset, rows), dataset, top_k=(1, 2, 10), resamples=4000)
    assert found["counts"] == [1, 2, 4]
    percent = {k: [p["percent"] for p in points] for k, points in found["scores"].items()}
    # One variant: a 1, b 1/4, c 1/2. All: b is second or third by digest, c first by confidence.
    assert percent["1"][0] == pytest.approx(100 * (1 + 1 / 4 + 1 / 2) / 3, abs=1)
    assert percent["1"][-1] == pytest.approx(200 / 3)
    # Two variants show RIGHT in b with probability 1/2, in c with 5/6.
    assert percent["10"][1] == pytest.approx(100 * (1 + 1 / 2 + 5 / 6) / 3, abs=1)
    assert percent["10"][-1] == pytest.approx(100)
    last = found["scores"]["10"][-1]
    assert last["resampling"] == last["interval"] == pytest.approx([100, 100])
    assert found["gain"]["from"] == 2
    gain = found["gain"]["by_k"]["10"]
    assert gain["points"] == pytest.approx(100 - percent["10"][1])
    assert gain["interval"][0] < gain["points"] < gain["interval"][1]
    assert f"over 3 tasks: {percent['2'][0]:.1f} % (" in found["words"]
    assert write(found, draw_variants, tmp_path, "svg")[1].read_bytes().startswith(b"<?xml")


def test_all_variants_give_the_voted_ladder(tmp_path: Path) -> None:
    dataset = made_up_dataset(21, 8, canvas=6)
    write_votes(tmp_path / "store", dataset)
    ladder = vote(tmp_path / "store", dataset, tmp_path)["scores"]["task_accuracy_strict"]
    assert len(set(ladder.values())) > 2
    found = analyse_variants(
        read_store(tmp_path / "store", dataset), dataset, top_k=(1, 2, 10), resamples=2
    )
    for k, points in found["scores"].items():
        assert points[-1]["percent"] == pytest.approx(ladder[k])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_resampled_ranks_are_those_of_the_vote(data: st.DataObject) -> None:
    """Small counts, few confidences: ties on all levels of the order."""
    num = data.draw(st.integers(1, 9))
    numbers = data.draw(st.lists(st.integers(0, 3), min_size=num, max_size=num))
    levels = st.sampled_from([0.1, 0.2, 0.3, 0.7])
    confidence = np.array(data.draw(st.lists(levels, min_size=num, max_size=num)))
    grids = GridPool()
    for g in range(4):
        grids.add(np.full((1, 1, 1 + g), g, np.uint8))
    is_in = np.array(data.draw(st.lists(st.booleans(), min_size=num, max_size=num)))

    def votes(rows: np.ndarray) -> Votes:
        return Votes(
            pairs=(("t", 0),),
            grids=grids,
            pair=np.zeros(len(rows), np.int64),
            grid=np.array(numbers)[rows],
            confidence=confidence[rows],
            weight=np.ones(len(rows)),
            variant=None,
        )

    everything = np.arange(num)
    digests = np.array([grid_digest(g) for g in grids])
    ranked = [c.digest for c in rank(votes(np.flatnonzero(is_in)))[("t", 0)]]
    for right in range(4):
        (found,) = resampled_ranks(votes(everything), everything, is_in[None], right, digests)
        digest = digests[right]
        assert found == (ranked.index(digest) + 1 if digest in ranked else np.inf)


def test_segments_by_hand(dataset: CompiledDataset, tmp_path: Path) -> None:
    by_segment = {1: (WRONG, WRONG, RIGHT, WRONG), 2: (RIGHT, WRONG, RIGHT, WRONG)}
    by_segment[4] = (RIGHT, WRONG, RIGHT, RIGHT)
    pairs = (("a", 0), ("b", 0), ("c", 0), ("c", 1))
    rows = [(*p, 0, g, 0.0) for gs in by_segment.values() for p, g in zip(pairs, gs, strict=True)]
    segment = [s for s in by_segment for _ in pairs]
    found = analyse_segments(store(dataset, rows, segment=segment), dataset, top_k=(1, 2))
    assert found["segments"] == [1, 2, 4]
    points = found["scores"]["2"]
    assert [point["hits"] for point in points] == [0, 1, 2]
    assert [point["to_last"]["points"] for point in points] == pytest.approx([200 / 3, 100 / 3, 0])
    assert found["canvases"] == [25, 50, 75]
    assert write(found, draw_segments, tmp_path, "png")[1].read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"found only \[1\]; predict with --every-segment"):
        analyse_segments(store(dataset, rows[:4]), dataset)


def test_puzzle_ids_by_hand(dataset: CompiledDataset, tmp_path: Path) -> None:
    pairs = (("a", 0), ("b", 0), ("c", 0), ("c", 1))
    answers = {
        "shuffled": (WRONG, WRONG, WRONG, RIGHT),
        "right": (RIGHT, RIGHT, RIGHT, RIGHT),
        "blank": (RIGHT, WRONG, RIGHT, RIGHT),
    }
    stores = [
        store(dataset, [(*p, 0, g, 0.0) for p, g in zip(pairs, gs, strict=True)], puzzle_id=mode)
        for mode, gs in answers.items()
    ]
    found = analyse_puzzle_ids(stores, dataset, top_k=(1, 2))
    assert found["modes"] == ["right", "shuffled", "blank"]
    assert {m: s["2"]["hits"] for m, s in found["scores"].items()} == {
        "right": 3,
        "shuffled": 0,
        "blank": 2,
    }
    blank = found["against_right"]["blank"]["1"]
    assert blank["difference"] == pytest.approx(-100 / 3)
    assert (blank["only_first"], blank["only_second"], blank["mcnemar_p"]) == (1, 0, 1)
    assert found["against_right"]["shuffled"]["1"]["mcnemar_p"] == pytest.approx(0.25)
    assert "-100.0 points" in found["words"]
    write(found, draw_puzzle_ids, tmp_path, "svg")
    with pytest.raises(ValueError, match="each once, found"):
        analyse_puzzle_ids([stores[1], stores[1]], dataset)
    with pytest.raises(ValueError, match="each once, found"):
        analyse_puzzle_ids([stores[0], stores[2]], dataset)
    other = store(dataset, [("a", 0, 0, RIGHT, 0.0)], puzzle_id="blank", checkpoint="two")
    with pytest.raises(ValueError, match="must be 'one' as in the 'right' store, found 'two'"):
        analyse_puzzle_ids([stores[1], other], dataset)


def test_sizes_by_hand(dataset: CompiledDataset, tmp_path: Path) -> None:
    about = describe_tasks(dataset)
    assert about["a"] == {"cells": 8, "colors": 4}
    assert about["c"] == {"cells": 8, "colors": 8}
    digest = {"name": "hand", "manifest_sha256": dataset.digest}
    ranks = {"a": [1], "b": [None], "c": [2, 1]}
    found = analyse_sizes(result(ranks, "x", dataset=digest), dataset, top_k=(1, 2))
    (cells,) = found["by_cells"]["bins"]
    assert (cells["label"], cells["scores"]["1"]["hits"], cells["scores"]["2"]["hits"]) == (
        "1-9",
        1,
        2,
    )
    assert [(b["label"], b["scores"]["2"]["hits"]) for b in found["by_colors"]["bins"]] == [
        ("4", 1),
        ("6", 0),
        ("8", 1),
    ]
    # At K = 1 both unsolved tasks have more colours than the solved one; cells are all alike.
    assert found["by_colors"]["trend"]["1"]["larger_unsolved"] == 1
    assert found["by_colors"]["trend"]["2"]["larger_unsolved"] == 0.5
    assert found["by_cells"]["trend"]["1"]["larger_unsolved"] == 0.5
    write(found, draw_sizes, tmp_path, "svg")
    everything = analyse_sizes(
        result({"a": [1], "b": [1], "c": [1, 1]}, "x", dataset=digest), dataset
    )
    assert everything["by_colors"]["trend"]["2"] is None
    with pytest.raises(ValueError, match="digest"):
        analyse_sizes(result(ranks, "x"), dataset)


def test_halting_by_hand(dataset: CompiledDataset, tmp_path: Path) -> None:
    # Confidences 0.25 (once right of four) and 0.75 (always right, twice).
    low, high = -float(np.log(3)), float(np.log(3))
    rows = [("a", 0, v, RIGHT if v == 0 else WRONG, low) for v in range(4)]
    rows += [("b", 0, 0, RIGHT, high), ("c", 1, 0, RIGHT, high)]
    found = analyse_halting(store(dataset, rows), dataset)
    filled = {b["low"]: b for b in found["bins"] if b["predictions"]}
    assert sorted(filled) == [0.2, 0.7]
    assert filled[0.2]["mean_confidence"] == pytest.approx(25, abs=1e-5)
    assert filled[0.2]["percent"] == 25
    assert filled[0.7]["percent"] == 100
    assert filled[0.7]["interval"] == [100, 100]
    assert found["percent_right"]["value"] == pytest.approx(50)
    assert found["calibration_error"]["value"] == pytest.approx(2 * 25 / 6, abs=1e-4)
    assert found["agreement"]["value"] == pytest.approx(100 * 5 / 6)
    brier = (3 * 0.25**2 + 0.75**2 + 2 * 0.25**2) / 6
    assert found["brier"]["value"] == pytest.approx(brier, abs=1e-6)
    assert found["auc"] == pytest.approx((2 + 0.5) / 3)  # 6 of 9 pairs in order, 3 tied
    write(found, draw_halting, tmp_path, "svg")
    assert analyse_halting(store(dataset, rows[4:]), dataset)["auc"] is None


def test_discordant_by_hand(tmp_path: Path) -> None:
    first = result({"a": [1], "b": [1], "c": [2], "d": [None]}, "old")
    second = result({"a": [1], "b": [3], "c": [None], "d": [1]}, "new")
    found = analyse_discordant(first, second)
    assert found["names"] == ["old", "new"]
    one = found["by_k"]["1"]
    assert (one["tasks_only_first"], one["tasks_only_second"]) == (["b"], ["d"])
    assert (one["both"], one["neither"], one["difference"], one["mcnemar_p"]) == (1, 1, 0, 1)
    two = found["by_k"]["2"]
    assert (two["tasks_only_first"], two["tasks_only_second"]) == (["b", "c"], ["d"])
    assert two["difference"] == -25
    assert "old alone solves 2 of 4 tasks, new alone 1" in found["words"]
    write(found, draw_discordant, tmp_path, "svg")


def test_what_may_not_be_compared(tmp_path: Path) -> None:
    ranks: dict[str, list[int | None]] = {"a": [1]}
    one = result(ranks, "x")
    for other, match in (
        (result(ranks, "y", split="other"), "split must be the first's 'hand', found 'other'"),
        (result(ranks, "y", voting={"partial": True}), "voting.partial must be false"),
        (result({"b": [1]}, "y"), "tasks must be the first's, found others"),
    ):
        with pytest.raises(ValueError, match=match):
            analyse_discordant(one, other)
    assert analyse_discordant(one, {**one, "seed": 1})["names"] == ["x seed 0", "x seed 1"]
    assert analyse_discordant(one, one)["names"] == ["x (1)", "x (2)"]
    with pytest.raises(FileNotFoundError, match="holds no results"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ValueError, match="schema must be"):
        read_results(tmp_path)
