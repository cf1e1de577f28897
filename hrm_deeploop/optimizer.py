"""The optimizer of the dense weights, as configured."""

from collections.abc import Iterable

import torch
from torch import nn

from hrm_deeploop.adam_atan2 import AdamATan2
from hrm_deeploop.config import OptimConfig


def make_optimizer(parameters: Iterable[nn.Parameter], optim: OptimConfig) -> torch.optim.Optimizer:
    """AdamATan2, or torch's AdamW with its fused step.

    Args:
        parameters: On the device they are trained on.
        optim: Which, and its rates.
    """
    if optim.optimizer == "adamw":
        return torch.optim.AdamW(
            parameters,
            lr=optim.lr,
            betas=(optim.beta1, optim.beta2),
            weight_decay=optim.weight_decay,
            fused=True,
        )
    return AdamATan2(
        parameters,
        lr=optim.lr,
        beta1=optim.beta1,
        beta2=optim.beta2,
        weight_decay=optim.weight_decay,
        bias_correction=optim.bias_correction,
    )


def backend_of(optimizer: torch.optim.Optimizer) -> str:
    """What computes an optimizer's step, for provenance."""
    return optimizer.backend() if isinstance(optimizer, AdamATan2) else "torch AdamW, fused"
