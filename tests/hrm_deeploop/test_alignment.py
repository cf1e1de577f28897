"""kappa in closed form: on synthetic visits, and on models whose visits are known."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from probe_cases import CASES, carry_of, double_model, start, still_model
from tiny_reasoners import make_model, random_batch, tiny_arch

from hrm_deeploop.act import initial_carry, refill
from hrm_deeploop.alignment import (
    Alignment,
    SublayerAlignment,
    align,
    gamma_slope,
    kappa,
    measure_kappa,
    summarise_level,
)
from hrm_deeploop.config import OptimConfig, ResidualConfig
from hrm_deeploop.regions import first_optimizer_step
from hrm_deeploop.visits import SHARED, VisibleRegion

OPTIM = OptimConfig()


def of(*vectors: list[float]) -> Alignment:
    stacked = np.array(vectors, dtype=np.float64)
    return align(stacked @ stacked.T)


def test_equal_visits_are_aligned_and_orthogonal_ones_are_not() -> None:
    equal, orthogonal = of([3.0, 4.0], [3.0, 4.0]), of([3.0, 0.0], [0.0, 5.0])
    assert equal.alignment == 2
    assert equal.cosines == [[1, 1], [1, 1]]
    assert orthogonal.alignment == 1
    assert orthogonal.cosines == [[1, 0], [0, 1]]
    assert kappa(equal, equal) == 2
    assert kappa(orthogonal, orthogonal) == pytest.approx(34 / (2 * 25))
    assert kappa(equal, of([1.0, 0.0], [0.0, 1.0])) == pytest.approx(math.sqrt(2))
    opposite = of([1.0, 2.0], [-1.0, -2.0])
    assert (opposite.alignment, kappa(opposite, equal)) == (0, 0)


def test_unequal_but_parallel_visits() -> None:
    """Sum 4, largest 3: alignment 16/10, and kappa 4 * 4 / (2 * 3 * 3)."""
    visits = of([1.0], [3.0])
    assert visits.alignment == pytest.approx(1.6)
    assert kappa(visits, visits) == pytest.approx(16 / 18)


def test_visits_in_which_nothing_moves() -> None:
    still, moving = of([0.0], [0.0]), of([1.0], [1.0])
    assert still.alignment is None
    assert still.cosines[0] == [None, None]
    assert kappa(still, moving) is None
    assert kappa(of([0.0]), of([0.0])) == 1


@settings(max_examples=30, deadline=None)
@given(arrays(np.float64, (4, 5), elements=st.floats(-10, 10)))
def test_ranges(visits: np.ndarray) -> None:
    found = of(*visits.tolist())
    if found.alignment is not None:
        assert 0 <= found.alignment <= 4 + 1e-9
        value = kappa(found, found)
        assert value is not None
        assert 0 <= value <= 4 + 1e-9
        norm = np.linalg.norm(visits.sum(0))
        assert found.sum_norm == pytest.approx(norm, abs=1e-6)


def sublayer(value: float | None) -> SublayerAlignment:
    side = of([1.0])
    return SublayerAlignment(block=0, sublayer="mlp", kappa=value, write=side, read=side)


def test_gamma_and_the_exponent_it_asks_for() -> None:
    level = summarise_level(4, [sublayer(1.0), sublayer(2.0), sublayer(None)])
    assert (level.kappa, level.gamma, level.exponent) == (2, 0.5, 0.375)
    aligned = summarise_level(8, [sublayer(8.0)])
    assert (aligned.gamma, aligned.exponent) == pytest.approx((1, 0.5))
    once = summarise_level(1, [sublayer(1.0)])
    assert (once.kappa, once.gamma, once.exponent) == (1, None, 0.25)
    unknown = summarise_level(4, [sublayer(None)])
    assert (unknown.kappa, unknown.gamma, unknown.exponent) == (None, None, None)


def test_gamma_over_loop_counts() -> None:
    cycles = (2, 4, 8, 16)
    assert gamma_slope(cycles, [0.7 * c**0.4 for c in cycles]) == pytest.approx(0.4)
    for bad in ([2, 2], [1.0, 2.0]), ([2, 4], [1.0, 0.0]):
        with pytest.raises(ValueError, match="two or more different L_cycles"):
            gamma_slope(*bad)


@pytest.mark.parametrize("case", ["step", "cycle", "shared", "shared step"])
def test_report(case: str) -> None:
    model = double_model(ResidualConfig(preset="deeploop"), **CASES[case])
    report = measure_kappa(VisibleRegion(model, *start(model)), OPTIM)
    levels = report.levels
    assert set(levels) == ({SHARED} if model.arch.share_levels else {"H", "L"})
    for name, level in levels.items():
        num_blocks = model.arch.num_H_blocks if name == "H" else model.arch.num_L_blocks
        assert len(level.sublayers) == 2 * num_blocks
        if level.rounds == 1:
            assert (level.kappa, level.gamma, level.exponent) == (1, None, 0.25)
        else:
            assert level.kappa is not None
            assert 0 < level.kappa <= level.rounds
            assert all(len(s.write.norms) == level.rounds for s in level.sublayers)
    # By hand from the definition: J R kappa (beta / alpha)^2 = 2 K R kappa / (4 N)^2.
    arch = model.arch
    rounds_L = 1 if arch.grad_scope == "last_step" else arch.L_cycles
    kappa_H, kappa_L = (levels.get(name, levels.get(SHARED)).kappa for name in "HL")
    depth = arch.num_H_blocks + arch.L_cycles * arch.num_L_blocks
    expected = 2 * (arch.num_H_blocks * kappa_H + arch.num_L_blocks * rounds_L * kappa_L)
    assert report.bound_measured == pytest.approx(expected / (4 * depth) ** 2)
    assert report.bound_measured <= report.bound_worst_case * (1 + 1e-12)
    assert json.loads(json.dumps(report.as_dict()))["loss"] == report.loss
    assert report.metrics()["kappa_bound"] == report.bound_measured


def test_a_bfloat16_model_is_measured_as_it_computes() -> None:
    wide = make_model(tiny_arch(grad_scope="last_cycle"))
    narrow = make_model(tiny_arch(grad_scope="last_cycle", forward_dtype="bfloat16"))
    kappas = []
    for model in (wide, narrow):
        carry = refill(model, initial_carry(model, random_batch(3, 0)), random_batch(3, 0))
        region = VisibleRegion(model, carry, torch.zeros(3, 16))
        kappas.append(measure_kappa(region, OPTIM).levels["L"].kappa)
    assert kappas[0] != kappas[1]
    assert kappas[1] == pytest.approx(kappas[0], rel=0.1)


@pytest.mark.parametrize("case", ["cycle", "shared"])
def test_kappa_by_its_definition(case: str) -> None:
    """||sum U|| ||sum G|| / (R max ||U|| max ||G||), written out for the first feed-forward."""
    model = double_model(**CASES[case])
    carry, rows = start(model)
    level = SHARED if model.arch.share_levels else "L"
    found = measure_kappa(VisibleRegion(model, carry, rows), OPTIM).levels[level].sublayers[1]
    assert (found.block, found.sublayer) == (0, "mlp")

    region = VisibleRegion(model, carry, rows)
    visits = region.visits_by_level()[level]
    gradients, _ = region.per_visit_gradients()
    gate_up, down = ([getattr(gradients[v][0], n) for v in visits] for n in ("gate_up", "down"))
    mlp = model.L_level.blocks()[0].mlp
    step = first_optimizer_step(
        [mlp.gate_up_proj.weight, mlp.down_proj.weight], [sum(gate_up), sum(down)], OPTIM
    )
    tangents = dict(zip(("gate_up", "down"), step, strict=True))
    G = [torch.cat((a.flatten(), b.flatten())) for a, b in zip(gate_up, down, strict=True)]
    U = [region.sensitivity(v, 0, tangents).flatten() for v in visits]
    expected = sum(U).norm() * sum(G).norm()
    expected /= len(visits) * max(u.norm() for u in U) * max(g.norm() for g in G)
    assert found.kappa == pytest.approx(expected.item())
    assert found.read.norms == pytest.approx([u.norm().item() for u in U])
    squares = sum(u.square().sum() for u in U)
    assert found.read.alignment == pytest.approx((sum(U).norm() ** 2 / squares).item())
    cosine = torch.nn.functional.cosine_similarity(G[0], G[1], dim=0)
    assert found.write.cosines[0][1] == pytest.approx(cosine.item())


@pytest.mark.parametrize("rounds", [2, 3, 5])
def test_visits_with_identical_inputs_are_fully_aligned(rounds: int) -> None:
    """Nothing is injected and nothing is changed: every L visit sees, and does, the same."""
    model = still_model(rounds)
    torch.nn.init.zeros_(model.embed_tokens.embedding_weight)
    generator = torch.Generator().manual_seed(0)
    z_L = torch.randn(1, model.num_tokens, 16, generator=generator, dtype=torch.float64)
    z_L /= z_L.square().mean(-1, keepdim=True).sqrt()
    report = measure_kappa(VisibleRegion(model, carry_of(z_L), torch.zeros(1, 16).double()), OPTIM)
    level = report.levels["L"]
    assert level.kappa == pytest.approx(rounds, rel=1e-9)
    assert level.gamma == pytest.approx(1, abs=1e-9)
    assert level.exponent == pytest.approx(0.5, abs=1e-9)
    for found in level.sublayers:
        assert found.kappa == pytest.approx(rounds, rel=1e-9)
        for side in (found.write, found.read):
            assert side.alignment == pytest.approx(rounds, rel=1e-9)
            np.testing.assert_allclose(side.cosines, 1, rtol=1e-9)
    assert report.bound_measured == pytest.approx(report.bound_worst_case, rel=1e-9)


def test_visits_with_orthogonal_inputs_have_orthogonal_gradients() -> None:
    """The first L visit reads direction e1 everywhere, the second e2: G = c (x) input."""
    model = still_model(2)
    e1, e2 = 4 * torch.eye(16, dtype=torch.float64)[:2]  # RMS 1 over 16 entries
    with torch.no_grad():
        model.embed_tokens.embedding_weight.copy_(((e2 - e1) / 4).expand(12, 16))
        qkv = model.L_level.blocks()[0].self_attn.qkv_proj.weight
        qkv.zero_()  # attention is uniform,
        qkv[32:] = torch.eye(16)  # and the values are the inputs
    z_L = (2 * e1 - e2).expand(1, model.num_tokens, 16)  # with e2 - e1 added, e1
    rows = ((e2 - e1) / 4).unsqueeze(0)
    found = measure_kappa(VisibleRegion(model, carry_of(z_L), rows), OPTIM).levels["L"].sublayers[0]
    assert found.sublayer == "attention"
    assert min(found.write.norms) > 1e-3
    assert found.write.alignment == pytest.approx(1, abs=1e-9)
    assert found.write.cosines[0][1] == pytest.approx(0, abs=1e-9)
