"""Small reasoners and batches for the tests of this package."""

from typing import Any

import torch

from hrm_deeploop.act import Batch
from hrm_deeploop.config import ArchConfig, LevelResidualConfig, ResidualConfig
from hrm_deeploop.losses import IGNORE_LABEL
from hrm_deeploop.model import HRM
from hrm_deeploop.scaling import resolve

NUM_CELLS, VOCAB_SIZE = 9, 12


def tiny_arch(**departures: Any) -> ArchConfig:
    values = {
        "hidden_size": 16,
        "num_heads": 2,
        "expansion": 2.0,
        "H_layers": 2,
        "L_layers": 1,
        "L_cycles": 3,
        "halt_max_steps": 3,
        "halt_exploration_prob": 0.0,
        "forward_dtype": "float32",
    }
    return ArchConfig(**{**values, **departures})


def make_model(
    arch: ArchConfig | None = None,
    residual: ResidualConfig | None = None,
    seed: int = 0,
) -> HRM:
    arch = arch or tiny_arch()
    scales = resolve(residual or ResidualConfig(), arch)
    model = HRM(arch, scales, vocab_size=VOCAB_SIZE, seq_len=NUM_CELLS)
    model.init_weights(torch.Generator().manual_seed(seed))
    return model


def random_batch(batch_size: int, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(0, VOCAB_SIZE, (batch_size, NUM_CELLS), generator=generator)
    labels = torch.randint(1, VOCAB_SIZE, (batch_size, NUM_CELLS), generator=generator)
    labels[:, -2:] = IGNORE_LABEL
    identifiers = torch.randint(0, 5, (batch_size,), generator=generator)
    return Batch(inputs=inputs, labels=labels, puzzle_identifiers=identifiers)


def explicit(**levels: dict[str, float]) -> ResidualConfig:
    return ResidualConfig(
        preset="custom", **{name: LevelResidualConfig(**v) for name, v in levels.items()}
    )


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
