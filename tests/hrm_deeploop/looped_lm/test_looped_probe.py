"""The kappa command on a fresh and on a trained looped GPT."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from test_looped_cli import SMALL
from toy_text import toy_documents

from eval.run_curves import read_metrics
from hrm_deeploop import checkpoint
from hrm_deeploop.cli.main import main
from hrm_deeploop.ema import split_averages
from hrm_deeploop.looped_lm.data import verify, write_tokens
from hrm_deeploop.looped_lm.probe import LmSubject
from hrm_deeploop.looped_lm.tokenizer import ByteTokenizer

RUN = ["experiment=lm_tiny_deeploop", *SMALL, "lm.rounds=2", "max_steps=3"]
PROBE = ["--batch-size", "4", "--precision", "float64"]


@pytest.fixture
def here(here: Path, toy_dir: Path) -> Path:
    """An empty working directory but for the toy text."""
    shutil.copytree(toy_dir, here / "data/lm-toy")
    return here


def probe(*words: str) -> Any:
    """Runs the command; the JSON it wrote."""
    assert main(["kappa", *PROBE, "--out", "kappa.json", *words]) == 0
    return json.loads(Path("kappa.json").read_text())


def test_a_fresh_model_over_rounds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--rounds", "1,2,4", "--rates", "1e-5,1e-3", "--page", "page.html"]
    report = probe("--init", *options, "experiment=lm_tiny_deeploop", *SMALL)
    printed = capsys.readouterr().out
    assert (report["workload"], report["loop"]) == ("lm", "rounds")
    assert report["source"] == {"init_seed": 0, "batch_size": 4, "precision": "float64"}
    assert report["step"]["optimizer"] == "adam_atan2"  # though the run has AdamW
    assert report["dataset"]["digest"] == verify(here / "data/lm-toy").digest
    rows = report["rows"]
    assert [row["arch"]["rounds"] for row in rows] == [1, 2, 4]
    # The scaling follows the rounds: 1 / (8 K), K = 1.
    bounds = [row["kappa"]["bound_worst_case"] for row in rows]
    assert bounds == pytest.approx([1 / 8] * 3)
    assert [row["residual"]["blocks"]["N"] for row in rows] == [1, 2, 4]
    assert rows[0]["kappa"]["levels"]["blocks"]["kappa"] == 1
    assert rows[0]["first_step"]["rates"] == [1e-5, 1e-3]
    slope = report["gamma_over_cycles"]["blocks"]
    assert f"blocks: gamma over rounds {slope:.4g}" in printed
    assert printed.split()[:3] == ["rounds", "level", "R_g"]
    page = Path("page.html").read_text(encoding="utf-8")
    assert main(["report", "kappa.json"]) == 0
    again = Path("kappa.html").read_text(encoding="utf-8")
    assert page.replace(">page</", ">kappa</") == again


def test_an_arm_without_alpha(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = probe("--init", "experiment=lm_tiny_base", *SMALL, "lm.rounds=2")
    assert report["rows"][0]["kappa"]["bound_measured"] is None
    assert "rounds 2: no bound without alpha; one step" in capsys.readouterr().out


@pytest.mark.parametrize("decay", [None, 0.5])
def test_a_checkpoint(decay: float | None, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    average = [] if decay is None else [f"optim.ema={decay}"]
    assert main(["train", *RUN, *average, "run_dir=run"]) == 0, capsys.readouterr().err
    report = probe("run")
    assert report["source"]["checkpoint"]["weights"] == ("raw" if decay is None else "ema")
    assert report["rows"][0]["residual"]["blocks"]["p"] == 0.5

    saved = checkpoint.load(Path("run"), "lm")
    own, averages = split_averages(saved.tensors)
    expected = own if decay is None else averages
    text = verify(here / "data/lm-toy")
    subject = LmSubject(text, batch_size=4, precision="run", device=torch.device("cpu"))
    region = subject.saved(saved)
    for name, parameter in region.model.named_parameters():
        assert torch.equal(parameter, expected[name])
    # The first windows of the run's own order.
    loss = region.model.token_losses(region.tokens, region.targets).mean().item()
    assert report["rows"][0]["kappa"]["loss"] == pytest.approx(loss, rel=1e-5)


def test_training_logs_what_the_command_measures(here: Path) -> None:
    looks = ["diagnostics.kappa_every_steps=2", "diagnostics.kappa_rows=4"]
    assert main(["train", *RUN, *looks, "run_dir=run"]) == 0
    steps, kappas = read_metrics(Path("run/metrics.jsonl"))["kappa_blocks"]
    assert steps == [2, 3]  # and at the end
    row = probe("run", "--precision", "run")["rows"][0]
    assert kappas[-1] == pytest.approx(row["kappa"]["levels"]["blocks"]["kappa"], rel=1e-6)


def test_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tokens(
        toy_documents()[1:],
        Path("data/other"),
        name="toy",
        upstream="a test",
        tokenizer=ByteTokenizer(),
        validation_share=0.2,
    )
    assert main(["train", *RUN, "run_dir=run"]) == 0
    capsys.readouterr()
    for words, message in (
        (["run", "--rounds", "1,2"], "or --init with settings and --rounds"),
        (["run", "--data", "data/other"], "data set digest must be"),
        (["--init", *RUN[:2], "lm.dataset=else"], "lm.dataset is else, but data/lm-toy holds toy"),
    ):
        assert main(["kappa", *words]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1
