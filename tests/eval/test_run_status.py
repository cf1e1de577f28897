"""Live, ended and killed runs, told apart by status.json, the lock and the process."""

import fcntl
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eval.run_status import run_state

HERE = socket.gethostname()


def write_status(run_dir: Path, state: object, **more: object) -> None:
    run_dir.mkdir(exist_ok=True)
    about = {"state": state, "host": HERE, "pid": os.getpid(), **more}
    (run_dir / "status.json").write_text(json.dumps(about))


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize("state", ["finished", "interrupted", "failed"])
def test_an_ended_run_is_what_it_says(tmp_path: Path, state: str) -> None:
    write_status(tmp_path, state, pid=dead_pid())
    assert run_state(tmp_path) == state


def test_without_a_lock_the_process_decides(tmp_path: Path) -> None:
    write_status(tmp_path, "running")
    assert run_state(tmp_path) == "running"
    write_status(tmp_path, "running", pid=dead_pid())
    assert run_state(tmp_path) == "interrupted"
    write_status(tmp_path, "running", pid=10**30)
    assert run_state(tmp_path) == "interrupted"
    write_status(tmp_path, "running", pid=dead_pid(), host="another host")
    assert run_state(tmp_path) == "running"


def test_the_lock_decides_over_the_process(tmp_path: Path) -> None:
    write_status(tmp_path, "running", pid=dead_pid())
    with (tmp_path / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run_state(tmp_path) == "running"
    write_status(tmp_path, "running")
    assert run_state(tmp_path) == "interrupted"  # the process id was given to somebody else
    write_status(tmp_path, "running", host="another host")
    assert run_state(tmp_path) == "interrupted"


def test_a_killed_run_is_interrupted(tmp_path: Path) -> None:
    write_status(tmp_path, "finished")
    program = """
import fcntl, json, os, socket, sys, time
lock = open("lock", "wb")
fcntl.flock(lock, fcntl.LOCK_EX)
status = {"state": "running", "host": socket.gethostname(), "pid": os.getpid()}
open("status.json", "w").write(json.dumps(status))
print("started", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        assert run_state(tmp_path) == "running"
        process.kill()
    assert run_state(tmp_path) == "interrupted"


def test_a_run_that_ends_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_status(tmp_path, "running", pid=dead_pid())

    def ends(*_: object) -> bool:
        write_status(tmp_path, "finished")
        return False

    monkeypatch.setattr("eval.run_status._is_alive", ends)
    assert run_state(tmp_path) == "finished"


def test_damaged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"status\.json"):
        run_state(tmp_path)
    for state in ("paused", None, ["running"]):
        write_status(tmp_path, state)
        with pytest.raises(ValueError, match=r"status\.json: state must be one of"):
            run_state(tmp_path)
    for pid in (0, None, "7", True):
        write_status(tmp_path, "running", pid=pid)
        with pytest.raises(ValueError, match=r"status\.json: pid must be a whole number"):
            run_state(tmp_path)
