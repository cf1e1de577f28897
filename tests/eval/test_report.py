"""The page as a file: what is in it, that nothing is outside it, and what it refuses."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import made_up_dataset, write_votes

from arc_data.compiled import CompiledDataset
from arc_data.json_files import read_json, write_json
from eval.decoding import GridPool
from eval.ladder import vote
from eval.page_tasks import NUM_CANDIDATES, grid_text, is_near
from eval.report import render, write_report
from eval.voting import Candidate

NUM_TASKS = 14


@pytest.fixture(scope="module")
def dataset() -> CompiledDataset:
    return made_up_dataset(NUM_TASKS, 15, canvas=6)


@pytest.fixture(scope="module")
def evaluation(dataset: CompiledDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation")
    write_votes(folder / "predictions", dataset)
    vote(folder / "predictions", dataset, folder)
    return folder


class Page(HTMLParser):
    """Collects ids, outside references and the text of script elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.outside: list[str] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key == "id":
                self.ids.append(str(value))
            is_reference = key in ("src", "href", "xlink:href", "action")
            if is_reference and not str(value).startswith(("#", "data:")):
                self.outside.append(str(value))
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)


def task_data(text: str) -> dict[str, Any]:
    found = re.search(r'<script id="task-data"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_everything_is_in_one_file(evaluation: Path, dataset: CompiledDataset) -> None:
    text = write_report(evaluation, dataset).read_text(encoding="utf-8")
    page = Page(text)
    assert page.outside == []
    assert not re.search(r"@import|url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    assert {"ladder", "tasks", "provenance"} <= set(page.ids)
    assert "curves" not in page.ids
    results = read_json(evaluation / "results.json")
    for scores in (results["scores"], results["without_seen_pairs"]["scores"]):
        for by_k in scores.values():
            for value in by_k.values():
                assert f"<td>{value:.2f}</td>" in text
    assert dataset.digest[:12] in text
    assert write_report(evaluation, dataset).read_text(encoding="utf-8") == text


def test_the_browser_has_the_votes(evaluation: Path, dataset: CompiledDataset) -> None:
    data = task_data(write_report(evaluation, dataset).read_text(encoding="utf-8"))
    results = read_json(evaluation / "results.json")
    truth = dataset.truth()
    assert data["top_k"] == [1, 2, 10, 100, 1000]
    assert [task["id"] for task in data["tasks"]] == list(truth)
    beyond = 0
    for task in data["tasks"]:
        assert len(task["train"]) == 3
        for index, pair in enumerate(task["test"]):
            outcome = results["tasks"][task["id"]][index]
            right = truth[task["id"]][index]
            assert right is not None
            assert pair["output"] == grid_text(right)
            assert (pair["rank"], pair["distinct"]) == (outcome["rank"], outcome["candidates"])
            ranks = [c["rank"] for c in pair["candidates"]]
            assert ranks[:NUM_CANDIDATES] == list(range(1, min(10, pair["distinct"]) + 1))
            assert [c["rank"] for c in pair["candidates"] if c["grid"] == "="] == (
                [] if pair["rank"] is None else [pair["rank"]]
            )
            beyond += ranks[-1] > NUM_CANDIDATES
            assert pair["candidates"][0]["votes"] == outcome["top_count"]
    assert beyond == sum(
        (o["rank"] or 0) > NUM_CANDIDATES for os in results["tasks"].values() for o in os
    )


def test_only_evaluated_tasks_are_shown(
    evaluation: Path, dataset: CompiledDataset, tmp_path: Path
) -> None:
    results = read_json(evaluation / "results.json")
    kept = list(results["tasks"])[2:5]
    results["tasks"] = {task: results["tasks"][task] for task in kept}
    write_json(tmp_path / "results.json", results)
    page = write_report(tmp_path, dataset, store=evaluation / "predictions")
    assert [t["id"] for t in task_data(page.read_text(encoding="utf-8"))["tasks"]] == kept


def candidate(grid: list[list[int]]) -> Candidate:
    pool = GridPool()
    (number,) = pool.add(np.array([grid], np.uint8)).tolist()
    return Candidate(pool, number, "", 1, 0.5)


def test_what_is_near() -> None:
    right = np.zeros((5, 8), np.uint8)
    wrong = [right.tolist() for _ in range(3)]
    for number, rows in enumerate(wrong, start=1):
        for cell in range(number):
            rows[0][cell] = 1
    assert is_near([candidate(wrong[1])], right)  # 2 of 40 cells are 5 %
    assert not is_near([candidate(wrong[2])], right)
    assert is_near([candidate(wrong[2]), candidate(right.tolist())], right)
    assert not is_near([candidate([[0] * 8] * 4)], right)
    assert not is_near([], right)
    assert is_near([candidate([[1]])], np.zeros((1, 1), np.uint8))


def test_texts_cannot_break_out(evaluation: Path) -> None:
    evil = "</script><script>alert(1)</script><h6>"
    results = read_json(evaluation / "results.json")
    results["arm"]["name"] = evil
    tasks = {"top_k": [1, 2], "tasks": [{"id": evil, "train": [], "test": []}]}
    text = render(evil, None, results, tasks)
    assert "alert(1)</script>" not in text
    assert "<h6>" not in text
    assert task_data(text)["tasks"][0]["id"] == evil


def test_results_of_other_predictions_are_refused(
    evaluation: Path, dataset: CompiledDataset, tmp_path: Path
) -> None:
    results = read_json(evaluation / "results.json")
    first = next(iter(results["tasks"].values()))[0]
    first["candidates"] += 1
    write_json(tmp_path / "results.json", results)
    with pytest.raises(ValueError, match=r"00000000?\w*/0: results.json must be made from these"):
        write_report(tmp_path, dataset, store=evaluation / "predictions")
    with pytest.raises(FileNotFoundError, match="has no predictions store"):
        write_report(tmp_path, dataset)
    with pytest.raises(ValueError, match="its data set must be given"):
        write_report(tmp_path, None)
    with pytest.raises(ValueError, match="digest"):
        write_report(evaluation, made_up_dataset(3, 0, canvas=6))


def make_run(path: Path, state: str) -> Path:
    path.mkdir()
    status = {"state": state, "step": 20, "error": "OSError: disk <full>"}
    write_json(path / "status.json", status)
    write_json(
        path / "provenance.json",
        {
            "commit": "c0ffee" * 6,
            "dirty_sha256": "d1" * 32,
            "dataset": {"name": "made-up", "digest": "ab" * 32},
            "arm": {
                "name": "deeploop-last_step",
                "digest": "ef" * 32,
                "grad_scope": "last_step",
                "residual": {"H": {"p": 0.5, "alpha": 2.449489742783178}, "ffn_gain": "all"},
            },
        },
    )
    (path / "metrics.jsonl").write_text(
        '{"step": 10, "lm_loss": 2.0}\n{"step": 20, "lm_loss": 1}\n'
    )
    return path


def test_a_run_without_evaluation(tmp_path: Path) -> None:
    run = make_run(tmp_path / "my run", "failed")
    text = write_report(run, None).read_text(encoding="utf-8")
    assert {"curves", "provenance"} <= set(Page(text).ids)
    assert not {"ladder", "tasks"} & set(Page(text).ids)
    assert "This run is failed (OSError: disk &lt;full&gt;)" in text
    assert "No evaluation with its predictions yet" in text
    for fact in ("c0ffee", "d1d1d1", "ababab", "efefef", "H (p 0.5, alpha 2.44949); ffn_gain all"):
        assert fact in text, fact
    assert "<title>my run</title>" in text


def test_a_run_shows_its_newest_whole_evaluation(
    evaluation: Path, dataset: CompiledDataset, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", "running")
    results = read_json(evaluation / "results.json")
    for step, partial in ((10, False), (20, True)):
        folder = run / "eval" / f"step_{step:09d}"
        folder.mkdir(parents=True)
        (folder / "predictions").symlink_to(evaluation / "predictions")
        results["checkpoint"]["step"] = step
        results["voting"]["partial"] = partial
        write_json(folder / "results.json", results)
    text = write_report(run, dataset, out=tmp_path / "page.html").read_text(encoding="utf-8")
    assert {"curves", "ladder", "tasks"} <= set(Page(text).ids)
    assert "step 10;" in text
    assert "Partial evaluation" not in text
    assert "ladder; hollow: partial" in text
    (run / "eval" / "step_000000010" / "predictions").unlink()
    text = write_report(run, dataset).read_text(encoding="utf-8")
    assert "Partial evaluation" in text
