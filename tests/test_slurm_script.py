"""scripts/train.sbatch with stand-ins for SLURM's programs."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "train.sbatch"
SRUN = """#!/bin/bash
trap 'echo got USR1 >>said; exit 1' USR1
echo "$@" >>said
while [ ! -e end ]; do read -t 0.05 <> <(:); done
exit "$(cat end)"
"""
SCONTROL = """#!/bin/sh
if [ "$1" = show ]; then echo "node7
node8"; else echo "$@" >>said; fi
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for key, value in (("NNODES", "2"), ("JOB_ID", "41"), ("JOB_NODELIST", "node[7-8]")):
        monkeypatch.setenv(f"SLURM_{key}", value)
    return tmp_path


def start(*words: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(["bash", str(SCRIPT), *words])
    deadline = time.monotonic() + 60
    while not Path("said").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_a_run_out_of_time_is_queued_again_and_goes_on(here: Path) -> None:
    process = start("my run", "seed=0")
    time.sleep(0.2)  # srun may be a step ahead of the script
    process.send_signal(signal.SIGUSR1)
    assert process.wait(60) == 1
    command, *rest = Path("said").read_text().splitlines()
    assert "--nnodes 2 --nproc-per-node 8 " in command
    assert "--rdzv-endpoint node7:29500 " in command
    assert command.endswith("-m hrm_deeploop.cli.train seed=0 run_dir=my run")
    assert rest == ["got USR1", "requeue 41"]
    Path("said").unlink()
    Path("my run").mkdir()
    (Path("my run") / "config.yaml").touch()
    Path("end").write_text("0")
    assert start("my run", "seed=0").wait(60) == 0
    assert Path("said").read_text().endswith("hrm_deeploop.cli.train resume=my run\n")


def test_a_run_that_fails_is_not_queued_again(here: Path) -> None:
    Path("end").write_text("3")
    assert start("run").wait(60) == 3
    assert "requeue" not in Path("said").read_text()
