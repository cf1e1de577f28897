"""From a store to results: the protocol, the partial mark, scores without seen pairs."""

from pathlib import Path

import numpy as np
import pytest

from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.sources import mini
from eval.ladder import vote
from eval.predictions import PredictionsWriter, make_header
from eval.scoring import format_ladder

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
