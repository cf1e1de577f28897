"""Token, halt and continue losses, as sums over the batch, with the metrics that go with them.

**Source**: HRM @42410da.  Differs: masks instead of boolean indexing, so shapes stay fixed.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORE_LABEL = -100
Q_LOSS_WEIGHT = 0.5


class Losses(NamedTuple):
    """The loss to differentiate (sum over rows, scalar) and the metrics (sums, scalars)."""

    total: Tensor
    metrics: dict[str, Tensor]


def stablemax_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log(s(x_label) / sum s(x)) per cell; s(x) = x + 1 for x >= 0, 1 / (1 - x) below.

    Args:
        logits: (B, T, V), any float dtype; cast to float64.
        labels: (B, T) int64; ``IGNORE_LABEL`` cells get 0.

    Returns:
        (B, T) float64.
    """
    x = logits.to(torch.float64)
    s = torch.where(x < 0, 1 / (1 - x.clamp(max=0)), x + 1)
    labelled = labels != IGNORE_LABEL
    chosen = s.gather(-1, labels.where(labelled, 0).unsqueeze(-1)).squeeze(-1)  # (B, T)
    return (s.sum(-1).log() - chosen.log()).where(labelled, 0.0)


def softmax_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Softmax cross-entropy per cell in float32; arguments and ignored cells as above."""
    flat = F.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORE_LABEL, reduction="none"
    )
    return flat.view_as(labels)


TOKEN_LOSSES = {"stablemax": stablemax_cross_entropy, "softmax": softmax_cross_entropy}


def act_losses(
    token_loss: str,
    *,
    logits: Tensor,
    labels: Tensor,
    q_halt_logits: Tensor,
    q_continue_logits: Tensor,
    target_q_continue: Tensor | None,
    halted: Tensor,
    steps: Tensor,
) -> Losses:
    """The loss of one segment: token + (halt + continue) / 2.

    Args:
        token_loss: ``"stablemax"`` or ``"softmax"``.
        logits: (B, T, V).
        labels: (B, T) int64.
        q_halt_logits: (B,) float32.
        q_continue_logits: (B,) float32.
        target_q_continue: (B,) float32 probabilities, or None: no continue loss.
        halted: (B,) bool, after this segment.
        steps: (B,) integers, after this segment.

    Returns:
        Sums over rows.  A row's token loss is the mean over its labelled cells.  ``count``,
        ``accuracy``, ``exact_accuracy``, ``q_halt_accuracy`` and ``steps`` are over the rows that
        are halted and have labels.
    """
    labelled = labels != IGNORE_LABEL
    num_labelled = labelled.sum(-1)
    divisor = num_labelled.clamp(min=1)
    token_sum = (TOKEN_LOSSES[token_loss](logits, labels) / divisor.unsqueeze(-1)).sum()

    cell_correct = labelled & (logits.argmax(-1) == labels)
    row_correct = cell_correct.sum(-1) == num_labelled  # 0 of 0 counts as correct
    halt_sum = _bce_sum(q_halt_logits, row_correct.to(q_halt_logits.dtype))

    counted = halted & (num_labelled > 0)
    metrics = {
        "count": counted.sum(),
        "accuracy": (cell_correct.sum(-1) / divisor).where(counted, 0.0).sum(),
        "exact_accuracy": (counted & row_correct).sum(),
        "q_halt_accuracy": (counted & ((q_halt_logits >= 0) == row_correct)).sum(),
        "steps": steps.where(counted, 0).sum(),
        "lm_loss": token_sum.detach(),
        "q_halt_loss": halt_sum.detach(),
    }
    q_sum = halt_sum
    if target_q_continue is not None:
        continue_sum = _bce_sum(q_continue_logits, target_q_continue)
        metrics["q_continue_loss"] = continue_sum.detach()
        q_sum = halt_sum + continue_sum
    return Losses(token_sum + Q_LOSS_WEIGHT * q_sum, metrics)


def _bce_sum(logits: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, target, reduction="sum")
