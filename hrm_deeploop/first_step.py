"""How far one optimizer step moves the output: measured, and as first order predicts.

DeepLoop's theory bounds the first-order change of the output in one step through the visits that
the gradient sees.  Here are the change itself, ||F(theta + lr d theta) - F(theta)||, and that
prediction, lr ||J d theta||, for the visible calls alone (states before them kept, what the theory
counts) and for the whole segment (what really happens: the step moves every call).

**Source**: DeepLoop, arXiv 2607.13491 v2, whose bound this checks.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from hrm_deeploop.act import Carry, train_segment
from hrm_deeploop.config import OptimConfig
from hrm_deeploop.model import HRM, LevelCall
from hrm_deeploop.visits import SHARED, VisibleRegion, first_optimizer_step


class _Logits(nn.Module):
    """F: the logits after some level calls, as a function of the model's parameters."""

    def __init__(
        self,
        model: HRM,
        calls: list[LevelCall],
        states: tuple[Tensor, Tensor],
        inputs: Tensor,
        puzzle_rows: Tensor,
    ) -> None:
        super().__init__()
        self.model = model
        self._calls = calls
        self._states = states
        self._examples = (inputs, puzzle_rows)

    def forward(self) -> Tensor:
        model = self.model
        w = model.weights()
        embedding = model.embed(w, *self._examples)
        z_H, z_L = self._states
        for call in self._calls:
            blocks = w.L if call.level == "L" else w.H
            z_H, z_L = model.visit(call.level, blocks, z_H, z_L, embedding)
        return model.heads(w, z_H).logits

    def at(self, parameters: dict[str, Tensor]) -> Tensor:
        """F with these parameters in place of the model's own."""
        own = {f"model.{name}": value for name, value in parameters.items()}
        return functional_call(self, own, ())


def first_step_change(
    model: HRM,
    carry: Carry,
    puzzle_rows: Tensor,
    optim: OptimConfig,
    rates: Sequence[float],
) -> dict[str, Any]:
    """The output's change by the first AdamATan2 step on the carry's current examples.

    Leaves model, carry and random state alone.  The puzzle table keeps its rows.  Cost: one
    training step; for each group of parameters and region one forward-mode pass and one forward
    pass per rate: some 10 eager training steps for one rate.

    Args:
        model: The reasoner; computes in its own dtypes.
        carry: After ``refill``.
        puzzle_rows: (B, puzzle_emb_ndim) table rows of ``carry.current``.
        optim: Betas, weight decay and bias correction of the step.
        rates: Learning rates; the step is proportional to them.

    Returns:
        ``output_norm`` ||F|| and ``num_outputs``, logits in F; ``rates``; ``bound``, the worst
        case of the two-module bound; ``changes[group][region]`` with, per rate, ``actual`` and
        ``predicted`` change and ``deviation``, ||actual - predicted|| / ||predicted|| of the two
        vectors.  Groups: the parameters of H, of L, of both (``H+L``), and ``all`` dense ones;
        H and L alone only where they are separate.  Regions: ``visible``, ``whole``.
    """
    # The gradient is taken here also where the caller has switched gradients off.
    with torch.enable_grad():
        out = train_segment(model, carry, puzzle_rows.detach(), None)
        loss = out.losses.total / len(carry.halted)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
    names = [name for name, _ in model.named_parameters()]
    values = [value.detach() for value in model.parameters()]
    step = dict(zip(names, first_optimizer_step(values, gradients, optim), strict=True))

    region = VisibleRegion(model, carry, puzzle_rows)
    examples = (carry.current.inputs, puzzle_rows.detach())
    at = dict(zip(names, values, strict=True))
    visible = _Logits(model, region.calls, region.states[0], *examples)
    whole = _Logits(model, model.calls(), (carry.z_H, carry.z_L), *examples)
    # Both end in the same logits before the step; the visible calls alone are the cheaper way.
    with torch.no_grad():
        logits = visible.at(at).double()
    outputs = {"visible": visible, "whole": whole}
    return {
        "output_norm": torch.linalg.vector_norm(logits).item(),
        "num_outputs": logits.numel(),
        "rates": list(rates),
        "bound": model.scales.bound,
        "changes": {
            group: {
                name: _changes(output, logits, at, {key: step[key] for key in members}, rates)
                for name, output in outputs.items()
            }
            for group, members in _groups(model, names).items()
        },
    }


def _groups(model: HRM, names: list[str]) -> dict[str, list[str]]:
    levels = {
        level: [name for name in names if name.startswith(f"{level}_level.")] for level in "HL"
    }
    groups = {SHARED: levels["H"] + levels["L"], "all": names}
    return groups if model.arch.share_levels else {**levels, **groups}


@torch.no_grad()
def _changes(
    output: _Logits,
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
