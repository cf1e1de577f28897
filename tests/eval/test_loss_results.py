"""Results of a language model: read strictly, searched and refused as those of ARC."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loss_runs import make_loss
from sigma_runs import changed, make_result, ranks_of, write_result, write_run

from eval.loss_results import LOSS, ratio_estimate
from eval.loss_sigma import summarise_losses
from eval.sigma_inputs import collect, read_result


def test_ratio_estimate_by_hand() -> None:
    value, error = ratio_estimate(np.array([2.0, 6.0, 1.0]), np.array([1, 2, 1]))
    assert value == 9 / 4
    # Residuals nats - 9/4 tokens: -1/4, 3/2, -5/4; 3/2 of their squares' sum, over 4 tokens.
    assert error == pytest.approx(math.sqrt(1.5 * (0.25**2 + 1.5**2 + 1.25**2)) / 4)
    assert ratio_estimate(np.array([3.0]), np.array([2])) == (1.5, None)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "loss": ({"scores__validation_loss": "3"}, "scores.validation_loss must be int or float"),
    "other loss": ({"scores__validation_loss": 2.9}, "must be 3.000000 as its documents say"),
    "NaN": ({"scores__validation_loss": math.nan}, "as its documents say, found nan"),
    "floor": ({"scores__unigram_floor": math.inf}, "scores.unigram_floor must be a loss from 0 on"),
    "nats": ({"documents__nats": [1.0, math.nan, 1.0]}, "documents must hold nats (finite)"),
    "lengths": ({"documents__tokens": [10, 30]}, "documents must hold nats (finite)"),
    "no tokens": ({"documents__tokens": [0, 0, 0]}, "documents must hold nats (finite)"),
    "rounds": ({"arm__residual__R": 0}, "arm.residual.R must be at least 1, found 0"),
    "no rounds": ({"arm__residual": {"arm": "base", "K": 2}}, "arm.residual.R is missing"),
    "no residual": ({"arm__residual": None}, "arm.residual.arm is missing"),
    "context": ({"evaluation": {"partial": False}}, "evaluation.context is missing"),
    "seed": ({"seed": "0"}, "seed must be int or null, found '0'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_results_name_the_file_in_one_line(case: str, tmp_path: Path) -> None:
    changes, message = BAD[case]
    path = write_result(tmp_path / "results.json", changed(make_loss(0, 3.0), **changes))
    with pytest.raises(ValueError) as error:
        read_result(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_kinds_do_not_mix(tmp_path: Path) -> None:
    loss = write_run(tmp_path / "b", make_loss(0, 3.0))
    assert collect([loss]).results[0].kind is LOSS
    write_run(tmp_path / "a", make_result(0, ranks_of(8)))
    with pytest.raises(ValueError) as error:
        collect([tmp_path])
    text = str(error.value)
    assert text.startswith(f"{loss}/eval/step_000000009/results.json: schema must be ")
    assert "'hrm_deeploop.results/1' as in" in text
    assert "found 'hrm_deeploop.lm_results/1'" in text
    assert "\n" not in text


DIFFERENT: dict[str, Any] = {
    "dataset.manifest_sha256": {"dataset__manifest_sha256": "bb" * 32},
    "split": {"split": "test"},
    "evaluation.context": {"evaluation__context": 16},
    "checkpoint.weights": {"checkpoint__weights": "ema"},
    "checkpoint.rule": {"checkpoint__rule": "best-on-test"},
    "text": {"documents": {"nats": [270.0, 30.0], "tokens": [90, 10]}},
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_unequal_conditions_are_refused_unless_told(name: str, tmp_path: Path) -> None:
    paths = [
        write_result(tmp_path / "0.json", make_loss(0, 3.0)),
        write_result(tmp_path / "1.json", make_loss(1, 3.0, **DIFFERENT[name])),
    ]
    inputs = collect([paths[0]])
    both = type(inputs)(results=tuple(map(read_result, paths)), unfinished=())
    with pytest.raises(ValueError, match=rf"1\.json: {name} must be .* as in .*0\.json, found"):
        summarise_losses(both)
    summary = summarise_losses(both, pool_anyway=True)
    assert any(f"{name} is" in warning for warning in summary["warnings"])
    assert "over unlike runs pooled anyway" in summary["words"][0]
    undefined = summary["arms"][0]["loss"]["document_standard_error"] is None
    assert undefined is (name == "text")


def test_partial_twice_and_unfinished(tmp_path: Path) -> None:
    partial = write_result(tmp_path / "p.json", make_loss(0, 3.0, evaluation__partial=True))
    for anyway in (False, True):
        with pytest.raises(ValueError, match=r"p\.json: evaluation\.partial must be false"):
            summarise_losses(collect([partial]), pool_anyway=anyway)
    one = write_result(tmp_path / "1.json", make_loss(0, 3.0))
    two = write_result(tmp_path / "2.json", make_loss(0, 3.1))
    with pytest.raises(ValueError, match=r"2\.json: seed 0 of arm 'base-R1' must occur once"):
        summarise_losses(collect([one, two]))
    dead = write_run(tmp_path / "dead", make_loss(0, 3.0, rule="step", step=4), state="failed")
    with pytest.raises(ValueError, match="needs a finished run, found 1 unfinished"):
        summarise_losses(collect([dead]))


def test_the_checkpoint_of_the_lowest_loss(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", make_loss(0, 2.5, rule="step", step=4), make_loss(0, 3.0))
    assert collect([run]).results[0].field("checkpoint.step") == 9
    best = collect([run], "best-on-test")
    assert best.results[0].field("checkpoint.step") == 4
    assert "too low by an unknown amount" in summarise_losses(best)["warnings"][0]
