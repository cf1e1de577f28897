"""Sweeps: arms x grid x seeds as ordinary ``train`` runs in one folder, through submitit.

sweep.json      what was asked for, and every run's overrides and arm digest
runs/NAME/      run directories
logs/NAME.log   what each run printed
jobs/           locks, and submitit's files

The folder is all the state there is: the same sweep again skips what is finished, goes on with
what was interrupted and waits for what another process is still doing.  A run is begun at most
once per call.  Local processes and SLURM jobs (which need the folder on a shared file system
with flock) do the same work, ``sweep_job.Job``.
"""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from arc_data.json_files import read_json, write_json
from hrm_deeploop.signals import Stopped, StopSignals
from hrm_deeploop.sweep_job import Job, SweepFiles, read_holder
from hrm_deeploop.sweep_plan import Sweep, SweepRun

if TYPE_CHECKING:
    import submitit

SLURM_NOTICE_S = 120
# submitit's local jobs must end at some time: ten years.
LOCAL_TIMEOUT_MIN = 60 * 24 * 3650
POLL_S = 1.0
BUSY = ("queued", "running")


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What runs are computed on.

    Attributes:
        cluster: ``local`` processes or ``slurm`` jobs.
        parallel: Runs at a time.
        threads: CPU threads of each; None: torch's choice.
        gpus_per_run: 0: on the CPU.
        devices: Local GPUs to share out, as in CUDA_VISIBLE_DEVICES.
        slurm: sbatch's options by submitit's names, ``time`` (minutes) and ``partition``, say.
    """

    cluster: Literal["local", "slurm"] = "local"
    parallel: int = 1
    threads: int | None = None
    gpus_per_run: int = 0
    devices: tuple[str, ...] = ()
    slurm: Mapping[str, str | int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("parallel", 1), ("threads", 1), ("gpus_per_run", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                option = name.replace("_", "-")
                raise ValueError(f"--{option} must be {least} or more; got {value}")
        needed = self.parallel * self.gpus_per_run
        if self.cluster == "local" and needed > len(self.devices):
            raise ValueError(
                f"--parallel {self.parallel} runs with --gpus-per-run {self.gpus_per_run} need "
                f"{needed} GPUs; this machine has {len(self.devices)}; lower one of them"
            )
        if self.cluster == "slurm" and "time" not in self.slurm:
            raise ValueError(
                "SLURM needs a time limit; give --slurm time=MINUTES (a run that needs longer "
                "saves, is queued again and goes on)"
            )


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """How a run stands.

    Attributes:
        name: The run.
        state: ``waiting`` (not begun), ``queued`` (no sign of it yet) or one of
            ``eval.run_status.STATES``.
        step: Training steps done.
        num_steps: Of so many.
        metrics: The newest record of metrics.jsonl, if any.
        error: What ended it, for a failed one.
    """

    name: str
    state: str
    step: int
    num_steps: int
    metrics: Mapping[str, Any]
    error: str | None


Show = Callable[[Sequence[RunReport]], None]


def make_executor(sweep: Sweep, resources: Resources) -> "submitit.AutoExecutor":
    """submitit's executor for local processes or SLURM."""
    import submitit

    executor = submitit.AutoExecutor(sweep.folder / "jobs", cluster=resources.cluster)
    parameters: dict[str, Any] = {"timeout_min": LOCAL_TIMEOUT_MIN}
    if resources.cluster == "slurm":
        parameters = {
            "name": sweep.folder.name,
            "cpus_per_task": resources.threads,
            "gpus_per_node": resources.gpus_per_run or None,
            "slurm_array_parallelism": resources.parallel,
            "slurm_additional_parameters": {
                "signal": f"USR1@{SLURM_NOTICE_S}",
                "requeue": True,
            },
            **{f"slurm_{key}": value for key, value in resources.slurm.items()},
        }
    try:
        executor.update_parameters(**parameters, stderr_to_stdout=True)
    except NameError as error:
        raise ValueError(f"--slurm: {error}") from error
    return executor


class Launcher:
    """Does the runs of a sweep whose folder is ``claimed``.

    Args:
        sweep: What to do.
        resources: On what.
        retry_failed: Also go on with runs that failed.
    """

    def __init__(self, sweep: Sweep, resources: Resources, *, retry_failed: bool = False) -> None:
        self.sweep = sweep
        self.resources = resources
        self._executor = make_executor(sweep, resources)
        self._files = {
            run.name: SweepFiles(folder=sweep.folder, name=run.name) for run in sweep.runs
        }
        self._devices: dict[str, tuple[str, ...]] = {}
        self._begun: set[str] = set()
        self._jobs = self._find_slurm_jobs()
        self._begins = {"waiting", "interrupted", *(["failed"] if retry_failed else [])}
        self._todo = list(sweep.runs)

    def launch(self, stop: StopSignals, show: Show, *, poll_s: float = POLL_S) -> list[RunReport]:
        """Works until nothing is left to begin or to wait for.

        Args:
            stop: Entered; on a signal, local runs are asked to save and end, and waited for.
            show: Called on every look.
            poll_s: Seconds between looks.

        Returns:
            How every run ended.

        Raises:
            Stopped: If a signal came.
        """
        with stop.deferred():
            while True:
                reports = [self._report(run) for run in self.sweep.runs]
                show(reports)
                if stop.received is not None:
                    self._stop(poll_s)
                    raise Stopped(stop.received)
                states = {report.name: report.state for report in reports}
                busy = {name for name, state in states.items() if state in BUSY}
                # One that another process is at is looked at again when that has ended.
                possible = self._begins | set(BUSY)
                self._todo = [run for run in self._todo if states[run.name] in possible]
                ready = [run for run in self._todo if run.name not in busy]
                if not self._submit(ready, len(busy)) and not busy:
                    return reports
                time.sleep(poll_s)

    def _submit(self, runs: list[SweepRun], num_busy: int) -> bool:
        """Begins as many of the runs as there is room for; says whether it began any."""
        if self.resources.cluster == "local":  # SLURM itself keeps to ``parallel``
            runs = runs[: max(0, self.resources.parallel - num_busy)]
        if not runs:
            return False
        self._todo = [run for run in self._todo if run not in runs]
        jobs = [self._make_job(run) for run in runs]
        # Local jobs inherit this: Ctrl-C reaches the launcher alone, which then stops them.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            submitted = self._executor.submit_array(jobs)
        finally:
            signal.signal(signal.SIGINT, handler)
        self._jobs.update(zip((run.name for run in runs), submitted, strict=True))
        if self.resources.cluster == "slurm":
            write_json(self._slurm_file, {name: job.job_id for name, job in self._jobs.items()})
        return True

    def _make_job(self, run: SweepRun) -> Job:
        processes = max(1, self.resources.gpus_per_run)
        devices = None
        if self.resources.cluster == "local":
            used = {d for name in self._files for d in self._used_devices(name)}
            free = [device for device in self.resources.devices if device not in used]
            devices = self._devices[run.name] = tuple(free[: self.resources.gpus_per_run])
        return Job(
            files=SweepFiles(folder=self.sweep.folder.absolute(), name=run.name),
            overrides=run.overrides,
            threads=self.resources.threads,
            processes=processes,
            devices=devices,
        )

    def _used_devices(self, name: str) -> tuple[str, ...]:
        """GPUs of a live run, begun by this launcher or by one before it."""
        if name in self._jobs and not self._jobs[name].done():
            return self._devices.get(name, ())
        holder = read_holder(self._files[name].lock) or {}
        return tuple(holder.get("devices", ()))

    def _report(self, run: SweepRun) -> RunReport:
        files = self._files[run.name]
        job = self._jobs.get(run.name)
        is_at_work = job is not None and not job.done()
        state = files.state()
        error = None
        if state == "running":
            self._begun.add(run.name)
        elif is_at_work:  # before its process is there, or as it ends
            state = "running" if run.name in self._begun else "queued"
        elif state == "waiting" and job is not None:
            state, error = "failed", f"ended before it began: {last_line(files.log)}"
        elif state == "failed":
            error = read_json(files.run_dir / "status.json")["error"]
        metrics = newest_metrics(files.run_dir)
        step = run.num_steps if state == "finished" else metrics.get("step", 0)
        return RunReport(
            name=run.name,
            state=state,
            step=step,
            num_steps=run.num_steps,
            metrics=metrics,
            error=error,
        )

    def _stop(self, poll_s: float) -> None:
        """Sends each run on this machine SIGTERM, once, and waits until all have ended."""
        if self.resources.cluster == "slurm":
            return
        told: set[str] = set()
        while True:
            holders = {name: read_holder(files.lock) for name, files in self._files.items()}
            here = {
                name: holder["pid"]
                for name, holder in holders.items()
                if holder is not None and holder["host"] == socket.gethostname()
            }
            # One that has only just been begun cannot be told yet: at the next look.
            if not here and all(job.done() for job in self._jobs.values()):
                return
            for name in here.keys() - told:
                with suppress(ProcessLookupError):
                    os.kill(here[name], signal.SIGTERM)
                told.add(name)
            time.sleep(poll_s)

    @property
    def _slurm_file(self) -> Path:
        return self.sweep.folder / "jobs" / "slurm.json"

    def _find_slurm_jobs(self) -> "dict[str, submitit.Job[int]]":
        """Jobs that an earlier launcher left in SLURM's queue: they hold no lock yet."""
        if self.resources.cluster != "slurm" or not self._slurm_file.is_file():
            return {}
        import submitit

        jobs: dict[str, submitit.Job[int]] = {}
        for name, job_id in read_json(self._slurm_file).items():
            job: submitit.SlurmJob[int] = submitit.SlurmJob(self._executor.folder, job_id)
            if self._files[name].state() != "finished" and not job.done(force_check=True):
                jobs[name] = job
        return jobs


def newest_metrics(run_dir: Path, num_bytes: int = 8192) -> dict[str, Any]:
    """The last whole record of a run's metrics.jsonl; empty where there is none.

    Args:
        run_dir: The run.
        num_bytes: How much of the file's end is read: more than a record has.
    """
    try:
        with (run_dir / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - num_bytes))
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return {}
    return json.loads(lines[-1]) if lines else {}


def last_line(log: Path) -> str:
    """The last line of a run's log."""
    with suppress(FileNotFoundError):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return lines[-1]
    return f"nothing in {log}; see the newest file beside it in jobs"
