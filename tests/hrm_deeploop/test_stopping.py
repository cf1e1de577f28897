"""Runs in processes of their own that are signalled and killed, and the command that goes on."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from small_runs import DEADLINE_S, SMALL, Runs

from hrm_deeploop import checkpoint
from hrm_deeploop.cli.main import main
from hrm_deeploop.signals import Stopped, StopSignals

LONG = [*SMALL, "max_steps=100000", "run_dir=run"]
ODD = "out dir/lr=1e-4, seed=0 [a]"


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
