"""Per-visit gradients and sensitivities: exact, whatever the scope, the sharing, the cycles."""

import math

import pytest
import torch
from probe_cases import CASES, double_model, loss_gradients, start

from hrm_deeploop.act import train_segment
from hrm_deeploop.config import OptimConfig
from hrm_deeploop.layers import BlockWeights
from hrm_deeploop.model import HRM
from hrm_deeploop.regions import first_optimizer_step
from hrm_deeploop.visits import SHARED, VisibleRegion


def summed_gradients(region: VisibleRegion) -> dict[str, list[BlockWeights]]:
    gradients, _ = region.per_visit_gradients()
    return {
        name: [
            BlockWeights(*(torch.stack(m).sum(0) for m in zip(*visits_of_block, strict=True)))
            for visits_of_block in zip(*(gradients[v] for v in visits), strict=True)
        ]
        for name, visits in region.visits_by_level().items()
    }


def largest_miss(model: HRM, region: VisibleRegion, ordinary: dict[str, torch.Tensor]) -> float:
    """Largest difference, relative to the largest entry of each matrix's gradient."""
    misses = []
    summed = summed_gradients(region)
    for name, blocks in summed.items():
        level = "L" if name == SHARED else name
        for index, block in enumerate(blocks):
            for own, key in zip(
                block,
                ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"),
                strict=True,
            ):
                expected = ordinary[f"{level}_level.layers.{index}.{key}.weight"]
                misses.append(((own - expected).abs().max() / expected.abs().max()).item())
    assert len(misses) == 4 * sum(len(blocks) for blocks in summed.values())
    return max(misses)


@pytest.mark.parametrize("case", CASES)
def test_per_visit_gradients_sum_to_the_ordinary_gradient(case: str) -> None:
    model = double_model(**CASES[case])
    carry, rows = start(model)
    region = VisibleRegion(model, carry, rows)
    loss, ordinary = loss_gradients(model, carry, rows)
    assert region.per_visit_gradients()[1] == pytest.approx(loss, rel=1e-12)
    assert largest_miss(model, region, ordinary) < 1e-12


@pytest.mark.parametrize(
    ("case", "backend"),
    [
        ("shared", "aot_eager"),
        pytest.param("shared", "inductor", marks=pytest.mark.slow),
        pytest.param("cycle", "inductor", marks=pytest.mark.slow),
    ],
)
def test_per_visit_gradients_sum_to_the_compiled_gradient(case: str, backend: str) -> None:
    model = double_model(**CASES[case])
    carry, rows = start(model)
    torch.compiler.reset()
    compiled = torch.compile(train_segment, dynamic=False, fullgraph=True, backend=backend)
    (compiled(model, carry, rows, None).losses.total / len(carry.halted)).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert largest_miss(model, VisibleRegion(model, carry, rows), gradients) < 1e-6


@pytest.mark.parametrize(
    ("case", "visits"),
    [
        ("step", {"H": [1], "L": [0]}),
        ("cycle", {"H": [3], "L": [0, 1, 2]}),
        ("shared", {SHARED: [0, 1, 2, 3]}),
        ("shared step", {SHARED: [0, 1]}),
        ("one cycle", {"H": [5], "L": [0, 1, 2, 3, 4]}),
    ],
)
def test_which_calls_visit_which_blocks(case: str, visits: dict[str, list[int]]) -> None:
    model = double_model(**CASES[case])
    region = VisibleRegion(model, *start(model))
    assert region.visits_by_level() == visits
    num_rounds = model.scales.H.rounds + model.scales.L.rounds
    assert sum(len(calls) for calls in visits.values()) == num_rounds


def test_the_region_ends_where_the_segment_ends() -> None:
    model = double_model(grad_scope="last_cycle")
    carry, rows = start(model)
    region = VisibleRegion(model, carry, rows)
    w = model.weights()
    z_H, z_L = model.segment(w, carry.z_H, carry.z_L, model.embed(w, carry.current.inputs, rows))
    for first in range(len(region.calls)):
        own_H, own_L = region.run(first, region.blocks[first:])
        assert torch.equal(own_H, z_H)
        assert torch.equal(own_L, z_L)


@pytest.mark.parametrize("case", ["cycle", "shared"])
@pytest.mark.parametrize("names", [("qkv", "o"), ("gate_up", "down")])
def test_a_sensitivity_is_the_derivative_through_one_visit(
    case: str, names: tuple[str, ...]
) -> None:
    """Against a central difference that moves the weights of that call only."""
    model = double_model(**CASES[case])
    region = VisibleRegion(model, *start(model))
    generator = torch.Generator().manual_seed(2)
    visit, block = 1, 0
    own = region.blocks[visit][block]
    tangents = {
        name: torch.randn(getattr(own, name).shape, generator=generator, dtype=torch.float64)
        for name in names
    }
    actual = region.sensitivity(visit, block, tangents)

    def logits(size: float) -> torch.Tensor:
        moved = {name: getattr(own, name) + size * t for name, t in tangents.items()}
        blocks = [*region.blocks[visit]]
        blocks[block] = own._replace(**moved)
        z_H, _ = region.run(visit, [tuple(blocks), *region.blocks[visit + 1 :]])
        return model.heads(region.weights, z_H).logits.detach()

    size = 1e-5
    expected = (logits(size) - logits(-size)) / (2 * size)
    torch.testing.assert_close(actual, expected, atol=1e-7 * float(expected.abs().max()), rtol=0)


def test_the_first_step_in_closed_form() -> None:
    """At t = 1 the moments are (1 - b) g, so the step is 10 atan(0.1) sign(g) and the decay."""
    values = [torch.tensor([[2.0, -3.0]], dtype=torch.float64), torch.zeros(2)]
    gradients = [torch.tensor([[1e-9, -5.0]], dtype=torch.float64), torch.tensor([0.0, 3.0])]
    optim = OptimConfig(beta1=0.9, weight_decay=0.1)
    steps = first_optimizer_step(values, gradients, optim)
    size = 10 * math.atan(0.1)
    expected = torch.tensor([[-0.2 - size, 0.3 + size]], dtype=torch.float64)
    torch.testing.assert_close(steps[0], expected)
    torch.testing.assert_close(steps[1], torch.tensor([0.0, -size]))
    assert values[0].tolist() == [[2.0, -3.0]]


def test_probing_leaves_the_model_alone() -> None:
    model = double_model(grad_scope="last_cycle")
    carry, rows = start(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    VisibleRegion(model, carry, rows).per_visit_gradients()
    assert all(p.grad is None for p in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
