"""Strict configuration: unknown keys, wrong types, impossible values, the arm's digest."""

import dataclasses

import pytest

from hrm_deeploop.config import ArchConfig, OptimConfig, TrainConfig
from hrm_deeploop.run_dir import arm_name
from hrm_deeploop.settings import digest, from_dict, leaf_keys, result_settings, to_dict


def test_round_trip() -> None:
    config = TrainConfig(seed=3, arch=ArchConfig(hidden_size=64), max_steps=5)
    assert from_dict(TrainConfig, to_dict(config)) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sead": 1}, "unknown setting sead; did you mean seed?"),
        (
            {"arch": {"hiden_size": 64}},
            "unknown setting arch.hiden_size; did you mean arch.hidden_size?",
        ),
        ({"arch": 3}, "arch must be a group of settings; got 3"),
        ({"seed": "one"}, "seed must be a whole number; got 'one'"),
        ({"seed": True}, "seed must be a whole number; got True"),
        ({"seed": 1.5}, "seed must be a whole number; got 1.5"),
        ({"optim": {"lr": "fast"}}, "optim.lr must be a number; got 'fast'"),
        ({"optim": {"lr": float("nan")}}, "optim.lr must be finite"),
        ({"optim": {"lr": -1}}, "optim.lr must be 0 or more"),
        ({"residual": {"preset": "deeplop"}}, "did you mean deeploop?"),
        (
            {"residual": {"depth": "papers"}},
            "residual.depth must be one of paper, visible or a number; got 'papers'; "
            "did you mean paper?",
        ),
        ({"residual": {"depth": 0}}, r"residual.depth must be paper, visible or a number in \(0"),
        ({"residual": {"L": {"alpha": 0}}}, r"alpha must be in \[1e-6, 1e6\]; got 0"),
        (
            {"arch": {"hidden_size": 100, "num_heads": 8}},
            r"multiple of twice arch.num_heads .* got 100 and 8; try 96",
        ),
        ({"arch": {"hidden_size": 24, "num_heads": 8}}, "got 24 and 8; try 32"),
        ({"arch": {"share_levels": True}}, "set arch.H_layers=0"),
        ({"arch": {"puzzle_emb_len": 0}}, "cannot hold"),
        ({"optim": {"total_steps": 0}}, "optim.total_steps must be 1 or more, or null"),
        ({"optim": {"lr": 10**400}}, "optim.lr must be finite"),
        ({"seed": 2**63}, r"seed must be in 0..2\*\*63 - 1"),
        ({"max_steps": 0}, "max_steps must be 1 or more"),
        ({"data": {"canvas": 31}}, "data.canvas must be in 1..30"),
        ({"hardware": {"threads": 0}}, r"hardware.threads must be in 1..1024; got 0"),
    ],
)
def test_refused(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_dict(TrainConfig, values)


def test_digest_names_results_only() -> None:
    base = TrainConfig()
    for unimportant in ({"seed": 7}, {"run_dir": "x"}, {"log_every_steps": 1}, {"device": "cpu"}):
        assert digest(dataclasses.replace(base, **unimportant)) == digest(base)
    for important in (
        {"max_steps": 7},
        {"optim": OptimConfig(lr=1e-3)},
        {"arch": ArchConfig(carry_dtype="float32")},
    ):
        assert digest(dataclasses.replace(base, **important)) != digest(base)


def test_pin_digest() -> None:
    """A new setting whose default is the old behaviour must not change an old arm's digest."""
    config = TrainConfig(arch=ArchConfig(hidden_size=64), optim=OptimConfig(lr=1e-3))
    assert result_settings(config) == {"arch.hidden_size": 64, "optim.lr": 1e-3}
    assert digest(config) == "e6336553909eaf4a4e21b9bcf0f9f68e38dcd1178ff9ace0530f35dc6c50a4ac"


def test_arm_name() -> None:
    base = TrainConfig(optim=OptimConfig(lr=2e-3))
    assert arm_name(base, base) == "vanilla-last_step"
    other = dataclasses.replace(base, optim=OptimConfig(lr=1e-3), seed=4)
    assert arm_name(other, base) == "vanilla-last_step-lr=0.001"


def test_leaf_keys_reach_the_levels() -> None:
    assert {"residual.H.p", "residual.L.beta", "data.num_aug", "seed"} <= set(
        leaf_keys(TrainConfig)
    )
