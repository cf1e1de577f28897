"""Small float64 reasoners in every shape the probes must handle."""

from typing import Any

import torch
from tiny_reasoners import explicit, make_model, randn, random_batch, tiny_arch

from hrm_deeploop.act import Batch, Carry, initial_carry, refill, train_segment
from hrm_deeploop.config import ResidualConfig
from hrm_deeploop.model import HRM
from hrm_deeploop.probes import set_precision

SHARED_LEVELS: dict[str, Any] = {
    "share_levels": True,
    "H_layers": 0,
    "L_layers": 2,
    "q_continue": False,
}
CASES: dict[str, dict[str, Any]] = {
    "step": {"grad_scope": "last_step"},
    "cycle": {"grad_scope": "last_cycle", "L_layers": 2},
    "one cycle": {"grad_scope": "last_cycle", "H_cycles": 1, "L_cycles": 5, "loss": "softmax"},
    "shared": {"grad_scope": "last_cycle", "H_cycles": 3, **SHARED_LEVELS},
    "shared step": {"grad_scope": "last_step", **SHARED_LEVELS},
}


def double_model(residual: ResidualConfig | None = None, **departures: Any) -> HRM:
    residual = residual or ResidualConfig(preset="deepnorm")
    model = make_model(tiny_arch(**departures), residual)
    set_precision(model, "float64")
    return model


def start(model: HRM, batch_size: int = 3) -> tuple[Carry, torch.Tensor]:
    """A carry one segment old, so that the states differ from row to row, and table rows."""
    batch = random_batch(batch_size, 0)
    rows = randn(batch_size, model.arch.puzzle_row_size, seed=1).to(model.compute_dtype)
    carry = refill(model, initial_carry(model, batch), batch)
    with torch.no_grad():
        return train_segment(model, carry, rows, None).carry, rows


def loss_gradients(
    model: HRM, carry: Carry, rows: torch.Tensor
) -> tuple[float, dict[str, torch.Tensor]]:
    """The training loss per row and its ordinary gradient."""
    loss = train_segment(model, carry, rows, None).losses.total / len(rows)
    names, parameters = zip(*model.named_parameters(), strict=True)
    return loss.item(), dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def still_model(L_cycles: int) -> HRM:
    """Branches that end in zero matrices, so a state goes through a level as it is."""
    levels = {name: {"alpha": 3.0, "beta": 1.0} for name in "HL"}
    model = double_model(
        explicit(**levels),
        grad_scope="last_cycle",
        H_cycles=1,
        H_layers=1,
        L_cycles=L_cycles,
        rms_norm_eps=1e-17,  # 1 + eps is 1
    )
    with torch.no_grad():
        for level in (model.H_level, model.L_level):
            for block in level.blocks():
                block.self_attn.o_proj.weight.zero_()
                block.mlp.down_proj.weight.zero_()
    return model


def carry_of(z_L: torch.Tensor) -> Carry:
    """One row that works on blank cells from z_H = 0."""
    cells = torch.zeros(1, 9, dtype=torch.int64)
    batch = Batch(inputs=cells, labels=cells + 3, puzzle_identifiers=torch.zeros(1).long())
    steps = torch.zeros(1, dtype=torch.int64)
    return Carry(z_H=torch.zeros_like(z_L), z_L=z_L, steps=steps, halted=steps > 0, current=batch)
