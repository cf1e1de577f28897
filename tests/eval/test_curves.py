"""Learning curves from metrics.jsonl, also of runs that were killed and resumed."""

import json
from pathlib import Path

import pytest

from eval.curves import MAX_POINTS, learning_curves, read_metrics
from eval.sample_statistics import describe


def write_metrics(run_dir: Path, *lines: object) -> Path:
    run_dir.mkdir()
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    (run_dir / "metrics.jsonl").write_text(text)
    return run_dir


def losses(*values: float, every: int = 20) -> list[dict[str, float]]:
    return [{"step": every * (i + 1), "lm_loss": v} for i, v in enumerate(values)]


def test_the_last_record_of_a_step_counts_and_broken_lines_do_not(tmp_path: Path) -> None:
    run = write_metrics(
        tmp_path / "a", *losses(3, 2), '{"step": 60, "lm_l{"step": 40, "lm_loss": 9}\n', "[]\n",
        {"step": 40, "lm_loss": 1.5}, {"step": 60, "lm_loss": 1}, '{"step": 80, ',
    )  # fmt: skip
    records, num_broken = read_metrics(run / "metrics.jsonl")
    assert {step: r["lm_loss"] for step, r in records.items()} == {20: 3, 40: 1.5, 60: 1}
    assert num_broken == 3
    with pytest.raises(FileNotFoundError):
        read_metrics(tmp_path / "metrics.jsonl")


def test_mean_and_band_at_common_steps(tmp_path: Path) -> None:
    runs = {
        0: write_metrics(tmp_path / "a", *losses(3, 2, 1)),
        2: write_metrics(tmp_path / "b", *losses(4, 2)),
    }
    warnings: list[str] = []
    curves = learning_curves(runs, warnings)
    assert set(curves) == {"lm_loss"}  # no other metric is there
    curve = curves["lm_loss"]
    assert (curve["seeds"], curve["step"]) == ([0, 2], [20, 40])
    assert curve["values"] == [[3, 2], [4, 2]]
    assert curve["mean"] == [3.5, 2]
    low, high = describe([3, 4])["mean_interval"]
    assert (curve["low"], curve["high"]) == ([low, None], [high, None])  # equal: no band
    assert not warnings


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    runs = {0: write_metrics(tmp_path / "a", *losses(3, 2), "{"), 1: tmp_path / "b"}
    warnings: list[str] = []
    assert learning_curves(runs, warnings)["lm_loss"]["seeds"] == [0]
    assert warnings == [
        f"{tmp_path / 'a' / 'metrics.jsonl'}: 1 unreadable lines are left out of the curves",
        f"{tmp_path / 'b' / 'metrics.jsonl'} is missing; the learning curves leave its run out",
    ]
    assert learning_curves({}, warnings) == {}


def test_no_common_step(tmp_path: Path) -> None:
    runs = {
        0: write_metrics(tmp_path / "a", *losses(3, 2)),
        1: write_metrics(tmp_path / "b", *losses(3, every=7), '{"step": 20, "lm_loss": NaN}\n'),
    }
    assert learning_curves(runs, []) == {}


def test_long_curves_are_averaged(tmp_path: Path) -> None:
    run = write_metrics(tmp_path / "a", *losses(*map(float, range(3 * MAX_POINTS))))
    curve = learning_curves({0: run}, [])["lm_loss"]
    assert len(curve["step"]) == MAX_POINTS
    assert (curve["step"][0], curve["step"][-1]) == (60, 20 * 3 * MAX_POINTS)
    assert curve["mean"][:2] == [1, 4]
