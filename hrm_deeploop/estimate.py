"""What a run will take, before it starts: parameters, arithmetic, memory, time.

Arithmetic and memory are counted by running one real training step on fake tensors, which have
shapes and no contents: nothing is allocated, and the answer holds for a machine that is not here.
Time is arithmetic divided by a rate, and so an estimate.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from hrm_deeploop.act import Batch, initial_carry, refill, train_segment
from hrm_deeploop.config import ArchConfig, DataConfig, TrainConfig
from hrm_deeploop.model import DTYPES
from hrm_deeploop.reasoner import Reasoner

EFFICIENCY = 0.5
"""Assumed share of the matrix products' rate that a whole step reaches (docs/LOG.md: 0.53 at
published size, compiled, on a CPU; none measured on a GPU)."""
FLOAT32_BYTES = 4
MEASURING_S_PER_SHAPE = 0.2
MEASURING_TOKENS = {"cpu": 4096, "cuda": 65536}


def _attention_flops(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _attention_backward_flops(
    grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any
) -> int:
    return sdpa_backward_flop_count(grad, query, key, value)


# torch's counter does not know the CPU's name of the fused attention, nor ours.
FUSED_ATTENTION = {
    torch.ops.hrm_deeploop.blocked_attention: _attention_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_flops,
}


@dataclass(frozen=True, kw_only=True)
class DataSize:
    """What of a data set decides size and length of a run."""

    num_puzzle_identifiers: int
    """Rows of the puzzle table."""
    examples_per_epoch: int


PUBLISHED_SIZES = {
    "arc1_concept": DataSize(num_puzzle_identifiers=876_408, examples_per_epoch=3988),
    "arc2": DataSize(num_puzzle_identifiers=1_045_833, examples_per_epoch=4667),
}


def published_size(data: DataConfig) -> DataSize | None:
    """The size of a published data set, which need not be built for it; None: of any other."""
    if replace(data, concept_dir=None) != DataConfig(name=data.name):
        return None
    return PUBLISHED_SIZES.get(data.name)


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """One training step on some rows, counted.

    Attributes:
        flops: Multiplications and additions of the matrix products, forward and backward.
        saved_bytes: What the forward pass keeps for the backward pass, weights left out, weights
            cast to the compute dtype included.
        carry_bytes: States and examples that the rows are working on.
    """

    flops: int
    saved_bytes: int
    carry_bytes: int


def count_step(reasoner: Reasoner, num_rows: int) -> StepCost:
    """Counts one step, forward, losses and backward, on ``num_rows`` rows.

    Args:
        reasoner: Real, or made under the ``FakeTensorMode`` that is active.
        num_rows: Rows computed at once.

    Attention is counted as this machine's CPU would compute it (``attention.choose_kernel``): by
    plain products for short sequences, say, which keep more and compute less in the backward pass.
    """
    model, device = reasoner.model, reasoner.device
    cells = torch.zeros(num_rows, model.seq_len, dtype=torch.int64, device=device)
    numbers = torch.zeros(num_rows, dtype=torch.int64, device=device)
    batch = Batch(inputs=cells, labels=cells.clone(), puzzle_identifiers=numbers)
    carry = refill(model, initial_carry(model, batch), batch)
    rows = reasoner.table.rows(numbers)
    carried = [carry.z_H, carry.z_L, carry.steps, carry.halted, *vars(carry.current).values()]
    weights = (*model.parameters(), *model.buffers())
    known = {id(s): s for s in map(Tensor.untyped_storage, (*weights, *carried, rows))}
    saved: dict[int, torch.UntypedStorage] = {}  # views of one tensor share its storage

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if id(storage) not in known:
            saved[id(storage)] = storage
        return tensor

    counter = FlopCounterMode(display=False, custom_mapping=FUSED_ATTENTION)
    with counter:
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            out = train_segment(model, carry, rows, min_steps=numbers)
        out.losses.total.backward()
    return StepCost(
        flops=counter.get_total_flops(),
        saved_bytes=sum(storage.nbytes() for storage in saved.values()),
        carry_bytes=sum(tensor.nbytes for tensor in carried),
    )


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a run will take.

    Attributes:
        parameters: As ``Reasoner.parameter_counts``.
        num_processes: That share a global batch.
        num_parts: Of a step in each process.
        rows_per_part: Rows that a process computes at once.
        num_steps: Training steps of the run.
        flops_per_step: Of all processes.
        memory: Bytes in one process, by what they hold.
    """

    parameters: dict[str, int]
    num_processes: int
    num_parts: int
    rows_per_part: int
    num_steps: int
    flops_per_step: int
    memory: dict[str, int]


def estimate(config: TrainConfig, size: DataSize, num_processes: int) -> Estimate:
    """Counts a run; allocates nothing.

    Args:
        config: The run.
        size: Of its data.
        num_processes: That share the global batch, >= 1.

    Raises:
        ValueError: If the batch cannot be cut into equal parts.
    """
    num_rows = config.rows_per_part(num_processes)
    num_parts = config.hardware.accumulate
    with FakeTensorMode():
        reasoner = Reasoner(config, config.data.canvas, size.num_puzzle_identifiers)
        cost = count_step(reasoner, num_rows)
        parameters = reasoner.parameter_counts()
    core = FLOAT32_BYTES * parameters["core"]
    batch = config.optim.global_batch_size
    num_steps = config.optim.total_steps or config.epochs * size.examples_per_epoch // batch
    return Estimate(
        parameters=parameters,
        num_processes=num_processes,
        num_parts=num_parts,
        rows_per_part=num_rows,
        num_steps=min(num_steps, config.max_steps or num_steps),
        flops_per_step=cost.flops * num_parts * num_processes,
        memory={
            "weights": core,
            "gradients": 2 * core,  # autograd's, and side by side for the optimizer
            "moments": 2 * core,
            "averages": 0 if config.optim.ema is None else core,
            "puzzle table": FLOAT32_BYTES * parameters["puzzle_table"],
            # Of every part, and one part's once more with its halted rows refilled.
            "carry": (num_parts + 1) * cost.carry_bytes,
            "activations": cost.saved_bytes,
        },
    )


def measure_rate(arch: ArchConfig, device: torch.device) -> float:
    """FLOP/s of plain products here, at the shapes and in the dtype of a block; takes a second.

    Args:
        arch: Architecture.
        device: Where to measure.
    """
    d, inner, dtype = arch.hidden_size, arch.mlp_size, DTYPES[arch.forward_dtype]
    num_tokens = MEASURING_TOKENS[device.type]
    flops = seconds = 0.0
    for fan_in, fan_out in ((d, 3 * d), (d, d), (d, 2 * inner), (inner, d)):
        x = torch.ones(num_tokens, fan_in, device=device, dtype=dtype)
        weight = torch.ones(fan_out, fan_in, device=device, dtype=dtype)
        flops += 2.0 * num_tokens * fan_in * fan_out
        seconds += _seconds(lambda x=x, weight=weight: F.linear(x, weight), device)  # type: ignore[misc]
    return flops / seconds


def _seconds(function: Callable[[], Any], device: torch.device) -> float:
    """Mean wall time of a call, over a fifth of a second."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    function()
    wait()
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < MEASURING_S_PER_SHAPE:
        for _ in range(4):  # so that a GPU is not waited for after every one
            function()
        wait()
        calls += 4
    return (time.perf_counter() - start) / calls


def format_estimate(result: Estimate, flops_per_s: float, where: str) -> list[str]:
    """Lines for people.

    Args:
        result: From ``estimate``.
        flops_per_s: Rate of matrix products in one process.
        where: Where that rate is from.
    """
    counts = result.parameters
    step_s = result.flops_per_step / result.num_processes / (flops_per_s * EFFICIENCY)
    total = _gib(sum(result.memory.values()))
    parts = ", ".join(f"{key} {_gib(value)}" for key, value in result.memory.items())
    return [
        f"parameters: {counts['core']:,} core + {counts['puzzle_table']:,} puzzle table = "
        f"{counts['total']:,}",
        f"steps: {result.num_steps:,} of {result.flops_per_step:.4g} FLOP, counted in matrix "
        "products and attention",
        f"batch: processes {result.num_processes} x parts {result.num_parts} x rows "
        f"{result.rows_per_part}",
        f"memory of a process: {total} GiB = {parts}; counted, not compiled; the work space of "
        "single operations comes on top",
        f"time, an estimate: {_duration(step_s)} a step, {_duration(step_s * result.num_steps)} "
        f"in all = FLOP / ({flops_per_s / 1e12:.4g} TFLOP/s of matrix products, {where}, x "
        f"{EFFICIENCY} assumed efficiency); evaluation, data and messages come on top",
    ]


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f}"


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600.0), ("s", 1.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds * 1000:,.1f} ms"
