"""What a sweep consists of: runs with names, and the folder that belongs to it."""

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arc_data.json_files import read_json, write_json
from hrm_deeploop.sweep_job import read_holder, take_lock, write_holder
from hrm_deeploop.sweep_terms import TERMS

SCHEMA = 1
SWEEP_FILE = "sweep.json"
# Not part of what is asked for: the same sweep may be started with other words.
COMMAND = "command"
ARM_KEYS = tuple(terms.arm_key for terms in TERMS.values())


@dataclass(frozen=True, kw_only=True)
class SweepRun:
    """One run of a sweep.

    Attributes:
        name: Its folder's name below ``runs``.
        overrides: What ``train`` is given.
        digest: Of the arm, ``settings.digest``.
        num_steps: Training steps in all.
    """

    name: str
    overrides: tuple[str, ...]
    digest: str
    num_steps: int


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A folder and the runs that belong in it.

    Attributes:
        folder: Where.
        asked: What sweep.json records beside the runs; ``command`` among it is not compared.
        runs: In the order in which they begin.
    """

    folder: Path
    asked: Mapping[str, Any]
    runs: tuple[SweepRun, ...]

    def describe(self) -> dict[str, Any]:
        """What sweep.json holds."""
        runs = [
            {"name": run.name, "overrides": list(run.overrides), "digest": run.digest}
            for run in self.runs
        ]
        return {"schema": SCHEMA, **self.asked, "runs": runs}


def cross(
    arms: Mapping[str, Sequence[str]],
    grid: Mapping[str, Sequence[str]],
    seeds: Sequence[int],
) -> list[tuple[str, list[str]]]:
    """Names and overrides of all combinations; seeds vary slowest, so that pairs end together.

    Args:
        arms: Label -> overrides.
        grid: Setting -> values; empty: one point.
        seeds: Run seeds.

    Raises:
        ValueError: If two combinations would have one name.
    """
    points = [
        [f"{key}={value}" for key, value in zip(grid, values, strict=True)]
        for values in itertools.product(*grid.values())
    ]
    runs = []
    for seed, (label, overrides), point in itertools.product(seeds, arms.items(), points):
        name = "-".join([label, *(short_name(setting) for setting in point), f"s{seed}"])
        runs.append((name, [*overrides, *point, f"seed={seed}"]))
    names = [name for name, _ in runs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two runs would be called {name}; give each value once")
    return runs


def short_name(override: str) -> str:
    """A part of a run's name: ``residual=deeploop`` is deeploop, ``optim.lr=1`` is lr=1."""
    key, _, value = override.partition("=")
    if key in ARM_KEYS:
        text = value
    elif key.startswith("residual."):
        text = override.removeprefix("residual.")
    else:
        text = f"{key.rsplit('.', 1)[-1]}={value}"
    return re.sub(r"[^A-Za-z0-9._=-]", "_", text)


@contextmanager
def claimed(sweep: Sweep) -> Iterator[None]:
    """Holds a sweep's folder for this launcher; makes it, or checks that it is the same sweep.

    Raises:
        ValueError: If another launcher holds it, or it is another sweep; says what differs.
        FileExistsError: If the folder holds something else.
    """
    folder = sweep.folder
    lock = folder / "jobs" / "launcher.lock"
    file = folder / SWEEP_FILE
    if folder.is_dir() and not file.is_file():
        # A launcher that died early has left its lock, at most.
        strangers = [path.name for path in folder.iterdir() if path.name != "jobs"]
        strangers = [name for name in strangers if not name.startswith(f".{SWEEP_FILE}.")]
        if strangers:
            raise FileExistsError(
                f"out={folder} holds {strangers[0]} and no {SWEEP_FILE}; choose another out="
            )
    descriptor = take_lock(lock)
    if descriptor is None:
        holder = read_holder(lock) or {}
        raise ValueError(
            f"{folder} is being launched by another process (pid {holder.get('pid')} on "
            f"{holder.get('host')}); wait for it or stop it first"
        )
    try:
        write_holder(descriptor, os.getpid())
        wanted = sweep.describe()
        if not file.is_file():
            write_json(file, wanted)
        differences = _differences(read_json(file), wanted)
        if differences:
            raise ValueError(
                f"{folder} holds another sweep: {'; '.join(differences)}; choose another out="
            )
        yield
    finally:
        os.close(descriptor)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    keys = [key for key in {**before, **now} if key not in (COMMAND, "runs")]
    told = [
        f"{key} from {before.get(key)} to {now.get(key)}"
        for key in keys
        if before.get(key) != now.get(key)
    ]
    if told or before["runs"] == now["runs"]:
        return told
    changed = [run["name"] for run in now["runs"] if run not in before["runs"]]
    return [f"the settings of {', '.join(changed)} (a configuration file or a default changed)"]
