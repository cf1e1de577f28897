"""AdamATan2 against golden trajectories of both forms, and its handling of state."""

import json
from pathlib import Path

import pytest
import torch

from hrm_deeploop.adam_atan2 import AdamATan2

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "adam_atan2.json").read_text())


@pytest.mark.parametrize("form", ["outside", "inside"])
@pytest.mark.parametrize("case", range(len(GOLDEN["cases"])))
def test_golden_trajectory(case: int, form: str) -> None:
    options = GOLDEN["cases"][case]
    expected = options[f"params_after_step_bias_correction_{form}_atan2"]
    parameter = torch.nn.Parameter(torch.tensor(GOLDEN["initial"], dtype=torch.float64))
    optimizer = AdamATan2(
        [parameter],
        lr=options["lr"],
        weight_decay=options["weight_decay"],
        beta1=options["beta1"],
        beta2=options["beta2"],
        bias_correction=form,
    )
    checked = 0
    for step, gradient in enumerate(GOLDEN["grads"], start=1):
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        if str(step) in expected:
            wanted = torch.tensor(expected[str(step)], dtype=torch.float64)
            torch.testing.assert_close(parameter.data, wanted, atol=1e-12, rtol=1e-12)
            checked += 1
    assert checked == len(expected)


def two_parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(s, generator=generator)) for s in ((3, 5), (7,))]


def step(parameters: list[torch.nn.Parameter], optimizer: AdamATan2, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()


def test_one_flat_buffer_gives_what_separate_optimizers_give() -> None:
    together, apart = two_parameters(), two_parameters()
    optimizer = AdamATan2(together, lr=0.1)
    single = [AdamATan2([p], lr=0.1) for p in apart]
    for seed in range(3):
        step(together, optimizer, seed)
        generator = torch.Generator().manual_seed(seed)
        for parameter, own in zip(apart, single, strict=True):
            parameter.grad = torch.randn(parameter.shape, generator=generator)
            own.step()
    for a, b in zip(together, apart, strict=True):
        assert torch.equal(a, b)
    assert len({p.untyped_storage().data_ptr() for p in together}) == 1


def test_state_round_trip_continues_bitwise() -> None:
    straight, resumed = two_parameters(), two_parameters()
    first = AdamATan2(straight, lr=0.1)
    for seed in range(4):
        step(straight, first, seed)

    before = AdamATan2(resumed, lr=0.1)
    for seed in range(2):
        step(resumed, before, seed)
    saved = before.state_dict()
    copies = [torch.nn.Parameter(p.detach().clone()) for p in resumed]
    after = AdamATan2(copies, lr=0.5)
    after.load_state_dict(saved)
    for seed in range(2, 4):
        step(copies, after, seed)
    for a, b in zip(straight, copies, strict=True):
        assert torch.equal(a, b)


def test_a_missing_gradient_is_an_error() -> None:
    parameters = two_parameters()
    optimizer = AdamATan2(parameters, lr=0.1)
    parameters[0].grad = torch.zeros(3, 5)
    with pytest.raises(RuntimeError, match=r"shape \(7,\) has no gradient"):
        optimizer.step()


def test_zero_gradient_from_the_start_moves_nothing_without_decay() -> None:
    parameters = two_parameters()
    before = [p.detach().clone() for p in parameters]
    optimizer = AdamATan2(parameters, lr=0.1, weight_decay=0.0)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for a, b in zip(parameters, before, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "options", [{"lr": -1.0}, {"lr": 0.1, "beta1": 1.0}, {"lr": 0.1, "bias_correction": "both"}]
)
def test_bad_options(options: dict) -> None:
    with pytest.raises(ValueError, match=r"AdamATan2 needs|bias_correction must be"):
        AdamATan2(two_parameters(), **options)
