"""One training step to be timed, and how to time it; needs only what training needs."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from bench_plain import plain_train_segment

from hrm_deeploop.act import (
    Batch,
    compile_train_segment,
    exploration_min_steps,
    initial_carry,
    refill,
    train_segment,
)
from hrm_deeploop.adam_atan2 import AdamATan2
from hrm_deeploop.config import ArchConfig, ResidualConfig
from hrm_deeploop.model import HRM
from hrm_deeploop.puzzle_embedding import PuzzleEmbedding
from hrm_deeploop.scaling import resolve

# mode -> makes the step's forward pass
SEGMENTS: dict[str, Callable[[], Callable[..., Any]]] = {
    "eager": lambda: train_segment,
    "compiled": compile_train_segment,
    "plain eager": lambda: plain_train_segment,
    "plain compiled": lambda: torch.compile(plain_train_segment, dynamic=False),
}


class Step:
    """One training step with everything that belongs to it but the loading of data."""

    def __init__(self, arch: ArchConfig, batch_size: int, canvas: int, mode: str) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.batch_size = batch_size
        self.model = HRM(
            arch, resolve(ResidualConfig(), arch), vocab_size=12, seq_len=canvas * canvas
        )
        self.model.init_weights(torch.Generator().manual_seed(0))
        self.model.to(device)
        self.table = PuzzleEmbedding(1000, arch.puzzle_row_size).to(device)
        self.optimizer = AdamATan2(self.model.parameters(), lr=1e-4)
        self.segment = SEGMENTS[mode]()
        rng = np.random.default_rng(0)
        tokens = torch.from_numpy(rng.integers(2, 12, (batch_size, canvas * canvas))).to(device)
        ids = torch.from_numpy(rng.integers(1, 1000, batch_size)).to(device)
        self.batch = Batch(inputs=tokens, labels=tokens, puzzle_identifiers=ids)
        self.carry = initial_carry(self.model, self.batch)
        self.device = device
        self.count = 0

    def __call__(self) -> None:
        """Refill, forward, Q target, losses, backward, both optimizers."""
        self.count += 1
        arch = self.model.arch
        self.carry = refill(self.model, self.carry, self.batch)
        ids = self.carry.current.puzzle_identifiers
        rows = self.table.rows(ids)
        draws = exploration_min_steps(
            seed=0,
            step=self.count,
            global_batch_size=self.batch_size,
            probability=arch.halt_exploration_prob,
            halt_max_steps=arch.halt_max_steps,
        )
        out = self.segment(self.model, self.carry, rows, torch.from_numpy(draws).to(self.device))
        loss = out.losses.total / self.batch_size
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        assert rows.grad is not None
        self.table.sign_sgd_(ids, rows.grad, lr=1e-2, weight_decay=0.1)
        self.carry = out.carry
        self._loss = loss.detach()

    @property
    def last_loss(self) -> float:
        """Loss per row of the newest step."""
        return float(self._loss)


def seconds(function: Callable[[], Any]) -> float:
    """Wall time of one call; on a GPU between two events."""
    if torch.cuda.is_available():
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1000
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def best_and_median(function: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Of ``repeats`` calls."""
    times = sorted(seconds(function) for _ in range(repeats))
    return times[0], times[len(times) // 2]
