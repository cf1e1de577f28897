"""Run directories and results.json files as the trainer writes them, made up for tests of sigma."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.scoring import SCHEMA, SCORE_NAMES

TOP_K = (1, 2, 10)
Ranks = Sequence[int | None]


def ranks_of(num_solved: int, num_tasks: int = 20) -> list[int | None]:
    """The first tasks solved at rank 1, the others never."""
    return [1] * num_solved + [None] * (num_tasks - num_solved)


def make_result(
    seed: int | None,
    ranks: Ranks,
    arm: str | None = "vanilla-last_step",
    *,
    digest: str | None = "",
    rule: str | None = "final",
    step: int | None = 9,
    **changes: Any,
) -> dict[str, Any]:
    """A results.json of tasks with one test pair each; ``changes`` as in ``changed``."""
    tasks = {f"t{i:03d}": [{"rank": rank}] for i, rank in enumerate(ranks)}
    ladder = {
        str(k): 100 * sum(r is not None and r <= k for r in ranks) / len(ranks) for k in TOP_K
    }
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "protocol": "published",
        "split": "mini",
        "dataset": {"name": "mini", "manifest_sha256": "aa" * 32},
        "voting": {
            "rule": "count-first",
            "halting": "fixed",
            "num_aug": 8,
            "sources": ["model"],
            "puzzle_id": "right",
            "partial": False,
        },
        "checkpoint": {"run": "r", "step": step, "weights": "raw", "sha256": "x", "rule": rule},
        "seed": seed,
        "arm": {
            "name": arm,
            "digest": f"digest of {arm}" if digest == "" else digest,
            "residual": None,
            "grad_scope": "last_cycle" if "last_cycle" in str(arm) else "last_step",
            "residual_sum": "float32",
            "carry_dtype": "compute",
        },
        "num_tasks": len(ranks),
        "num_test_pairs": len(ranks),
        "scores": {name: dict(ladder) for name in SCORE_NAMES},
        "missing": [],
        "unscored": [],
        "tasks": tasks,
    }
    return changed(result, **changes)


def changed(result: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Sets values in place; names have ``__`` for dots."""
    for name, value in changes.items():
        *parents, last = name.split("__")
        place = result
        for key in parents:
            place = place[key]
        place[last] = value
    return result


def write_result(path: Path, result: Mapping[str, Any]) -> Path:
    """Writes a results.json, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result), encoding="utf-8")
    return path


def write_run(
    run_dir: Path,
    *results: Mapping[str, Any],
    state: str = "finished",
    losses: Sequence[float] = (),
    **status: Any,
) -> Path:
    """Writes a run directory with an evaluation per result."""
    run_dir.mkdir(parents=True)
    about = {"state": state, "step": 9, "error": None, "host": "elsewhere", "pid": 1, **status}
    (run_dir / "status.json").write_text(json.dumps(about), encoding="utf-8")
    for result in results:
        name = f"step_{result['checkpoint']['step']:09d}"
        write_result(run_dir / "eval" / name / "results.json", result)
    if losses:
        lines = [json.dumps({"step": 20 * (i + 1), "lm_loss": v}) for i, v in enumerate(losses)]
        (run_dir / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run_dir
