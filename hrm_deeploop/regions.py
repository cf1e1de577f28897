"""The visits of looped blocks that a gradient sees, one by one, whatever model loops them.

A region is all that the probes know of a model on one batch: ``visits.VisibleRegion`` is the
reasoner's, ``looped_lm.visits.LoopRegion`` the language model's.  Gradients and sensitivities of
single visits are exact: every visit uses a copy of the weights of its own, so that autograd tells
the visits apart.

**Source**: the definitions of kappa in DeepLoop, arXiv 2607.13491 v2, taken visit by visit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from hrm_deeploop.adam_atan2 import AdamATan2
from hrm_deeploop.config import OptimConfig
from hrm_deeploop.layers import Block, BlockWeights
from hrm_deeploop.model import OnSublayer

SUBLAYERS = {"attention": ("qkv", "o"), "mlp": ("gate_up", "down")}
OPTIMIZER = "adam_atan2"
"""Whose first step the probes take, whatever a run trains with."""

Blocks = tuple[BlockWeights, ...]
ResidualStep = Callable[[Tensor, Tensor], Tensor]
"""The stream after a sublayer, from the one before it and the branch's update."""
OnCall = Callable[[str, bool, ResidualStep], OnSublayer]
"""Told of a call's level, whether the gradient sees it and its residual step, says what watches."""
State = TypeVar("State")


class Region(ABC, Generic[State]):
    """A model on a batch, cut into calls of its levels; a call visits each of a level's blocks.

    Attributes:
        model: Its parameters.
        blocks: The weights of each visible call, in order, in the compute dtype.
        places: Where a change of the parameters can act: ``whole``, and ``visible`` where the
            gradient does not see every call.
    """

    model: nn.Module
    blocks: list[Blocks]
    places: tuple[str, ...]

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """``arch`` and ``residual`` (scaling per level), as the probes' JSON records them."""

    @abstractmethod
    def visits_by_level(self) -> dict[str, list[int]]:
        """Which visible calls visit which set of blocks."""

    @abstractmethod
    def block_of(self, visit: int, block: int) -> Block:
        """The parameters of a block that a visible call uses."""

    @abstractmethod
    def groups(self) -> dict[str, list[str]]:
        """Names of parameters by what they belong to; ``all``: every one."""

    @abstractmethod
    def bound_at(self, kappas: Mapping[str, float]) -> float | None:
        """The stability bound with these kappas by level; None: not defined for this model."""

    @abstractmethod
    def run(self, first: int, blocks: Sequence[Blocks]) -> State:
        """The state at the end, from visible call ``first`` on with the calls' ``blocks``."""

    @abstractmethod
    def loss(self, state: State) -> Tensor:
        """The training loss of the state at the end."""

    @abstractmethod
    def logits(self, state: State) -> Tensor:
        """The logits of the state at the end."""

    @abstractmethod
    def training_loss(self) -> Tensor:
        """The training loss, as a function of the model's parameters."""

    @abstractmethod
    def output(self, place: str) -> Tensor:
        """The logits, as a function of the model's parameters in a place."""

    @abstractmethod
    def begin(self) -> dict[str, Tensor]:
        """The stream of each level before its first block, (B, S, D)."""

    @abstractmethod
    def watch(self, on_call: OnCall) -> None:
        """Runs all calls in order, under the watch of what ``on_call`` gives for each."""

    @property
    def worst_bound(self) -> float | None:
        """The stability bound with fully aligned visits, kappa = R."""
        visits = self.visits_by_level()
        return self.bound_at({name: float(len(calls)) for name, calls in visits.items()})

    def per_visit_gradients(self) -> tuple[list[Blocks], float]:
        """Gradient of the training loss when only one call's weights are live.

        Returns:
            For each visible call the gradients of its blocks' matrices, in the compute dtype; they
            sum over a level's calls to the ordinary gradient.  And the loss.
        """
        # Leaves of their own that share the weights' memory.
        copies = [
            tuple(BlockWeights(*(m.detach().requires_grad_() for m in block)) for block in blocks)
            for blocks in self.blocks
        ]
        with torch.enable_grad():
            loss = self.loss(self.run(0, copies))
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
            visit: Index of the visible call.
            block: Index of the block in its level.
            tangents: The change of each matrix, by its name in ``BlockWeights``.

        Returns:
            (B, S, V), as ``logits``.
        """
        own = self.blocks[visit]
        names = tuple(tangents)

        def logits(*matrices: Tensor) -> Tensor:
            changed = own[block]._replace(**dict(zip(names, matrices, strict=True)))
            moved = (*own[:block], changed, *own[block + 1 :])
            return self.logits(self.run(visit, [moved, *self.blocks[visit + 1 :]]))

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
    AdamATan2(moved, lr=1.0, **step_settings(optim)).step()
    return [new - old.detach() for new, old in zip(moved, values, strict=True)]


def step_settings(optim: OptimConfig) -> dict[str, Any]:
    """What the first step takes of a run's settings."""
    names = ("beta1", "beta2", "weight_decay", "bias_correction")
    return {name: getattr(optim, name) for name in names}
