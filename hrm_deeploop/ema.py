"""Exponential moving average of the dense weights (TRM evaluates with it, decay 0.999)."""

import torch
from torch import Tensor, nn

PREFIX = "ema."
"""Of the averages' names in a checkpoint."""


def split_averages(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A checkpoint's tensors apart: those of training, and the averages by their own names."""
    own = {k: v for k, v in tensors.items() if not k.startswith(PREFIX)}
    averages = {k.removeprefix(PREFIX): v for k, v in tensors.items() if k.startswith(PREFIX)}
    return own, averages


class EMA:
    """Averaged copies of a module's parameters, by name; buffers are not averaged.

    Args:
        module: Whose parameters to average.
        decay: average <- decay * average + (1 - decay) * parameter, in [0, 1).
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.average = {name: p.detach().clone() for name, p in module.named_parameters()}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Takes the parameters of one more step into the average."""
        parameters = [p.detach() for _, p in module.named_parameters()]
        torch._foreach_lerp_(list(self.average.values()), parameters, 1 - self.decay)

    def load(self, average: dict[str, Tensor]) -> None:
        """Takes over saved averages of the same names and shapes."""
        for name, own in self.average.items():
            own.copy_(average[name])
