"""metrics.jsonl, and wandb: offline, without a network, without a key, absent, off."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hrm_deeploop.config import TrackingConfig
from hrm_deeploop.tracking import Tracker, check_installed

PROGRAM = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from pathlib import Path
from hrm_deeploop import tracking
from hrm_deeploop.config import TrackingConfig
tracking.WANDB_INIT_TIMEOUT_S = tracking.WANDB_FINISH_TIMEOUT_S = 4
mode = None if sys.argv[1] == "off" else sys.argv[1]
with tracking.Tracker(Path("run"), TrackingConfig(wandb_mode=mode), {"a": 1}, 0) as tracker:
    for step in (1, 2):
        tracker.log({"step": step, "loss": 0.5})
    tracker.show({"step": 2, "eval/strict@2": 1.0})
children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
print("wandb" in sys.modules, children.is_file() and children.read_text())
"""


def track(mode: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "run").mkdir()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB", "NETRC"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, mode],
        cwd=folder,
        env={**inherited, "HOME": str(folder), "PYTHONPATH": os.getcwd(), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    return done


def num_warnings(done: subprocess.CompletedProcess[str]) -> int:
    return done.stderr.count("UserWarning")


def test_off_neither_imports_wandb_nor_starts_a_process(tmp_path: Path) -> None:
    done = track("off", tmp_path)
    assert done.stdout.split() == ["False"]
    assert done.stderr == ""


def test_offline_writes_its_files_into_the_run(tmp_path: Path) -> None:
    done = track("offline", tmp_path)
    assert done.stdout.startswith("True")
    assert num_warnings(done) == 0
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))


def test_online_without_a_key_goes_offline_with_one_warning(tmp_path: Path) -> None:
    done = track("online", tmp_path)
    assert num_warnings(done) == 1
    assert "wandb keeps its files offline: no API key; set WANDB_API_KEY" in done.stderr
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))


def test_online_without_a_network_goes_on_with_one_warning(tmp_path: Path) -> None:
    nowhere = {"WANDB_API_KEY": "0" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    done = track("online", tmp_path, **nowhere)
    assert num_warnings(done) == 1
    assert "metrics.jsonl has everything" in done.stderr


def test_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    check_installed(TrackingConfig())
    with pytest.raises(ValueError, match="tracking=wandb needs the package wandb: pip install"):
        check_installed(TrackingConfig(wandb_mode="offline"))


def test_a_tracker_that_fails_is_switched_off_with_one_warning(tmp_path: Path) -> None:
    class Failing:
        def log(self, *_: object, **__: object) -> None:
            raise OSError("no\nroute")

    with Tracker(tmp_path, TrackingConfig(), {}, 0) as tracker:
        tracker._wandb = Failing()
        with pytest.warns(UserWarning, match="stopped logging to wandb: no route; metrics"):
            tracker.log({"step": 1})
        tracker.log({"step": 2})
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
