"""Adaptive computation: the carry, refilling halted rows, halting, Q targets.

One training step is one segment.  Rows halt at different times; a halted row takes the loader's
next example, every other row keeps its own.

**Source**: HRM @42410da (``hrm_act_v1``); TRM @e7b6871 (no continue value).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hrm_deeploop.losses import Losses, act_losses
from hrm_deeploop.model import HRM, Heads, Weights

# Separates the exploration's random stream from every other use of the run seed.
EXPLORATION_STREAM = 1


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Examples as the model reads them.

    Attributes:
        inputs: (B, seq_len) int64 tokens.
        labels: (B, seq_len) int64; ``losses.IGNORE_LABEL`` where nothing is asked.
        puzzle_identifiers: (B,) int64.
    """

    inputs: Tensor
    labels: Tensor
    puzzle_identifiers: Tensor


@dataclass(frozen=True, kw_only=True)
class Carry:
    """What one segment hands to the next; no gradient.

    Attributes:
        z_H: (B, S, D), stream dtype.
        z_L: (B, S, D), stream dtype.
        steps: (B,) int64, segments done on the current example.
        halted: (B,) bool; such rows are refilled before the next segment.
        current: The examples the rows are working on.
    """

    z_H: Tensor
    z_L: Tensor
    steps: Tensor
    halted: Tensor
    current: Batch


def carry_tensors(carry: Carry) -> dict[str, Tensor]:
    """A carry's tensors by name, each with B rows."""
    own = {key: value for key, value in vars(carry).items() if key != "current"}
    return {**own, **vars(carry.current)}


def carry_of(tensors: dict[str, Tensor]) -> Carry:
    """The carry that ``carry_tensors`` took apart."""
    names = Batch.__dataclass_fields__
    current = Batch(**{key: value for key, value in tensors.items() if key in names})
    own = {key: value for key, value in tensors.items() if key not in names}
    return Carry(**own, current=current)


class ActOutput(NamedTuple):
    """One segment's results: the carry before refilling, loss sums, and what was predicted."""

    carry: Carry
    losses: Losses
    logits: Tensor
    q_halt_logits: Tensor
    q_continue_logits: Tensor
    target_q_continue: Tensor | None


def initial_carry(model: HRM, batch: Batch) -> Carry:
    """A carry in which every row is halted, so that ``refill`` starts all of them.

    Args:
        model: Gives shapes, dtype and device.
        batch: Any batch of the size wanted; its contents are not used.
    """
    shape = (len(batch.inputs), model.num_tokens, model.arch.hidden_size)
    device = model.H_init.device
    return Carry(
        z_H=torch.zeros(shape, dtype=model.stream_dtype, device=device),
        z_L=torch.zeros(shape, dtype=model.stream_dtype, device=device),
        steps=torch.zeros(shape[0], dtype=torch.int64, device=device),
        halted=torch.ones(shape[0], dtype=torch.bool, device=device),
        current=batch,
    )


def refill(model: HRM, carry: Carry, batch: Batch) -> Carry:
    """Gives each halted row its row of ``batch`` and fresh states; the others keep theirs."""
    halted = carry.halted
    column = halted.unsqueeze(-1)  # (B, 1)
    state = column.unsqueeze(-1)  # (B, 1, 1)
    old = carry.current
    return Carry(
        z_H=torch.where(state, model.H_init.to(carry.z_H.dtype), carry.z_H),
        z_L=torch.where(state, model.L_init.to(carry.z_L.dtype), carry.z_L),
        steps=carry.steps.masked_fill(halted, 0),
        halted=torch.zeros_like(halted),
        current=Batch(
            inputs=torch.where(column, batch.inputs, old.inputs),
            labels=torch.where(column, batch.labels, old.labels),
            puzzle_identifiers=torch.where(
                halted, batch.puzzle_identifiers, old.puzzle_identifiers
            ),
        ),
    )


def exploration_min_steps(
    *, seed: int, step: int, global_batch_size: int, probability: float, halt_max_steps: int
) -> np.ndarray:
    """Segments each row of the global batch must run in this step before it may halt.

    A function of (seed, step), so ranks slice one draw and a resumed run repeats it.

    Returns:
        (global_batch_size,) int64: with ``probability`` uniform in 2..halt_max_steps, else 0.
    """
    generator = np.random.default_rng([seed, EXPLORATION_STREAM, step])
    explores = generator.random(global_batch_size) < probability
    draws = generator.integers(2, max(halt_max_steps, 2) + 1, size=global_batch_size)
    return np.where(explores, draws, 0)


def train_segment(
    model: HRM, carry: Carry, puzzle_rows: Tensor, min_steps: Tensor | None
) -> ActOutput:
    """One segment of training on the carry's current examples: forward, halting, losses.

    Args:
        model: The reasoner.
        carry: After ``refill``.
        puzzle_rows: (B, puzzle_emb_ndim) table rows of ``carry.current``.
        min_steps: (B,) int64 from ``exploration_min_steps``; None: no exploration.

    Returns:
        Results with the new carry detached.
    """
    w = model.weights()
    embedding = model.embed(w, carry.current.inputs, puzzle_rows)
    z_H, z_L = model.segment(w, carry.z_H, carry.z_L, embedding)
    return finish_segment(model, w, carry, embedding, z_H, z_L, min_steps)


def finish_segment(
    model: HRM,
    w: Weights,
    carry: Carry,
    embedding: Tensor,
    z_H: Tensor,
    z_L: Tensor,
    min_steps: Tensor | None,
) -> ActOutput:
    """What follows a training segment's level calls: heads, halting, Q targets, losses.

    Args:
        model: The reasoner.
        w: Its cast weights.
        carry: The carry the segment began with.
        embedding: (B, S, D), compute dtype.
        z_H: (B, S, D), the segment's new state.
        z_L: (B, S, D), the segment's new state.
        min_steps: As for ``train_segment``.

    Returns:
        Results with the new carry detached.
    """
    arch = model.arch
    logits, q_halt, q_continue = model.heads(w, z_H)
    z_H, z_L = z_H.detach(), z_L.detach()

    steps = carry.steps + 1
    last = steps >= arch.halt_max_steps
    halted = last
    target = None
    with torch.no_grad():
        if arch.halt_max_steps > 1:
            halted = halted | (q_halt > (q_continue if arch.q_continue else 0))
            if min_steps is not None:
                halted = halted & (steps >= min_steps)
        if arch.q_continue and arch.halt_max_steps > 1:
            # The rows that have just halted are looked ahead for too, from their old example.
            # Only the first token is read, so the last block computes no other.
            next_z_H, _ = model.segment(w, z_H, z_L, embedding, num_read=1)
            next_halt, next_continue = model.q_values(w, next_z_H)
            best = torch.where(last, next_halt, torch.maximum(next_halt, next_continue))
            target = best.sigmoid()
    losses = act_losses(
        arch.loss,
        logits=logits,
        labels=carry.current.labels,
        q_halt_logits=q_halt,
        q_continue_logits=q_continue,
        target_q_continue=target,
        halted=halted,
        steps=steps,
    )
    new_carry = Carry(z_H=z_H, z_L=z_L, steps=steps, halted=halted, current=carry.current)
    return ActOutput(new_carry, losses, logits, q_halt, q_continue, target)


def compile_train_segment() -> Callable[..., ActOutput]:
    """``train_segment`` as one graph, without breaks; compiled at its first call.

    Compiled code is cached on disk by torch, so a second run of the same shapes starts in
    seconds.
    """
    return torch.compile(train_segment, dynamic=False, fullgraph=True)


class EvaluatedSegment(NamedTuple):
    """One segment of an evaluation.

    Attributes:
        rows: (b,) int64, the batch's rows that were still being worked on.
        heads: What was read after the segment, b rows.
        ended: (b,) bool; these rows run no further segment.
    """

    rows: Tensor
    heads: Heads
    ended: Tensor


class EvalOutput(NamedTuple):
    """What every row of a batch ended with: loss sums, logits, q values and segments run."""

    losses: Losses
    logits: Tensor
    q_halt_logits: Tensor
    q_continue_logits: Tensor
    steps: Tensor


@torch.no_grad()
def evaluate_segments(
    model: HRM, batch: Batch, puzzle_rows: Tensor, *, adaptive: bool = False
) -> Iterator[EvaluatedSegment]:
    """Runs segments on fresh states, without exploration, and yields after each.

    Args:
        model: The reasoner.
        batch: Examples.
        puzzle_rows: (B, puzzle_emb_ndim) table rows.
        adaptive: A row ends where it would halt in training, and costs nothing from then on;
            off: every row runs halt_max_steps segments.

    **Source**: HRM @42410da (``evaluate``). Differs: ``adaptive``, which it has not.
    """
    arch = model.arch
    carry = refill(model, initial_carry(model, batch), batch)
    w = model.weights()
    embedding = model.embed(w, batch.inputs, puzzle_rows)
    z_H, z_L = carry.z_H, carry.z_L
    rows = torch.arange(len(batch.inputs), device=z_H.device)
    for step in range(1, arch.halt_max_steps + 1):
        z_H, z_L = model.segment(w, z_H, z_L, embedding)
        heads = model.heads(w, z_H)
        ended = torch.full_like(rows, step == arch.halt_max_steps, dtype=torch.bool)
        if adaptive:
            rival = heads.q_continue_logits if arch.q_continue else 0
            ended = ended | (heads.q_halt_logits > rival)
        yield EvaluatedSegment(rows, heads, ended)
        if adaptive:
            left = ~ended
            rows, z_H, z_L, embedding = (x[left] for x in (rows, z_H, z_L, embedding))
            if len(rows) == 0:
                return


@torch.no_grad()
def evaluate(
    model: HRM, batch: Batch, puzzle_rows: Tensor, *, adaptive: bool = False
) -> EvalOutput:
    """Runs segments on fresh states; the results and metrics of the one each row ends with.

    Args:
        model: The reasoner.
        batch: Examples.
        puzzle_rows: (B, puzzle_emb_ndim) table rows.
        adaptive: See ``evaluate_segments``; off: all rows end after halt_max_steps.
    """
    order, ended, steps = [], [], []
    segments = evaluate_segments(model, batch, puzzle_rows, adaptive=adaptive)
    for step, (rows, heads, done) in enumerate(segments, start=1):
        order.append(rows[done])
        ended.append(Heads(*(value[done] for value in heads)))
        steps.append(torch.full_like(order[-1], step))
    place = torch.cat(order).argsort()
    logits, q_halt, q_continue = (torch.cat(parts)[place] for parts in zip(*ended, strict=True))
    num_steps = torch.cat(steps)[place]
    losses = act_losses(
        model.arch.loss,
        logits=logits,
        labels=batch.labels,
        q_halt_logits=q_halt,
        q_continue_logits=q_continue,
        target_q_continue=None,
        halted=torch.ones_like(num_steps, dtype=torch.bool),
        steps=num_steps,
    )
    return EvalOutput(losses, logits, q_halt, q_continue, num_steps)
