"""The learning-rate schedule."""

import math

from hrm_deeploop.config import OptimConfig


def lr_ratio(step: int, optim: OptimConfig, total_steps: int) -> float:
    """Learning rate of step 1, 2, ... relative to its peak: linear warm-up, then cosine.

    **Source**: HRM @42410da, ``cosine_schedule_with_warmup_lr_lambda``.
    """
    warmup = optim.lr_warmup_steps
    if step < warmup:
        return step / warmup
    progress = (step - warmup) / max(1, total_steps - warmup)
    floor = optim.lr_min_ratio
    return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2
