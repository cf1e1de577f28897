"""The reasoner's visible calls as a region for the probes: the last calls of one segment."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from hrm_deeploop.act import Carry, finish_segment, train_segment
from hrm_deeploop.layers import Block
from hrm_deeploop.model import HRM, LevelCall
from hrm_deeploop.regions import Blocks, OnCall, Region

SHARED = "H+L"  # the one set of blocks of a model with share_levels
RECORDED_ARCH = (
    "grad_scope",
    "share_levels",
    "H_layers",
    "L_layers",
    "H_cycles",
    "L_cycles",
    "hidden_size",
    "residual_sum",
    "carry_dtype",
)

States = tuple[Tensor, Tensor]


class VisibleRegion(Region[States]):
    """The last level calls of a segment, those with gradient, and the states they begin with.

    Args:
        model: The reasoner.
        carry: After ``refill``.
        puzzle_rows: (B, puzzle_emb_ndim) table rows of ``carry.current``, which are kept.

    Attributes:
        calls: The visible level calls, in order.
        blocks: The weights of each call.
    """

    model: HRM
    places = ("visible", "whole")

    @torch.no_grad()
    def __init__(self, model: HRM, carry: Carry, puzzle_rows: Tensor) -> None:
        self.model = model
        self.carry = carry
        self.puzzle_rows = puzzle_rows.detach()
        self.weights = w = model.weights()
        self.embedding = model.embed(w, carry.current.inputs, puzzle_rows)
        self.calls = [call for call in model.calls() if call.visible]
        self.blocks = [self._blocks(call) for call in self.calls]

    def _blocks(self, call: LevelCall) -> Blocks:
        return self.weights.L if call.level == "L" else self.weights.H

    @cached_property
    @torch.no_grad()
    def states(self) -> list[States]:
        """(z_H, z_L) before each visible call."""
        z_H, z_L = self.carry.z_H, self.carry.z_L
        states = []
        for call in self.model.calls():
            if call.visible:
                states.append((z_H, z_L))
            z_H, z_L = self.model.visit(call.level, self._blocks(call), z_H, z_L, self.embedding)
        return states

    def facts(self) -> dict[str, Any]:
        """Architecture, and scaling of both levels."""
        arch = {key: getattr(self.model.arch, key) for key in RECORDED_ARCH}
        return {"arch": arch, "residual": self.model.scales.as_dict()}

    def visits_by_level(self) -> dict[str, list[int]]:
        """``H`` and ``L``, or ``SHARED``, with the calls that visit each."""
        visits: dict[str, list[int]] = {}
        for index, call in enumerate(self.calls):
            name = SHARED if self.model.arch.share_levels else call.level
            visits.setdefault(name, []).append(index)
        return dict(sorted(visits.items()))

    def block_of(self, visit: int, block: int) -> Block:
        """The parameters of a block that a call uses."""
        model = self.model
        is_low = model.arch.share_levels or self.calls[visit].level == "L"
        return (model.L_level if is_low else model.H_level).blocks()[block]

    def groups(self) -> dict[str, list[str]]:
        """H, L, both (``SHARED``) and all; H and L alone only where they are separate."""
        names = [name for name, _ in self.model.named_parameters()]
        levels = {
            level: [name for name in names if name.startswith(f"{level}_level.")] for level in "HL"
        }
        groups = {SHARED: levels["H"] + levels["L"], "all": names}
        return groups if self.model.arch.share_levels else {**levels, **groups}

    def bound_at(self, kappas: Mapping[str, float]) -> float:
        """The two-module bound."""
        kappa_H, kappa_L = (kappas[name if name in kappas else SHARED] for name in "HL")
        return self.model.scales.bound_at(kappa_H, kappa_L)

    def run(self, first: int, blocks: Sequence[Blocks]) -> States:
        """(z_H, z_L) at the segment's end, from call ``first`` on with the calls' ``blocks``."""
        z_H, z_L = self.states[first]
        for call, own in zip(self.calls[first:], blocks, strict=True):
            z_H, z_L = self.model.visit(call.level, own, z_H, z_L, self.embedding)
        return z_H, z_L

    def loss(self, state: States) -> Tensor:
        """The training loss per row."""
        out = finish_segment(self.model, self.weights, self.carry, self.embedding, *state, None)
        return out.losses.total / len(self.carry.halted)

    def logits(self, state: States) -> Tensor:
        """(B, seq_len, V)."""
        return self.model.heads(self.weights, state[0]).logits

    def training_loss(self) -> Tensor:
        """The training loss per row, as a function of the model's parameters."""
        out = train_segment(self.model, self.carry, self.puzzle_rows, None)
        return out.losses.total / len(self.carry.halted)

    def output(self, place: str) -> Tensor:
        """The logits after the visible calls (states before them kept) or the whole segment."""
        model = self.model
        w = model.weights()
        embedding = model.embed(w, self.carry.current.inputs, self.puzzle_rows)
        calls, (z_H, z_L) = self.calls, self.states[0]
        if place == "whole":
            calls, z_H, z_L = model.calls(), self.carry.z_H, self.carry.z_L
        for call in calls:
            blocks = w.L if call.level == "L" else w.H
            z_H, z_L = model.visit(call.level, blocks, z_H, z_L, embedding)
        return model.heads(w, z_H).logits

    def begin(self) -> dict[str, Tensor]:
        """The carried states."""
        return {"H": self.carry.z_H, "L": self.carry.z_L}

    def watch(self, on_call: OnCall) -> None:
        """Runs one segment under watch."""
        model = self.model
        z_H, z_L = self.carry.z_H, self.carry.z_L
        for call in model.calls():
            alpha = (model.scales.L if call.level == "L" else model.scales.H).alpha

            def residual_step(x: Tensor, update: Tensor, alpha: float = alpha) -> Tensor:
                return model.residual_step(x, update, alpha)

            z_H, z_L = model.visit(
                call.level,
                self._blocks(call),
                z_H,
                z_L,
                self.embedding,
                on_sublayer=on_call(call.level, call.visible, residual_step),
            )
