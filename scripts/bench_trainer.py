"""What the trainer adds to the step itself: loading, logging, diagnostics, checkpoints."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from arc_data.build import BuildOptions, build
from arc_data.sources import mini
from hrm_deeploop import checkpoint
from hrm_deeploop.arc import ArcWorkload
from hrm_deeploop.config import ArchConfig, OptimConfig, TrainConfig
from hrm_deeploop.run_dir import RunDir, describe_arm
from hrm_deeploop.training import Trainer

NUM_STEPS = 200
PUBLISHED_CORE, PUBLISHED_ROWS, PUBLISHED_NDIM = 27_000_000, 876_406, 512


class Stopwatch:
    """Adds up the wall time of the functions it wraps, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, timed."""

        def timed(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments, **named)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            return result

        return timed


def bench_trainer(arch: ArchConfig, batch_size: int) -> dict[str, Any]:
    """Shares of the wall time of a real run on mini, eager."""
    dataset = build([mini()], BuildOptions(num_aug=8, canvas=6))
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            arch=arch,
            optim=OptimConfig(global_batch_size=batch_size),
            max_steps=NUM_STEPS,
            run_dir=f"{folder}/run",
        )
        workload = ArcWorkload(config, dataset, torch.device("cpu"))
        run = RunDir.create(config, "arm")
        meta = {
            "run": "run",
            "arm": describe_arm(config, "arm", {}),
            "canvas": dataset.canvas,
            "num_puzzle_identifiers": dataset.num_puzzle_identifiers,
            "dataset": {},
        }
        trainer = Trainer(workload, config, run, meta)
        watch = Stopwatch()
        # Instance attributes shadow the methods; the code under test stays as it is.
        workload.load_batch = watch.wrap("data", workload.load_batch)  # type: ignore[method-assign]
        trainer._log = watch.wrap("log", trainer._log)  # type: ignore[method-assign]
        trainer._diagnose = watch.wrap("log", trainer._diagnose)  # type: ignore[method-assign]
        trainer._save = watch.wrap("save", trainer._save)  # type: ignore[method-assign]
        start = time.perf_counter()
        trainer.fit()
        total = time.perf_counter() - start - watch.seconds["save"]
    return {
        "step_s": round(total / NUM_STEPS, 4),
        "data_loading_share": round(watch.seconds["data"] / total, 4),
        "logging_share": round(watch.seconds["log"] / total, 4),
        "checkpoint_stall_s": round(watch.seconds["save"], 3),
    }


def bench_checkpoint() -> dict[str, Any]:
    """Seconds that saving stops a run of published size on arc-aug-1000, float32 with moments."""
    core = torch.randn(PUBLISHED_CORE)
    table = torch.randn(PUBLISHED_ROWS, PUBLISHED_NDIM)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        path = checkpoint.save(
            Path(folder),
            step=1,
            tensors={"core": core, "table": table},
            state={"exp_avg": core, "exp_avg_sq": core},
            meta={},
        )
        stall = time.perf_counter() - start
        size = sum(file.stat().st_size for file in path.iterdir())
    return {"checkpoint_stall_s": round(stall, 2), "gib": round(size / 2**30, 2)}
