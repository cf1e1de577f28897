"""Exponential moving average of the dense weights (TRM evaluates with it, decay 0.999)."""

import torch
from torch import Tensor, nn


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
