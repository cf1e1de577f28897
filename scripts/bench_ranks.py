"""Two processes over gloo against one with as many threads: what sharing a batch costs."""

import multiprocessing
import os
import socket
import time
from typing import Any

import torch

from arc_data.build import BuildOptions, build
from arc_data.sources import mini
from hrm_deeploop.adam_atan2 import AdamATan2
from hrm_deeploop.arc import ArcWorkload
from hrm_deeploop.config import ArchConfig, OptimConfig, TrainConfig
from hrm_deeploop.distributed import Ranks

NUM_STEPS = 40
FLOAT_BYTES, ID_BYTES = 4, 8


def bench_ranks() -> dict[str, Any]:
    """Median seconds of a step in one process with two threads and in two with one each."""
    arch = ArchConfig(hidden_size=128, num_heads=2, H_layers=2, L_layers=2, forward_dtype="float32")
    config = TrainConfig(arch=arch, optim=OptimConfig(global_batch_size=64))
    alone, counts = _run_processes(config, 1)
    together, _ = _run_processes(config, 2)
    rows = config.optim.global_batch_size
    return {
        "one_process_s": round(alone, 4),
        "two_processes_s": round(together, 4),
        "overhead": round(together / alone - 1, 3),
        "bytes_reduced_per_step": counts["core"] * FLOAT_BYTES,
        "bytes_gathered_per_step": rows * (arch.puzzle_row_size * FLOAT_BYTES + ID_BYTES),
    }


def _run_processes(config: TrainConfig, size: int) -> tuple[float, dict[str, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [
        context.Process(target=_rank, args=(rank, size, port, config, queue))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    results = [queue.get() for _ in processes]
    for process in processes:
        process.join()
    return max(seconds for seconds, _ in results), results[0][1]


def _rank(rank: int, size: int, port: int, config: TrainConfig, queue: Any) -> None:
    torch.set_num_threads(2 // size)
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in names.items()}, MASTER_ADDR="127.0.0.1")
    ranks = Ranks.start("cpu")
    dataset = build([mini()], BuildOptions(num_aug=8, canvas=6))
    workload = ArcWorkload(config, dataset, torch.device("cpu"), ranks)
    parameters = list(workload.module.parameters())
    optimizer = AdamATan2(parameters, lr=1e-4)
    times = []
    for step in range(1, NUM_STEPS + 1):
        start = time.perf_counter()
        workload.step(step, 0).loss.backward()
        ranks.sum_many_([p.grad for p in parameters if p.grad is not None])
        optimizer.step()
        optimizer.zero_grad()
        workload.after_backward(1.0)
        times.append(time.perf_counter() - start)
    ranks.stop()
    queue.put((sorted(times)[NUM_STEPS // 2], workload.reasoner.parameter_counts()))
