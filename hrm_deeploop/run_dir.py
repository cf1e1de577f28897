"""A run's directory: created exclusively, described once, its status kept current.

config.yaml      resolved configuration
lock             held while a process writes the directory
provenance.json  command, commit, versions, hardware, data digest, arm, parameter counts
status.json      running | finished | interrupted | failed, and how far
metrics.jsonl    see ``tracking``
checkpoints/     see ``checkpoint``
eval/            one folder per evaluated step
"""

import fcntl
import hashlib
import itertools
import json
import os
import re
import socket
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arc_data.json_files import read_json, write_beside, write_json
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.provenance import code_and_machine
from hrm_deeploop.settings import digest, from_dict, result_settings, to_dict

MAX_NAME_LENGTH = 80
LOCK_TRIES, LOCK_WAIT_S = 5, 0.02
LOCK, CONFIG, PROVENANCE, STATUS = "lock", "config.yaml", "provenance.json", "status.json"
# What an arm's name begins with, by workload: setting -> how it is written.
LEADING = {
    "arc": {"residual.preset": "{}", "arch.grad_scope": "{}"},
    "lm": {"lm.arm": "{}", "lm.rounds": "R{}"},
}
STEP_NAME = re.compile(r"step_(\d{9})(-partial)?")


def read_config(run_dir: Path) -> TrainConfig:
    """Reads a run's config.yaml.

    Raises:
        FileNotFoundError: If ``run_dir`` is not a run directory.
        ValueError: If a setting is unknown or impossible.
    """
    import yaml  # here, so that a library caller without it can still describe a machine

    path = run_dir / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{run_dir} is not a run directory: it has no {CONFIG}")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        return from_dict(TrainConfig, values)
    except (ValueError, AttributeError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read: {' '.join(str(error).split())}") from None


def arm_name(config: TrainConfig, base: TrainConfig | None = None) -> str:
    """A readable name for an arm: residual scaling, loop, what departs from ``base``.

    Args:
        config: The run's configuration.
        base: The experiment's file as it stands; None: nothing to compare with.

    Returns:
        A name of letters, digits, ``.``, ``_``, ``=`` and ``-``; one that would be longer than
        80 characters is cut and ends in the first digits of the arm's digest.
    """
    leading = LEADING[config.workload]
    parts = [text.format(_setting(config, key)) for key, text in leading.items()]
    if base is not None:
        standard, own = result_settings(base), result_settings(config)
        for key in sorted((standard.keys() | own.keys()) - leading.keys(), key=_telling_first):
            if standard.get(key) != own.get(key):
                leaf = key if key.startswith("residual.") else key.rsplit(".", 1)[-1]
                parts.append(f"{leaf.removeprefix('residual.')}={_setting(config, key)}")
    name = re.sub(r"[^A-Za-z0-9._=-]", "_", "-".join(parts))
    if len(name) > MAX_NAME_LENGTH:
        name = f"{name[: MAX_NAME_LENGTH - 9]}-{digest(config)[:8]}"
    return name


def _telling_first(key: str) -> tuple[bool, bool, str]:
    return (not key.startswith("residual."), not key.startswith("optim."), key)


def _setting(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config


def describe_arm(
    config: TrainConfig,
    name: str,
    residual: dict[str, Any],
    history: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The ``arm`` entry of provenance and results.

    Args:
        config: The run's configuration.
        name: From ``arm_name``.
        residual: Resolved scaling.
        history: Changes of result settings that were made when the run was resumed, each with
            its step; a run with such a history is an arm of its own.
    """
    own = digest(config)
    if history:
        text = json.dumps([own, *history], sort_keys=True)
        own, name = hashlib.sha256(text.encode()).hexdigest(), f"{name}-changed"
    return {
        "name": name,
        "digest": own,
        "residual": residual,
        **_numerics(config),
    }


def _numerics(config: TrainConfig) -> dict[str, str]:
    """What else of an arm can be confounded with its scaling."""
    if config.workload == "lm":
        return {"stream_dtype": config.lm.stream_dtype}
    arch = config.arch
    return {key: getattr(arch, key) for key in ("grad_scope", "residual_sum", "carry_dtype")}


class RunDir:
    """A run directory that this process, and no other, writes.

    Args:
        path: The folder, which exists; ``create`` makes one.
        writes: Off in the processes that train beside the one that writes: they only know the
            place.

    Attributes:
        step: Training steps done, for status.json.

    Raises:
        ValueError: If another process is writing it.
    """

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path = path
        self.writes = writes
        self.step = 0
        if not writes:
            return
        # Held until this process ends, however it ends; children that are exec'd do not get it.
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        self._release = weakref.finalize(self, os.close, descriptor)
        if not _locked(descriptor):
            self.release()
            raise ValueError(
                f"{path} is being written by another process ({_writer(path)}); wait for it or "
                "stop it first"
            )

    @classmethod
    def create(cls, config: TrainConfig, arm: str) -> "RunDir":
        """Makes the run's folder, which must not exist, with config.yaml in it.

        Raises:
            FileExistsError: If ``run_dir`` exists.
        """
        run = cls(_make_folder(config, arm))
        run.write_config(config)
        run.set_status("running")
        return run

    def release(self) -> None:
        """Lets another process, or this one again, take the directory."""
        if self.writes:
            self._release()

    @contextmanager
    def tracked(self) -> Iterator[None]:
        """Says in status.json how what happens inside ends: finished, interrupted or failed."""
        try:
            yield
        except KeyboardInterrupt as stop:
            self._set_last_status("interrupted", str(stop) or None)
            raise
        except BaseException as error:
            self._set_last_status("failed", f"{type(error).__name__}: {error}")
            raise
        else:
            self.set_status("finished")
        finally:
            self.release()

    def write_config(self, config: TrainConfig) -> None:
        """Writes config.yaml: every setting."""
        import yaml

        text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
        with write_beside(self.path / CONFIG) as file:
            file.write(text.encode())

    def write_provenance(self, facts: Mapping[str, Any]) -> None:
        """Records ``facts`` beside what can be found out about code and machine."""
        write_json(self.path / PROVENANCE, {**code_and_machine(), **facts})

    def read_provenance(self) -> dict[str, Any] | None:
        """What provenance.json holds; None where the run ended before it was written."""
        path = self.path / PROVENANCE
        return read_json(path) if path.is_file() else None

    def add_resumption(self, facts: Mapping[str, Any]) -> None:
        """Appends to provenance.json's ``resumes``; the rest stays as the run began."""
        provenance = self.read_provenance()
        assert provenance is not None
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"utc": now, **facts, **code_and_machine()}
        provenance["resumes"] = [*provenance.get("resumes", []), entry]
        write_json(self.path / PROVENANCE, provenance)

    def set_status(self, state: str, error: str | None = None) -> None:
        """Replaces status.json."""
        if not self.writes:
            return
        status = {
            "state": state,
            "step": self.step,
            "error": error,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "updated_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_json(self.path / STATUS, status)

    def _set_last_status(self, state: str, error: str | None) -> None:
        """On a full disk the reason of the end is worth more than this file."""
        with suppress(OSError):
            self.set_status(state, error)

    def eval_dir(self, checkpoint_name: str, *, partial: bool = False) -> Path:
        """Where the evaluation of a checkpoint goes; a partial one has a place of its own."""
        return self.path / "eval" / (checkpoint_name + ("-partial" if partial else ""))

    def set_aside_after(self, step: int) -> list[Path]:
        """Moves checkpoints and evaluations of later steps, which will be made again.

        They go into ``set_aside/1``, ``2``, ..., where nobody takes them for the run's own.

        Returns:
            The new places; nothing is deleted.
        """
        later = [
            path
            for path in sorted((*self.path.glob("checkpoints/*"), *self.path.glob("eval/*")))
            if (match := STEP_NAME.fullmatch(path.name)) and int(match[1]) > step
        ]
        places = (self.path / "set_aside" / str(n) for n in itertools.count(1))
        folder = next(place for place in places if not place.exists())
        moved = []
        for path in later:
            target = folder / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            moved.append(path.rename(target))
        return moved


def _locked(descriptor: int) -> bool:
    """Takes the lock; tries again for a moment, in which somebody may only have looked at it."""
    for _ in range(LOCK_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(LOCK_WAIT_S)
    return False


def _writer(path: Path) -> str:
    """Who writes a run, as far as status.json says."""
    try:
        status = read_json(path / STATUS)
    except (ValueError, FileNotFoundError):
        return "unknown"
    return f"pid {status.get('pid')} on {status.get('host')}"


def _make_folder(config: TrainConfig, arm: str) -> Path:
    if config.run_dir is not None:
        path = Path(config.run_dir)
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise FileExistsError(
                f"run_dir {path} exists; runs never overwrite: choose another run_dir"
            ) from None
        except NotADirectoryError:
            raise NotADirectoryError(f"run_dir {path} lies below a file, not a folder") from None
        return path
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = Path("runs") / (config.experiment or "custom")
    for attempt in itertools.count(1):
        suffix = "" if attempt == 1 else f"-{attempt}"
        path = folder / f"{arm}-s{config.seed}-{now}{suffix}"
        with suppress(FileExistsError):  # another run began in the same second
            path.mkdir(parents=True)
            return path
    raise AssertionError("unreachable")
