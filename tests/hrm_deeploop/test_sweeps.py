"""Sweeps: names, folders, launching with a stand-in for ``train``, SLURM's parameters."""

import fcntl
import json
import os
import re
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import cloudpickle
import pytest

from hrm_deeploop import sweeps
from hrm_deeploop.run_dir import CONFIG
from hrm_deeploop.signals import Stopped, StopSignals
from hrm_deeploop.sweep_job import CONFIG_FILE, Job, SweepFiles, is_held, take_lock, write_holder
from hrm_deeploop.sweep_plan import Sweep, SweepRun, claimed, cross
from hrm_deeploop.sweeps import Launcher, Resources, RunReport

# Makes a run directory as ``train`` does, counts to its first override's number, obeys SIGTERM.
STAND_IN = """
import fcntl, json, os, signal, socket, sys, time
words = dict(word.partition("=")[::2] for word in sys.argv[2:])
path = words.get("resume") or words["run_dir"]
if "resume" not in words:
    os.makedirs(path)
lock = open(path + "/lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
if "resume" not in words:
    json.dump(words, open(path + "/config.yaml", "w"))
words = {**json.load(open(path + "/config.yaml"))}
def say(state, error=None):
    with open(path + "/status.tmp", "w") as file:
        json.dump({"state": state, "error": error, "host": socket.gethostname(),
                   "pid": os.getpid()}, file)
    os.replace(path + "/status.tmp", path + "/status.json")
def stop(*_):
    say("interrupted")
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
say("running")
seen = len(open(path + "/metrics.jsonl").readlines()) if "resume" in sys.argv[2] else 0
for step in range(seen + 1, int(words["steps"]) + 1):
    with open(path + "/metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "time": time.time()}) + "\\n")
    if words.get("fails") == str(step) and "resume" not in sys.argv[2]:
        say("failed", "ValueError: as asked")
        sys.exit(1)
    time.sleep(0.02)
say("finished")
"""


class StandIn(Job):
    """A job that runs ``STAND_IN`` in place of ``train``."""

    def _program(self) -> list[str]:
        return [sys.executable, "-S", "-c", STAND_IN]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = sys.modules[__name__]
    monkeypatch.setattr(sweeps, "Job", StandIn)
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


def make_sweep(folder: Path, **overrides: list[str]) -> Sweep:
    runs = [
        SweepRun(name=name, overrides=tuple(each), digest=name, num_steps=5)
        for name, each in overrides.items()
    ]
    return Sweep(folder=folder, asked={"seeds": [0], "command": "first"}, runs=tuple(runs))


def launch(
    sweep: Sweep,
    show: Callable[[list[RunReport]], None] = lambda reports: None,
    *,
    retry_failed: bool = False,
    **resources: int,
) -> list[RunReport]:
    with StopSignals() as stop, claimed(sweep):
        launcher = Launcher(sweep, Resources(**resources), retry_failed=retry_failed)
        return launcher.launch(stop, show, poll_s=0.05)


@contextmanager
def left_running(sweep: Sweep) -> Iterator[None]:
    """The first run's process, begun by a launcher that is gone as if killed."""
    with claimed(sweep):
        launcher = Launcher(sweep, Resources())
        launcher._submit(list(sweep.runs[:1]), 0)
    yield
    for job in launcher._jobs.values():
        while not job.done():  # for us to reap: in life the system does
            time.sleep(0.01)


def refuse(sweep: Sweep, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)), claimed(sweep):
        pass


def states(reports: list[RunReport]) -> dict[str, str]:
    return {report.name: report.state for report in reports}


def times(sweep: Sweep, name: str) -> list[float]:
    text = (sweep.folder / "runs" / name / "metrics.jsonl").read_text()
    return [json.loads(line)["time"] for line in text.splitlines()]


def test_seeds_vary_slowest_and_names_say_what_departs() -> None:
    arms = {"vanilla": ["residual=vanilla"], "deeploop": ["residual=deeploop"]}
    runs = cross(arms, {"residual.H.p": ["0.1", "0.25"]}, [0, 3])
    assert [name for name, _ in runs[:5]] == [
        "vanilla-H.p=0.1-s0",
        "vanilla-H.p=0.25-s0",
        "deeploop-H.p=0.1-s0",
        "deeploop-H.p=0.25-s0",
        "vanilla-H.p=0.1-s3",
    ]
    assert runs[3][1] == ["residual=deeploop", "residual.H.p=0.25", "seed=0"]
    assert len(runs) == 8
    with pytest.raises(ValueError, match="two runs would be called a-lr=1-s0"):
        cross({"a": []}, {"optim.lr": ["1", "1"]}, [0])


def test_a_folder_belongs_to_one_sweep_and_one_launcher(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path / "sweep", a=["steps=1"])
    pid = os.getpid()
    with claimed(sweep):
        refuse(sweep, ValueError, f"launched by another process (pid {pid} on ")
    with claimed(replace(sweep, asked={"seeds": [0], "command": "other words"})):
        pass
    more = replace(sweep, asked={"seeds": [0, 1]})
    refuse(more, ValueError, "another sweep: seeds from [0] to [0, 1]; choose another out=")
    changed = replace(sweep, runs=(replace(sweep.runs[0], digest="new"),))
    refuse(changed, ValueError, "the settings of a (a configuration file or a default changed)")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    elsewhere = replace(sweep, folder=tmp_path / "mine")
    refuse(elsewhere, FileExistsError, "holds thesis.tex and no sweep.json; choose another out=")


def test_a_launcher_that_died_before_sweep_json_blocks_nothing(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "launcher.lock").touch()
    (tmp_path / ".sweep.json.17.tmp").touch()
    with claimed(make_sweep(tmp_path, a=["steps=1"])):
        assert (tmp_path / "sweep.json").is_file()


def test_state_before_and_after_there_is_a_run(tmp_path: Path) -> None:
    assert CONFIG_FILE == CONFIG
    files = SweepFiles(folder=tmp_path, name="a")
    assert files.state() == "waiting"
    files.run_dir.mkdir(parents=True)
    assert files.state() == "waiting"
    (files.run_dir / CONFIG_FILE).touch()
    assert files.state() == "interrupted"
    descriptor = take_lock(files.run_dir / "lock")
    assert descriptor is not None
    assert files.state() == "running"  # somebody goes on with it by hand
    os.close(descriptor)
    descriptor = take_lock(files.lock)
    assert descriptor is not None
    assert files.state() == "running"
    assert take_lock(files.lock) is None
    os.close(descriptor)
    assert not is_held(files.lock)


def test_runs_in_parallel_as_many_as_asked(tmp_path: Path, stand_in: None) -> None:
    sweep = make_sweep(tmp_path, **{name: ["steps=5"] for name in "abc"})
    most = []
    reports = launch(
        sweep,
        lambda reports: most.append(sum(r.state in sweeps.BUSY for r in reports)),
        parallel=2,
        threads=1,
    )
    assert set(states(reports).values()) == {"finished"}
    assert max(most) == 2
    assert [report.step for report in reports] == [5, 5, 5]
    assert times(sweep, "c")[0] > min(times(sweep, "a")[-1], times(sweep, "b")[-1])


def test_failed_runs_are_listed_and_only_retried_when_asked(tmp_path: Path, stand_in: None) -> None:
    sweep = make_sweep(tmp_path, bad=["steps=5", "fails=2"])
    (report,) = launch(sweep)
    assert report.state == "failed"
    assert report.error == "ValueError: as asked"
    assert report.step == 2
    (report,) = launch(sweep)
    assert report.state == "failed"
    assert len(times(sweep, "bad")) == 2
    (report,) = launch(sweep, retry_failed=True)
    assert report.state == "finished"
    assert len(times(sweep, "bad")) == 5


def test_one_that_never_became_a_run_is_told_from_its_log_and_begun_again(
    tmp_path: Path, stand_in: None
) -> None:
    sweep = make_sweep(tmp_path, a=["steps=2"])
    with claimed(sweep):
        pass
    left = tmp_path / "runs" / "a"
    left.mkdir(parents=True)
    (left / "own.txt").touch()
    (report,) = launch(sweep)
    assert report.state == "failed"
    assert "ended before it began: FileExistsError" in str(report.error)
    (left / "own.txt").unlink()
    # What a process leaves that dies right after it made the folder.
    (left / "lock").touch()
    (left / f".{CONFIG_FILE}.17.tmp").touch()
    (report,) = launch(sweep)
    assert report.state == "finished"


def test_a_signal_stops_the_runs_and_the_next_call_goes_on(tmp_path: Path, stand_in: None) -> None:
    sweep = make_sweep(tmp_path, a=["steps=100000"], b=["steps=100000"], c=["steps=1"])
    metrics = [tmp_path / "runs" / name / "metrics.jsonl" for name in "ab"]

    def stop_when_both_run(reports: list[RunReport]) -> None:
        if all(path.is_file() for path in metrics):
            os.kill(os.getpid(), signal.SIGTERM)
            metrics.clear()
            metrics.append(tmp_path / "never")

    with pytest.raises(Stopped, match="stopped by SIGTERM") as stopped:
        launch(sweep, stop_when_both_run, parallel=2)
    assert stopped.value.exit_status == 143
    files = [SweepFiles(folder=tmp_path, name=name) for name in "abc"]
    assert [each.state() for each in files] == ["interrupted", "interrupted", "waiting"]
    for each in files[:2]:
        steps = {"steps": str(len(times(sweep, each.name)) + 3)}
        (each.run_dir / CONFIG_FILE).write_text(json.dumps(steps))
    assert set(states(launch(sweep, parallel=3)).values()) == {"finished"}


def test_a_live_run_of_a_dead_launcher_is_waited_for(tmp_path: Path, stand_in: None) -> None:
    sweep = make_sweep(tmp_path, a=["steps=100"])
    with left_running(sweep):  # the child may not even have made its folder yet
        (report,) = launch(sweep)
    assert report.state == "finished"
    assert len(times(sweep, "a")) == 100  # each step once: never two at it


def test_a_dead_launchers_run_is_stopped_too(tmp_path: Path, stand_in: None) -> None:
    sweep = make_sweep(tmp_path, a=["steps=100000"])
    lock = SweepFiles(folder=tmp_path, name="a").lock
    with left_running(sweep):
        while not sweeps.read_holder(lock):
            time.sleep(0.01)
        with pytest.raises(Stopped, match="stopped by SIGTERM"):
            launch(sweep, lambda reports: os.kill(os.getpid(), signal.SIGTERM))
        assert not is_held(lock)


def test_a_dead_launchers_run_is_resumed_once_it_has_died(tmp_path: Path, stand_in: None) -> None:
    sweep = make_sweep(tmp_path, a=["steps=60"])
    lock = SweepFiles(folder=tmp_path, name="a").lock
    seen: list[str] = []

    def kill_once(reports: list[RunReport]) -> None:
        holder = sweeps.read_holder(lock)
        if holder and reports[0].metrics and not seen:
            seen.append(reports[0].state)
            os.kill(holder["pid"], signal.SIGKILL)

    with left_running(sweep):
        while not sweeps.read_holder(lock):
            time.sleep(0.01)
        (report,) = launch(sweep, kill_once)
    assert seen == ["running"]
    assert report.state == "finished"
    assert len(times(sweep, "a")) == 60


def test_gpus_are_shared_out_and_those_of_live_runs_left_alone(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path, a=[], b=[], c=[])
    launcher = Launcher(sweep, Resources(parallel=2, gpus_per_run=2, devices=tuple("01234")))
    descriptor = take_lock(SweepFiles(folder=tmp_path, name="c").lock)
    assert descriptor is not None
    write_holder(descriptor, os.getpid(), ("0", "3"))
    job = launcher._make_job(sweep.runs[0])
    assert job.devices == ("1", "2")
    assert job.processes == 2
    os.close(descriptor)
    with pytest.raises(ValueError, match="--parallel 3 runs with --gpus-per-run 2 need 6 GPUs"):
        Resources(parallel=3, gpus_per_run=2, devices=tuple("01234"))
    with pytest.raises(ValueError, match="--threads must be 1 or more; got 0"):
        Resources(threads=0)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what stands for SLURM's programs; sbatch keeps the script it is given."""
    programs = tmp_path / "bin"
    programs.mkdir()
    bodies = {
        "sbatch": f'cp "$1" {programs}/script; echo "Submitted batch job 77"',
        "srun": "exit 1",
        "sacct": f"cat {programs}/sacct.txt",
    }
    for name, body in bodies.items():
        path = programs / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    say_slurm(programs, "PENDING")
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    return programs


def say_slurm(programs: Path, state: str) -> None:
    lines = ["JobID|State|NodeList", *(f"77_{index}|{state}|" for index in range(2))]
    (programs / "sacct.txt").write_text("\n".join(lines) + "\n")


def test_slurm_gets_one_array_and_its_queue_is_not_filled_twice(
    tmp_path: Path, slurm: Path
) -> None:
    import submitit

    submitit.SlurmJob.watcher.clear()
    sweep = make_sweep(tmp_path / "study", a=["steps=1"], b=["steps=1"])
    options = {"time": 600, "partition": "gpu"}
    resources = Resources(cluster="slurm", parallel=4, threads=8, gpus_per_run=8, slurm=options)
    told: list[dict[str, str]] = []

    def leave(reports: list[RunReport]) -> None:
        told.append(states(reports))
        if told[-1]["a"] == "queued":
            os.kill(os.getpid(), signal.SIGINT)

    for expected in (2, 1):  # the second launcher finds both in the queue, and leaves at once
        with StopSignals() as stop, claimed(sweep), pytest.raises(Stopped):
            Launcher(sweep, resources).launch(stop, leave, poll_s=0.05)
        assert len(told) == expected
        told.clear()
    script = (slurm / "script").read_text()
    for line in (
        "--array=0-1%2",
        "--signal=USR1@120",
        "--requeue",
        "--time=600",
        "--partition=gpu",
        "--gpus-per-node=8",
        "--cpus-per-task=8",
        "--job-name=study",
    ):
        assert f"#SBATCH {line}\n" in script, line
    (slurm / "script").unlink()
    say_slurm(slurm, "FAILED")
    launcher = Launcher(sweep, resources)
    assert launcher._jobs == {}
    job = launcher._make_job(sweep.runs[0])
    assert job.devices is None  # SLURM's own choice stays
    with pytest.raises(ValueError, match="give --slurm time=MINUTES"):
        Resources(cluster="slurm")
    with pytest.raises(ValueError, match=r"--slurm: .*'partiton'"):
        Launcher(sweep, replace(resources, slurm={"time": 1, "partiton": "gpu"}))


def test_metrics_are_read_from_the_end_and_only_whole_lines(tmp_path: Path) -> None:
    assert sweeps.newest_metrics(tmp_path) == {}
    lines = [json.dumps({"step": step}) for step in range(1000)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 10')
    assert sweeps.newest_metrics(tmp_path) == {"step": 999}


def test_a_look_at_a_lock_does_not_keep_a_job_from_taking_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.07, lambda: fcntl.flock(file, fcntl.LOCK_UN)).start()
        start = time.monotonic()
        descriptor = take_lock(lock)
        assert descriptor is not None
        assert time.monotonic() - start > 0.05
        os.close(descriptor)
