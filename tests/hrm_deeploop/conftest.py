"""Folders with data, and processes that train in them."""

import argparse
import multiprocessing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from small_runs import SMALL, Runs

from hrm_deeploop.cli import launch
from hrm_deeploop.cli.main import main
from hrm_deeploop.sweep_plan import Sweep, claimed


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Processes that begin with torch imported, and with one thread: quick to start and kill."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "hrm_deeploop.cli.train",
            "hrm_deeploop.arc",
            "scipy.stats",
            "eval.report",
            "matplotlib.figure",
        ]
    )
    return context


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def runs(processes: ForkServerContext, here: Path) -> Runs:
    """Starts ``train`` in ``here``, where the data of ``SMALL`` are built."""
    assert main(["data", "build", *SMALL[:2]]) == 0
    return Runs(processes, here)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs train one after the other in this process, which has torch already."""

    def launch_sweep(sweep: Sweep, options: argparse.Namespace) -> None:
        with claimed(sweep):
            for run in sweep.runs:
                main(["train", *run.overrides, f"run_dir={sweep.folder}/runs/{run.name}"])

    monkeypatch.setattr(launch, "launch_sweep", launch_sweep)
