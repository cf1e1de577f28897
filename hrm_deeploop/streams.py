"""The residual streams of one segment, looked at without gradient.

Per sublayer visit: how large the stream and the update are, and how much of the update survives
the dtype the stream is stored in.  Over the block visits of a level: whether the increments
d_i = h_i - h_(i-1) point the same way, h_i the level's state after its i-th block visit.

**Source**: arXiv 2606.18524 (R_n = ||h_n|| / sqrt(D), cosines of block increments), measured there
on pre-norm streams.  Differs: post-norm, so a stored stream has RMS 1, and what varies is the
stream a call begins with, state + injection; increments hold the injection too.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hrm_deeploop.act import Carry
from hrm_deeploop.alignment import cosines
from hrm_deeploop.layers import at_least_float32
from hrm_deeploop.model import HRM
from hrm_deeploop.scaling import LevelName
from hrm_deeploop.visits import SUBLAYERS


class _Sublayer(NamedTuple):
    """Scalars of one sublayer visit, left on their device."""

    before_rms: Tensor
    stream_rms: Tensor
    update_rms: Tensor
    unchanged: Tensor
    lost: Tensor


class _Observer:
    """Collects what the sublayers of one level call did."""

    def __init__(self, model: HRM, alpha: float, keep_states: bool) -> None:
        self.model = model
        self.alpha = alpha
        self.sublayers: list[_Sublayer] = []
        self.states: list[Tensor] = []
        self._keep_states = keep_states

    def __call__(self, before: Tensor, update: Tensor, after: Tensor) -> None:
        without = self.model.residual_step(before, torch.zeros_like(update), self.alpha)
        self.sublayers.append(
            _Sublayer(
                before_rms=_rms(before),
                stream_rms=_rms(after),
                update_rms=_rms(update),
                unchanged=_share(after == before),
                lost=_share(after == without),
            )
        )
        if self._keep_states and len(self.sublayers) % len(SUBLAYERS) == 0:
            self.states.append(after)


def _rms(x: Tensor) -> Tensor:
    return at_least_float32(x).square().mean().sqrt()


def _share(where: Tensor) -> Tensor:
    return where.count_nonzero().float() / where.numel()


@torch.no_grad()
def _observe(
    model: HRM, carry: Carry, puzzle_rows: Tensor, *, keep_states: bool
) -> list[tuple[LevelName, bool, _Observer]]:
    w = model.weights()
    embedding = model.embed(w, carry.current.inputs, puzzle_rows)
    z_H, z_L = carry.z_H, carry.z_L
    observed = []
    for call in model.calls():
        is_low = call.level == "L"
        observer = _Observer(
            model, (model.scales.L if is_low else model.scales.H).alpha, keep_states
        )
        blocks = w.L if is_low else w.H
        z_H, z_L = model.visit(call.level, blocks, z_H, z_L, embedding, on_sublayer=observer)
        observed.append((call.level, call.visible, observer))
    return observed


def stream_diagnostics(model: HRM, carry: Carry, puzzle_rows: Tensor) -> dict[str, float]:
    """A handful of numbers for every n-th training step, averaged over each level's visits.

    Leaves model, carry and random state alone.  Cost: one segment's forward pass without
    gradient and one more norm per sublayer, 0.2 to 0.5 of an eager training step; one
    synchronisation with the device.

    Args:
        model: The reasoner.
        carry: After ``refill``.
        puzzle_rows: (B, puzzle_emb_ndim) table rows of ``carry.current``.

    Returns:
        For each level X of H and L: ``entry_rms_X``, RMS of state + injection, which a call begins
        with; ``stream_rms_X`` after a sublayer; ``update_rms_X`` of f(x); ``unchanged_X``, share of
        stream elements equal before and after a sublayer; ``lost_X``, share that is what it would
        be with the update left out, so that also a call's first sublayer tells, whose norm rescales
        everything.  Shares in [0, 1]; in exact arithmetic both are 0.  They tell what storing the
        stream loses; what ``residual_sum=compute`` loses in the sum of a float32 stream is hidden
        by the norm, which moves every element a little.
    """
    found: dict[LevelName, list[Tensor]] = {}
    for level, _, observer in _observe(model, carry, puzzle_rows, keep_states=False):
        table = torch.stack([torch.stack(sublayer) for sublayer in observer.sublayers])
        # The call begins with what its first sublayer finds; the rest are means over sublayers.
        found.setdefault(level, []).append(torch.cat((table[:1, 0], table[:, 1:].mean(0))))  # (5,)
    levels = sorted(found)
    means = torch.stack([torch.stack(found[level]).mean(0) for level in levels]).tolist()
    names = ("entry_rms", *_Sublayer._fields[1:])
    return {
        f"{name}_{level}": value
        for level, row in zip(levels, means, strict=True)
        for name, value in zip(names, row, strict=True)
    }


def stream_visits(model: HRM, carry: Carry, puzzle_rows: Tensor) -> dict[str, Any]:
    """The same numbers at every sublayer visit, and cosines of each two block increments.

    Args:
        model: The reasoner.
        carry: After ``refill``.
        puzzle_rows: (B, puzzle_emb_ndim) table rows of ``carry.current``.

    Returns:
        ``visits``, one entry per level call in order: ``level``, ``visible`` and ``sublayers``;
        ``increment_cosines``, per level a square matrix over its block visits in order, None
        where a state did not move.  Memory: one (B, S, D) state per block visit.
    """
    visits = []
    states: dict[LevelName, list[Tensor]] = {"H": [carry.z_H], "L": [carry.z_L]}
    for level, visible, observer in _observe(model, carry, puzzle_rows, keep_states=True):
        sublayers = []
        for index, scalars in enumerate(observer.sublayers):
            block, place = divmod(index, len(SUBLAYERS))
            values = {key: value.item() for key, value in scalars._asdict().items()}
            sublayers.append({"block": block, "sublayer": tuple(SUBLAYERS)[place], **values})
        visits.append({"level": level, "visible": visible, "sublayers": sublayers})
        states[level] += observer.states
    increments = {
        level: torch.stack([h.flatten().double() for h in hs]).diff(dim=0)  # (visits, B S D)
        for level, hs in states.items()
    }
    matrices = {level: cosines((d @ d.T).cpu().numpy()) for level, d in increments.items()}
    return {"visits": visits, "increment_cosines": matrices}
