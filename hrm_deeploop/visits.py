"""The visits of a looped block, one by one: exact gradients and sensitivities of each.

**Source**: the definitions of kappa in DeepLoop, arXiv 2607.13491 v2, taken visit by visit: every
visit uses a copy of the weights of its own, so that autograd tells the visits apart.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from hrm_deeploop.act import Carry, finish_segment
from hrm_deeploop.adam_atan2 import AdamATan2
from hrm_deeploop.config import OptimConfig
from hrm_deeploop.layers import BlockWeights
from hrm_deeploop.model import HRM, Level, LevelCall

SUBLAYERS = {"attention": ("qkv", "o"), "mlp": ("gate_up", "down")}
SHARED = "H+L"  # the one set of blocks of a model with share_levels

Blocks = tuple[BlockWeights, ...]


class VisibleRegion:
    """The last level calls of a segment, those with gradient, and the states they begin with.

    Args:
        model: The reasoner.
        carry: After ``refill``.
        puzzle_rows: (B, puzzle_emb_ndim).

    Attributes:
        calls: The visible level calls, in order.
        blocks: The weights of each call.
        states: (z_H, z_L) before each call.
    """

    @torch.no_grad()
    def __init__(self, model: HRM, carry: Carry, puzzle_rows: Tensor) -> None:
        self.model = model
        self.carry = carry
        self.weights = w = model.weights()
        self.embedding = model.embed(w, carry.current.inputs, puzzle_rows)
        self.calls: list[LevelCall] = []
        self.blocks: list[Blocks] = []
        self.states: list[tuple[Tensor, Tensor]] = []
        z_H, z_L = carry.z_H, carry.z_L
        for call in model.calls():
            blocks = w.L if call.level == "L" else w.H
            if call.visible:
                self.calls.append(call)
                self.blocks.append(blocks)
                self.states.append((z_H, z_L))
            z_H, z_L = model.visit(call.level, blocks, z_H, z_L, self.embedding)

    def visits_by_level(self) -> dict[str, list[int]]:
        """Which calls visit which set of blocks."""
        visits: dict[str, list[int]] = {}
        for index, call in enumerate(self.calls):
            name = SHARED if self.model.arch.share_levels else call.level
            visits.setdefault(name, []).append(index)
        return dict(sorted(visits.items()))

    def level_of(self, visit: int) -> Level:
        """The parameters that a call uses."""
        model = self.model
        is_low = model.arch.share_levels or self.calls[visit].level == "L"
        return model.L_level if is_low else model.H_level

    def run(self, first: int, blocks: Sequence[Blocks]) -> tuple[Tensor, Tensor]:
        """(z_H, z_L) at the segment's end, from call ``first`` on with the calls' ``blocks``."""
        z_H, z_L = self.states[first]
        for call, own in zip(self.calls[first:], blocks, strict=True):
            z_H, z_L = self.model.visit(call.level, own, z_H, z_L, self.embedding)
        return z_H, z_L

    def per_visit_gradients(self) -> tuple[list[Blocks], float]:
        """Gradient of the training loss per row when only one call's weights are live.

        Returns:
            For each call the gradients of its blocks' matrices, in the compute dtype; they sum
            over a level's calls to the ordinary gradient.  And the loss.
        """
        # Leaves of their own that share the weights' memory.
        copies = [
            tuple(BlockWeights(*(m.detach().requires_grad_() for m in block)) for block in blocks)
            for blocks in self.blocks
        ]
        with torch.enable_grad():
            z_H, z_L = self.run(0, copies)
            out = finish_segment(
                self.model, self.weights, self.carry, self.embedding, z_H, z_L, None
            )
            loss = out.losses.total / len(self.carry.halted)
            leaves = [matrix for blocks in copies for block in blocks for matrix in block]
            gradients = iter(torch.autograd.grad(loss, leaves))
        per_call = [
            tuple(BlockWeights(*(next(gradients) for _ in block)) for block in blocks)
            for blocks in copies
        ]
        return per_call, loss.item()

    @torch.no_grad()
    def sensitivity(self, visit: int, block: int, tangents: dict[str, Tensor]) -> Tensor:
        """U_r: derivative of the logits along a change of one block's matrices in one call.

        Args:
            visit: Index of the call.
            block: Index of the block in its level.
            tangents: The change of each matrix, by its name in ``BlockWeights``.

        Returns:
            (B, seq_len, V).
        """
        own = self.blocks[visit]
        names = tuple(tangents)

        def logits(*matrices: Tensor) -> Tensor:
            changed = own[block]._replace(**dict(zip(names, matrices, strict=True)))
            moved = (*own[:block], changed, *own[block + 1 :])
            z_H, _ = self.run(visit, [moved, *self.blocks[visit + 1 :]])
            return self.model.heads(self.weights, z_H).logits

        at = tuple(getattr(own[block], name) for name in names)
        along = tuple(tangents[name].to(m.dtype) for name, m in zip(names, at, strict=True))
        # The fused attention kernels have no forward-mode derivative.
        with sdpa_kernel(SDPBackend.MATH):
            return torch.func.jvp(logits, at, along)[1]


def first_optimizer_step(
    values: Sequence[Tensor], gradients: Sequence[Tensor], optim: OptimConfig
) -> list[Tensor]:
    """The change that the first AdamATan2 step makes at learning rate 1; linear in the rate.

    Args:
        values: Parameters; not changed.
        gradients: Their gradients.
        optim: Betas, weight decay and bias correction.
    """
    moved = [value.detach().clone() for value in values]
    for value, gradient in zip(moved, gradients, strict=True):
        value.grad = gradient.to(value.dtype)
    AdamATan2(
        moved,
        lr=1.0,
        beta1=optim.beta1,
        beta2=optim.beta2,
        weight_decay=optim.weight_decay,
        bias_correction=optim.bias_correction,
    ).step()
    return [new - old.detach() for new, old in zip(moved, values, strict=True)]
