"""Ranks on gloo: the same run as in one process; a rank that dies; other numbers of ranks."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
import torch
from small_runs import DEADLINE_S, SMALL, Runs

from hrm_deeploop import checkpoint
from hrm_deeploop.cli.main import main

# Float32 sums in another order, over eight steps; losses are of order one.
TOLERANCE = 2e-5
RUN = [*SMALL[:-1], "max_steps=8", "log_every_steps=1", "arch.halt_exploration_prob=0.5"]
ENDS_WITHIN_S = 60


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def start_ranks(runs: Runs, size: int, *words: str) -> list[ForkServerProcess]:
    port = free_port()
    return [
        runs.start(
            *words,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(size),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
        )
        for rank in range(size)
    ]


def run_ranks(runs: Runs, size: int, *words: str) -> None:
    processes = start_ranks(runs, size, *words)
    for process in processes:
        process.join(DEADLINE_S)
    assert [process.exitcode for process in processes] == [0] * size, runs.log()


def assert_same_run(one: Path, other: Path) -> None:
    lines = [(path / "metrics.jsonl").read_text().splitlines() for path in (one, other)]
    for a, b in zip(*([json.loads(line) for line in part] for part in lines), strict=True):
        for key in a.keys() - {"time_s", "rows_per_s", "tokens_per_s"}:
            assert a[key] == pytest.approx(b[key], abs=TOLERANCE, rel=TOLERANCE), key
    tensors = [checkpoint.load(path).tensors for path in (one, other)]
    for key, value in tensors[0].items():
        torch.testing.assert_close(value, tensors[1][key], atol=TOLERANCE, rtol=TOLERANCE)
    results = [
        json.loads((path / "eval/step_000000008/results.json").read_text()) for path in (one, other)
    ]
    for key in ("tasks", "scores", "num_predictions"):
        assert results[0][key] == results[1][key]
    status = json.loads((other / "status.json").read_text())
    assert (status["state"], status["step"]) == ("finished", 8)


@pytest.mark.parametrize(("size", "parts"), [(1, 2), (2, 1), (2, 2), (4, 1)])
def test_ranks_and_parts_are_one_process(size: int, parts: int, runs: Runs, here: Path) -> None:
    assert main(["train", *RUN, "run_dir=alone"]) == 0
    run_ranks(runs, size, *RUN, "run_dir=together", f"hardware.accumulate={parts}")
    assert_same_run(here / "alone", here / "together")
    provenance = json.loads((here / "together/provenance.json").read_text())
    assert provenance["backends"]["processes"] == f"{size} (gloo)"


def test_ranks_go_on_exactly_and_another_number_is_noted(runs: Runs, here: Path) -> None:
    run_ranks(runs, 2, *RUN, "run_dir=straight", "keep_last=null", "checkpoint_every_steps=5")
    for name in ("same", "fewer"):
        subprocess.run(["cp", "-r", "straight", name], check=True)
        for later in ("checkpoints/step_000000008", "eval"):
            subprocess.run(["rm", "-r", f"{name}/{later}"], check=True)
    run_ranks(runs, 2, "resume=same")
    ends = [checkpoint.load(here / name) for name in ("straight", "same")]
    for key, value in ends[0].tensors.items():
        assert torch.equal(value, ends[1].tensors[key]), key
    assert "not bit for bit" not in runs.log()
    assert main(["train", "resume=fewer"]) == 0
    assert_same_run(here / "straight", here / "fewer")
    resumes = json.loads((here / "fewer/provenance.json").read_text())["resumes"]
    assert resumes[0]["backends"]["processes"] == "1"


def test_a_signal_to_one_rank_stops_all_after_the_same_step(runs: Runs, here: Path) -> None:
    processes = start_ranks(runs, 2, *SMALL, "max_steps=100000", "run_dir=run")
    runs.wait_for("run/metrics.jsonl", processes[0])
    os.kill(processes[1].pid or 0, signal.SIGTERM)
    for process in processes:
        process.join(DEADLINE_S)
    assert [process.exitcode for process in processes] == [143, 143]
    step = checkpoint.step_of(checkpoint.find(here / "run"))
    assert runs.log().count(f"step {step} is saved; go on with") == 2


def test_a_rank_that_dies_ends_the_others(runs: Runs, here: Path) -> None:
    processes = start_ranks(runs, 2, *SMALL, "max_steps=100000", "run_dir=run")
    runs.wait_for("run/metrics.jsonl", processes[0])
    processes[1].kill()
    start = time.monotonic()
    processes[0].join(ENDS_WITHIN_S)
    assert time.monotonic() - start < ENDS_WITHIN_S
    assert processes[0].exitcode == 1
    assert "hrm-deeploop train (rank 0): RuntimeError: " in runs.log()
    status = json.loads((here / "run/status.json").read_text())
    assert status["state"] == "failed"


def test_an_error_of_rank_0_ends_all(runs: Runs, here: Path) -> None:
    (here / "run").mkdir()
    processes = start_ranks(runs, 2, *RUN, "run_dir=run")
    for process in processes:
        process.join(DEADLINE_S)
    assert [process.exitcode for process in processes] == [2, 1]
    assert "(rank 0): run_dir run exists" in runs.log()
    assert "(rank 1): RuntimeError: rank 0 failed" in runs.log()


def test_batches_that_cannot_be_cut(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *RUN, "hardware.accumulate=3", "run_dir=run"]) == 2
    assert "global_batch_size=8 cannot be cut into 1 processes times" in capsys.readouterr().err


@pytest.mark.slow
def test_torchrun(runs: Runs, here: Path) -> None:
    assert main(["train", *RUN, "run_dir=alone"]) == 0
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    port = f"--master-port={free_port()}"
    done = subprocess.run(
        [*launch, port, "-m", "hrm_deeploop.cli.train", *RUN, "run_dir=together"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run directory together") == 1
    assert_same_run(here / "alone", here / "together")
