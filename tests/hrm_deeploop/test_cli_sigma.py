"""``hrm-deeploop sigma``: actions, arms by digest and name, and bad input of every kind."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from eval.scoring import SCHEMA, SCORE_NAMES
from hrm_deeploop.cli.compose import compose
from hrm_deeploop.cli.main import main
from hrm_deeploop.run_dir import arm_name, describe_arm
from hrm_deeploop.scaling import resolve


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@cache
def describe(*overrides: str) -> dict[str, Any]:
    """The ``arm`` of a result, as the trainer writes it."""
    experiment = "experiment=mini_deeploop"
    config, base = compose([experiment, *overrides]), compose([experiment])
    scales = resolve(config.residual, config.arch)
    return describe_arm(config, arm_name(config, base), scales.as_dict())


def write_result(path: Path, seed: int | None, arm: dict[str, Any], num_solved: int = 4) -> Path:
    percent = dict.fromkeys(("1", "2"), 10.0 * num_solved)
    result = {
        "schema": SCHEMA,
        "protocol": "published",
        "split": "mini",
        "dataset": {"name": "mini", "manifest_sha256": "aa" * 32},
        "voting": {
            "rule": "count-first",
            "halting": "fixed",
            "num_aug": 8,
            "sources": ["model"],
            "puzzle_id": "right",
            "partial": False,
        },
        "checkpoint": {"run": "r", "step": 9, "weights": "raw", "sha256": "x", "rule": "final"},
        "seed": seed,
        "arm": arm,
        "num_test_pairs": 10,
        "scores": {name: percent for name in SCORE_NAMES},
        "unscored": [],
        "tasks": {f"t{i}": [{"rank": 1 if i < num_solved else None}] for i in range(10)},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))
    return path


DIFFERENCES = {
    "grad scope": "arch.grad_scope=last_cycle",
    "ffn_gain": "residual.ffn_gain=all",
    "depth": "residual.depth=visible",
    "carry dtype": "arch.carry_dtype=float32",
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_arms_that_differ_in_one_thing_never_pool(
    difference: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, other = describe(), describe(DIFFERENCES[difference])
    assert plain["name"] != other["name"]
    assert plain["digest"] != other["digest"]
    for i, arm in enumerate((plain, plain, other, other)):
        write_result(here / f"runs/{i}/results.json", i, arm, num_solved=4 + i)
    # Also under one name, and when told to pool.
    for name in (other["name"], plain["name"]):
        for i in (2, 3):
            write_result(here / f"runs/{i}/results.json", i, {**other, "name": name}, 4 + i)
        for options in ([], ["--pool-anyway"]):
            assert main(["sigma", "runs", "--out", "out", *options]) == 0
            arms = json.loads((here / "out/sigma.json").read_text())["arms"]
            assert sorted(arm["seeds"] for arm in arms) == [[0, 1], [2, 3]]
            assert len({arm["label"] for arm in arms}) == 2
    # A run seed is no difference.
    assert describe("seed=7") == plain


def test_report_may_be_left_out(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arm = describe()
    for seed in (0, 1):
        write_result(here / f"plan/{seed}.json", seed, arm, num_solved=4 + seed)
    files = ["./plan/0.json", "plan/1.json"]
    assert main(["sigma", *files]) == 0
    short = capsys.readouterr().out
    assert main(["sigma", "report", *files]) == 0
    assert capsys.readouterr().out == short
    assert main(["sigma", "--random-seed", "0", *files]) == 0
    assert capsys.readouterr().out == short
    assert "n - 1" in short
    assert not (here / "sigma.json").exists()
    with pytest.raises(SystemExit) as end:
        main(["sigma", "--help"])
    assert end.value.code == 0
    assert "claim" in capsys.readouterr().out


def test_out_is_written_and_may_be_written_again(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_result(here / "runs/0/results.json", 0, describe())
    for _ in range(2):
        assert main(["sigma", "runs", "--out", "runs/a/b"]) == 0
    assert sorted(path.name for path in (here / "runs/a/b").iterdir()) == [
        "sigma.html", "sigma.json", "sigma.md",
    ]  # fmt: skip
    assert capsys.readouterr().out.count("written runs/a/b/sigma.json") == 2
    page = here / "runs/a/b/sigma.html"
    text = page.read_text()
    page.unlink()
    assert main(["report", "runs/a/b"]) == 0
    assert capsys.readouterr().out == "page runs/a/b/sigma.html\n"
    assert page.read_text() == text
    assert main(["report", "runs/a/b", "--data", "runs"]) == 2
    assert "--data goes with a run or an evaluation" in capsys.readouterr().err


def write_loss(path: Path, seed: int, form: str, loss: float) -> Path:
    """A result of a language model with two documents."""
    residual = {"arm": form, "K": 1, "R": 3, "p": None}
    result = {
        "schema": "hrm_deeploop.lm_results/1",
        "split": "validation",
        "dataset": {"name": "toy", "manifest_sha256": "bb" * 32},
        "evaluation": {"context": 8, "partial": False},
        "checkpoint": {"run": "r", "step": 9, "weights": "raw", "sha256": "x", "rule": "final"},
        "seed": seed,
        "arm": {"name": f"{form}-R3", "digest": form, "residual": residual},
        "scores": {"validation_loss": loss, "unigram_floor": 3.2, "bits_per_byte": None},
        "documents": {"nats": [10 * loss, 30 * loss], "tokens": [10, 30]},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))
    return path


def test_losses_of_a_language_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, loss in enumerate((3.0, 2.5)):
        write_loss(here / f"runs/b{seed}/results.json", seed, "base", loss)
        write_loss(here / f"runs/d{seed}/results.json", seed, "deeploop", loss - 0.1 * seed)
    assert main(["sigma", "runs", "--out", "out"]) == 0
    out = capsys.readouterr().out
    assert "deeploop-R3 minus base-R3, loss on validation: -0.0500 nats per token" in out
    assert json.loads((here / "out/sigma.json").read_text())["primary"]["control"] == "base-R3"
    assert "| deeploop-R3 - base-R3 |" in (here / "out/sigma.md").read_text()
    page = here / "out/sigma.html"
    text = page.read_text()
    page.unlink()
    assert main(["report", "out"]) == 0
    assert page.read_text() == text
    capsys.readouterr()
    assert main(["sigma", "runs", "--without-seen-pairs"]) == 2
    assert "--without-seen-pairs goes with ARC results" in capsys.readouterr().err
    write_result(here / "runs/x/results.json", 0, describe())
    assert main(["sigma", "runs"]) == 2
    error = capsys.readouterr().err
    assert "runs/x/results.json: schema must be 'hrm_deeploop.lm_results/1' as in" in error
    assert error.count("\n") == 1


def test_plan_and_claim(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sigma", "plan", "--sd", "0.5", "--delta", "1.0"]) == 0
    assert "0.8    6         7" in capsys.readouterr().out
    assert main(["sigma", "plan", "--sd", "5", "--seeds", "6", "--power", "0.8"]) == 0
    assert "8.98" in capsys.readouterr().out
    assert main(["sigma", "claim"]) == 0
    assert "p = 0.019" in capsys.readouterr().out


BAD = {
    "nothing": (["sigma"], "the following arguments are required"),
    "no path": (["sigma", "nowhere"], "nowhere does not exist"),
    "empty folder": (["sigma", "empty"], "empty holds no run and no results.json"),
    "one of two": (["sigma", "good.json", "nowhere"], "nowhere does not exist"),
    "no JSON": (["sigma", "text.json"], "text.json: expected JSON"),
    "no result": (["sigma", "list.json"], "list.json: schema must be"),
    "bytes": (["sigma", "bytes.json"], "bytes.json: expected JSON in UTF-8"),
    "checkpoint": (["sigma", "good.json", "--checkpoint", "last"], "checkpoint must be final"),
    "step": (["sigma", "good.json", "--checkpoint", "7"], "good.json: checkpoint.step must be 7"),
    "best": (["sigma", "good.json", "--checkpoint", "best-on-test"], "--checkpoint final"),
    "contrast": (["sigma", "good.json", "--contrast", "a", "b"], "--contrast must name arms of"),
    "one arm": (["sigma", "good.json", "--contrast", "a"], "expected 2 arguments"),
    "out": (["sigma", "good.json", "--out", "text.json"], "--out text.json: text.json is a file"),
    "below": (
        ["sigma", "good.json", "--out", "text.json/a"],
        "--out text.json/a: text.json is a file",
    ),
    "seed": (["sigma", "good.json", "--random-seed", "-1"], "--random-seed must be at least 0"),
    "unseen": (["sigma", "good.json", "--without-seen-pairs"], "good.json: without_seen_pairs"),
    "option": (["sigma", "good.json", "--control", "a"], "unrecognized arguments: --control"),
    "status": (["sigma", "broken"], "broken/status.json: state must be one of"),
    "unfinished": (["sigma", "dead"], "found 1 unfinished; dead is interrupted"),
    "no sd": (["sigma", "plan", "--delta", "1"], "the following arguments are required: --sd"),
    "no delta": (["sigma", "plan", "--sd", "1"], "give exactly one of --delta"),
    "sd": (["sigma", "plan", "--sd", "-1", "--delta", "1"], "--sd must be from 1e-06"),
    "sd text": (["sigma", "plan", "--sd", "x", "--delta", "1"], "invalid float value: 'x'"),
    "power": (["sigma", "plan", "--sd", "1", "--delta", "1", "--power", "1"], "--power must be"),
    "runs": (["sigma", "claim", "--sd-runs", "1"], "--sd-runs must be at least 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_exit_2_and_nothing_written(
    case: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_result(here / "good.json", 0, describe())
    (here / "text.json").write_text("no JSON")
    (here / "list.json").write_text("[]")
    (here / "bytes.json").write_bytes(b"\xff\xfe")
    for folder, status in (("broken", "{}"), ("dead", '{"state": "interrupted"}')):
        (here / folder).mkdir()
        (here / folder / "status.json").write_text(status)
    (here / "empty").mkdir()
    before = sorted(here.rglob("*"))
    arguments, message = BAD[case]
    try:
        status = main(arguments)
    except SystemExit as end:  # argparse
        status = end.code
    assert status == 2
    error = capsys.readouterr().err
    assert error.startswith("hrm-deeploop")
    assert error.count("\n") == 1
    assert message in error
    assert "results[" not in error
    assert sorted(here.rglob("*")) == before
