"""A run directory as curves: resumed and running runs, what is drawn, what is damaged."""

import json
from pathlib import Path
from typing import Any

import pytest

from eval.plots import inline_svg, save
from eval.run_curves import draw_curves, panels_of, read_metrics, read_run, thin


def results(step: int, ranks: list[int | None], partial: bool) -> dict[str, Any]:
    return {
        "checkpoint": {"step": step},
        "voting": {"partial": partial},
        "unscored": [],
        "tasks": {f"t{i}": [{"rank": rank}] for i, rank in enumerate(ranks)},
        "scores": {"task_accuracy_strict": {"1": 0.0, "2": 0.0, "10": 0.0}},
    }


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    run.mkdir()
    (run / "status.json").write_text(json.dumps({"state": "running", "step": 40, "error": None}))
    records = [
        {"step": s, "lm_loss": 2 / s, "accuracy": s / 100, "lr": 1e-3, "time_s": 1.0, "new": s}
        for s in (10, 20, 30, 40)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    for step, ranks, partial in ((20, [3, None], True), (40, [1, 2], False)):
        folder = run / "eval" / f"step_{step:09d}"
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps(results(step, ranks, partial)))
    return run


def test_a_run_as_it_is_found(run_dir: Path) -> None:
    run = read_run(run_dir)
    assert run.metrics["lm_loss"] == ([10, 20, 30, 40], [0.2, 0.1, 2 / 30, 0.05])
    assert [e["checkpoint"]["step"] for e in run.evaluations] == [20, 40]
    assert run.provenance == {}
    assert [names for _, names, _ in panels_of(run)] == [
        ("lm_loss",),
        ("accuracy",),
        ("lr",),
        ("new",),  # what this version does not know is drawn too, time is not
    ]


def test_the_figure_has_every_curve_and_the_ladder(run_dir: Path, tmp_path: Path) -> None:
    run = read_run(run_dir)
    svg = draw_curves(run, lambda fig: inline_svg(fig, "run"))
    for text in ("lm_loss", "learning rate", "new", "ladder; hollow: partial", "K = 10"):
        assert text in svg, text
    assert svg.count('id="run-axes_') == 5
    picture = draw_curves(run, lambda fig: save(fig, tmp_path / "run.png"))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_run_without_anything_has_no_figure(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"state": "running", "step": 0}')
    assert draw_curves(read_run(tmp_path), lambda fig: fig) is None
    with pytest.raises(FileNotFoundError, match="expected a run directory"):
        read_run(tmp_path / "elsewhere")


def test_steps_logged_twice_count_once_and_an_unfinished_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 10, "a": 1.0}\n{"step": 20, "a": 2.0}\n'
        '{"step": 10, "a": 5.0}\n{"step": 10, "b": NaN}\n{"step": 30, "a'
    )
    assert read_metrics(path) == {"step": ([10, 20], [10, 20]), "a": ([10, 20], [5, 2])}
    path.write_text('{"step": 10}\nnot JSON\n{"step": 20}\n')
    with pytest.raises(ValueError, match=r"line 2 must be a JSON object .* found 'not JSON'"):
        read_metrics(path)
    assert read_metrics(tmp_path / "none.jsonl") == {}


def test_long_curves_are_averaged() -> None:
    assert thin([1, 2, 3], [1, 2, 9], most=3) == ([1, 2, 3], [1, 2, 9])
    assert thin([1, 2, 3, 4, 5], [1, 3, 5, 9, 2], most=3) == ([1.5, 3.5, 5], [2, 7, 2])
