"""Refilling, halting, exploration, the look-ahead, the table's update, PAD labels."""

import numpy as np
import pytest
import torch
from tiny_reasoners import make_model, randn, random_batch, tiny_arch

from hrm_deeploop.act import (
    Batch,
    Carry,
    evaluate,
    evaluate_segments,
    exploration_min_steps,
    initial_carry,
    refill,
    train_segment,
)
from hrm_deeploop.losses import IGNORE_LABEL, act_losses
from hrm_deeploop.model import HRM
from hrm_deeploop.puzzle_embedding import PuzzleEmbedding


def carry_of(model: HRM, halted: list[bool], steps: int = 1) -> Carry:
    shape = (len(halted), model.num_tokens, model.arch.hidden_size)
    generator = torch.Generator().manual_seed(3)
    return Carry(
        z_H=torch.randn(shape, generator=generator),
        z_L=torch.randn(shape, generator=generator),
        steps=torch.full((len(halted),), steps),
        halted=torch.tensor(halted),
        current=random_batch(len(halted), 1),
    )


def test_halted_rows_take_the_new_example_and_fresh_states_and_no_others_do() -> None:
    model = make_model()
    old, new = carry_of(model, [True, False, True]), random_batch(3, 2)
    carry = refill(model, old, new)
    for row, fresh in enumerate([True, False, True]):
        source = new if fresh else old.current
        for key in ("inputs", "labels", "puzzle_identifiers"):
            assert torch.equal(getattr(carry.current, key)[row], getattr(source, key)[row])
        for key, init in (("z_H", model.H_init), ("z_L", model.L_init)):
            wanted = init.expand(model.num_tokens, -1) if fresh else getattr(old, key)[row]
            assert torch.equal(getattr(carry, key)[row], wanted)
        assert carry.steps[row] == (0 if fresh else 1)
    assert not carry.halted.any()


def set_q(model: HRM, halt: float, proceed: float) -> None:
    with torch.no_grad():
        model.q_head.bias.copy_(torch.tensor([halt, proceed]))


@pytest.mark.parametrize(
    ("q", "steps_before", "min_steps", "halts"),
    [
        ((1.0, 0.0), 0, None, True),
        ((0.0, 1.0), 0, None, False),
        ((0.0, 0.0), 0, None, False),  # a tie goes on
        ((0.0, 1.0), 2, None, True),  # the last segment
        ((1.0, 0.0), 0, 2, False),  # must explore
        ((1.0, 0.0), 1, 2, True),
        ((1.0, 0.0), 2, 3, True),
    ],
)
def test_halting(q: tuple, steps_before: int, min_steps: int | None, halts: bool) -> None:
    model = make_model()
    set_q(model, *q)
    carry = carry_of(model, [False, False], steps_before)
    minimum = None if min_steps is None else torch.full((2,), min_steps)
    out = train_segment(model, carry, torch.zeros(2, 16), minimum)
    assert out.carry.halted.tolist() == [halts, halts]
    assert out.carry.steps.tolist() == [steps_before + 1] * 2


@pytest.mark.parametrize(("q_halt", "halts"), [(0.5, True), (-0.5, False), (0.0, False)])
def test_halting_without_continue_value(q_halt: float, halts: bool) -> None:
    model = make_model(tiny_arch(q_continue=False))
    set_q(model, q_halt, 7.0)
    out = train_segment(model, carry_of(model, [False]), torch.zeros(1, 16), None)
    assert out.carry.halted.item() == halts
    assert out.target_q_continue is None
    assert "q_continue_loss" not in out.losses.metrics


@pytest.mark.parametrize(("steps_before", "expected"), [(0, 0.5), (2, -1.0)])
def test_target_is_the_next_segments_best_value(steps_before: int, expected: float) -> None:
    model = make_model()
    set_q(model, -1.0, 0.5)
    out = train_segment(model, carry_of(model, [False], steps_before), torch.zeros(1, 16), None)
    assert out.target_q_continue.item() == pytest.approx(1 / (1 + np.exp(-expected)))


def test_exploration_is_one_global_draw_keyed_by_seed_and_step() -> None:
    def draw(**changes):
        options = {
            "seed": 5,
            "step": 9,
            "global_batch_size": 4000,
            "probability": 0.25,
            "halt_max_steps": 4,
        }
        return exploration_min_steps(**{**options, **changes})

    first = draw()
    np.random.seed(0)  # noqa: NPY002 - a global seed must not matter
    torch.manual_seed(0)
    assert np.array_equal(first, draw())
    assert not np.array_equal(first, draw(step=10))
    assert not np.array_equal(first, draw(seed=6))
    values, counts = np.unique(first, return_counts=True)
    assert values.tolist() == [0, 2, 3, 4]
    assert counts[0] / 4000 == pytest.approx(0.75, abs=0.03)
    assert counts[1:] / counts[1:].sum() == pytest.approx([1 / 3] * 3, abs=0.05)


def test_only_rows_of_the_batch_move_and_equal_ids_sum_before_the_sign() -> None:
    table = PuzzleEmbedding(6, 2)
    table.weights.copy_(torch.arange(12.0).view(6, 2))
    before = table.weights.clone()
    ids = torch.tensor([4, 1, 4])
    gradients = torch.tensor([[3.0, -1.0], [0.0, 2.0], [-1.0, -1.0]])
    table.sign_sgd_(ids, gradients, lr=0.5, weight_decay=0.2)
    untouched = [0, 2, 3, 5]
    assert torch.equal(table.weights[untouched], before[untouched])
    expected = before[[1, 4]] * 0.9 - 0.5 * torch.tensor([[0.0, 1.0], [1.0, -1.0]])
    torch.testing.assert_close(table.weights[[1, 4]], expected)


def test_labels_that_are_ignored_never_count() -> None:
    batch = random_batch(3, 0)
    logits = randn(3, 9, 12, seed=10).requires_grad_()
    options = {
        "labels": batch.labels,
        "q_halt_logits": torch.zeros(3),
        "q_continue_logits": torch.zeros(3),
        "target_q_continue": None,
        "halted": torch.ones(3, dtype=torch.bool),
        "steps": torch.ones(3, dtype=torch.int64),
    }
    for loss in ("stablemax", "softmax"):
        first = act_losses(loss, logits=logits, **options)
        (gradient,) = torch.autograd.grad(first.total, logits)
        assert torch.equal(gradient[:, -2:], torch.zeros(3, 2, 12))
        assert (gradient[:, :-2] != 0).any()
        changed = logits.detach().clone()
        changed[:, -2:] = 50.0
        second = act_losses(loss, logits=changed, **options)
        for key, value in first.metrics.items():
            assert torch.equal(value, second.metrics[key]), key


def test_a_row_without_labels_is_correct_but_not_counted() -> None:
    labels = torch.full((1, 9), IGNORE_LABEL)
    out = act_losses(
        "stablemax",
        logits=randn(1, 9, 12, seed=11),
        labels=labels,
        q_halt_logits=torch.full((1,), 20.0),
        q_continue_logits=torch.zeros(1),
        target_q_continue=None,
        halted=torch.ones(1, dtype=torch.bool),
        steps=torch.ones(1, dtype=torch.int64),
    )
    assert out.metrics["count"] == 0
    assert out.metrics["lm_loss"] == 0
    assert out.metrics["q_halt_loss"] < 1e-6  # target 1


def test_carry_has_no_gradient_and_rows_do() -> None:
    model = make_model()
    batch = random_batch(2, 0)
    table = PuzzleEmbedding(5, 16)
    carry = refill(model, initial_carry(model, batch), batch)
    rows = table.rows(carry.current.puzzle_identifiers)
    out = train_segment(model, carry, rows, None)
    assert not out.carry.z_H.requires_grad
    assert not out.carry.z_L.requires_grad
    out.losses.total.backward()
    assert rows.grad is not None
    assert rows.grad.abs().sum() > 0
    assert isinstance(out.carry.current, Batch)


@pytest.mark.parametrize("q_continue", [True, False])
def test_adaptive_evaluation_ends_rows_where_they_would_halt(q_continue: bool) -> None:
    model = make_model(tiny_arch(q_continue=q_continue, halt_max_steps=4))
    with torch.no_grad():
        model.q_head.weight.copy_(randn(2, 16, seed=4))
        model.q_head.bias.zero_()
    batch, rows = random_batch(24, 0), randn(24, 16, seed=5)
    segments = list(evaluate_segments(model, batch, rows))
    assert [len(segment.rows) for segment in segments] == [24] * 4
    heads = [segment.heads for segment in segments]
    rivals = [head.q_continue_logits if q_continue else torch.zeros(24) for head in heads]
    wants = [head.q_halt_logits > rival for head, rival in zip(heads, rivals, strict=True)]
    first = torch.stack([*wants[:-1], torch.ones(24, dtype=torch.bool)]).int().argmax(0)
    assert len(set(first.tolist())) > 1

    out = evaluate(model, batch, rows, adaptive=True)
    assert torch.equal(out.steps, first + 1)
    for row, segment in enumerate(first.tolist()):
        torch.testing.assert_close(out.logits[row], heads[segment].logits[row])
        torch.testing.assert_close(out.q_halt_logits[row], heads[segment].q_halt_logits[row])
    assert float(out.losses.metrics["steps"]) == float(out.steps.sum())
    assert torch.equal(evaluate(model, batch, rows).logits, heads[-1].logits)
