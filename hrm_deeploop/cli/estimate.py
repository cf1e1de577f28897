"""``hrm-deeploop train --estimate``: what a run would take; imported when asked for."""

from collections.abc import Sequence
from pathlib import Path

import torch

from arc_data.batches import EpochOrder
from arc_data.compiled import CompiledDataset
from arc_data.manifest import check_built_as
from hrm_deeploop import estimate
from hrm_deeploop.cli.compose import compose
from hrm_deeploop.cli.data import build_options
from hrm_deeploop.cli.train import departure_warning, find_data
from hrm_deeploop.config import TrainConfig


def print_estimate(overrides: Sequence[str], num_processes: int, tflops: float | None) -> None:
    """Prints what a run would take.

    Args:
        overrides: As for a run.
        num_processes: That torchrun would start.
        tflops: TFLOP/s of matrix products in one of them; None: measured here.

    Raises:
        ValueError: If the configuration or a number is impossible.
        FileNotFoundError: If the data decide the size and are not built.
    """
    if num_processes < 1 or (tflops is not None and not tflops > 0):
        raise ValueError(
            f"--world-size must be 1 or more and --tflops above 0; got {num_processes}, {tflops}"
        )
    config = compose(overrides)
    if config.resume is not None:
        raise ValueError("--estimate plans a new run; give its settings instead of resume=")
    size, source = data_size(config, overrides)
    result = estimate.estimate(config, size, num_processes)
    lines, where = departure_warning(config), "given"
    if tflops is None:
        has_gpu = config.device != "cpu" and torch.cuda.is_available()
        device = torch.device("cuda" if has_gpu else "cpu")
        if config.device == "cuda" and not has_gpu:
            lines.append("warning: there is no GPU here, so the time is a CPU's: give --tflops")
        if config.hardware.threads is not None:
            torch.set_num_threads(config.hardware.threads)
        tflops = estimate.measure_rate(config.arch, device) / 1e12
        where = f"measured here on {device.type}"
    lines += [f"data: {source}", *estimate.format_estimate(result, tflops * 1e12, where)]
    print("\n".join(lines))


def data_size(config: TrainConfig, overrides: Sequence[str]) -> tuple[estimate.DataSize, str]:
    """The size of the run's data, and where it is known from.

    Raises:
        FileNotFoundError: If the data are not built and no published set; says how to build them.
        ValueError: If what is built is something else.
    """
    path = Path(config.resolved_data_dir)
    published = estimate.published_size(config.data)
    if published is not None and not path.exists():
        return published, f"{path} is not built; its size is known"
    dataset = CompiledDataset.load(find_data(config, overrides))
    check_built_as(dataset, config.data.name, build_options(config.data))
    size = estimate.DataSize(
        num_puzzle_identifiers=dataset.num_puzzle_identifiers,
        examples_per_epoch=EpochOrder(dataset.train, config.seed).examples_per_epoch,
    )
    return size, str(path)
