"""The kappa command on a fresh and on a trained model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import make_trainer, small_config, small_dataset
from tiny_reasoners import make_model, tiny_arch

from eval.run_curves import read_metrics
from hrm_deeploop.cli.main import main
from hrm_deeploop.config import DiagnosticsConfig
from hrm_deeploop.probes import SCHEMA, probe_checkpoint, set_precision
from hrm_deeploop.reasoner_probe import ReasonerSubject

SMALL = [
    "experiment=mini_deeploop",
    "arch.hidden_size=16",
    "arch.num_heads=2",
    "arch.expansion=1",
    "optim.global_batch_size=8",
    "max_steps=2",
    "hardware.compile=false",
    "data.num_aug=1",
]


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def here(empty: Path) -> Path:
    assert main(["data", "build", "data.num_aug=1"]) == 0
    return empty


def test_a_fresh_model_over_loop_counts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [*SMALL, "arch.grad_scope=last_cycle", "residual=vanilla"]
    options = ["--init", "--L-cycles", "1,2,4", "--rates", "1e-5,1e-3", "--batch-size", "4"]
    options += ["--out", "kappa.json", "--page", "page.html", "--precision", "float64"]
    assert main(["kappa", *options, *settings]) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    report = json.loads((here / "kappa.json").read_text())
    assert report["schema"] == SCHEMA
    assert report["source"] == {"init_seed": 0, "batch_size": 4, "precision": "float64"}
    assert [row["arch"]["L_cycles"] for row in report["rows"]] == [1, 2, 4]
    levels = [row["kappa"]["levels"] for row in report["rows"]]
    assert [level["L"]["rounds"] for level in levels] == [1, 2, 4]
    assert all(level["H"]["kappa"] == 1 and level["H"]["gamma"] is None for level in levels)
    # By hand for alpha = beta = 1, K = 1: 2 R_H + 2 R_L^2.
    assert [row["kappa"]["bound_worst_case"] for row in report["rows"]] == [4, 10, 34]
    assert report["gamma_over_cycles"]["H"] == pytest.approx(0)
    assert f"{report['gamma_over_cycles']['L']:.4g}" in printed
    step = report["rows"][1]["first_step"]
    assert step["rates"] == [1e-5, 1e-3]
    assert step["changes"]["all"]["visible"]["deviation"][0] < 0.05
    assert len(report["rows"][2]["streams"]["visits"]) == 2 * (4 + 1)
    assert printed.endswith("page page.html\n")
    page = (here / "page.html").read_text(encoding="utf-8")
    assert main(["report", "kappa.json"]) == 0
    again = (here / "kappa.html").read_text(encoding="utf-8")
    for title in ("page", "kappa"):
        page, again = page.replace(f">{title}</", "></"), again.replace(f">{title}</", "></")
    assert again == page


def test_a_checkpoint(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SMALL, "run_dir=run", "optim.ema=0.9"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert main(["kappa", "run", "--batch-size", "4", "--out", "kappa.json"]) == 0
    printed = capsys.readouterr().out
    report = json.loads((here / "kappa.json").read_text())
    assert report["source"]["checkpoint"]["step"] == 2
    assert report["source"]["checkpoint"]["weights"] == "ema"
    assert report["gamma_over_cycles"] == {"H": None, "L": None}
    assert report["rows"][0]["residual"]["L"]["p"] == 0.5
    assert printed.splitlines()[0].split()[:4] == ["L_cycles", "level", "R_g", "kappa"]
    assert printed.splitlines()[-1] == "wrote kappa.json"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "kappa takes one run directory or checkpoint, or --init with settings"),
        (["a", "b"], "got a b"),
        (["nowhere"], "nowhere is not a checkpoint"),
        (["--init", "data_dir=nowhere"], "data_dir nowhere does not exist"),
        (["--init", "--L-cycles", "0"], "must be 1 or more; got 0"),
        (["--init", "--rates", "-1"], "must be positive; got -1"),
        (["--init", "residual=custom"], "residual=custom needs residual.H.p"),
    ],
)
def test_refused(
    arguments: list[str], message: str, empty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert main(["kappa", *arguments]) == 2
    except SystemExit as ended:
        assert ended.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_precision() -> None:
    model = make_model(tiny_arch(forward_dtype="bfloat16", carry_dtype="float32"))
    set_precision(model, "run")
    assert (model.compute_dtype, model.stream_dtype) == (torch.bfloat16, torch.float32)
    set_precision(model, "float64")
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert model.compute_dtype == model.stream_dtype == torch.float64


def test_training_logs_what_the_command_measures_and_is_not_changed(tmp_path: Path) -> None:
    arch = replace(small_config().arch, L_cycles=3, grad_scope="last_cycle")
    config = small_config(
        arch=arch, max_steps=5, log_every_steps=100, checkpoint_every_steps=2, keep_last=None
    )
    looks = DiagnosticsConfig(kappa_every_steps=2, kappa_rows=6)
    dataset, weights = small_dataset(), []
    for name, own in (("blind", config), ("looking", replace(config, diagnostics=looks))):
        trainer = make_trainer(own, dataset, tmp_path / name)
        trainer.fit()
        weights.append(trainer.workload.tensors())
    assert all(torch.equal(value, weights[1][key]) for key, value in weights[0].items())
    metrics = read_metrics(tmp_path / "looking" / "metrics.jsonl")
    steps, kappas = metrics["kappa_L"]
    subject = ReasonerSubject(dataset, batch_size=6, precision="run", device=torch.device("cpu"))
    assert steps == [2, 4, 5]
    assert len(set(kappas)) == 3
    for step, value in zip(steps, kappas, strict=True):
        path = tmp_path / "looking" / "checkpoints" / f"step_{step:09}"
        (row,) = probe_checkpoint(subject, path)["rows"]
        assert value == row["kappa"]["levels"]["L"]["kappa"]
        assert metrics["kappa_bound"][1][steps.index(step)] == row["kappa"]["bound_measured"]
    assert metrics["kappa_H"][1] == [1, 1, 1]
    assert "gamma_H" not in metrics
    assert "kappa_L" not in read_metrics(tmp_path / "blind" / "metrics.jsonl")
