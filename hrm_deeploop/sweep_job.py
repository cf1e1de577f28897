"""What a sweep's job does: one ordinary ``train``, begun or gone on with, in a process of its own.

Kept free of torch: a job sets threads and devices before the process that it starts imports it.
"""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from eval.run_status import LOCK_FILE, STATUS_FILE, run_state

# ``run_dir.CONFIG``, whose module imports torch: two seconds and much memory for every job.
CONFIG_FILE = "config.yaml"
TRAIN_MODULE = "hrm_deeploop.cli.main"
# Less than SLURM's notice (``sweeps.SLURM_NOTICE_S``), more than saving takes.
TORCHRUN_GRACE_S = 100
LOCK_TRIES, LOCK_RETRY_S = 5, 0.05


@dataclass(frozen=True, kw_only=True)
class SweepFiles:
    """Where things of one run lie in a sweep's folder.

    Attributes:
        folder: The sweep's folder.
        name: The run's name.
    """

    folder: Path
    name: str

    @property
    def run_dir(self) -> Path:
        """The run directory, which ``train`` makes."""
        return self.folder / "runs" / self.name

    @property
    def log(self) -> Path:
        """What the run printed, of all its parts."""
        return self.folder / "logs" / f"{self.name}.log"

    @property
    def lock(self) -> Path:
        """Held from before ``train`` starts until its process has ended."""
        return self.folder / "jobs" / f"{self.name}.lock"

    def state(self) -> str:
        """How the run stands: one of ``eval.run_status.STATES``, or ``waiting``: nothing yet."""
        if is_held(self.lock):
            return "running"
        if not (self.run_dir / CONFIG_FILE).is_file():
            return "running" if is_held(self.run_dir / LOCK_FILE) else "waiting"
        if not (self.run_dir / STATUS_FILE).is_file():
            return "running" if is_held(self.run_dir / LOCK_FILE) else "interrupted"
        return run_state(self.run_dir)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run to be done.

    Attributes:
        files: Its place in the sweep.
        overrides: What ``train`` is given, for a run that begins.
        threads: CPU threads; None: torch's choice.
        processes: More than 1: torchrun starts as many, one per GPU.
        devices: GPUs to use, as in CUDA_VISIBLE_DEVICES; None: those the scheduler gave.
    """

    files: SweepFiles
    overrides: tuple[str, ...]
    threads: int | None = None
    processes: int = 1
    devices: tuple[str, ...] | None = None

    def __call__(self) -> int:
        """Does the run, unless another process has it or it is finished.

        Returns:
            Exit status of ``train``; 0 where there was nothing to do.
        """
        # submitit ignores these until now; before the run has begun the default effect is right.
        for signum in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(signum, signal.SIG_DFL)
        descriptor = take_lock(self.files.lock)
        if descriptor is None:
            return 0
        try:
            return self._train(descriptor) if self._is_free() else 0
        finally:
            os.close(descriptor)

    def _train(self, lock: int) -> int:
        self.files.log.parent.mkdir(exist_ok=True)
        with self.files.log.open("ab") as log:
            process = subprocess.Popen(
                [*self._program(), "train", *self._words()],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                # Out of reach of the terminal's Ctrl-C: the launcher sends one signal, not two.
                start_new_session=True,
                # The run keeps the lock should this process be killed.
                pass_fds=[lock],
            )
        write_holder(lock, process.pid, self.devices or ())
        received = _forward_signals(process)
        status = process.wait()
        if signal.SIGUSR1 in received and self.files.state() != "finished":
            _requeue()
            sys.exit(status)  # submitit takes a job that returns for done
        return status

    def _is_free(self) -> bool:
        """Whether the run directory may be gone on with; clears one that was never a run."""
        run_dir = self.files.run_dir
        if is_held(run_dir / LOCK_FILE):
            return False
        if not (run_dir / CONFIG_FILE).is_file():
            for path in (run_dir / LOCK_FILE, *run_dir.glob(f".{CONFIG_FILE}.*.tmp")):
                path.unlink(missing_ok=True)
            with suppress(OSError):  # something else in it: then ``train`` says that it exists
                run_dir.rmdir()
            return True
        return not (run_dir / STATUS_FILE).is_file() or run_state(run_dir) != "finished"

    def _words(self) -> list[str]:
        threads = [] if self.threads is None else [f"hardware.threads={self.threads}"]
        if (self.files.run_dir / CONFIG_FILE).is_file():
            return [f"resume={self.files.run_dir}", *threads]
        return [*self.overrides, f"run_dir={self.files.run_dir}", *threads]

    def _program(self) -> list[str]:
        if self.processes == 1:
            return [sys.executable, "-m", TRAIN_MODULE]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        return [*torchrun, "--nproc-per-node", str(self.processes), "-m", TRAIN_MODULE]

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        if self.threads is not None:
            environment["OMP_NUM_THREADS"] = str(self.threads)
        if self.devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(self.devices)
        if self.processes > 1:
            # torchrun reads its options from PET_*; versions that lack one ignore it.
            environment["PET_SIGNALS_TO_HANDLE"] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
            environment["PET_SHUTDOWN_TIMEOUT"] = str(TORCHRUN_GRACE_S)
        return environment


def _forward_signals(process: subprocess.Popen[bytes]) -> list[int]:
    """Passes on what a scheduler sends; returns a list that fills with the signals' numbers."""
    received: list[int] = []

    def forward(signum: int, frame: FrameType | None) -> None:
        received.append(signum)
        process.send_signal(signum)

    for signum in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(signum, forward)
    return received


def _requeue() -> None:
    """Asks SLURM to start this job again: USR1 says that its time is over, not that it failed."""
    job_id = os.environ.get("SLURM_JOB_ID")
    if job_id is not None:
        subprocess.run(["scontrol", "requeue", job_id], check=True)


def take_lock(path: Path) -> int | None:
    """Takes a lock for as long as this process, and those it hands the descriptor to, live.

    Returns:
        The open file's descriptor; None where another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # ``is_held`` in another process holds it too, for some microseconds.
            time.sleep(LOCK_RETRY_S)
            continue
        os.ftruncate(descriptor, 0)
        return descriptor
    os.close(descriptor)
    return None


def write_holder(descriptor: int, pid: int, devices: tuple[str, ...] = ()) -> None:
    """Says in a lock's file who holds it."""
    holder = {"host": socket.gethostname(), "pid": pid, "devices": devices}
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def read_holder(path: Path) -> dict[str, Any] | None:
    """Who holds a lock; None where nobody does, or has not said so yet."""
    if not is_held(path):
        return None
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return None


def is_held(path: Path) -> bool:
    """Whether a process holds the lock."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return False
    with file:
        try:
            # A shared lock, so that two that look do not see each other.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
