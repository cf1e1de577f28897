"""kappa, first step and streams of the looped GPT: exact per round, whatever the arm."""

import math
from typing import Any, cast

import pytest
import torch
from test_looped_model import VOCAB, make, some_tokens, tiny

from hrm_deeploop.alignment import measure_kappa
from hrm_deeploop.config import OptimConfig
from hrm_deeploop.first_step import first_step_change
from hrm_deeploop.layers import Block, attention
from hrm_deeploop.looped_lm.config import LmConfig
from hrm_deeploop.looped_lm.model import LoopedGPT
from hrm_deeploop.looped_lm.visits import LEVEL, LoopRegion
from hrm_deeploop.probes import set_precision
from hrm_deeploop.regions import SUBLAYERS, first_optimizer_step
from hrm_deeploop.streams import stream_diagnostics, stream_visits

OPTIM = OptimConfig(optimizer="adamw")
RATES = (1e-6, 1e-5)
CASES: dict[str, LmConfig] = {
    "base": tiny("base", rounds=3),
    "deeploop": tiny("deeploop", rounds=3),
    "swiglu": tiny("deeploop", rounds=2, mlp="swiglu"),
    "no inner norm": tiny("deepnorm", rounds=2, inner_norm=False),
    "eps": tiny("eps_loop", rounds=2, input_norm=False),
    "recomputed": tiny("deeploop", rounds=3, activation_checkpointing=True),
    "once": tiny("deeploop"),
}


def region_of(config: LmConfig, length: int = 12) -> LoopRegion:
    model = make(config)
    set_precision(model, "float64")
    return LoopRegion(model, some_tokens(length=length + 1))


def block_of(model: LoopedGPT, index: int) -> Block:
    return cast(Block, model.layers[index])


def matrices(block: Block) -> dict[str, torch.Tensor]:
    """The parameters themselves, by their names in BlockWeights."""
    return {
        "qkv": block.self_attn.qkv_proj.weight,
        "o": block.self_attn.o_proj.weight,
        "gate_up": block.first_mlp_matrix,
        "down": block.mlp.down_proj.weight,
    }


@pytest.mark.parametrize("case", CASES)
def test_per_visit_gradients_sum_to_the_ordinary_gradient(case: str) -> None:
    region = region_of(CASES[case])
    model = region.model
    per_visit, loss = region.per_visit_gradients()
    ordinary = model.token_losses(region.tokens, region.targets).mean()
    ordinary.backward()
    assert len(per_visit) == model.config.rounds
    assert loss == pytest.approx(ordinary.item(), rel=1e-12)
    for index in range(model.config.num_blocks):
        for name, parameter in matrices(block_of(model, index)).items():
            summed = torch.stack([getattr(blocks[index], name) for blocks in per_visit]).sum(0)
            assert parameter.grad is not None
            miss = (summed - parameter.grad).abs().max() / parameter.grad.abs().max()
            assert miss < 1e-12


@pytest.mark.parametrize("case", ["base", "deeploop", "swiglu", "no inner norm", "eps"])
@pytest.mark.parametrize("names", SUBLAYERS.values())
def test_one_visits_derivatives_against_differences(case: str, names: tuple[str, ...]) -> None:
    """Central differences that move a block in one round only."""
    region = region_of(CASES[case])
    generator = torch.Generator().manual_seed(2)
    visit, block = 1, 1
    own = region.blocks[visit]
    tangents = {
        name: torch.randn(getattr(own[block], name).shape, generator=generator).double()
        for name in names
    }

    def end(size: float) -> torch.Tensor:
        moved = {name: getattr(own[block], name) + size * t for name, t in tangents.items()}
        changed = (own[0], own[block]._replace(**moved))
        with torch.no_grad():
            return region.run(visit, [changed, *region.blocks[visit + 1 :]])

    size = 1e-6
    ends = end(size), end(-size)
    expected = (region.logits(ends[0]) - region.logits(ends[1])).detach() / (2 * size)
    actual = region.sensitivity(visit, block, tangents)
    assert actual.shape == (3, 12, VOCAB)
    torch.testing.assert_close(actual, expected, atol=1e-6 * float(expected.abs().max()), rtol=0)
    slope = (region.loss(ends[0]) - region.loss(ends[1])).item() / (2 * size)
    gradients = region.per_visit_gradients()[0][visit][block]
    along = sum(float((getattr(gradients, name) * t).sum()) for name, t in tangents.items())
    assert along == pytest.approx(slope, rel=1e-5)


def test_one_round_has_kappa_one() -> None:
    report = measure_kappa(region_of(CASES["once"]), OPTIM)
    level = report.levels[LEVEL]
    assert (level.rounds, level.kappa, level.gamma, level.exponent) == (1, 1, None, 0.25)
    # M (beta / alpha)^2 = 2 K / (4 K)^2
    assert report.bound_measured == report.bound_worst_case == pytest.approx(1 / 16)


def test_kappa_by_its_definition_and_the_bound() -> None:
    region = region_of(CASES["deeploop"])
    report = measure_kappa(region, OPTIM)
    level = report.levels[LEVEL]
    assert [(s.block, s.sublayer) for s in level.sublayers] == [
        (block, sublayer) for block in range(2) for sublayer in SUBLAYERS
    ]
    found = level.sublayers[3]
    per_visit, _ = region.per_visit_gradients()
    gradients = [blocks[1] for blocks in per_visit]
    weights = matrices(block_of(region.model, 1))
    names = SUBLAYERS["mlp"]
    summed = [sum(getattr(g, name) for g in gradients) for name in names]
    step = first_optimizer_step([weights[name] for name in names], summed, OPTIM)
    tangents = dict(zip(names, step, strict=True))
    G = [torch.cat([getattr(g, name).flatten() for name in names]) for g in gradients]
    U = [region.sensitivity(visit, 1, tangents).flatten() for visit in range(3)]
    expected = sum(U).norm() * sum(G).norm()
    expected /= 3 * max(u.norm() for u in U) * max(g.norm() for g in G)
    assert found.kappa == pytest.approx(expected.item())
    assert level.kappa == max(s.kappa for s in level.sublayers if s.kappa is not None)
    assert 0 < level.kappa < 3
    assert report.bound_worst_case == pytest.approx(1 / 16)  # 1 / (8 K)
    assert report.bound_measured == pytest.approx(2 * 6 * level.kappa / (4 * 6) ** 2)
    assert report.metrics()["kappa_blocks"] == level.kappa


@pytest.mark.parametrize("case", ["base", "eps"])
def test_no_bound_without_alpha(case: str) -> None:
    report = measure_kappa(region_of(CASES[case]), OPTIM)
    assert report.bound_worst_case is report.bound_measured is None
    assert "kappa_bound" not in report.metrics()
    assert report.levels[LEVEL].kappa is not None


@pytest.mark.parametrize("rounds", [2, 4])
def test_rounds_that_do_the_same_are_fully_aligned(rounds: int) -> None:
    """Branches that end in zero matrices: every round finds and leaves the same stream."""
    region = region_of(tiny("base", rounds=rounds, num_blocks=1))
    with torch.no_grad():
        weights = matrices(block_of(region.model, 0))
        weights["o"].zero_()
        weights["down"].zero_()
    region = LoopRegion(region.model, some_tokens(length=13))
    level = measure_kappa(region, OPTIM).levels[LEVEL]
    assert level.kappa == pytest.approx(rounds, rel=1e-9)
    assert level.gamma == pytest.approx(1, abs=1e-9)


def test_recomputing_and_compiled_blocks_change_nothing() -> None:
    region = region_of(CASES["deeploop"])
    expected = measure_kappa(region, OPTIM)
    assert measure_kappa(region_of(CASES["recomputed"]), OPTIM) == expected

    def compiled(x: torch.Tensor, w: Any) -> torch.Tensor:
        raise AssertionError("what is compiled has no forward-mode derivative")

    region.model._run_block = compiled
    assert measure_kappa(LoopRegion(region.model, some_tokens(length=13)), OPTIM) == expected
    before = first_step_change(region, OPTIM, RATES)
    assert first_step_change(region_of(CASES["recomputed"]), OPTIM, RATES) == before


@pytest.mark.parametrize("case", ["base", "deeploop", "swiglu"])
def test_first_order_predicts_small_steps(case: str) -> None:
    region = region_of(CASES[case])
    found = first_step_change(region, OPTIM, RATES)
    assert set(found["changes"]) == {LEVEL, "embedding", "all"}
    for places in found["changes"].values():
        assert set(places) == {"whole"}
        change = places["whole"]
        assert change["predicted"][1] == pytest.approx(10 * change["predicted"][0])
        assert change["actual"] == pytest.approx(change["predicted"], rel=1e-2)
        assert change["deviation"][1] == pytest.approx(10 * change["deviation"][0], rel=0.05)
    with torch.no_grad():
        norm = region.model(region.tokens).norm().item()
    assert found["output_norm"] == pytest.approx(norm, rel=1e-9)
    assert found["num_outputs"] == 3 * 12 * VOCAB
    assert all(p.grad is None for p in region.model.parameters())


def test_the_blocks_change_is_the_sum_of_the_visits_sensitivities() -> None:
    region = region_of(CASES["deeploop"])
    per_visit, _ = region.per_visit_gradients()
    total = torch.zeros(())
    for block in range(2):
        weights = matrices(block_of(region.model, block))
        for names in SUBLAYERS.values():
            summed = [sum(getattr(blocks[block], name) for blocks in per_visit) for name in names]
            step = first_optimizer_step([weights[name] for name in names], summed, OPTIM)
            for visit in range(3):
                tangents = dict(zip(names, step, strict=True))
                total = total + region.sensitivity(visit, block, tangents)
    found = first_step_change(region, OPTIM, (1.0,))["changes"][LEVEL]["whole"]
    assert found["predicted"][0] == pytest.approx(total.norm().item(), rel=1e-9)


def ends_of_sublayers(region: LoopRegion) -> list[float]:
    visits = stream_visits(region)["visits"]
    assert [(v["level"], v["visible"]) for v in visits] == [(LEVEL, True)] * len(region.blocks)
    places = [(s["block"], s["sublayer"]) for v in visits for s in v["sublayers"]]
    once = [(block, sublayer) for block in range(2) for sublayer in SUBLAYERS]
    assert places == once * len(region.blocks)
    sublayers = [s for v in visits for s in v["sublayers"]]
    assert sublayers[0]["before_rms"] == pytest.approx(1, abs=1e-4)  # the input norm
    befores = [s["before_rms"] for s in sublayers[1:]]
    afters = [s["stream_rms"] for s in sublayers]
    assert befores == pytest.approx(afters[:-1])
    return afters


def test_streams_at_initialisation() -> None:
    """Unit RMS in the sandwich; pre-norm grows from visit to visit, less so under eps."""
    for case in ("deeploop", "swiglu", "no inner norm"):
        ends = ends_of_sublayers(region_of(CASES[case]))
        assert ends == pytest.approx([1] * (4 * CASES[case].rounds), abs=1e-4)
    grown = ends_of_sublayers(region_of(CASES["base"]))
    assert grown == sorted(grown)
    assert grown[-1] > 2
    held = ends_of_sublayers(region_of(tiny("eps_loop", rounds=3)))
    assert held[-1] < 0.5 * grown[-1]
    means = stream_diagnostics(region_of(CASES["base"]))
    assert means["stream_rms_blocks"] == pytest.approx(sum(grown) / len(grown))


def test_updates_and_increments_by_hand() -> None:
    region = region_of(CASES["base"])
    model, w = region.model, region.weights
    with torch.no_grad():
        x = model.embed(w, region.tokens)
        normed = x / (x.square().mean(-1, keepdim=True) + model.config.rms_norm_eps).sqrt()
        rotary = (model.cos[:12], model.sin[:12])
        update = attention(normed, w.blocks[0], 2, rotary, causal=True)
        states = [x]
        for _ in range(3):
            for block in w.blocks:
                states.append(model.block(states[-1], block))
    found = stream_visits(region)
    rms = math.sqrt(update.square().mean().item())
    assert found["visits"][0]["sublayers"][0]["update_rms"] == pytest.approx(rms)
    increments = torch.stack(states).flatten(1).diff(dim=0)
    directions = increments / increments.norm(dim=1, keepdim=True)
    cosines = torch.tensor(found["increment_cosines"][LEVEL], dtype=torch.float64)
    torch.testing.assert_close(cosines, directions @ directions.T)


def test_a_bfloat16_model_is_measured_as_it_computes() -> None:
    kappas = []
    for dtype in ("float32", "bfloat16"):
        model = make(tiny("deeploop", rounds=2, forward_dtype=dtype))
        report = measure_kappa(LoopRegion(model, some_tokens(length=13)), OPTIM)
        kappas.append(report.levels[LEVEL].kappa)
    assert kappas[0] != kappas[1]
    assert kappas[1] == pytest.approx(kappas[0], rel=0.1)
