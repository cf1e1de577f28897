"""The one checkpoint format: a folder of weights, training state and a description.

    checkpoints/step_000000123/
        model.safetensors   dense weights, puzzle table, fixed states, EMA copies ("ema." names)
        state.pt            optimizer moments, carry; loaded with weights_only
        meta.json           configuration, step, data digest, sha256 of the two files

Written beside and renamed, so a folder with its final name is complete.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from arc_data.json_files import read_json

SCHEMA = "hrm_deeploop/checkpoint/1"
WEIGHTS, STATE, META = "model.safetensors", "state.pt", "meta.json"
META_KEYS = {
    "step": int,
    "final_step": int,
    "seed": int,
    "run": str,
    "arm": dict,
    "config": dict,
    "dataset": dict,
    "sha256": dict,
}
WORKLOAD_META_KEYS = {
    "arc": {"canvas": int, "num_puzzle_identifiers": int},
    "lm": {"vocab_size": int},
}
"""What the description says beside, by the configuration's ``workload``."""
PARTIAL = ".partial"
STEP_FOLDER = re.compile(r"step_(\d{9})")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: where, its description, and its tensors on the CPU."""

    path: Path
    meta: dict[str, Any]
    tensors: dict[str, Tensor]

    def load_state(self) -> dict[str, Any]:
        """The training state (optimizer, carry), on the CPU.

        Raises:
            ValueError: If the file is missing or differs from its recorded hash.
        """
        path = self.path / STATE
        _check_hash(path, self.meta["sha256"].get(STATE))
        return torch.load(path, map_location="cpu", weights_only=True)


def step_folder(step: int) -> str:
    """Name of a step's folder; sorts by step."""
    return f"step_{step:09d}"


def step_of(path: Path) -> int:
    """The step that a checkpoint folder's name says."""
    return int(path.name.removeprefix("step_"))


def save(
    folder: Path, *, step: int, tensors: dict[str, Tensor], state: dict[str, Any], meta: dict
) -> Path:
    """Writes ``folder/step_...``; complete or not there at all.

    Args:
        folder: The run's ``checkpoints`` folder.
        step: Steps done.
        tensors: Weights by name, any device.
        state: Tensors, numbers, strings, and lists and dicts of them.
        meta: Plain description; ``schema``, ``step`` and ``sha256`` are added.

    Returns:
        The checkpoint's path.

    Raises:
        OSError: If it cannot be written; what was there before is untouched.
    """
    path = folder / step_folder(step)
    partial = path.with_name(path.name + PARTIAL)
    if partial.exists():
        shutil.rmtree(partial)
    try:
        partial.mkdir(parents=True)
        # Clones: parameters are views into one flat buffer, which safetensors refuses.
        save_file({k: v.detach().cpu().clone() for k, v in tensors.items()}, partial / WEIGHTS)
        torch.save(state, partial / STATE)
        hashes = {name: file_sha256(partial / name) for name in (WEIGHTS, STATE)}
        description = {"schema": SCHEMA, "step": step, "sha256": hashes, **meta}
        (partial / META).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
        for name in (WEIGHTS, STATE, META):
            _flush(partial / name)
        partial.rename(path)
        _flush(folder)
    except (OSError, SafetensorError, RuntimeError) as error:
        # The libraries report a full disk in their own ways.
        shutil.rmtree(partial, ignore_errors=True)
        reason = " ".join(str(error).split())
        raise OSError(f"checkpoint {path} could not be written: {reason}") from error
    return path


def all_of(run_dir: Path) -> list[Path]:
    """A run directory's checkpoint folders, oldest first."""
    folder = run_dir / "checkpoints"
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if STEP_FOLDER.fullmatch(path.name))


def find(path: Path) -> Path:
    """The checkpoint folder meant by a path: itself, or a run directory's newest.

    Raises:
        FileNotFoundError: If there is none.
    """
    if (path / META).is_file():
        return path
    checkpoints = all_of(path)
    if not checkpoints:
        what = "a checkpoint (meta.json) or a run directory with checkpoints/step_*"
        raise FileNotFoundError(f"{path} is not {what}")
    return checkpoints[-1]


def load_to_resume(path: Path) -> tuple["Checkpoint", dict[str, Any]]:
    """Loads weights and training state, whole or not at all.

    Args:
        path: A checkpoint folder.

    Raises:
        ValueError: If it is damaged; the message names the file and the newest whole checkpoint
            before it.
    """
    try:
        return _load_all(path)
    except (ValueError, FileNotFoundError) as error:
        for older in reversed(all_of(path.parent.parent)):
            if older.name < path.name and _is_whole(older):
                raise ValueError(f"{error}; the one before is whole: resume={older}") from None
        raise ValueError(f"{error}; no checkpoint before it is whole") from None


def _load_all(path: Path) -> tuple["Checkpoint", dict[str, Any]]:
    checkpoint = load(path, workload=None)
    return checkpoint, checkpoint.load_state()


def _is_whole(path: Path) -> bool:
    try:
        _load_all(path)
    except (ValueError, FileNotFoundError):
        return False
    return True


def remove_partial(run_dir: Path) -> list[Path]:
    """Removes what a process that died in the middle of saving left; returns what it was."""
    stale = sorted((run_dir / "checkpoints").glob("step_*" + PARTIAL))
    for path in stale:
        shutil.rmtree(path)
    return stale


def retire(
    run_dir: Path,
    *,
    keep_last: int | None,
    keep_every_steps: int | None,
    keep_best: int | None,
    scores: Mapping[int, float],
) -> list[Path]:
    """Deletes the checkpoints that no rule keeps.

    Args:
        run_dir: The run directory.
        keep_last: Keeps this many of the newest; None: all.
        keep_every_steps: Keeps those at multiples of it; None: no such rule.
        keep_best: Keeps this many of the highest ``scores``, of equal ones the newer; None: no
            such rule.
        scores: Score by step, for the steps that have one.

    Returns:
        The deleted folders.
    """
    if keep_last is None:
        return []
    paths = {step_of(path): path for path in all_of(run_dir)}
    kept = set(sorted(paths)[-keep_last:])
    if keep_every_steps is not None:
        kept |= {step for step in paths if step % keep_every_steps == 0}
    scored = sorted((step for step in paths if step in scores), key=lambda s: (scores[s], s))
    kept |= set(scored[len(scored) - (keep_best or 0) :])
    deleted = [path for step, path in paths.items() if step not in kept]
    for path in deleted:
        # Renamed first: a folder with its final name is always complete.
        shutil.rmtree(path.rename(path.with_name(path.name + PARTIAL)))
    return deleted


def load(path: Path, workload: str | None = "arc") -> Checkpoint:
    """Reads and verifies a checkpoint's description and weights.

    Args:
        path: A checkpoint folder, or a run directory (its newest checkpoint).
        workload: What it must be of; None: anything.

    Raises:
        FileNotFoundError: If there is no checkpoint.
        ValueError: If a file is damaged or of another format, or the checkpoint of another
            workload; the message names it.
    """
    path = find(path)
    meta = read_meta(path, workload)
    _check_hash(path / WEIGHTS, meta["sha256"].get(WEIGHTS))
    try:
        tensors = load_file(path / WEIGHTS)
    except SafetensorError as error:
        raise ValueError(f"{path / WEIGHTS} cannot be read: {error}") from None
    return Checkpoint(path, meta, tensors)


def copy_weights(saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Copies saved weights into a model's.

    Raises:
        ValueError: If names or shapes differ; the message names the first.
    """
    for key in sorted(own.keys() ^ saved.keys()):
        where = "the checkpoint" if key in own else "this architecture"
        raise ValueError(f"weight {key} is missing from {where}")
    for key, value in own.items():
        if value.shape != saved[key].shape:
            raise ValueError(
                f"weight {key} has shape {tuple(saved[key].shape)} in the checkpoint and "
                f"{tuple(value.shape)} in this architecture"
            )
    with torch.no_grad():
        for key, value in own.items():
            value.copy_(saved[key])


def read_meta(path: Path, workload: str | None = "arc") -> dict[str, Any]:
    """Reads a checkpoint folder's description.

    Args:
        path: The folder.
        workload: What it must be of; None: anything.

    Raises:
        ValueError: If it is not one, or of another workload.
    """
    meta = read_json(path / META)
    if not isinstance(meta, dict) or meta.get("schema") != SCHEMA:
        found = meta.get("schema") if isinstance(meta, dict) else meta
        raise ValueError(f"{path / META}: expected schema {SCHEMA}; found {found!r}")
    _check_types(path, meta, META_KEYS)
    found = meta["config"].get("workload", "arc")
    if found not in WORKLOAD_META_KEYS:
        known = ", ".join(WORKLOAD_META_KEYS)
        raise ValueError(f"{path / META}: workload must be one of {known}; found {found!r}")
    if workload not in (None, found):
        raise ValueError(
            f"{path} is a checkpoint of workload {found}, and this reads those of {workload}; "
            f"use {'lm eval or lm sample' if found == 'lm' else 'eval or predict'}"
        )
    _check_types(path, meta, WORKLOAD_META_KEYS[found])
    return meta


def _check_types(path: Path, meta: dict[str, Any], keys: Mapping[str, type]) -> None:
    for key, kind in keys.items():
        if type(meta.get(key)) is not kind:
            raise ValueError(
                f"{path / META}: {key} must be of type {kind.__name__}; found {meta.get(key)!r}"
            )


def _check_hash(path: Path, expected: str | None) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing from the checkpoint")
    found = file_sha256(path)
    if found != expected:
        raise ValueError(f"{path} is damaged: its sha256 is {found}, recorded is {expected}")


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
