"""The commands of the looped language model, its experiments, two processes, going on."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from small_runs import Runs
from test_cli import files
from test_distributed import TOLERANCE, run_ranks
from toy_text import toy_documents

from hrm_deeploop import checkpoint
from hrm_deeploop.cli.compose import compose, group_choices
from hrm_deeploop.cli.main import main

EXPERIMENTS = [name for name in group_choices("experiment") if name.startswith("lm_")]
SMALL = [
    "data_dir=data/lm-toy",
    "lm.dataset=toy",
    "lm.num_blocks=1",
    "lm.hidden_size=16",
    "lm.num_heads=2",
    "lm.context=8",
    "lm.forward_dtype=float32",
    "optim.global_batch_size=8",
    "hardware.compile=false",
    "hardware.threads=1",
]
RESULTS = Path("run/eval/step_000000008/results.json")
RUN = ["experiment=lm_tiny_deeploop", *SMALL, "lm.rounds=2", "max_steps=8", "log_every_steps=1"]


@pytest.fixture
def here(here: Path, toy_dir: Path) -> Path:
    """An empty working directory but for the toy text."""
    shutil.copytree(toy_dir, here / "data/lm-toy")
    return here


@pytest.fixture
def lm_runs(runs: Runs, here: Path) -> Runs:
    """Starts ``train`` in ``here``."""
    return runs


def test_sizes_and_arms() -> None:
    arms = ("base", "deeploop", "deepnorm", "eps_loop", "eps_sqrt")
    sizes = ("medium", "small", "tiny")
    assert [f"lm_{size}_{arm}" for size in sizes for arm in arms] == EXPERIMENTS
    for size, K, D in (("small", 12, 768), ("medium", 24, 1024)):
        config = compose([f"experiment=lm_{size}_deeploop", "lm.rounds=7"])
        assert (config.lm.num_blocks, config.lm.hidden_size, config.lm.context) == (K, D, 1024)
        optim = config.optim
        assert (optim.global_batch_size, optim.total_steps) == (480, 100_000)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_runs_two_steps(
    experiment: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [f"experiment={experiment}", *SMALL, "run_dir=run", "max_steps=2"]
    assert main(["train", *run]) == 0, capsys.readouterr().err
    assert "unigram floor" in capsys.readouterr().out
    results = json.loads((here / "run/eval/step_000000002/results.json").read_text())
    assert results["arm"]["name"].startswith(experiment.split("_", 2)[2] + "-R1")
    assert results["dataset"]["name"] == "toy"
    provenance = json.loads((here / "run/provenance.json").read_text())
    assert provenance["backends"]["optimizer"] == "torch AdamW, fused"
    assert provenance["parameters"]["embedding"] == 256 * 16


def test_eval_and_sample(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *RUN, "run_dir=run"]) == 0
    trained = capsys.readouterr().out
    assert main(["lm", "eval", "run"]) == 0
    assert capsys.readouterr().out in trained
    assert main(["sigma", "run"]) == 0
    out = capsys.readouterr().out
    assert f"{json.loads(RESULTS.read_text())['scores']['validation_loss']:.4f} nats" in out
    assert "One seed has no spread: every sigma is undefined." in out
    assert main(["lm", "eval", "run", "--documents", "2", "--batch-size", "3"]) == 0
    assert "(partial)" in capsys.readouterr().out
    assert (here / "run/eval/step_000000008-partial/results.json").is_file()
    for seed in ("1", "1", "2"):
        words = ["--prompt", "3 and", "--tokens", "9", "--top-k", "5", "--seed", seed]
        assert main(["lm", "sample", "run", *words]) == 0
    first, again, other = capsys.readouterr().out.split("3 and")[1:]
    assert first == again != other


def test_a_run_has_a_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *RUN, "eval.every=4", "run_dir=run"]) == 0
    assert capsys.readouterr().out.endswith("page run/report.html\n")
    first = (here / "run/report.html").read_text(encoding="utf-8")
    loss = json.loads(RESULTS.read_text())["scores"]["validation_loss"]
    assert f"{loss:.4f} nats per token" in first
    assert "lm_loss" in first
    assert "No evaluation" not in first
    assert main(["report", "run"]) == 0
    assert (here / "run/report.html").read_text(encoding="utf-8") == first


def test_the_harness_is_an_extra(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["lm", "harness", "run"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert 'pip install "hrm_deeploop[harness]"' in error


def test_going_on_is_the_same_run(here: Path) -> None:
    assert main(["train", *RUN, "run_dir=straight", "checkpoint_every_steps=5"]) == 0
    shutil.copytree(here / "straight", here / "same")
    shutil.rmtree(here / "same/checkpoints/step_000000008")
    assert main(["train", "resume=same"]) == 0
    ends = [checkpoint.load(here / name, "lm") for name in ("straight", "same")]
    for key, value in ends[0].tensors.items():
        assert torch.equal(value, ends[1].tensors[key]), key


@pytest.mark.parametrize("parts", [1, 2])
def test_two_processes_are_one(parts: int, lm_runs: Runs, here: Path) -> None:
    run = [*RUN, "diagnostics.validation_every_steps=1"]
    assert main(["train", *run, "run_dir=alone"]) == 0
    run_ranks(lm_runs, 2, *run, "run_dir=together", f"hardware.accumulate={parts}")
    ends = [checkpoint.load(here / name, "lm") for name in ("alone", "together")]
    for key, value in ends[0].tensors.items():
        torch.testing.assert_close(value, ends[1].tensors[key], atol=TOLERANCE, rtol=TOLERANCE)
    records = [
        [json.loads(line) for line in (here / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("alone", "together")
    ]
    for a, b in zip(*records, strict=True):
        for key in ("step", "lm_loss", "grad_norm", "lr", "validation_loss", "validation_floor"):
            assert a[key] == pytest.approx(b[key], abs=TOLERANCE, rel=TOLERANCE)
    scores = [
        json.loads((here / name / "eval/step_000000008/results.json").read_text())["scores"]
        for name in ("alone", "together")
    ]
    assert scores[0] == pytest.approx(scores[1], abs=TOLERANCE)


def test_two_processes_go_on_exactly(lm_runs: Runs, here: Path) -> None:
    run_ranks(lm_runs, 2, *RUN, "run_dir=straight", "keep_last=null", "checkpoint_every_steps=5")
    subprocess.run(["cp", "-r", "straight", "same"], check=True)
    for later in ("checkpoints/step_000000008", "eval"):
        shutil.rmtree(here / "same" / later)
    run_ranks(lm_runs, 2, "resume=same")
    ends = [checkpoint.load(here / name, "lm") for name in ("straight", "same")]
    for key, value in ends[0].tensors.items():
        assert torch.equal(value, ends[1].tensors[key]), key


def test_data_from_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.jsonl").write_text(
        "".join(json.dumps({"text": d.decode()}) + "\n" for d in toy_documents())
    )
    made = ["lm", "data", "toy", "--jsonl", "a.jsonl", "--validation-share", "0.2"]
    assert main(made) == 2
    assert "data/lm-toy exists; remove it, or write to another --out" in capsys.readouterr().err
    assert main([*made, "--out", "other"]) == 0
    for name in ("train.bin", "validation.bin", "validation_documents.bin"):
        assert (here / "other" / name).read_bytes() == (here / "data/lm-toy" / name).read_bytes()


def test_the_standard_library(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lm", "data", "stdlib"]) == 0
    assert "made data/lm-stdlib: " in capsys.readouterr().out
    assert main(["lm", "data", "stdlib"]) == 0
    assert "is there already" in capsys.readouterr().out
    assert main(["lm", "data", "stdlib", "--validation-share", "0.1"]) == 2
    assert "made with other options or sources" in capsys.readouterr().err


BAD = {
    "no text": (
        ["train", "experiment=lm_tiny_base"],
        "data/lm-stdlib does not exist; build it: hrm-deeploop lm data stdlib --out data/lm-stdlib",
    ),
    "other text": (
        ["train", "experiment=lm_tiny_base", "data_dir=data/lm-toy"],
        "lm.dataset is stdlib, but data/lm-toy holds toy",
    ),
    "ARC data": (["data", "build", "experiment=lm_tiny_base"], "has no ARC data; use lm data"),
    "ARC setting": (
        ["train", "experiment=lm_tiny_base", "arch.H_layers=2"],
        "arch.H_layers has no effect with workload=lm; remove it",
    ),
    "lm setting": (["train", "lm.rounds=3"], "lm.rounds has no effect with workload=arc"),
    "near arm": (["train", "experiment=lm_tiny_base", "lm.arm=bas"], "did you mean base?"),
    "no source": (["lm", "data", "mine"], "mine needs --text or --jsonl"),
    "two sources": (["lm", "data", "stdlib", "--text", "a"], "choose another name"),
    "bad name": (["lm", "data", "a/b", "--text", "a"], "lm.dataset must be letters"),
    "no file": (["lm", "data", "mine", "--text", "nowhere"], "nowhere: expected a text file"),
    "no tokenizer": (["lm", "data", "mine", "--text", "a", "--tokenizer", "nowhere"], "nowhere"),
    "share": (["lm", "data", "stdlib", "--validation-share", "2"], "must be more than 0"),
    "no run": (["lm", "eval", "nowhere"], "nowhere is not a checkpoint"),
    "shots": (["lm", "harness", "x", "--shots", "0,-1"], "must be different numbers, 0 or more"),
    "shots twice": (["lm", "harness", "x", "--shots", "1,1"], "must be different numbers"),
    "temperature": (["lm", "sample", "x", "--temperature", "-1"], "must be 0 or more"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_exit_2_and_nothing_written(
    case: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = BAD[case]
    before = files(here)
    try:
        status = main(arguments)
    except SystemExit as end:  # argparse
        status = end.code
    assert status == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert files(here) == before


def test_each_workloads_commands_refuse_the_others_checkpoints(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *RUN, "run_dir=run"]) == 0
    capsys.readouterr()
    before = files(here)
    assert main(["eval", "run"]) == 2
    assert "is a checkpoint of workload lm" in capsys.readouterr().err
    assert files(here) == before
