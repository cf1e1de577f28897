"""A sweep's job: what it starts, with which environment, and what it passes on."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hrm_deeploop import sweep_job
from hrm_deeploop.sweep_job import CONFIG_FILE, Job, SweepFiles, read_holder, take_lock

# Writes down what it was started with; ``wait`` among the words: until a signal comes.
PROGRAM = """
import json, os, signal, sys, time
said = {"words": sys.argv[2:], "pid": os.getpid(), "sid": os.getsid(0), "got": None}
said["env"] = {key: os.environ.get(key) for key in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")}
got = []
for signum in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(signum, lambda signum, frame: got.append(signum))
if "wait=1" in sys.argv:
    os.kill(os.getppid(), signal.SIGUSR1)
    while not got:
        time.sleep(0.01)
    said["got"] = got[0]
json.dump(said, open("said.json", "w"))
sys.exit(7)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = [signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGUSR1)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Job, "_program", lambda self: [sys.executable, "-c", PROGRAM])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6")
    yield tmp_path
    for signum, handler in zip((signal.SIGTERM, signal.SIGUSR1), before, strict=True):
        signal.signal(signum, handler)


def make_job(folder: Path, *overrides: str, **departures: object) -> Job:
    files = SweepFiles(folder=folder, name="a")
    return Job(**{"files": files, "overrides": overrides, **departures})  # type: ignore[arg-type]


def said() -> dict[str, object]:
    return json.loads(Path("said.json").read_text())


def test_a_new_run_gets_its_overrides_and_a_begun_one_only_resume(here: Path) -> None:
    run_dir = here / "runs" / "a"
    assert make_job(here, "seed=1", threads=3)() == 7
    assert said()["words"] == ["seed=1", f"run_dir={run_dir}", "hardware.threads=3"]
    assert said()["env"] == {"OMP_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": "6"}
    assert said()["sid"] == said()["pid"]
    run_dir.mkdir(parents=True)
    (run_dir / CONFIG_FILE).touch()
    make_job(here, "seed=1", devices=("2", "5"))()
    assert said()["words"] == [f"resume={run_dir}"]
    assert said()["env"]["CUDA_VISIBLE_DEVICES"] == "2,5"  # type: ignore[index]
    Path("said.json").unlink()
    (run_dir / "status.json").write_text('{"state": "finished"}')
    assert make_job(here)() == 0
    assert not Path("said.json").exists()


def test_a_run_that_another_process_has_is_left_alone(here: Path) -> None:
    job = make_job(here, "seed=1")
    descriptor = take_lock(job.files.lock)
    assert descriptor is not None
    assert job() == 0
    os.close(descriptor)
    descriptor = take_lock(job.files.run_dir / "lock")  # made by hand, not by a sweep
    assert descriptor is not None
    assert job() == 0
    os.close(descriptor)
    assert not Path("said.json").exists()
    assert job() == 7  # and once it is dead the folder, which never was a run, is out of the way
    assert not job.files.run_dir.exists()


def test_torchrun_starts_one_process_per_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    job = make_job(tmp_path, processes=8)
    words = job._program()
    assert " ".join(words[1:]) == (
        "-m torch.distributed.run --standalone --nproc-per-node 8 -m hrm_deeploop.cli.main"
    )
    environment = job._environment()
    assert environment["PET_SIGNALS_TO_HANDLE"].endswith(",SIGUSR1")
    assert make_job(tmp_path)._program() == [sys.executable, "-m", "hrm_deeploop.cli.main"]
    assert "PET_SIGNALS_TO_HANDLE" not in make_job(tmp_path)._environment()


def test_slurms_notice_is_passed_on_and_the_job_queued_again(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = here / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f'#!/bin/sh\necho "$@" >{here}/requeued\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", str(scontrol.parent), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "78")
    with pytest.raises(SystemExit, match="7"):
        make_job(here, "wait=1")()
    assert said()["got"] == signal.SIGUSR1
    assert (here / "requeued").read_text() == "requeue 78\n"
    (here / "requeued").unlink()
    assert make_job(here)() == 7  # failed, not out of time
    assert not (here / "requeued").exists()


def test_the_lock_says_who_runs_and_is_free_afterwards(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    wait = sweep_job.subprocess.Popen.wait

    def look(process: "sweep_job.subprocess.Popen[bytes]") -> int:
        held.append(read_holder(job.files.lock))
        return wait(process)

    job = make_job(here, devices=("4",))
    monkeypatch.setattr(sweep_job.subprocess.Popen, "wait", look)
    job()
    assert held[0] is not None
    assert held[0]["pid"] == said()["pid"]
    assert held[0]["devices"] == ["4"]
