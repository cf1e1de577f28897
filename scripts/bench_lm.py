"""The looped language model against a plain GPT of the same unrolled depth, and its memory.

python scripts/bench.py lm
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from plain_gpt import PlainGPT
from torch import Tensor, nn

from hrm_deeploop.looped_lm.config import LmConfig
from hrm_deeploop.looped_lm.model import LoopedGPT

TINY = LmConfig(num_blocks=2, hidden_size=128, num_heads=4, context=128, forward_dtype="float32")
SMALL = LmConfig()
# name -> sizes, vocabulary, batch size, rounds, repeats
CPU_CASES = {"tiny": (TINY, 256, 16, (1, 3, 7), 9)}
GPU_CASES = {"small": (SMALL, 50257, 16, (1, 3, 7), 9)}
MIB = 1 << 20


def cases() -> dict[str, tuple[LmConfig, int, int, tuple[int, ...], int]]:
    """What fits the machine."""
    return GPU_CASES if torch.cuda.is_available() else CPU_CASES


def bench_lm() -> dict[str, Any]:
    """Speed and memory of every case, over rounds."""
    return {
        name: {
            "hidden_size": config.hidden_size,
            "num_blocks": config.num_blocks,
            "context": config.context,
            "batch_size": batch_size,
            "dtype": config.forward_dtype,
            "rounds": {
                str(rounds): {
                    "tokens_per_s": _speeds(
                        replace(config, rounds=rounds), vocab_size, batch_size, repeats
                    ),
                    "peak_memory_mib": {
                        label: _memory(name, rounds, recompute)
                        for label, recompute in (("plain", False), ("recomputed", True))
                    },
                }
                for rounds in all_rounds
            },
        }
        for name, (config, vocab_size, batch_size, all_rounds, repeats) in cases().items()
    }


def _speeds(
    config: LmConfig, vocab_size: int, batch_size: int, repeats: int
) -> dict[str, float | dict[str, float]]:
    """Tokens/s, forward and backward, of both arms and the plain GPT, taken in turns."""
    steps: dict[str, Callable[[], None]] = {
        arm: _step(_looped(replace(config, arm=arm), vocab_size), config, vocab_size, batch_size)
        for arm in ("base", "deeploop")
    }
    steps["plain GPT, untied"] = _step(_plain(config, vocab_size), config, vocab_size, batch_size)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats + 1):  # the first is thrown away
        for name, step in steps.items():
            times[name].append(_seconds(step))
    num_tokens = batch_size * config.context
    medians = {name: sorted(found[1:])[repeats // 2] for name, found in times.items()}
    rates: dict[str, float | dict[str, float]] = {
        name: round(num_tokens / time_s) for name, time_s in medians.items()
    }
    plain = medians.pop("plain GPT, untied")
    rates["relative"] = {name: round(plain / time_s, 3) for name, time_s in medians.items()}
    return rates


def _looped(config: LmConfig, vocab_size: int) -> LoopedGPT:
    model = LoopedGPT(config, vocab_size)
    model.init_weights(torch.Generator().manual_seed(0))
    return model


def _plain(config: LmConfig, vocab_size: int) -> PlainGPT:
    return PlainGPT(
        num_blocks=config.num_blocks * config.rounds,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        inner_size=config.mlp_size,
        context=config.context,
        vocab_size=vocab_size,
        theta=config.rope_theta,
        eps=config.rms_norm_eps,
    )


def _step(
    model: nn.Module, config: LmConfig, vocab_size: int, batch_size: int
) -> Callable[[], None]:
    """Forward and backward on fixed tokens; the plain GPT under autocast where dtypes differ."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    shape = (batch_size, config.context + 1)
    tokens = torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(0))
    tokens = tokens.to(device)
    casts = isinstance(model, PlainGPT) and config.forward_dtype == "bfloat16"

    def loss() -> Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=casts):
            logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())

    def step() -> None:
        model.zero_grad()
        loss().backward()

    return step


def _seconds(step: Callable[[], None]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _memory(name: str, rounds: int, recompute: bool) -> float:
    """Peak memory of a process that makes one step, over what it held before, MiB."""
    done = subprocess.run(
        [sys.executable, __file__, name, str(rounds), str(int(recompute))],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


def _measure_memory(name: str, rounds: int, recompute: bool) -> float:
    config, vocab_size, batch_size, _, _ = cases()[name]
    config = replace(config, rounds=rounds, arm="deeploop", activation_checkpointing=recompute)
    model = _looped(config, vocab_size)
    _step(model, config, vocab_size, 1)()  # what torch sets up at the first step is no activation
    step = _step(model, config, vocab_size, batch_size)
    if torch.cuda.is_available():
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        return round((torch.cuda.max_memory_allocated() - before) / MIB, 1)
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is resident now
    before = _resident_peak()
    step()
    return round((_resident_peak() - before) / MIB, 1)


def _resident_peak() -> int:
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line
    )
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(_measure_memory(sys.argv[1], int(sys.argv[2]), bool(int(sys.argv[3])))))
