"""How far one optimizer step moves the output: measured, and as first order predicts.

DeepLoop's theory bounds the first-order change of the output in one step through the visits that
the gradient sees.  Here are the change itself, ||F(theta + lr d theta) - F(theta)||, and that
prediction, lr ||J d theta||, for the visible calls alone (states before them kept, what the theory
counts) and for all calls (what really happens: the step moves every one).

**Source**: DeepLoop, arXiv 2607.13491 v2, whose bound this checks.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from hrm_deeploop.config import OptimConfig
from hrm_deeploop.regions import Region, first_optimizer_step


class _Output(nn.Module):
    """F: the logits as a function of the model's parameters in one place."""

    def __init__(self, region: Region[Any], place: str) -> None:
        super().__init__()
        self.model = region.model
        self._output = partial(region.output, place)

    def forward(self) -> Tensor:
        return self._output()

    def at(self, parameters: dict[str, Tensor]) -> Tensor:
        """F with these parameters in place of the model's own."""
        own = {f"model.{name}": value for name, value in parameters.items()}
        return functional_call(self, own, ())


def first_step_change(
    region: Region[Any], optim: OptimConfig, rates: Sequence[float]
) -> dict[str, Any]:
    """The output's change by the first AdamATan2 step on a region's batch.

    Leaves model, batch and random state alone.  Cost: one training step; for each group of
    parameters and place one forward-mode pass and one forward pass per rate: some 10 eager
    training steps for one rate.

    Args:
        region: Model and batch; computes in the model's own dtypes.
        optim: Betas, weight decay and bias correction of the step.
        rates: Learning rates; the step is proportional to them.

    Returns:
        ``output_norm`` ||F|| and ``num_outputs``, logits in F; ``rates``; ``bound``, the worst
        case of the stability bound (None: not defined); ``changes[group][place]`` with, per rate,
        ``actual`` and ``predicted`` change and ``deviation``, ||actual - predicted|| /
        ||predicted|| of the two vectors.  Groups and places are the region's.
    """
    model = region.model
    # The gradient is taken here also where the caller has switched gradients off.
    with torch.enable_grad():
        gradients = torch.autograd.grad(region.training_loss(), list(model.parameters()))
    names = [name for name, _ in model.named_parameters()]
    values = [value.detach() for value in model.parameters()]
    step = dict(zip(names, first_optimizer_step(values, gradients, optim), strict=True))

    at = dict(zip(names, values, strict=True))
    outputs = {place: _Output(region, place) for place in region.places}
    # All end in the same logits before the step; the first place is the cheapest way.
    with torch.no_grad():
        logits = outputs[region.places[0]].at(at).double()
    return {
        "output_norm": torch.linalg.vector_norm(logits).item(),
        "num_outputs": logits.numel(),
        "rates": list(rates),
        "bound": region.worst_bound,
        "changes": {
            group: {
                place: _changes(output, logits, at, {key: step[key] for key in members}, rates)
                for place, output in outputs.items()
            }
            for group, members in region.groups().items()
        },
    }


@torch.no_grad()
def _changes(
    output: _Output,
    start: Tensor,
    at: dict[str, Tensor],
    step: dict[str, Tensor],
    rates: Sequence[float],
) -> dict[str, list[float]]:
    def moved(members: dict[str, Tensor]) -> Tensor:
        return output.at({**at, **members})

    members = {name: at[name] for name in step}
    # The fused attention kernels have no forward-mode derivative; F itself uses what training does.
    with sdpa_kernel(SDPBackend.MATH):
        slope = jvp(moved, (members,), (step,))[1].double()
    found: dict[str, list[float]] = {"predicted": [], "actual": [], "deviation": []}
    for rate in rates:
        change = moved({k: v + rate * step[k] for k, v in members.items()}).double() - start
        expected = rate * slope
        for key, vector in (
            ("predicted", expected),
            ("actual", change),
            ("deviation", change - expected),
        ):
            found[key].append(torch.linalg.vector_norm(vector).item())
        if found["predicted"][-1] > 0:
            found["deviation"][-1] /= found["predicted"][-1]
    return found
