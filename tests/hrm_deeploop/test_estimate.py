"""Estimates: counts against closed formulas, memory against a real step, published sizes."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_reasoners import tiny_arch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

import configs
from arc_data.batches import EpochOrder
from arc_data.build import BuildOptions, build
from arc_data.sources import load_sources
from hrm_deeploop.act import Batch, initial_carry, refill, train_segment
from hrm_deeploop.attention import MAX_KEPT_BYTES, Kernel, choose_kernel
from hrm_deeploop.cli.compose import compose
from hrm_deeploop.config import ArchConfig, DataConfig, HardwareConfig, OptimConfig, TrainConfig
from hrm_deeploop.estimate import (
    PUBLISHED_SIZES,
    DataSize,
    count_step,
    estimate,
    format_estimate,
    measure_rate,
    published_size,
)
from hrm_deeploop.model import DTYPES, HRM
from hrm_deeploop.reasoner import Reasoner
from hrm_deeploop.scaling import resolve
from hrm_deeploop.settings import digest

VOCAB_SIZE = 12
NUM_ROWS = 3
GOLDEN = Path(__file__).parents[1] / "golden"
# Plain and fused attention in both dtypes; both scopes; with and without a look-ahead.
CASES = {
    "plain": (tiny_arch(), 3),
    "fused": (tiny_arch(grad_scope="last_cycle"), 9),
    "bfloat16": (tiny_arch(forward_dtype="bfloat16", puzzle_emb_ndim=40), 3),
    "bfloat16 fused": (tiny_arch(forward_dtype="bfloat16", carry_dtype="float32"), 17),
    "trm": (
        tiny_arch(
            share_levels=True, H_layers=0, L_layers=2, q_continue=False, grad_scope="last_cycle"
        ),
        4,
    ),
}


def counted(arch: ArchConfig, canvas: int) -> Any:
    with FakeTensorMode():
        return count_step(Reasoner(TrainConfig(arch=arch), canvas, 5), NUM_ROWS)


def formula(arch: ArchConfig, canvas: int, rows: int = NUM_ROWS) -> int:
    """FLOP of one row's step, from the model's definition; ``rows`` are computed at once."""
    d, inner = arch.hidden_size, arch.mlp_size
    cells = canvas * canvas
    s = cells + arch.num_puzzle_tokens
    products = 2 * s * (4 * d * d + 3 * d * inner)
    mixing = 2 * 2 * s * s * d
    kernel = choose_kernel(s, DTYPES[arch.forward_dtype], "cpu")
    is_small = 2 * rows * arch.num_heads * s * s <= MAX_KEPT_BYTES
    plain = kernel is Kernel.PLAIN or (kernel is Kernel.BLOCKED and is_small)
    # Each product has two gradients; the fused attention computes its scores again.
    block_backward = 2 * products + (2 if plain else 2.5) * mixing
    heads = 2 * cells * d * VOCAB_SIZE + 2 * d * 2
    blocks = arch.H_cycles * (arch.L_cycles * arch.num_L_blocks + arch.num_H_blocks)
    visible_L = arch.L_cycles if arch.grad_scope == "last_cycle" else 1
    visible = visible_L * arch.num_L_blocks + arch.num_H_blocks
    embedding = 2 * 2 * cells * VOCAB_SIZE * d  # forward, and the gradient of the weights
    total = embedding + blocks * (products + mixing) + visible * block_backward + 3 * heads
    if arch.q_continue:
        last_block = 2 * s * 2 * d * d + 2 * (2 * d * d + 3 * d * inner) + 2 * 2 * s * d
        total += (blocks - 1) * (products + mixing) + last_block + 2 * d * 2
    return int(total)


@pytest.mark.parametrize("case", CASES)
def test_flops_follow_the_closed_formula(case: str) -> None:
    assert counted(*CASES[case]).flops == NUM_ROWS * formula(*CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_saved_bytes_are_those_of_a_real_step(case: str) -> None:
    arch, canvas = CASES[case]
    model = HRM(
        arch, resolve(TrainConfig().residual, arch), vocab_size=VOCAB_SIZE, seq_len=canvas**2
    )
    model.init_weights(torch.Generator().manual_seed(0))
    cells = torch.randint(2, 12, (NUM_ROWS, canvas**2), generator=torch.Generator().manual_seed(1))
    batch = Batch(inputs=cells, labels=cells.clone(), puzzle_identifiers=torch.arange(NUM_ROWS))
    carry = refill(model, initial_carry(model, batch), batch)
    rows = torch.zeros(NUM_ROWS, arch.puzzle_row_size, requires_grad=True)
    given = [*model.parameters(), *model.buffers(), rows, carry.z_H, carry.z_L]
    given += [*vars(batch).values(), *vars(carry.current).values()]
    kept: list[Tensor] = []  # so that no address is used twice

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        train_segment(model, carry, rows, torch.zeros(NUM_ROWS, dtype=torch.int64))
    sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
    for tensor in given:
        sizes.pop(tensor.untyped_storage().data_ptr(), None)
    assert counted(arch, canvas).saved_bytes == sum(sizes.values()) > 0


def test_published_sizes() -> None:
    arch = ArchConfig()
    with torch.device("meta"):
        sudoku = HRM(arch, resolve(TrainConfig().residual, arch), vocab_size=11, seq_len=81)
    assert sum(p.numel() for p in sudoku.parameters()) == 27_275_266  # counted by its users
    vanilla = compose(["experiment=arc1_vanilla"])
    result = estimate(vanilla, PUBLISHED_SIZES["arc1_concept"], 8)
    assert result.parameters["core"] == 27_275_266 + 2 * 512  # one word more
    assert result.num_steps == 519_270
    assert result.flops_per_step == 768 * formula(vanilla.arch, 30, rows=96)
    trm = estimate(compose(["experiment=arc1_trm"]), PUBLISHED_SIZES["arc1_concept"], 8)
    assert round(trm.parameters["core"] / 1e6, 1) == 6.8
    golden = json.loads((GOLDEN / "arc_build_arc1_concept_aug1000_seed42.json").read_text())
    table = golden["train"]["num_puzzle_identifiers"] * 512
    assert result.parameters["puzzle_table"] == trm.parameters["puzzle_table"] == table


def test_published_size_is_of_exactly_that_data_set() -> None:
    size = PUBLISHED_SIZES["arc1_concept"]
    assert published_size(DataConfig(name="arc1_concept", concept_dir="x")) == size
    assert published_size(DataConfig(name="arc1_concept", num_aug=8)) is None
    assert published_size(DataConfig(name="arc1_concept", protocol="strict")) is None
    assert published_size(DataConfig(name="mini")) is None
    # Every variant has its task's examples, so their number needs no variants.
    plan = build(load_sources("arc2"), BuildOptions(num_aug=0, canvas=30))
    examples = EpochOrder(plan.train, 0).examples_per_epoch
    assert PUBLISHED_SIZES["arc2"].examples_per_epoch == examples


def test_parts_and_processes_share_the_batch() -> None:
    size = DataSize(num_puzzle_identifiers=100, examples_per_epoch=50)

    def small(accumulate: int = 1, **optim: Any) -> TrainConfig:
        return TrainConfig(
            arch=tiny_arch(),
            data=DataConfig(canvas=3),
            optim=OptimConfig(global_batch_size=8, **optim),
            hardware=HardwareConfig(accumulate=accumulate),
            epochs=10,
        )

    whole, parts = estimate(small(), size, 1), estimate(small(2), size, 2)
    assert (whole.rows_per_part, parts.rows_per_part) == (8, 2)
    assert whole.flops_per_step == parts.flops_per_step
    assert whole.num_steps == parts.num_steps == 10 * 50 // 8
    assert estimate(dataclasses.replace(small(), max_steps=3), size, 1).num_steps == 3
    assert estimate(small(total_steps=2), size, 1).num_steps == 2
    core = 4 * whole.parameters["core"]
    assert whole.memory["averages"] == 0
    assert estimate(small(ema=0.9), size, 1).memory["averages"] == core
    assert whole.memory["activations"] > 2 * parts.memory["activations"]
    assert 3 * whole.memory["carry"] == 8 * parts.memory["carry"]  # of 2 x 8 and 3 x 2 rows
    with pytest.raises(ValueError, match="cannot be cut into 3 processes"):
        estimate(small(), size, 3)


def test_lines_for_people() -> None:
    config = TrainConfig(arch=tiny_arch(), data=DataConfig(canvas=3), epochs=768, seed=1)
    result = estimate(config, DataSize(num_puzzle_identifiers=7, examples_per_epoch=2), 1)
    lines = format_estimate(result, 2.0 * result.flops_per_step, "given")
    assert lines[0].endswith(f"+ 112 puzzle table = {result.parameters['total']:,}")
    assert "1,000.0 ms a step, 2.0 s in all" in lines[-1]
    assert measure_rate(config.arch, torch.device("cpu")) > 1e6


def figures(experiment: str) -> list[float]:
    """The numbers an experiment's file states: hours, steps, FLOP, GiB."""
    text = (Path(configs.__file__).parent / f"experiment/{experiment}.yaml").read_text()
    hours = r"About (\S+) h on 8 GPUs, (\S+) h on one.*?: (\S+) steps of (\S+) FLOP"
    memory = r"\n# (\S+) GiB on each of 8 GPUs, (\S+) GiB on one \(in 8 parts\)"
    found = [re.search(pattern, text, re.DOTALL) for pattern in (hours, memory)]
    return [float(number.replace(",", "")) for match in found for number in match.groups()]


def test_experiment_files_state_what_is_counted() -> None:
    rate = 288e12  # arc_common.yaml
    for name, arms in {
        "arc1_vanilla": ("arc1_deeploop", "arc1_deepnorm", "arc1_asymmetric"),
        "arc1_trm": (),
        "arc2_vanilla": ("arc2_deeploop", "arc2_asymmetric"),
    }.items():
        config = compose([f"experiment={name}"])
        alone = compose([f"experiment={name}", "hardware=1gpu"])
        size = published_size(config.data)
        assert size is not None
        ranks, one = estimate(config, size, 8), estimate(alone, size, 1)
        one_h = one.num_steps * one.flops_per_step / rate / 3600
        memory = [sum(result.memory.values()) / 2**30 for result in (ranks, one)]
        expected = [one_h / 8, one_h, ranks.num_steps, ranks.flops_per_step, *memory]
        assert figures(name) == pytest.approx(expected, rel=0.03)
        assert digest(alone) == digest(config)
        for arm in arms:
            assert figures(arm) == figures(name)
            other = compose([f"experiment={arm}"])
            assert other.residual != config.residual
            same = {"experiment": name, "residual": config.residual}
            assert dataclasses.replace(other, **same) == config
