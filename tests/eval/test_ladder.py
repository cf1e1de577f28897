"""From a store to results: the protocol, the partial mark, scores without seen pairs."""

import json
from pathlib import Path

import numpy as np
import pytest

from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.json_files import read_json, write_json
from arc_data.sources import mini
from eval.ladder import vote
from eval.predictions import PredictionsWriter, make_header
from eval.scoring import format_ladder
from hrm_deeploop.cli.main import main

SEEN = {"0d3d703e/0", "bdad9b1f/0", "e9afcf9a/0"}  # and two of 27a28665's three


@pytest.fixture(scope="module")
def dataset() -> CompiledDataset:
    return build([mini()], BuildOptions(num_aug=1, canvas=6))


def write_store(path: Path, dataset: CompiledDataset, rows: np.ndarray, wrong: set[str]) -> None:
    """A store in which the truth is predicted everywhere but for the tasks in ``wrong``."""
    header = make_header(
        data_manifest_sha256=dataset.digest,
        canvas=6,
        split="mini",
        num_aug=1,
        producer={},
        puzzle_id="right",
        halting="fixed",
    )
    told, known = dataset.test.materialise(rows), dataset.test.describe(rows)
    names = np.array(dataset.task_names)[known["task"]]
    tokens = told["labels"].copy()
    tokens[np.isin(names, list(wrong))] = 0
    PredictionsWriter(path, header).append(
        task_id=names,
        test_index=known["test_index"],
        dihedral=known["dihedral"],
        color_map=known["color_map"],
        segment=np.ones(len(rows), np.int32),
        source=np.full(len(rows), "truth"),
        tokens=tokens,
        q_halt_logit=np.zeros(len(rows), np.float32),
    )


def test_scores_with_and_without_the_pairs_that_training_shows(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    rows = np.arange(dataset.test.num_examples)
    write_store(tmp_path / "store", dataset, rows, {pair.partition("/")[0] for pair in SEEN})
    results = vote(tmp_path / "store", dataset, tmp_path)
    assert results["protocol"] == "published"
    assert not results["voting"]["partial"]
    assert results["scores"]["task_accuracy_strict"]["2"] == pytest.approx(100 * 43 / 46)
    unseen = results["without_seen_pairs"]
    assert set(unseen["seen"]) > SEEN
    assert len(unseen["seen"]) == 5
    assert (unseen["num_tasks"], unseen["num_test_pairs"]) == (43, 48)
    assert unseen["scores"]["task_accuracy_strict"]["2"] == 100
    assert "without the 5 test pairs that training shows" in format_ladder(results)


def test_a_store_without_all_variants_is_partial(dataset: CompiledDataset, tmp_path: Path) -> None:
    write_store(tmp_path / "store", dataset, np.arange(dataset.test.num_examples - 1), set())
    assert vote(tmp_path / "store", dataset, tmp_path)["voting"]["partial"]


def test_many_variants_of_one_task_are_partial_too(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    name = dataset.task_names[int(dataset.test.describe(np.array([0]))["task"][0])]
    num_rows = dataset.test.num_examples + 1
    rng = np.random.default_rng(0)
    header = make_header(
        data_manifest_sha256=None,
        canvas=6,
        split="mini",
        num_aug=None,
        producer={},
        puzzle_id="right",
        halting="none",
        tasks=[name],
    )
    PredictionsWriter(tmp_path / "store", header).append(
        task_id=[name] * num_rows,
        test_index=np.zeros(num_rows, np.int32),
        dihedral=np.zeros(num_rows, np.uint8),
        color_map=np.stack([rng.permutation(10) for _ in range(num_rows)]),
        segment=np.zeros(num_rows, np.int32),
        source=["foreign"] * num_rows,
        tokens=np.zeros((num_rows, 36), np.uint8),
        q_halt_logit=np.zeros(num_rows, np.float32),
    )
    results = vote(tmp_path / "store", dataset, tmp_path)
    assert results["voting"]["partial"]
    assert (results["num_tasks"], results["num_predictions"]) == (1, num_rows)


def test_a_store_of_the_first_version_reads_as_before(
    dataset: CompiledDataset, tmp_path: Path
) -> None:
    write_store(tmp_path / "store", dataset, np.arange(dataset.test.num_examples), set())
    before = vote(tmp_path / "store", dataset, tmp_path)
    header = read_json(tmp_path / "store/header.json")
    del header["tasks"]
    write_json(tmp_path / "store/header.json", header)
    assert vote(tmp_path / "store", dataset, tmp_path) == before


def test_what_happened_to_the_test_pairs(dataset: CompiledDataset, tmp_path: Path) -> None:
    wrong = [pair.partition("/")[0] for pair in sorted(SEEN)]
    rows = np.arange(dataset.test.num_examples)
    unanswered = dataset.task_names[int(dataset.test.describe(rows[:1])["task"][0])]
    assert unanswered not in wrong
    kept = rows[dataset.test.describe(rows)["task"] != dataset.task_names.index(unanswered)]
    write_store(tmp_path / "store", dataset, kept, set(wrong))
    results = vote(tmp_path / "store", dataset, tmp_path)
    num_unanswered = len(dataset.truth()[unanswered])
    assert results["summary"] == {
        "right_first": 53 - 3 - num_unanswered,
        "covered": 53 - 3 - num_unanswered,
        "wrong": 3,
        "no_answer": num_unanswered,
        "candidates": 53 - num_unanswered,
        "tied_on_count": 0,
        "tied_on_confidence": 0,
    }
    # An empty canvas votes for the empty grid, which a submission cannot hold.
    assert len(results["submission_fillers"]) == 2 * (3 + num_unanswered)
    assert f"wrong 3, no answer {num_unanswered};" in format_ladder(results)


def json_lines(path: Path, dataset: CompiledDataset, **change: object) -> Path:
    votes = [
        {"task": task, "test_index": index, "grid": grid.tolist(), **change}
        for task, grids in dataset.truth().items()
        for index, grid in enumerate(grids)
        if grid is not None
    ]
    path.write_text("\n".join(json.dumps(vote) for vote in votes))
    return path


def test_json_lines_are_voted_on_without_torch_or_a_store(
    dataset: CompiledDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset.save(tmp_path / "data")
    path = json_lines(tmp_path / "answers é.jsonl", dataset, confidence=0.9, weight=2)
    assert main(["vote", str(path), "--data", str(tmp_path / "data")]) == 0
    assert "100.00" in capsys.readouterr().out
    results = read_json(tmp_path / "answers é.jsonl.votes/results.json")
    assert (results["num_predictions"], results["seed"], results["arm"]["digest"]) == (53,) + (
        None,
    ) * 2
    assert not results["voting"]["partial"]
    for change, message in (
        ({"task": "x"}, r"answers é.jsonl: line 1: unknown task 'x'"),
        ({"test_index": 9}, "line 1: test_index of task"),
        ({"grid": [[1, 2], [3]]}, "line 1: grid must be a list of equally long rows"),
        ({"confidence": 2}, "line 1: confidence must be in"),
    ):
        json_lines(path, dataset, **change)
        assert main(["vote", str(path), "--data", str(tmp_path / "data")]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    path.write_text("")
    assert main(["vote", str(path), "--data", str(tmp_path / "data")]) == 2
    assert "holds no predictions" in capsys.readouterr().err


def test_named_errors_of_the_command(
    dataset: CompiledDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset.save(tmp_path / "data")
    build([mini()], BuildOptions(num_aug=0, canvas=6)).save(tmp_path / "other")
    store = tmp_path / "store"
    write_store(store, dataset, np.arange(dataset.test.num_examples), set())

    def error_of(*words: str, data: str = "data") -> str:
        assert main(["vote", *words, "--data", str(tmp_path / data)]) == 2
        text = capsys.readouterr().err
        assert text.count("\n") == 1
        return text

    assert "data set digest must be" in error_of(str(store), data="other")
    assert "must all be *_all_preds.* files" in error_of(str(store), str(store))
    assert "--identifiers has an effect on" in error_of(str(store), "--identifiers", "x")
    assert "task 'x' must have held-out test pairs" in error_of(str(store), "--show", "x")
    challenges = tmp_path / "mini_test_challenges.json"
    grid = [[1]]
    task = {"train": [{"input": grid, "output": grid}], "test": [{"input": grid}]}
    write_json(challenges, {"nothing": task})
    found = error_of(str(store), "--challenges", str(challenges))
    assert "task 'nothing' of the challenges must be there" in found
    shard = store / "part-00000.npz"
    shard.write_bytes(shard.read_bytes()[:-30])
    assert f"{shard}: must be a complete .npz shard" in error_of(str(store))
