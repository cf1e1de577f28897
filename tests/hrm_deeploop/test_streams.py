"""Residual-stream RMS, elements that a sublayer leaves unchanged, cosines of increments."""

import math

import pytest
import torch
from probe_cases import CASES, carry_of, double_model, start, still_model
from tiny_reasoners import explicit, make_model, tiny_arch

from hrm_deeploop.config import ResidualConfig
from hrm_deeploop.model import HRM
from hrm_deeploop.streams import stream_diagnostics, stream_visits
from hrm_deeploop.visits import VisibleRegion


@pytest.mark.parametrize("preset", ["vanilla", "deeploop", "deepnorm", "looped_eps", "beta_only"])
def test_every_stored_stream_entry_has_rms_one_at_initialisation(preset: str) -> None:
    model = double_model(ResidualConfig(preset=preset), L_layers=2)
    carry, rows = start(model)
    w = model.weights()
    seen = []

    def check(before: torch.Tensor, update: torch.Tensor, after: torch.Tensor) -> None:
        seen.append(after.square().mean(-1).sqrt())

    z_H, z_L, embedding = carry.z_H, carry.z_L, model.embed(w, carry.current.inputs, rows)
    for call in model.calls():
        blocks = w.L if call.level == "L" else w.H
        z_H, z_L = model.visit(call.level, blocks, z_H, z_L, embedding, on_sublayer=check)
    # H_cycles * (L_cycles * L_layers + H_layers) blocks of two sublayers
    assert len(seen) == 2 * 2 * (3 * 2 + 2)
    torch.testing.assert_close(
        torch.stack(seen), torch.ones(len(seen), 3, 10).double(), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("case", CASES)
def test_visits_and_their_mean(case: str) -> None:
    """The diagnostics are the visits' means; the visits are those of the segment, in order."""
    model = double_model(**CASES[case])
    carry, rows = start(model)
    region = VisibleRegion(model, carry, rows)
    found, means = stream_visits(region), stream_diagnostics(region)
    visits = found["visits"]
    assert [(v["level"], v["visible"]) for v in visits] == [(c[0], c[1]) for c in model.calls()]
    for level in "HL":
        own = [v["sublayers"] for v in visits if v["level"] == level]
        entries = [s[0]["before_rms"] for s in own]
        assert means[f"entry_rms_{level}"] == pytest.approx(sum(entries) / len(own))
        updates = [x["update_rms"] for s in own for x in s]
        assert means[f"update_rms_{level}"] == pytest.approx(sum(updates) / len(updates))
        size = len(found["increment_cosines"][level])
        assert size == sum(len(s) for s in own) // 2
    assert means["stream_rms_L"] == pytest.approx(1, abs=1e-4)
    assert (means["unchanged_L"], means["lost_L"]) == (0, 0)
    first = visits[0]["sublayers"]
    assert [(s["block"], s["sublayer"]) for s in first[:2]] == [(0, "attention"), (0, "mlp")]
    state = carry.z_L + carry.z_H + model.embed(model.weights(), carry.current.inputs, rows)
    assert first[0]["before_rms"] == pytest.approx(state.square().mean().sqrt().item())


def test_increments_in_closed_form() -> None:
    """Still branches and e2 - e1 injected: e1 -> e2 -> (2 e2 - e1) / sqrt(5)."""
    model = still_model(2)
    e1, e2 = 4 * torch.eye(16, dtype=torch.float64)[:2]
    with torch.no_grad():
        model.embed_tokens.embedding_weight.copy_(((e2 - e1) / 4).expand(12, 16))
    carry = carry_of(e1.expand(1, model.num_tokens, 16))
    found = stream_visits(VisibleRegion(model, carry, ((e2 - e1) / 4).unsqueeze(0)))
    first = torch.tensor([-1.0, 1.0])
    second = torch.tensor([-1 / math.sqrt(5), 2 / math.sqrt(5) - 1])
    expected = float(first @ second / (first.norm() * second.norm()))
    assert found["increment_cosines"]["L"][0][1] == pytest.approx(expected, abs=1e-6)
    first_visit, second_visit = (v["sublayers"][0] for v in found["visits"][:2])
    assert first_visit["before_rms"] == pytest.approx(1)
    assert second_visit["before_rms"] == pytest.approx(math.sqrt(5))
    # Where a level's states do not move there is no direction.
    torch.nn.init.zeros_(model.embed_tokens.embedding_weight)
    still = stream_visits(VisibleRegion(model, carry, torch.zeros(1, 16).double()))
    assert still["increment_cosines"]["L"] == [[None, None], [None, None]]


def test_increments_are_between_states_after_whole_blocks() -> None:
    model = double_model(**CASES["step"])  # one L block: a block's state is the call's
    carry, rows = start(model)
    w = model.weights()
    z_H, z_L, embedding = carry.z_H, carry.z_L, model.embed(w, carry.current.inputs, rows)
    states = [z_L]
    for call in model.calls():
        blocks = w.L if call.level == "L" else w.H
        z_H, z_L = model.visit(call.level, blocks, z_H, z_L, embedding)
        states += [z_L] if call.level == "L" else []
    increments = torch.stack(states).detach().flatten(1).diff(dim=0)
    directions = increments / increments.norm(dim=1, keepdim=True)
    found = stream_visits(VisibleRegion(model, carry, rows))["increment_cosines"]["L"]
    torch.testing.assert_close(torch.tensor(found).double(), directions @ directions.T)


def nudging_model(carry_dtype: str) -> HRM:
    """One L call on a stream of ones whose SwiGLU adds 0.01 to half of it and -0.01 to the rest."""
    alpha = {"alpha": 4.0, "beta": 1.0}
    arch = tiny_arch(
        forward_dtype="bfloat16",
        carry_dtype=carry_dtype,
        H_cycles=1,
        L_cycles=1,
        H_layers=1,
        rms_norm_eps=1e-14,
    )
    model = make_model(arch, explicit(H=alpha, L=alpha))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(("H_level", "L_level", "embed")):
                parameter.zero_()
        mlp = model.L_level.blocks()[0].mlp
        inner = arch.mlp_size
        mlp.gate_up_proj.weight[0, 0] = mlp.gate_up_proj.weight[inner, 0] = 1
        size = 0.01 / torch.nn.functional.silu(torch.tensor(1.0))
        mlp.down_proj.weight[:8, 0], mlp.down_proj.weight[8:, 0] = size, -size
    return model


@pytest.mark.parametrize(("carry_dtype", "survives"), [("compute", 0.5), ("float32", 1.0)])
def test_updates_that_the_stored_dtype_loses(carry_dtype: str, survives: float) -> None:
    """1 + 0.0025 is nearest to 1 in bfloat16, spaced 2^-7 above 1; 1 - 0.0025 is not, at 2^-8."""
    model = nudging_model(carry_dtype)
    carry = carry_of(torch.ones(1, model.num_tokens, 16, dtype=model.stream_dtype))
    rows = torch.zeros(1, 16)
    region = VisibleRegion(model, carry, rows)
    means = stream_diagnostics(region)
    attention, mlp = stream_visits(region)["visits"][0]["sublayers"]
    assert (attention["unchanged"], attention["lost"], attention["update_rms"]) == (1, 1, 0)
    assert (mlp["unchanged"], mlp["lost"]) == (1 - survives, 1 - survives)
    assert mlp["update_rms"] == pytest.approx(0.01, rel=1e-2)
    # The mean of an attention that adds nothing and the SwiGLU.
    assert means["unchanged_L"] == means["lost_L"] == 1 - survives / 2
    assert means["lost_H"] == 1
    assert means["entry_rms_L"] == 1


def test_an_entry_that_is_rescaled_changes_though_its_update_is_lost() -> None:
    model = nudging_model("compute")
    carry = carry_of(torch.full((1, model.num_tokens, 16), 3.0, dtype=torch.bfloat16))
    region = VisibleRegion(model, carry, torch.zeros(1, 16))
    attention = stream_visits(region)["visits"][0]["sublayers"][0]
    assert (attention["unchanged"], attention["lost"], attention["before_rms"]) == (0, 1, 3)
