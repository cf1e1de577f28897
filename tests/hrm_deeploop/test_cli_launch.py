"""``launch``: the words of a sweep, and a real one that is killed and stopped on the way."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hrm_deeploop import checkpoint
from hrm_deeploop.cli import launch
from hrm_deeploop.cli.main import main
from hrm_deeploop.sweep_job import SweepFiles, read_holder

SMALL = [
    "experiment=mini_deeploop",
    "data.num_aug=1",
    "arch.hidden_size=16",
    "arch.num_heads=2",
    "arch.expansion=1",
    "arch.halt_max_steps=2",
    "optim.global_batch_size=8",
    "hardware.compile=false",
]
ARMS = "arms=vanilla,residual=deeploop arch.grad_scope=last_cycle"
NAMES = [
    f"{arm}-s{seed}" for seed in (0, 1) for arm in ("vanilla", "deeploop-grad_scope=last_cycle")
]
DEADLINE_S = 600


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["data", "build", *SMALL[:2]]) == 0
    return tmp_path


def test_arms_are_presets_or_overrides_in_quotes() -> None:
    text = "vanilla,residual=deeploop arch.grad_scope=last_cycle, 'optim.lr=1e-3'"
    assert launch.parse_arms(text, []) == {
        "vanilla": ["residual=vanilla"],
        "deeploop-grad_scope=last_cycle": ["residual=deeploop", "arch.grad_scope=last_cycle"],
        "lr=1e-3": ["optim.lr=1e-3"],
    }
    assert launch.parse_arms(None, ["experiment=mini_deepnorm", "max_steps=2"]) == {"deepnorm": []}
    with pytest.raises(ValueError, match=r"unknown arm 'deeplop'.*; did you mean deeploop\?"):
        launch.parse_arms("vanilla,deeplop", [])
    with pytest.raises(ValueError, match="two arms would be called vanilla"):
        launch.parse_arms("vanilla,residual=vanilla", [])


def test_seeds_are_ranges_and_numbers() -> None:
    assert launch.parse_seeds("0-2,7") == [0, 1, 2, 7]
    for text, message in (
        ("", "got ''"),
        ("3-1", "got '3-1'"),
        ("0-2,1", "names 1 twice"),
        ("-1", "got '-1'"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            launch.parse_seeds(text)


def test_a_setting_with_several_values_is_a_grid_and_paths_are_taken_literally() -> None:
    own, overrides, grid = launch.split_words(
        ["residual.H.p=0.1,0.25", "data_dir=a,b", "optim.lr=1", "seeds=0", "out=x=y, z"]
    )
    assert own == {"seeds": "0", "out": "x=y, z"}
    assert overrides == ["data_dir=a,b", "optim.lr=1"]
    assert grid == {"residual.H.p": ["0.1", "0.25"]}
    for words, message in (
        (["out=x"], "seeds= is missing"),
        (["seeds=1"], "out= is missing"),
        (["seeds=1", "seeds=2"], "seeds is given twice"),
        (["seed=1"], "a sweep gives each run its own seed"),
        (["fast"], "expected key=value; got 'fast'"),
    ):
        with pytest.raises(ValueError, match=message):
            launch.split_words(words)


def test_every_run_and_its_data_are_checked_before_one_begins(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = launch.plan([*SMALL, ARMS, "seeds=0-1", "out=sweep", "max_steps=7"])
    assert [run.name for run in sweep.runs] == NAMES
    assert [run.num_steps for run in sweep.runs] == [7] * 4
    assert len({run.digest for run in sweep.runs}) == 2
    for words, message in (
        (["arms=vanilla,residual=vanilla optim.lr=2e-3"], "are the same run; leave one out"),
        (["arms=vanilla", "data.num_aug=2"], "does not exist; build it: hrm-deeploop data build"),
        (["arms=vanilla", "arch.H_cycels=3"], "unknown setting arch.H_cycels; did you mean arch.H"),
        (["arms=vanilla", "arch.H_layers=0"], "arch.H_layers must be 1 or more; got 0"),
    ):
        given = [w for w in SMALL if not any(w.split("=")[0] == x.split("=")[0] for x in words)]
        assert main(["sigma", "launch", *given, *words, "seeds=0", "out=other"]) == 2
        assert message in capsys.readouterr().err
    assert not Path("other").exists()


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    launch.add_arguments(parser)
    return parser.parse_args(["seeds=0", *words])


def test_resources_come_from_options_and_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,5")
    chosen = launch.choose_resources(options())
    assert (chosen.gpus_per_run, chosen.parallel, chosen.devices) == (1, 3, ("2", "3", "5"))
    assert launch.choose_resources(options("--gpus-per-run", "2")).parallel == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert launch.choose_resources(options()).gpus_per_run == 0
    with pytest.raises(ValueError, match="--parallel 2 on the CPU needs --threads N"):
        launch.choose_resources(options("--parallel", "2"))
    assert launch.choose_resources(options("--parallel", "2", "--threads", "1")).threads == 1
    with pytest.raises(ValueError, match=r"hardware.threads= and --threads are the same"):
        launch.choose_resources(options("hardware.threads=2", "--threads", "1"))
    slurm = ["--cluster", "slurm", "--slurm", "time=60", "--slurm", "ntasks-per-node=1"]
    assert launch.choose_resources(options(*slurm)).slurm == {"time": 60, "ntasks_per_node": 1}


class Launches:
    """Starts ``launch`` in processes of its own and waits for signs of its runs."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.folder = folder
        self.words = words

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "hrm_deeploop.cli.main", "sigma", "launch", *self.words]
        # Not a pipe: runs that outlive their launcher would hold it open.
        with (self.folder / "told").open("wb") as told:
            return subprocess.Popen(
                command, stdout=told, stderr=subprocess.STDOUT, start_new_session=True
            )

    def told(self) -> str:
        return (self.folder / "told").read_text()

    def wait_for_new(self, pattern: str, num_new: int, process: subprocess.Popen[bytes]) -> None:
        """Waits until the launcher says that something runs, and as many paths are new since."""
        deadline = time.monotonic() + DEADLINE_S
        known = None
        while known is None or len(set(self.folder.glob(pattern)) - known) < num_new:
            if known is None and " running " in self.told():
                known = set(self.folder.glob(pattern))
            assert process.poll() is None and time.monotonic() < deadline, self.told() + self.logs()
            time.sleep(0.02)

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in self.folder.glob("sweep/logs/*"))


@pytest.mark.slow
def test_killed_and_stopped_in_the_middle_two_at_a_time_it_ends_as_runs_one_after_the_other(
    here: Path,
) -> None:
    words = [*SMALL, "max_steps=400", "checkpoint_every_steps=10", "log_every_steps=10"]
    launches = Launches(
        here, [*words, ARMS, "seeds=0-1", "out=sweep", "--parallel", "2", "--threads", "1"]
    )
    first = launches.start()
    launches.wait_for_new("sweep/runs/*/checkpoints/step_*[0-9]", 2, first)
    first.kill()
    first.wait()
    files = [SweepFiles(folder=here / "sweep", name=name) for name in NAMES]
    # They outlive the launcher, and one of them dies on the way.
    holders = [holder for each in files if (holder := read_holder(each.lock))]
    os.kill(holders[0]["pid"], signal.SIGKILL)
    second = launches.start()
    launches.wait_for_new("sweep/runs/*/checkpoints/step_*[0-9]", 2, second)
    os.killpg(second.pid, signal.SIGINT)  # as a terminal's Ctrl-C: to everything it started
    assert second.wait(DEADLINE_S) == 130, launches.told()
    end = "stopped by SIGINT; the runs are saved; the same command goes on"
    assert end in launches.told()
    left = [each.state() for each in files]
    assert "interrupted" in left
    assert "running" not in left
    third = launches.start()
    assert third.wait(DEADLINE_S) == 0, launches.told() + launches.logs()
    assert "4 of 4 runs finished in sweep/runs" in launches.told()
    assert "going on after step" in launches.logs()
    arms = [["residual=vanilla"], ARMS.removeprefix("arms=vanilla,").split()]
    for each, arm in zip(files, arms * 2, strict=True):
        run_dir = here / "straight" / each.name
        own = [*arm, f"seed={each.name[-1]}", "hardware.threads=1", f"run_dir={run_dir}"]
        assert main(["train", *words, *own]) == 0
        results = [
            json.loads((path / "eval" / checkpoint.step_folder(400) / "results.json").read_text())
            for path in (run_dir, each.run_dir)
        ]
        assert results[0] == results[1]
        assert results[0]["checkpoint"]["sha256"]
