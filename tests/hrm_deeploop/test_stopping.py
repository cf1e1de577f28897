"""Runs in processes of their own that are signalled and killed, and the command that goes on."""

import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
import torch

from hrm_deeploop import checkpoint
from hrm_deeploop.cli.main import main
from hrm_deeploop.signals import Stopped, StopSignals

SMALL = [
    "experiment=mini_deeploop",
    "data.num_aug=1",
    "arch.hidden_size=16",
    "arch.num_heads=2",
    "arch.expansion=1",
    "arch.halt_max_steps=2",
    "optim.global_batch_size=8",
    "optim.ema=0.9",
    "hardware.compile=false",
    "hardware.threads=1",
    "log_every_steps=3",
]
LONG = [*SMALL, "max_steps=100000", "run_dir=run"]
ODD = "out dir/lr=1e-4, seed=0 [a]"
DEADLINE_S = 60


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["data", "build", *SMALL[:2]]) == 0
    return tmp_path


def _child(folder: str, words: list[str]) -> None:
    os.chdir(folder)
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os._exit(main(["train", *words]))


@pytest.fixture(scope="module")
def processes() -> multiprocessing.context.ForkServerContext:
    """Processes that begin with torch imported, and with one thread: quick to start and kill."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["hrm_deeploop.cli.train", "hrm_deeploop.arc", "scipy.stats"])
    return context


class Runs:
    """Starts ``train`` in a folder."""

    def __init__(self, context: multiprocessing.context.ForkServerContext, folder: Path) -> None:
        self.context = context
        self.folder = folder

    def start(self, *words: str) -> ForkServerProcess:
        process = self.context.Process(target=_child, args=(str(self.folder), list(words)))
        process.start()
        return process

    def wait_for(self, pattern: str, process: ForkServerProcess) -> None:
        """Waits until a path below the folder matches."""
        deadline = time.monotonic() + DEADLINE_S
        while not any(self.folder.glob(pattern)):
            assert process.is_alive(), self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.01)

    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def runs(processes: multiprocessing.context.ForkServerContext, here: Path) -> Iterator[Runs]:
    yield Runs(processes, here)


def status(run: Path) -> dict[str, object]:
    return json.loads((run / "status.json").read_text())


@pytest.mark.parametrize(
    ("signum", "exit_status"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 138)],
)
def test_a_signal_finishes_the_step_saves_and_ends(
    signum: signal.Signals, exit_status: int, runs: Runs, here: Path
) -> None:
    process = runs.start(*LONG)
    runs.wait_for("run/metrics.jsonl", process)
    time.sleep(0.3)
    os.kill(process.pid or 0, signum)
    process.join(DEADLINE_S)
    assert process.exitcode == exit_status
    assert re.search(rf"{signum.name}: finishing the step and saving; once more", runs.log())
    step = checkpoint.step_of(checkpoint.find(here / "run"))
    assert f"step {step} is saved; go on with: train resume=run\n" in runs.log()
    assert status(here / "run")["state"] == "interrupted"
    assert status(here / "run")["step"] == step
    assert main(["train", "resume=run", f"max_steps={step + 2}", "resume_with_changes=true"]) == 0
    assert status(here / "run")["state"] == "finished"


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    program = """
import os, signal
from hrm_deeploop.signals import StopSignals
with StopSignals() as stop, stop.deferred():
    os.kill(os.getpid(), signal.SIGUSR1)
    print("noted", stop.received == signal.SIGUSR1, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("not reached", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "noted True\n"
    assert "SIGUSR1: finishing the step and saving; once more stops at once" in done.stderr
    assert done.returncode == -signal.SIGTERM


def test_where_nothing_is_deferred_a_signal_interrupts_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with (
        pytest.raises(Stopped, match="stopped by SIGUSR1") as stopped,
        StopSignals() as stop,
        stop.deferred(),
        stop.immediate(),
    ):
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(1)
    assert stopped.value.exit_status == 128 + signal.SIGUSR1
    assert signal.getsignal(signal.SIGUSR1) == before


def test_a_signal_while_evaluating_interrupts_it_and_the_run_goes_on_from_there(
    runs: Runs, here: Path
) -> None:
    words = [*SMALL, "run_dir=run", "max_steps=4", "eval.batch_size=1"]
    process = runs.start(*words)
    runs.wait_for("run/eval/step_000000004/predictions/header.json", process)
    os.kill(process.pid or 0, signal.SIGTERM)
    process.join(DEADLINE_S)
    assert process.exitcode == 143
    assert status(here / "run")["state"] == "interrupted"
    assert not (here / "run/eval/step_000000004/results.json").exists()
    assert main(["train", "resume=run"]) == 0
    assert (here / "run/eval/step_000000004/results.json").is_file()


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same_end(
    runs: Runs, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [*SMALL, "checkpoint_every_steps=1", "max_steps=60"]
    assert main(["train", *run, "run_dir=straight"]) == 0
    rng = random.Random(5)
    words = [*run, f"run_dir={ODD}"]
    for _ in range(20):
        saved = len(list(here.glob("*/*/checkpoints/*")))
        process = runs.start(*words)
        deadline = time.monotonic() + DEADLINE_S
        # Killed at a random moment of some ten saves.
        while process.is_alive() and time.monotonic() < deadline:
            if len(list(here.glob("*/*/checkpoints/*"))) > saved:
                time.sleep(rng.uniform(0, 0.05))
                break
            time.sleep(0.001)
        process.kill()
        process.join(DEADLINE_S)
        words = [f"resume={ODD}"]
    assert main(["train", *words]) == 0
    ends = [checkpoint.load(here / path) for path in ("straight", ODD)]
    assert ends[0].path.name == ends[1].path.name == checkpoint.step_folder(60)
    for key, value in ends[0].tensors.items():
        assert torch.equal(value, ends[1].tensors[key]), key
    lines = [(here / p / "metrics.jsonl").read_text().splitlines() for p in ("straight", ODD)]
    steps = [[json.loads(line)["step"] for line in part] for part in lines]
    assert steps[0] == steps[1] == list(range(3, 61, 3))
    resumes = json.loads((here / ODD / "provenance.json").read_text())["resumes"]
    assert len(resumes) > 5


def test_a_live_run_is_refused_and_a_dead_one_taken_over(
    runs: Runs, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = runs.start(*LONG)
    runs.wait_for("run/metrics.jsonl", process)
    assert main(["train", "resume=run"]) == 2
    error = capsys.readouterr().err
    assert f"run is being written by another process (pid {process.pid} on " in error
    process.kill()
    process.join(DEADLINE_S)
    assert status(here / "run")["state"] == "running"  # nobody was left to change it
    assert main(["train", "resume=run", "max_steps=2", "resume_with_changes=true"]) == 0
    assert status(here / "run")["state"] == "finished"
