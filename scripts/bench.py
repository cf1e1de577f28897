"""Measures; prints JSON. Nothing here is asserted in tests: machines differ and are shared.

python scripts/bench.py train                  all cases, eager and compiled
python scripts/bench.py train --cases a_bf16   one of them
python scripts/bench.py --default-malloc train without the memory that commands keep when freed
python scripts/bench.py attention              both forms of attention, by sequence length
python scripts/bench.py ranks                  two processes over gloo against one
python scripts/bench.py lm                     looped GPT against a plain one, memory over rounds
python scripts/bench.py data --concept-dir DIR build, load, batches and hashes of arc-aug-1000
python scripts/bench.py vote                   400,000 predictions over 400 tasks
python scripts/bench.py predict                share of prediction that is inside the model
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from bench_data import bench_data
from bench_lm import bench_lm
from bench_predict import bench_predict
from bench_ranks import bench_ranks
from bench_step import SEGMENTS, Step, best_and_median, seconds
from bench_trainer import bench_checkpoint, bench_trainer
from bench_vote import bench_vote
from torch.utils.flop_counter import FlopCounterMode

from hrm_deeploop.attention import blocked_attention, choose_kernel, plain_attention
from hrm_deeploop.config import ArchConfig
from hrm_deeploop.estimate import FUSED_ATTENTION
from hrm_deeploop.host_memory import keep_freed_memory

SMALL = ArchConfig(hidden_size=128, num_heads=2, H_layers=2, L_layers=2, halt_max_steps=16)
# name -> architecture, batch size, canvas side, timed steps
CASES = {
    "a_bf16": (SMALL, 64, 6, 20),
    "a_fp32": (replace(SMALL, forward_dtype="float32"), 64, 6, 20),
    "b_bf16": (ArchConfig(), 8, 30, 3),
    "b_fp32": (replace(ArchConfig(), forward_dtype="float32"), 8, 30, 1),
}


def matrix_peak(arch: ArchConfig, num_tokens: int) -> tuple[float, dict[str, float]]:
    """FLOP/s of plain products at a block's shapes: over all of them, and each."""
    dtype = torch.bfloat16 if arch.forward_dtype == "bfloat16" else torch.float32
    device = "cuda" if torch.cuda.is_available() else "cpu"
    d, inner = arch.hidden_size, arch.mlp_size
    shapes = {"qkv": (d, 3 * d), "o": (d, d), "gate_up": (d, 2 * inner), "down": (inner, d)}
    flops, best, rates = 0.0, 0.0, {}
    for name, (fan_in, fan_out) in shapes.items():
        x = torch.randn(num_tokens, fan_in, device=device, dtype=dtype)
        weight = torch.randn(fan_out, fan_in, device=device, dtype=dtype)
        for _ in range(3):
            F.linear(x, weight)
        time_s, _ = best_and_median(lambda x=x, w=weight: F.linear(x, w), 10)  # type: ignore[misc]
        count = 2.0 * num_tokens * fan_in * fan_out
        flops, best = flops + count, best + time_s
        rates[name] = count / time_s
    return flops / best, rates


def in_turns(steps: dict[str, Step], repeats: int) -> dict[str, tuple[float, float]]:
    """Best and median seconds of each; what disturbs the machine disturbs all."""
    times: dict[str, list[float]] = {mode: [] for mode in steps}
    for _ in range(repeats):
        for mode, step in steps.items():
            times[mode].append(seconds(step))
    return {mode: (min(t), sorted(t)[repeats // 2]) for mode, t in times.items()}


def bench_case(name: str, modes: list[str]) -> dict[str, Any]:
    """One case in the asked modes, their steps in turns."""
    arch, batch_size, canvas, repeats = CASES[name]
    counted = Step(arch, batch_size, canvas, "eager")
    counter = FlopCounterMode(display=False, custom_mapping=FUSED_ATTENTION)
    with counter:
        counted()
    flops = counter.get_total_flops()
    num_tokens = batch_size * counted.model.num_tokens
    peak, rates = matrix_peak(arch, num_tokens)
    report: dict[str, Any] = {
        "hidden_size": arch.hidden_size,
        "blocks": [arch.H_layers, arch.L_layers],
        "batch_size": batch_size,
        "canvas": canvas,
        "dtype": arch.forward_dtype,
        "attention": choose_kernel(
            counted.model.num_tokens, counted.model.compute_dtype, counted.device.type
        ),
        "flops_per_step": flops,
        "matrix_peak_gflops": round(peak / 1e9, 1),
        "matrix_peak_by_shape_gflops": {k: round(v / 1e9, 1) for k, v in rates.items()},
    }
    steps, first, gib = {}, {}, {}
    for mode in modes:
        before = torch.cuda.memory_allocated() if torch.cuda.is_available() else 0
        steps[mode] = step = Step(arch, batch_size, canvas, mode)
        first[mode] = seconds(step)
        seconds(step)  # the second step is of another kind: no row starts anew
        if torch.cuda.is_available():
            gib[mode] = (torch.cuda.max_memory_allocated() - before) / 2**30
            torch.cuda.reset_peak_memory_stats()
    for mode, (best, median) in in_turns(steps, repeats).items():
        report[mode] = {
            "first_step_s": round(first[mode], 3),
            "compile_s": round(max(0.0, first[mode] - median), 2) if "compiled" in mode else None,
            "best_s": round(best, 4),
            "median_s": round(median, 4),
            "tokens_per_s": round(num_tokens / best),
            "gflops": round(flops / best / 1e9, 1),
            "share_of_matrix_peak": round(flops / best / peak, 3),
        }
        if mode in gib:
            report[mode]["peak_memory_gib"] = round(gib[mode], 2)
    return report


def bench_train(cases: list[str], modes: list[str]) -> dict[str, Any]:
    """The cases, then what the trainer and a checkpoint add to a step."""
    return {name: bench_case(name, modes) for name in cases} | {
        "trainer": bench_trainer(replace(SMALL, forward_dtype="float32"), batch_size=64),
        "checkpoint_at_published_size": bench_checkpoint(),
    }


def bench_attention() -> list[dict[str, Any]]:
    """Forms of attention over sequence lengths: the table that ``attention`` chooses from."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for num_tokens in (37, 65, 101, 145, 197, 257, 401, 901):
            shape = (max(2, 4096 // num_tokens), num_tokens, 3, 4, 64)
            qkv = torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
            row: dict[str, Any] = {"num_tokens": num_tokens, "dtype": str(dtype)[6:]}
            for name, mix in (
                ("plain", plain_attention),
                ("fused", F.scaled_dot_product_attention),
            ):

                def forward(mix: Callable[..., torch.Tensor] = mix) -> torch.Tensor:
                    return mix(*qkv.permute(2, 0, 3, 1, 4))  # noqa: B023 - called in this turn

                def both() -> None:
                    forward().sum().backward()

                both()
                with torch.no_grad():
                    row[f"{name}_forward_ms"] = round(best_and_median(forward, 8)[0] * 1e3, 2)
                row[f"{name}_both_ms"] = round(best_and_median(both, 8)[0] * 1e3, 2)
            with torch.no_grad():
                best, _ = best_and_median(lambda: blocked_attention(*qkv.permute(2, 0, 3, 1, 4)), 8)  # noqa: B023
            row["blocked_forward_ms"] = round(best * 1e3, 2)
            rows.append(row)
    return rows


def processor() -> dict[str, Any]:
    """What the machine is and what its processor can do in bfloat16."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        text = ""
    flags = set(text.partition("flags")[2].partition("\n")[0].split())
    models = [line for line in text.splitlines() if line.startswith("model name")]
    bf16 = [
        label
        for flag, label in (("amx_bf16", "AMX"), ("avx512_bf16", "AVX512-BF16"))
        if flag in flags
    ]
    return {
        "processor": models[0].partition(":")[2].strip() if models else "unknown",
        "bfloat16": bf16 or ["none"],
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
    }


def main() -> int:
    """Parses and runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--default-malloc", action="store_true", help="hand freed memory back; commands keep it"
    )
    actions = parser.add_subparsers(dest="action", required=True)
    train = actions.add_parser("train", help="one training step")
    train.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    train.add_argument(
        "--modes",
        nargs="+",
        choices=list(SEGMENTS),
        default=["eager", "compiled"],
        help="plain: the published formulation, written without economies",
    )
    actions.add_parser("ranks", help="two processes against one")
    actions.add_parser("lm", help="the looped language model: speed, and memory over rounds")
    actions.add_parser("attention", help="the two forms of attention by sequence length")
    data = actions.add_parser("data", help="build, load, batches and hashes of arc-aug-1000")
    data.add_argument("--concept-dir", help="default: HRM_DEEPLOOP_CONCEPT_DIR")
    data.add_argument("--num-aug", type=int, default=1000)
    vote = actions.add_parser("vote", help="400,000 predictions over 400 tasks")
    vote.add_argument("--distinct", action="store_true", help="no two predictions agree")
    predict = actions.add_parser("predict", help="share of prediction inside the model")
    predict.add_argument("--published", action="store_true", help="published size, canvas 30")
    predict.add_argument("--rows", type=int, help="about how many examples")
    options = parser.parse_args()
    benches: dict[str, Callable[[], Any]] = {
        "train": lambda: bench_train(options.cases, options.modes),
        "attention": bench_attention,
        "ranks": bench_ranks,
        "lm": bench_lm,
        "data": lambda: bench_data(options.concept_dir, options.num_aug),
        "vote": lambda: bench_vote(options.distinct),
        "predict": lambda: bench_predict(options.published, options.rows),
    }
    kept = not options.default_malloc and keep_freed_memory()
    report = {"machine": processor(), "keeps_freed_memory": kept}
    report[options.action] = benches[options.action]()
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
