"""The looped language model's rounds as a region for the probes: one level, all rounds visible."""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import Tensor

from hrm_deeploop.layers import Block
from hrm_deeploop.looped_lm.model import LoopedGPT, token_losses
from hrm_deeploop.regions import Blocks, OnCall, Region

LEVEL = "blocks"
RECORDED = (
    "num_blocks",
    "rounds",
    "hidden_size",
    "num_heads",
    "context",
    "mlp",
    "input_norm",
    "stream_dtype",
)


class LoopRegion(Region[Tensor]):
    """All R rounds on some windows of text; a round visits each of the K blocks.

    Blocks run eagerly, also where the model's are compiled: what is compiled has no forward-mode
    derivative.

    Args:
        model: The language model.
        ids: (B, S + 1) int64 tokens, S at most ``context``; the last is only predicted.
    """

    model: LoopedGPT
    places = ("whole",)

    @torch.no_grad()
    def __init__(self, model: LoopedGPT, ids: Tensor) -> None:
        self.model = model
        self.tokens, self.targets = ids[:, :-1], ids[:, 1:]  # (B, S) each
        self.weights = model.weights()
        self.blocks: list[Blocks] = [self.weights.blocks] * model.config.rounds

    @cached_property
    @torch.no_grad()
    def states(self) -> list[Tensor]:
        """The stream before each round."""
        states = [self.model.embed(self.weights, self.tokens)]
        for blocks in self.blocks[:-1]:
            states.append(self.model.round(states[-1], blocks, self.model.block))
        return states

    def facts(self) -> dict[str, Any]:
        """Sizes and loop, and the arm's scaling."""
        arch = {key: getattr(self.model.config, key) for key in RECORDED}
        return {"arch": arch, "residual": {LEVEL: self.model.scale.as_dict()}}

    def visits_by_level(self) -> dict[str, list[int]]:
        """Every round visits the one set of blocks."""
        return {LEVEL: list(range(len(self.blocks)))}

    def block_of(self, visit: int, block: int) -> Block:
        """The parameters of a block, the same in every round."""
        return cast(Block, self.model.layers[block])

    def groups(self) -> dict[str, list[str]]:
        """The blocks, the one table of words, and all."""
        names = [name for name, _ in self.model.named_parameters()]
        blocks = [name for name in names if name.startswith("layers.")]
        return {LEVEL: blocks, "embedding": [n for n in names if n not in blocks], "all": names}

    def bound_at(self, kappas: Mapping[str, float]) -> float | None:
        """M kappa (beta/alpha)^2; None in arms without alpha."""
        return self.model.scale.bound_at(kappas[LEVEL])

    def run(self, first: int, blocks: Sequence[Blocks]) -> Tensor:
        """The stream after the last round, (B, S, D), from a round on with the ``blocks`` given."""
        x = self.states[first]
        for _, own in zip(self.blocks[first:], blocks, strict=True):
            x = self.model.round(x, own, self.model.block)
        return x

    def loss(self, state: Tensor) -> Tensor:
        """Mean cross-entropy, nats per token."""
        return token_losses(self.logits(state), self.targets).mean()

    def logits(self, state: Tensor) -> Tensor:
        """(B, S, V)."""
        return self.model.logits(self.weights, state)

    def training_loss(self) -> Tensor:
        """Mean cross-entropy, as a function of the model's parameters."""
        return token_losses(self.output("whole"), self.targets).mean()

    def output(self, place: str) -> Tensor:
        """The logits, as a function of the model's parameters; there is one place."""
        w = self.model.weights()
        x = self.model.embed(w, self.tokens)
        for _ in self.blocks:
            x = self.model.round(x, w.blocks, self.model.block)
        return self.model.logits(w, x)

    def begin(self) -> dict[str, Tensor]:
        """The embedded tokens."""
        return {LEVEL: self.states[0]}

    def watch(self, on_call: OnCall) -> None:
        """Runs all rounds under watch."""
        x = self.states[0]
        for blocks in self.blocks:
            watched = on_call(LEVEL, True, self.model.residual_step)
            x = self.model.round(x, blocks, partial(self.model.block, on_sublayer=watched))
