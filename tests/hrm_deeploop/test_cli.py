"""The commands: overrides, one-line errors that write nothing, and a whole small run."""

import json
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
import torch

from hrm_deeploop.cli.compose import GROUPS, compose, group_choices
from hrm_deeploop.cli.main import COMMANDS, main
from hrm_deeploop.cli.train import departure_warning

SMALL = [
    "arch.hidden_size=16",
    "arch.num_heads=2",
    "arch.expansion=1",
    "optim.global_batch_size=8",
    "max_steps=2",
    "hardware.compile=false",
]


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


ARC_EXPERIMENTS = [name for name in group_choices("experiment") if not name.startswith("lm_")]


@pytest.mark.parametrize("experiment", ARC_EXPERIMENTS)
def test_every_experiment_composes_and_runs_two_steps(
    experiment: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [f"experiment={experiment}", "data=mini", "data.num_aug=1"]
    assert main(["data", "build", *data]) == 0
    run = [*data, "run_dir=run", "device=cpu", "arch.halt_max_steps=2", *SMALL]
    assert main(["train", *run]) == 0, capsys.readouterr().err
    results = json.loads((here / "run/eval/step_000000002/results.json").read_text())
    assert results["num_tasks"] == 46
    assert results["split"] == "mini"
    assert results["seed"] == 0
    provenance = json.loads((here / "run/provenance.json").read_text())
    assert provenance["parameters"]["total"] > provenance["parameters"]["puzzle_table"]
    assert (here / "run/config.yaml").read_text().startswith("experiment: " + experiment)


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_of_every_group_composes(group: str) -> None:
    for choice in group_choices(group):
        extra = []
        if choice == "custom":
            extra = ["residual.H.p=0.3", "residual.L.alpha=2", "residual.L.beta=1"]
        compose([f"{group}={choice}", *extra])


def test_eval_predict_and_vote_print_the_ladder_of_training(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "build", "data.num_aug=1"]) == 0
    assert main(["data", "build", "data.num_aug=1"]) == 0  # is there already
    run = ["experiment=mini_deeploop", "data.num_aug=1", "run_dir=run", *SMALL]
    capsys.readouterr()
    assert main(["train", *run]) == 0
    trained = capsys.readouterr().out.splitlines()
    assert trained.pop() == "page run/report.html"
    assert main(["eval", "run"]) == 0
    evaluated = capsys.readouterr().out.splitlines()
    assert evaluated.pop() == "page run/eval/step_000000002/report.html"
    assert evaluated
    assert trained[-len(evaluated) :] == evaluated
    data = "data/mini-canvas6-aug1-seed42"
    assert main(["predict", "run", "--data", data, "--out", "store", "--batch-size", "9"]) == 0
    capsys.readouterr()
    assert main(["vote", "store", "--data", data]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == evaluated[:-1]
    assert (here / "store/results.json").is_file()
    assert main(["sigma", "run"]) == 0
    assert "deeploop" in capsys.readouterr().out


def test_estimate_prints_and_writes_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--world-size", "8", "--tflops", "500", "experiment=arc2_deeploop", "optim.lr=2e-4"]
    assert main(["train", "--estimate", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "warning: not the recipe of arc2_deeploop: optim.lr is 0.0002, not 0.0001"
    assert lines[1] == "data: data/arc2-canvas30-aug1000-seed42 is not built; its size is known"
    assert lines[2].startswith("parameters: 27,276,290 core + 535,466,496 puzzle table = 562,742,")
    assert lines[4] == "batch: processes 8 x parts 1 x rows 96"
    assert files(here) == []

    assert main(["data", "build", "data.num_aug=0"]) == 0
    before = files(here)
    capsys.readouterr()
    run = ["experiment=mini_vanilla", "data.num_aug=0", "hardware.accumulate=2"]
    assert main(["train", *run, "--estimate"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "data: data/mini-canvas6-aug0-seed42"
    assert lines[3] == "batch: processes 1 x parts 2 x rows 32"
    assert "measured here on cpu" in lines[-1]
    assert files(here) == before


def test_departures_are_warned_about_once_and_recorded(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "build", "data.num_aug=1"]) == 0
    run = ["experiment=mini_vanilla", "data.num_aug=1", "run_dir=run", "seed=3", *SMALL]
    capsys.readouterr()
    assert main(["train", *run]) == 0
    warning = "warning: not the recipe of mini_vanilla: optim.global_batch_size is 8, not 64\n"
    out = capsys.readouterr().out
    assert out.count("warning: ") == out.count(warning) == 1
    recorded = json.loads((here / "run/provenance.json").read_text())["departures"]
    assert recorded["optim.global_batch_size"] == {"recipe": 64, "run": 8}
    assert recorded["data.num_aug"] == {"recipe": 8, "run": 1}
    assert not recorded.keys() & {"seed", "run_dir", "optim.lr", "experiment"}
    assert departure_warning(compose(run)) == [warning.rstrip()]
    assert departure_warning(compose(["experiment=mini_vanilla", "seed=3"])) == []
    assert departure_warning(compose(["optim.lr=1"])) == []


def test_paths_are_taken_literally(here: Path) -> None:
    odd = "out dir/a=b, c [d] @#& é ${x}"
    assert compose([f"run_dir={odd}"]).run_dir == odd
    assert compose([f"data.concept_dir={odd}"]).data.concept_dir == odd
    assert main(["data", "build", f"data_dir={odd}", "data.num_aug=0"]) == 0
    assert (here / odd / "manifest.json").is_file()


def test_horizon_stays_the_recipes(here: Path) -> None:
    config = compose(["max_steps=5", "epochs=10"])
    assert (config.max_steps, config.epochs, config.optim.total_steps) == (5, 10, None)


BAD = {
    "unknown key": (["train", "optim.learning_rate=1"], "unknown setting optim.learning_rate"),
    "near key": (["train", "optim.lr_warmup=1"], "did you mean optim.lr_warmup_steps?"),
    "new key": (["train", "+new=1"], "unknown setting new"),
    "plus": (["train", "+seed=1"], "write seed=1, without +"),
    "no value": (["train", "seed"], "expected key=value; got 'seed'"),
    "bad value": (["train", "seed=x"], "seed must be a whole number; got 'x'"),
    "unclosed": (["train", "seed=[1"], "cannot read seed=[1"),
    "unknown preset": (["train", "residual=deeplop"], "did you mean deeploop?"),
    "unknown experiment": (["train", "experiment=mini"], "unknown experiment 'mini'"),
    "custom": (["train", "residual=custom"], "residual=custom needs residual.H.p"),
    "several": (["train", "seed=1,2"], "seed=1,2 gives several values; a run takes one"),
    "twice": (["train", "seed=1", "seed=2"], "seed is given twice: '1' and '2'"),
    "word": (["trian"], "invalid choice: 'trian'"),
    "missing": (["predict", "run"], "the following arguments are required"),
    "batch": (["eval", "run", "--batch-size", "0"], "must be 1 or more; got 0"),
    "other job": (["data", "build", "seed=7"], "seed is no setting of data build"),
    "no data": (["train", "data_dir=nowhere"], "data_dir nowhere does not exist; build it:"),
    "no data, estimate": (["train", "--estimate"], "canvas6-aug8-seed42 does not exist; build it:"),
    "old run, estimate": (["train", "--estimate", "resume=run"], "--estimate plans a new run"),
    "ranks": (["train", "--estimate", "--world-size", "0"], "--world-size must be 1 or more"),
    "ranks, no estimate": (["train", "--world-size", "2"], "are for --estimate"),
    "uneven": (
        ["train", "--estimate", "experiment=arc2_vanilla", "--world-size", "5"],
        "optim.global_batch_size=768 cannot be cut into 5 processes",
    ),
    "no run": (["eval", "nowhere"], "nowhere is not a checkpoint"),
    "no store": (["vote", "nowhere", "--data", "nowhere"], "nowhere"),
    "no data set": (["data", "verify", "nowhere"], "nowhere"),
    "no concept": (["data", "build", "data=arc1_concept"], "data.concept_dir"),
    "no run to resume": (["train", "resume=nowhere"], "nowhere is not a run directory"),
    "changes of nothing": (["train", "resume_with_changes=true"], "without resume=RUN_DIR"),
    "some tasks": (["train", "eval.tasks=3"], "eval.tasks has no effect without eval.every"),
    "no results": (["sigma", "nowhere"], "nowhere"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_exit_2_and_nothing_written(
    case: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert files(here) == []


def test_settings_may_stand_before_and_after_options(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["experiment=arc1_vanilla", "--world-size", "8", "--tflops", "100", "device=cpu"]
    assert main(["train", "--estimate", *words]) == 0
    assert "27,276,290" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["train", "seed=1", "--nope", "device=cpu"])
    assert "unrecognized arguments: --nope device=cpu" in capsys.readouterr().err


def test_debug_shows_the_trace(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--debug", "nope=1"]) == 2
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert error.endswith("hrm-deeploop train: unknown setting nope\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_without_cuda(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "build", "data.num_aug=0"]) == 0
    before = files(here)
    assert main(["train", "experiment=mini_vanilla", "data.num_aug=0", "device=cuda"]) == 2
    assert "device=cuda, but torch finds no CUDA device" in capsys.readouterr().err
    assert files(here) == before


def test_wrong_data_is_refused_by_digest(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for num_aug in (0, 1):
        assert main(["data", "build", f"data.num_aug={num_aug}"]) == 0
    run = ["experiment=mini_vanilla", "data.num_aug=0", "run_dir=run", *SMALL]
    other = "data/mini-canvas6-aug1-seed42"
    assert main(["train", *run, f"data_dir={other}"]) == 2
    assert "data.num_aug is 0, but the data set" in capsys.readouterr().err
    dev = ["data=mini_dev", "data.num_aug=1", f"data_dir={other}"]
    assert main(["train", *run[2:], *dev]) == 2
    assert "data=mini_dev is made of mini_dev, but the data set" in capsys.readouterr().err
    assert main(["data", "build", *dev]) == 2
    assert not (here / "run").exists()

    assert main(["train", *run]) == 0
    assert main(["train", *run]) == 2
    assert "run_dir run exists" in capsys.readouterr().err
    before = files(here)
    assert main(["eval", "run", "--data", other, "--out", "wrong"]) == 2
    assert "data set digest must be" in capsys.readouterr().err
    assert files(here) == before


def test_what_a_resumed_run_refuses(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "build", "data.num_aug=1"]) == 0
    run = ["experiment=mini_vanilla", "data.num_aug=1", "run_dir=run", *SMALL]
    assert main(["train", *run]) == 0
    before = {path: (here / path).read_bytes() for path in files(here) if (here / path).is_file()}
    for word, message in (
        ("optim.lr=1", "would change what the run computes: optim.lr from 0.002 to 1.0;"),
        ("seed=4", "would change what the run computes: seed from 0 to 4;"),
        ("experiment=mini_deeploop", "cannot be combined with resume="),
        ("data_dir=nowhere", "data_dir nowhere does not exist"),
    ):
        assert main(["train", "resume=run", word]) == 2
        assert message in capsys.readouterr().err
    after = {path: (here / path).read_bytes() for path in files(here) if (here / path).is_file()}
    assert after == before
    changed = ["resume=run", "optim.lr=1e-4", "max_steps=3", "resume_with_changes=true"]
    assert main(["train", *changed]) == 0
    provenance = json.loads((here / "run/provenance.json").read_text())
    (resumed,) = provenance["resumes"]
    assert resumed["result_changes"] == {"optim.lr": [0.002, 0.0001], "step": 2}
    assert resumed["arm"]["name"].endswith("-changed")
    assert resumed["arm"]["digest"] != provenance["arm"]["digest"]
    assert "lr: 0.0001" in (here / "run/config.yaml").read_text()
    assert "resume_with_changes: false" in (here / "run/config.yaml").read_text()


def test_a_changed_data_file_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "build", "data.num_aug=0"]) == 0
    grids = here / "data/mini-canvas6-aug0-seed42/grids.npy"
    data = bytearray(grids.read_bytes())
    data[-1] ^= 1
    grids.chmod(0o644)
    grids.write_bytes(data)
    before = files(here)
    assert main(["train", "experiment=mini_vanilla", "data.num_aug=0"]) == 2
    assert "grids.npy: sha256 must be" in capsys.readouterr().err
    assert files(here) == before


def test_import_and_help_are_quick(here: Path) -> None:
    """Heavy packages are not loaded; the seconds are generous, the modules are the point."""
    probe = "import sys; print(sorted(set(sys.modules) & {'torch', 'hydra', 'numpy', 'scipy'}))"
    done = subprocess.run(
        [sys.executable, "-c", f"import hrm_deeploop; {probe}"], capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"
    for words in ([], *([name] for name in COMMANDS), ["data", "build"]):
        start = time.perf_counter()
        program = (
            "import sys\nfrom hrm_deeploop.cli.main import main\n"
            f"try:\n    main({[*words, '--help']})\n"
            f"except SystemExit as end:\n    {probe}\n    sys.exit(end.code)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "[]"
        assert time.perf_counter() - start < 10


@pytest.mark.parametrize("command", [["train"], ["sigma", "launch"], ["psweep"]])
def test_settings_of_every_command_may_stand_before_and_after_options(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module(COMMANDS[command[0]][1])
    option = {"train": ["--world-size", "2"]}.get(command[0], ["--parallel", "2"])
    found = []
    monkeypatch.setattr(module, "run", lambda options: found.append(options))
    assert main([*command, "seeds=0", *option, "out=x"]) == 0
    settings = getattr(found[0], "overrides", None) or found[0].words
    assert settings == ["seeds=0", "out=x"]
