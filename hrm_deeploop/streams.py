"""The residual streams of one forward pass, looked at without gradient.

Per sublayer visit: how large the stream and the update are, and how much of the update survives
the dtype the stream is stored in.  Over the block visits of a level: whether the increments
d_i = h_i - h_(i-1) point the same way, h_i the level's state after its i-th block visit.

**Source**: arXiv 2606.18524 (R_n = ||h_n|| / sqrt(D), cosines of block increments), measured there
on pre-norm streams, as are the language model's arms base and eps.  Differs elsewhere: post-norm,
so a stored stream has RMS 1; in the reasoner what varies is the stream a call begins with, state +
injection, and increments hold the injection too.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hrm_deeploop.alignment import cosines
from hrm_deeploop.layers import at_least_float32
from hrm_deeploop.regions import SUBLAYERS, Region, ResidualStep


class _Sublayer(NamedTuple):
    """Scalars of one sublayer visit, left on their device."""

    before_rms: Tensor
    stream_rms: Tensor
    update_rms: Tensor
    unchanged: Tensor
    lost: Tensor


class _Observer:
    """Collects what the sublayers of one call of a level did."""

    def __init__(self, residual_step: ResidualStep, keep_states: bool) -> None:
        self.sublayers: list[_Sublayer] = []
        self.states: list[Tensor] = []
        self._residual_step = residual_step
        self._keep_states = keep_states

    def __call__(self, before: Tensor, update: Tensor, after: Tensor) -> None:
        without = self._residual_step(before, torch.zeros_like(update))
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
def _observe(region: Region[Any], *, keep_states: bool) -> list[tuple[str, bool, _Observer]]:
    observed = []

    def on_call(level: str, visible: bool, residual_step: ResidualStep) -> _Observer:
        observer = _Observer(residual_step, keep_states)
        observed.append((level, visible, observer))
        return observer

    region.watch(on_call)
    return observed


def stream_diagnostics(region: Region[Any]) -> dict[str, float]:
    """A handful of numbers for every n-th training step, averaged over each level's visits.

    Leaves model, batch and random state alone.  Cost: one forward pass without gradient and one
    more norm per sublayer, 0.2 to 0.5 of an eager training step; one synchronisation with the
    device.

    Args:
        region: Model and batch.

    Returns:
        For each level X: ``entry_rms_X``, RMS of the stream that a call's first sublayer finds (in
        the reasoner state + injection); ``stream_rms_X`` after a sublayer; ``update_rms_X`` of
        f(x); ``unchanged_X``, share of stream elements equal before and after a sublayer;
        ``lost_X``, share that is what it would be with the update left out, so that also a call's
        first sublayer tells, whose norm rescales everything.  Shares in [0, 1]; in exact
        arithmetic both are 0.  They tell what storing the stream loses; what
        ``residual_sum=compute`` loses in the sum of a float32 stream is hidden by the norm, which
        moves every element a little.
    """
    found: dict[str, list[Tensor]] = {}
    for level, _, observer in _observe(region, keep_states=False):
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


def stream_visits(region: Region[Any]) -> dict[str, Any]:
    """The same numbers at every sublayer visit, and cosines of each two block increments.

    Args:
        region: Model and batch.

    Returns:
        ``visits``, one entry per level call in order: ``level``, ``visible`` and ``sublayers``;
        ``increment_cosines``, per level a square matrix over its block visits in order, None
        where a state did not move.  Memory: one (B, S, D) state per block visit.
    """
    visits = []
    states = {level: [stream] for level, stream in region.begin().items()}
    for level, visible, observer in _observe(region, keep_states=True):
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
