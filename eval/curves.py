"""Learning curves of an arm: each run's metrics.jsonl, and their mean with a band."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.arms import Arm, Run
from eval.sample_statistics import describe

METRICS = ("lm_loss", "accuracy", "exact_accuracy")
MAX_POINTS = 200
"""A longer curve is averaged over neighbouring records; enough for a figure."""


def read_metrics(path: Path) -> tuple[dict[int, dict[str, Any]], int]:
    """Reads a metrics.jsonl.

    Args:
        path: One JSON object with ``step`` a line.

    Returns:
        The records by step, ascending, and the number of lines that are none. Of a step that
        occurs twice (a run was resumed) the last record counts; a process that was killed may
        leave a broken line.

    Raises:
        FileNotFoundError: If there is no such file.
    """
    records: dict[int, dict[str, Any]] = {}
    num_broken = 0
    for line in path.read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict) and type(record.get("step")) is int:
            records[record["step"]] = record
        else:
            num_broken += 1
    return dict(sorted(records.items())), num_broken


def curves_of(arm: Arm[Run], warnings: list[str]) -> dict[str, dict[str, Any]]:
    """``learning_curves`` of an arm's runs, as far as they have a seed and a run directory."""
    run_dirs = {
        run.seed: run.result.run_dir
        for run in arm.runs
        if run.seed is not None and run.result.run_dir is not None
    }
    return learning_curves(run_dirs, warnings)


def learning_curves(run_dirs: Mapping[int, Path], warnings: list[str]) -> dict[str, dict[str, Any]]:
    """The curves of an arm's runs at the steps that all of them have.

    Args:
        run_dirs: Seed -> run directory, in the order of the seeds.
        warnings: Takes a line for each file that is missing or partly unreadable.

    Returns:
        Metric -> {seeds, step, values (a list per seed), mean, low, high}; low and high are the
        t-interval of the mean at each step, None where it is undefined. A metric that not all
        runs have at a common step is absent.
    """
    records: dict[int, dict[int, dict[str, Any]]] = {}
    for seed, run_dir in run_dirs.items():
        path = run_dir / "metrics.jsonl"
        if not path.is_file():
            warnings.append(f"{path} is missing; the learning curves leave its run out")
            continue
        records[seed], num_broken = read_metrics(path)
        if num_broken:
            warnings.append(f"{path}: {num_broken} unreadable lines are left out of the curves")
    curves = {}
    for metric in METRICS:
        values = {seed: _finite(by_step, metric) for seed, by_step in records.items()}
        steps = sorted(set.intersection(*map(set, values.values()))) if values else []
        if steps:
            rows = [[by_step[step] for step in steps] for by_step in values.values()]
            curves[metric] = {"seeds": list(values), **_curve(steps, rows)}
    return curves


def _finite(records: Mapping[int, Mapping[str, Any]], metric: str) -> dict[int, float]:
    values = {step: record.get(metric) for step, record in records.items()}
    return {
        step: float(value)
        for step, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def _curve(steps: Sequence[int], rows: list[list[float]]) -> dict[str, Any]:
    parts = np.array_split(np.arange(len(steps)), min(len(steps), MAX_POINTS))
    thinned = [[float(np.mean([row[i] for i in part])) for part in parts] for row in rows]
    points = [describe(column) for column in zip(*thinned, strict=True)]
    intervals = [point["mean_interval"] or [None, None] for point in points]
    return {
        "step": [steps[part[-1]] for part in parts],
        "values": thinned,
        "mean": [point["mean"] for point in points],
        "low": [low for low, _ in intervals],
        "high": [high for _, high in intervals],
    }
