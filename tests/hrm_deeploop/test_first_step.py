"""The output's change by one step: first order, regions, groups, growth with aligned visits."""

import pytest
import torch
from probe_cases import CASES, carry_of, double_model, loss_gradients, start, still_model

from hrm_deeploop.config import OptimConfig, ResidualConfig
from hrm_deeploop.first_step import first_step_change
from hrm_deeploop.regions import SUBLAYERS, first_optimizer_step
from hrm_deeploop.visits import SHARED, VisibleRegion

OPTIM = OptimConfig()
RATES = (1e-6, 1e-5)


@pytest.mark.parametrize("case", CASES)
def test_first_order_predicts_small_steps(case: str) -> None:
    """What first order misses is of second order: in proportion to the rate."""
    model = double_model(ResidualConfig(preset="deeploop"), **CASES[case])
    found = first_step_change(VisibleRegion(model, *start(model)), OPTIM, RATES)
    groups = {SHARED, "all"} if model.arch.share_levels else {"H", "L", SHARED, "all"}
    assert set(found["changes"]) == groups
    for regions in found["changes"].values():
        for change in regions.values():
            assert change["predicted"][1] == pytest.approx(10 * change["predicted"][0])
            assert change["actual"] == pytest.approx(change["predicted"], rel=1e-2)
            assert change["deviation"][0] < 1e-3
            assert change["deviation"][1] == pytest.approx(10 * change["deviation"][0], rel=0.05)
    assert found["bound"] == model.scales.bound
    assert found["num_outputs"] == 3 * 9 * 12
    assert all(p.grad is None for p in model.parameters())


def test_the_visible_region_is_the_segment_where_all_of_it_is_visible() -> None:
    model = double_model(**CASES["one cycle"])
    found = first_step_change(VisibleRegion(model, *start(model)), OPTIM, RATES)
    for regions in found["changes"].values():
        assert regions["visible"]["actual"] == pytest.approx(regions["whole"]["actual"], rel=1e-9)
    model = double_model(**CASES["cycle"])
    change = first_step_change(VisibleRegion(model, *start(model)), OPTIM, RATES)["changes"]["L"]
    assert change["visible"]["actual"] != pytest.approx(change["whole"]["actual"], rel=1e-2)


@pytest.mark.parametrize("case", ["cycle", "shared"])
def test_the_prediction_is_the_sum_of_the_visits_sensitivities(case: str) -> None:
    model = double_model(**CASES[case])
    carry, rows = start(model)
    region = VisibleRegion(model, carry, rows)
    _, ordinary = loss_gradients(model, carry, rows)
    keys = {
        "qkv": "self_attn.qkv_proj",
        "o": "self_attn.o_proj",
        "gate_up": "mlp.gate_up_proj",
        "down": "mlp.down_proj",
    }
    parameters = dict(model.named_parameters())
    total = torch.zeros(())
    for visit in range(len(region.calls)):
        is_low = case == "shared" or region.calls[visit].level == "L"
        for block in range(len(region.blocks[visit])):
            for names in SUBLAYERS.values():
                paths = [
                    f"{'L' if is_low else 'H'}_level.layers.{block}.{keys[name]}.weight"
                    for name in names
                ]
                step = first_optimizer_step(
                    [parameters[path] for path in paths], [ordinary[path] for path in paths], OPTIM
                )
                tangents = dict(zip(names, step, strict=True))
                total = total + region.sensitivity(visit, block, tangents)
    change = first_step_change(region, OPTIM, (1.0,))["changes"][SHARED]["visible"]
    assert change["predicted"][0] == pytest.approx(total.norm().item(), rel=1e-9)


@pytest.mark.parametrize("rounds", [2, 5])
def test_aligned_visits_move_the_output_in_proportion_to_their_number(rounds: int) -> None:
    generator = torch.Generator().manual_seed(0)
    z_L = torch.randn(1, 10, 16, generator=generator, dtype=torch.float64)
    z_L /= z_L.square().mean(-1, keepdim=True).sqrt()
    predicted = []
    for L_cycles in (1, rounds):
        model = still_model(L_cycles)
        torch.nn.init.zeros_(model.embed_tokens.embedding_weight)
        rows = torch.zeros(1, 16).double()
        found = first_step_change(VisibleRegion(model, carry_of(z_L), rows), OPTIM, (1.0,))
        predicted.append(found["changes"]["L"]["visible"]["predicted"][0])
    assert predicted[1] == pytest.approx(rounds * predicted[0], rel=1e-9)


def test_the_model_is_left_alone_without_gradient_mode() -> None:
    model = double_model()
    carry, rows = start(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        found = first_step_change(VisibleRegion(model, carry, rows), OPTIM, RATES)
    assert found["changes"]["all"]["whole"]["actual"][0] > 0
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
