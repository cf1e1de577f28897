"""The whole trajectory of the published HRM and TRM code, step by step, against ours."""

import json
from pathlib import Path

import numpy as np
import torch

from hrm_deeploop.act import Batch, evaluate, initial_carry, refill, train_segment
from hrm_deeploop.adam_atan2 import AdamATan2
from hrm_deeploop.config import ArchConfig, LevelResidualConfig, ResidualConfig
from hrm_deeploop.model import HRM
from hrm_deeploop.puzzle_embedding import PuzzleEmbedding
from hrm_deeploop.scaling import resolve

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = [
    "hrm_tiny_rope",
    "hrm_tiny_learned",
    "hrm_tiny_alpha_last_step",
    "hrm_tiny_alpha_last_cycle",
    "trm_tiny",
]
PREFIX = "model.inner."
TABLE = PREFIX + "puzzle_emb.weights"
ATOL = 1e-4
GRADIENT_RTOL = 1e-5  # of a gradient's largest entry
WEIGHT_ATOL = 1e-5


class Golden:
    """A golden file and the model it describes, in the state before step 1."""

    def __init__(self, name: str, device: str) -> None:
        self.device = device
        self.arrays = dict(np.load(GOLDEN / f"{name}.npz"))
        self.meta = json.loads(str(self.arrays.pop("meta")))
        c = self.meta["config"]
        arch = ArchConfig(
            hidden_size=c["hidden_size"],
            num_heads=c["num_heads"],
            expansion=c["expansion"],
            H_layers=c["H_layers"],
            L_layers=c["L_layers"],
            H_cycles=c["H_cycles"],
            L_cycles=c["L_cycles"],
            halt_max_steps=c["halt_max_steps"],
            halt_exploration_prob=c["halt_exploration_prob"],
            pos_encodings=c["pos_encodings"],
            puzzle_emb_ndim=c["puzzle_emb_ndim"],
            puzzle_emb_len=c.get("puzzle_emb_len"),
            grad_scope=self.meta["grad_scope"],
            share_levels=self.meta.get("share_levels", False),
            q_continue=self.meta.get("q_continue", True),
            loss=self.meta["loss"].removesuffix("_cross_entropy"),
            forward_dtype=c["forward_dtype"],
        )
        residual = ResidualConfig(
            H=LevelResidualConfig(alpha=self.meta.get("alpha_H", 1.0)),
            L=LevelResidualConfig(alpha=self.meta.get("alpha_L", 1.0)),
        )
        self.model = HRM(
            arch, resolve(residual, arch), vocab_size=c["vocab_size"], seq_len=c["seq_len"]
        )
        state = self.group("init/" + PREFIX)
        self.table = PuzzleEmbedding(c["num_puzzle_identifiers"], c["puzzle_emb_ndim"])
        self.table.weights.copy_(state.pop("puzzle_emb.weights"))
        self.model.load_state_dict(state)
        self.model.to(device)
        self.table.to(device)
        self.optimizer = AdamATan2(
            self.model.parameters(),
            lr=self.meta["lr"],
            beta1=self.meta["beta1"],
            beta2=self.meta["beta2"],
            weight_decay=self.meta["weight_decay"],
        )

    def group(self, prefix: str) -> dict[str, torch.Tensor]:
        return {
            key.removeprefix(prefix): torch.from_numpy(np.array(value))
            for key, value in self.arrays.items()
            if key.startswith(prefix)
        }

    def batch(self, step: int) -> Batch:
        arrays = self.group(f"batch{step}/")
        return Batch(**{key: value.long().to(self.device) for key, value in arrays.items()})


def assert_close(actual: torch.Tensor, expected: torch.Tensor, atol: float, what: str) -> None:
    torch.testing.assert_close(
        actual.double().cpu(), expected.double(), atol=atol, rtol=0, msg=lambda m: f"{what}: {m}"
    )


def assert_metrics(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        atol = ATOL if value.is_floating_point() else 0
        assert_close(actual[key], value, atol, key)


def assert_published_trajectory(name: str, device: str) -> None:
    """Trains and evaluates as the golden file did and compares everything it recorded."""
    golden = Golden(name, device)
    model, table = golden.model, golden.table
    batch = golden.batch(1)
    batch_size = len(batch.inputs)
    carry = initial_carry(model, batch)
    for step in range(1, golden.meta["steps"] + 1):
        carry = refill(model, carry, golden.batch(step))
        rows = table.rows(carry.current.puzzle_identifiers)
        out = train_segment(model, carry, rows, None)
        (out.losses.total / batch_size).backward()

        expected = golden.group(f"step{step}/")
        assert_close(out.losses.total, expected["loss"], ATOL, "loss")
        assert_metrics(out.losses.metrics, golden.group(f"step{step}/metric/"))
        assert_close(out.logits, expected["logits"], ATOL, "logits")
        assert_close(out.q_halt_logits, expected["q_halt_logits"], ATOL, "q_halt_logits")
        if model.arch.q_continue:
            for key in ("q_continue_logits", "target_q_continue"):
                assert_close(getattr(out, key), expected[key], ATOL, key)
        else:
            assert out.target_q_continue is None
        carry = out.carry
        for key in ("z_H", "z_L"):
            assert_close(getattr(carry, key), expected[f"carry/{key}"], ATOL, key)
        for key in ("steps", "halted"):
            assert_close(getattr(carry, key), expected[f"carry/{key}"], 0, key)

        if step == 1:
            gradients = golden.group("step1/grad/")
            rows_gradient = gradients.pop("puzzle_emb.local_weights")
            scale = float(rows_gradient.abs().max())
            assert_close(rows.grad, rows_gradient, GRADIENT_RTOL * scale, "puzzle rows")
            parameters = dict(model.named_parameters())
            assert {PREFIX + key for key in parameters} == gradients.keys()
            for key, value in gradients.items():
                scale = float(value.abs().max())
                actual = parameters[key.removeprefix(PREFIX)].grad
                assert_close(actual, value, GRADIENT_RTOL * scale, key)

        golden.optimizer.step()
        golden.optimizer.zero_grad()
        table.sign_sgd_(
            carry.current.puzzle_identifiers,
            rows.grad,
            lr=golden.meta["puzzle_emb_lr"],
            weight_decay=golden.meta["puzzle_emb_weight_decay"],
        )

    final = golden.group("final/")
    assert_close(table.weights, final.pop(TABLE), WEIGHT_ATOL, TABLE)
    state = model.state_dict()
    assert {PREFIX + key for key in state} == final.keys()
    for key, value in final.items():
        assert_close(state[key.removeprefix(PREFIX)], value, WEIGHT_ATOL, key)

    batch = golden.batch(golden.meta["steps"])
    with torch.no_grad():
        out = evaluate(model, batch, table.rows(batch.puzzle_identifiers))
    expected = golden.group("eval/")
    assert_close(out.logits, expected["logits"], ATOL, "eval logits")
    assert_close(out.q_halt_logits, expected["q_halt_logits"], ATOL, "eval q_halt_logits")
    metrics = golden.group("eval/metric/")
    if metrics:
        assert_metrics(out.losses.metrics, metrics)
