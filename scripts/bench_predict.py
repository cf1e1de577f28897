"""Measures prediction: which share of its time passes inside the model.

python scripts/bench.py predict                 hidden 128, canvas 6
python scripts/bench.py predict --published     the published size, canvas 30
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch


def bench_predict(published: bool, num_rows: int | None) -> dict[str, Any]:
    """Predicts test examples of mini with random weights.

    Args:
        published: Whether the model is of the published size, on a canvas of 30.
        num_rows: About how many examples; None: 5000, or 32 of the published size on a CPU.

    Returns:
        Seconds in all and inside the model, their ratio, predictions and batch size.
    """
    from arc_data.build import BuildOptions, build
    from arc_data.sources import mini
    from hrm_deeploop import inference
    from hrm_deeploop.config import ArchConfig, TrainConfig
    from hrm_deeploop.reasoner import Reasoner

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if num_rows is None:
        num_rows = 32 if published and device.type == "cpu" else 5000
    small = ArchConfig(hidden_size=128, num_heads=2, H_layers=2, L_layers=2)
    canvas = 30 if published else 6
    dataset = build([mini()], BuildOptions(num_aug=max(1, num_rows // 53), canvas=canvas))
    tasks = list(dataset.truth())[: num_rows if num_rows < 46 else None]
    mode = inference.PredictionMode(tasks=tasks, num_aug=0 if num_rows < 46 else None)
    config = TrainConfig(arch=ArchConfig() if published else small)
    reasoner = Reasoner(config, canvas, dataset.num_puzzle_identifiers)
    reasoner.initialise(0)
    reasoner.to(device)
    timer = Timer(device, inference.evaluate_segments)
    inference.evaluate_segments = timer  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        start = now(device)
        num_predictions = inference.predict(
            reasoner, dataset, Path(folder) / "store", producer={}, mode=mode
        )
        total = now(device) - start
    return {
        "device": str(device),
        "hidden_size": config.arch.hidden_size,
        "canvas": canvas,
        "dtype": config.arch.forward_dtype,
        "batch_size": timer.batch_size,
        "predictions": num_predictions,
        "total_s": round(total, 2),
        "predictions_per_s": round(num_predictions / total, 1),
        "share_inside_model": round(timer.inside_s / total, 4),
    }


class Timer:
    """Stands in for ``evaluate_segments`` and adds up the time inside it."""

    def __init__(self, device: torch.device, run_segments: Callable[..., Iterator[Any]]) -> None:
        self.device = device
        self.run_segments = run_segments
        self.inside_s = 0.0
        self.batch_size = 0

    def __call__(self, model: Any, batch: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
        """Yields what the model yields."""
        self.batch_size = max(self.batch_size, len(batch.inputs))
        segments = self.run_segments(model, batch, *arguments, **options)
        while True:
            start = now(self.device)
            segment = next(segments, None)
            self.inside_s += now(self.device) - start
            if segment is None:
                return
            yield segment


def now(device: torch.device) -> float:
    """Wall time, once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
