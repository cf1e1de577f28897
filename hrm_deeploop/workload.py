"""What a workload gives the trainer."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor, nn

from hrm_deeploop.distributed import Ranks


class StepOutput(NamedTuple):
    """One step's loss to differentiate and its metrics.

    Attributes:
        loss: Scalar, already divided by the global batch size.
        metrics: Scalar sums over the batch, without gradient.
    """

    loss: Tensor
    metrics: dict[str, Tensor]


class Workload(Protocol):
    """A model with its data and loss; the trainer owns steps, optimizer, files and progress."""

    module: nn.Module
    """Dense parameters, for AdamATan2."""
    horizon_steps: int
    """Steps of the whole recipe: the schedule's horizon."""
    examples_per_step: int
    tokens_per_step: int
    examples_per_epoch: int
    num_parts: int
    """Parts of a step whose gradients add up in this process."""
    ranks: Ranks

    def step(self, step: int, part: int) -> StepOutput:
        """Forward pass of one part of training step 1, 2, ...; a function of state and ``step``."""

    def after_backward(self, lr_ratio: float) -> None:
        """Updates what the dense optimizer does not hold, at ``lr_ratio`` of its peak rate."""

    def summarise(self, sums: dict[str, np.ndarray]) -> dict[str, float]:
        """Metrics for people from per-step sums, each (steps,); the last is the newest."""

    def diagnostics(self) -> dict[str, float]:
        """What a look at the newest step shows; changes nothing; all processes must call it."""

    def tensors(self) -> dict[str, Tensor]:
        """Weights to save, by published name."""

    def state(self) -> dict[str, Any]:
        """Everything else that continuing needs: tensors, numbers and lists of them.

        The same whatever the number of processes; all of them must call it.
        """

    def load(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Takes over what ``tensors`` and ``state`` returned."""

    def evaluate(self, checkpoint: Path, out: Path, *, partial: bool) -> dict[str, Any]:
        """Evaluates a saved checkpoint into the folder ``out``; continues what is begun there.

        All processes must call it.

        Args:
            checkpoint: Its folder; what is in memory is not used and stays as it is.
            out: Where files go.
            partial: As little as the configuration asks for during training; else everything.

        Returns:
            What results.json holds.
        """

    def scores(self, results: dict[str, Any]) -> dict[str, float]:
        """Scores by name from what ``evaluate`` returned, the headline first; more is better."""
