"""What a workload gives the trainer, and what all workloads share."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException

from arc_data.batches import EpochStream
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.distributed import Ranks

if TYPE_CHECKING:
    from arc_data.manifest import Described


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
    """Dense parameters, for the optimizer."""
    horizon_steps: int
    """Steps of the whole recipe: the schedule's horizon."""
    examples_per_step: int
    tokens_per_step: int
    examples_per_epoch: int
    num_parts: int
    """Parts of a step whose gradients add up in this process."""
    ranks: Ranks

    @property
    def shown(self) -> Mapping[str, str]:
        """Metrics that progress shows: name -> a format that begins with a label."""

    @property
    def dataset(self) -> "Described":
        """Its data."""

    def dataset_facts(self) -> dict[str, Any]:
        """``name`` and ``digest`` of the data."""

    def checkpoint_meta(self) -> dict[str, Any]:
        """What a checkpoint's description says beside what all say."""

    def parameter_counts(self) -> dict[str, int]:
        """Numbers of weights by part; ``total`` is the last."""

    def residual(self) -> dict[str, Any]:
        """Resolved residual scaling, as results record it."""

    def scaling_table(self) -> str:
        """The same for people."""

    def compile(self) -> None:
        """Compiles the step; leaves no trace in the state."""

    def backends(self) -> dict[str, str]:
        """What the step is computed with, for provenance."""

    def step(self, step: int, part: int) -> StepOutput:
        """Forward pass of one part of training step 1, 2, ...; a function of state and ``step``."""

    def after_backward(self, lr_ratio: float) -> None:
        """Updates what the dense optimizer does not hold, at ``lr_ratio`` of its peak rate."""

    def summarise(self, sums: dict[str, np.ndarray]) -> dict[str, float]:
        """Metrics for people from per-step sums, each (steps,); the last is the newest."""

    def diagnostics(self) -> dict[str, float]:
        """What a look at the newest step shows; changes nothing; all processes must call it."""

    def validation(self) -> dict[str, float]:
        """``validation_loss``, the weights' token loss on held-out examples, without averaging.

        ``validation_floor`` beside it is the least that a constant guess could have there.
        Changes nothing; all processes must call it.
        """

    def kappa(self) -> dict[str, float]:
        """kappa of the weights on fixed training examples, without averaging; changes nothing."""

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
        """Scores by name from what ``evaluate`` returned."""

    def rating(self, results: dict[str, Any]) -> float:
        """What checkpoints are ranked by; more is better."""

    def headline(self, results: dict[str, Any]) -> str:
        """The results in a few words."""

    def write_page(self, run_dir: Path) -> Path:
        """A page of the whole run for people."""

    def format(self, results: dict[str, Any]) -> str:
        """The results for people."""


class GlobalBatches:
    """Global batches cut into one part per process and ``hardware.accumulate``, in this order.

    Args:
        config: The run.
        order: Its examples.
        ranks: The processes that train together.

    Attributes:
        size: Rows of a global batch.
        horizon_steps: Steps of the whole recipe.
        num_parts: Parts of this process.

    Raises:
        ValueError: If the run has no whole batch, or it cannot be cut into equal parts.
    """

    def __init__(self, config: TrainConfig, order: EpochStream, ranks: Ranks) -> None:
        self.order = order
        self.size = config.optim.global_batch_size
        steps = order.total_steps(config.epochs, self.size)
        self.horizon_steps = steps if config.optim.total_steps is None else config.optim.total_steps
        if self.horizon_steps == 0:
            raise ValueError(
                f"epochs={config.epochs} has {config.epochs * order.examples_per_epoch} "
                f"examples, less than one batch of optim.global_batch_size={self.size}"
            )
        self.num_parts = config.hardware.accumulate
        self._first_part = ranks.rank * self.num_parts
        self._parts_in_all = ranks.size * self.num_parts
        config.rows_per_part(ranks.size)  # checks that the parts are equal

    def rows(self, step: int, part: int) -> NDArray[np.int64]:
        """The rows that step 1, 2, ... offers to one of this process's parts."""
        return self.order.batch_rows(
            step - 1,
            self.size,
            rank=self._first_part + part,
            world_size=self._parts_in_all,
        )

    def part_of(self, values: NDArray[Any], part: int) -> NDArray[Any]:
        """A part's values out of one for every row of the global batch."""
        return np.split(values, self._parts_in_all)[self._first_part + part]


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """An array as a tensor on a device; nobody waits for the copy to a GPU."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    # From pinned memory the copy runs beside the computation of the step before.
    return tensor.pin_memory().to(device, non_blocking=True)


def compiles(attempt: Callable[[], object]) -> bool:
    """Whether a first call of compiled code succeeds; one warning where it does not.

    Torch cannot compile without a C++ compiler, say; the run goes on eagerly then, the same up to
    rounding.
    """
    try:
        attempt()
    except TorchDynamoException as error:
        reason = str(error).strip().splitlines()[0]
        warnings.warn(f"running eagerly: torch.compile failed: {reason}", stacklevel=3)
        return False
    return True
