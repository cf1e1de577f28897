"""What a compiled data set is made of, by hash: the manifest, its checks, the golden hashes.

A manifest says schema, builder, options, sources, the content hash of every task, the group
order, the hash of every plan array and what an audit found. ``digest`` is over what determines
the arrays, so that two data sets with one digest give the same batches on every machine.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from arc_data.audit import audit_plan
from arc_data.compiled import (
    MANIFEST_FILE,
    PUBLISHED,
    SCHEMA,
    CompiledDataset,
    Plan,
    load_manifest,
    load_plan,
)
from arc_data.json_files import read_json, write_json
from arc_data.sources import KNOWN_SOURCES, OWN_SOURCES, SOURCE_NAMES, Source
from arc_data.split import Split
from arc_data.tasks import Task, content_sha256

if TYPE_CHECKING:
    from arc_data.build import BuildOptions

BUILDER_VERSION = 1
"""Changes whenever the same sources and options give other arrays."""
ARRAYS_FILE = "arrays.json"
"""Beside the manifest: the hashes of the arrays as the published layout holds them."""

_NAMES_SHOWN = 5


class Described(Protocol):
    """A data set with a manifest."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What it says of itself."""

    @property
    def digest(self) -> str:
        """Names what determines its content."""


def make_manifest(
    sources: Sequence[Source],
    options: Mapping[str, Any],
    tasks: Sequence[Task],
    plan: Plan,
    left_out: Mapping[str, list[int]],
) -> dict[str, Any]:
    """Describes a build.

    Args:
        sources: The sources in the order they were given, without tasks left out.
        options: The build's options by name.
        tasks: All tasks in group order.
        plan: The arrays.
        left_out: Tasks too large for the canvas, with the shape of their first such grid.

    Returns:
        The manifest, of JSON values only: ``schema``, ``builder``, ``options``, ``sources``
        (name, upstream, num_tasks, sha256), ``tasks`` {name: content sha256}, ``task_names`` in
        group order, ``plan`` {file: sha256}, ``left_out``, ``audit`` (see ``audit.audit_plan``),
        ``digest``.
    """
    content = {task.name: content_sha256(task) for task in tasks}
    names = [task.name for task in tasks]
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "builder": BUILDER_VERSION,
        "options": dict(options),
        "sources": describe_sources(sources),
        "tasks": content,
        "task_names": names,
        "plan": {f"{name}.npy": _array_sha256(array) for name, array in plan.arrays().items()},
        "left_out": dict(left_out),
        "audit": audit_plan(plan, names, options["num_aug"]),
    }
    manifest["digest"] = manifest_digest(manifest)
    return manifest


def describe_sources(sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Describes sources for the manifest: name, upstream, num_tasks, sha256.

    The sha256 is over which task stands in which folder, in which role, with which content. A
    source with the sha256 of a known one has that one's name and upstream commit, wherever it
    was read from: the same tasks from a package, a folder or ARC Prize files are one data set.
    """
    described = []
    for source in sources:
        sha256 = _source_sha256(source)
        name, upstream = KNOWN_SOURCES.get(sha256, (source.name, source.upstream))
        entry = {"name": name, "upstream": upstream, "num_tasks": len(source.tasks)}
        described.append({**entry, "sha256": sha256})
    return described


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Returns the sha256 of the canonical JSON of what determines a data set's arrays.

    That is the manifest without ``digest``, without ``audit`` and ``leave_out_large``, which
    follow from the rest or show in it, and without protocol ``published`` and an empty
    ``left_out``, so that a data set built before these could be chosen keeps its digest.
    Canonical: UTF-8, keys sorted, no white space.
    """
    content = {key: value for key, value in manifest.items() if key not in ("digest", "audit")}
    if not content.get("left_out"):
        content.pop("left_out", None)
    options = {k: v for k, v in manifest["options"].items() if k != "leave_out_large"}
    if options.get("protocol") == PUBLISHED:
        del options["protocol"]
    text = json.dumps(
        {**content, "options": options}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def verify(path: str | Path) -> CompiledDataset:
    """Recomputes every hash of a saved data set.

    Args:
        path: The folder written by ``CompiledDataset.save``.

    Returns:
        The data set, when everything agrees.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is damaged or differs from the manifest; the message names it.
    """
    root = Path(path)
    manifest = load_manifest(root / MANIFEST_FILE)
    digest = manifest_digest(manifest)
    if manifest["digest"] != digest:
        raise ValueError(
            f"{root / MANIFEST_FILE}: digest must be {digest}, found {manifest['digest']};"
            " the manifest was changed, rebuild the data set"
        )
    for name, array in load_plan(root).arrays().items():
        expected, found = manifest["plan"].get(f"{name}.npy"), _array_sha256(array)
        if expected != found:
            raise ValueError(
                f"{root / name}.npy: sha256 must be {expected}, found {found};"
                " the file was changed, rebuild the data set"
            )
    return CompiledDataset.load(root)


def check_digest(expected: str | Mapping[str, Any], dataset: Described) -> None:
    """Checks that a data set is the one a result, checkpoint or plan was made with.

    Args:
        expected: The digest, or the whole manifest, of that data set.
        dataset: The data set at hand.

    Raises:
        ValueError: If the digests differ. The message names both and, where a manifest was
            given, the first tasks whose content differs or that only one of them has.
    """
    digest = expected if isinstance(expected, str) else expected["digest"]
    if digest == dataset.digest:
        return
    detail = ""
    if not isinstance(expected, str):
        detail = _differing_tasks(expected["tasks"], dataset.manifest["tasks"])
    raise ValueError(
        f"data set digest must be {digest}, found {dataset.digest}{detail};"
        " use the data set this was made with, or rebuild it with the same options"
    )


def check_built_as(dataset: CompiledDataset, name: str, options: "BuildOptions") -> None:
    """Checks that a data set is the named one, built with certain options.

    Args:
        dataset: The data set at hand.
        name: One of ``sources.SOURCE_NAMES``; own sources may be of any name, see
            ``check_content``.
        options: How it should have been built.

    Raises:
        ValueError: If not; the message names what differs.
    """
    found = [source["name"] for source in dataset.manifest["sources"]]
    if name not in OWN_SOURCES and found != list(SOURCE_NAMES[name]):
        raise ValueError(
            f"data={name} is made of {', '.join(SOURCE_NAMES[name])}, but the data set in"
            f" data_dir of {', '.join(found)}; choose another data_dir, or correct data="
        )
    for key, expected in vars(options).items():
        value = dataset.manifest["options"][key]
        if value != expected:
            raise ValueError(
                f"data.{key} is {expected}, but the data set in data_dir was built with {value};"
                " choose another data_dir, or correct the setting"
            )


def check_content(dataset: CompiledDataset, sources: Sequence[Source]) -> None:
    """Checks that a data set was built from sources with the content they have now.

    Args:
        dataset: The data set at hand.
        sources: The sources as they are.

    Raises:
        ValueError: If not; the message names the first tasks that differ.
    """
    left_out = dataset.manifest["left_out"]
    kept = [source.without(left_out) for source in sources]
    now = [source["sha256"] for source in describe_sources(kept)]
    if now == [source["sha256"] for source in dataset.manifest["sources"]]:
        return
    tasks = {task.name: content_sha256(task) for source in kept for task in source.tasks}
    raise ValueError(
        f"the sources have changed since the data set in data_dir was built"
        f"{_differing_tasks(dataset.manifest['tasks'], tasks)}; choose another data_dir"
    )


def record_array_hashes(path: str | Path, *, progress: bool = False) -> dict[str, Any]:
    """Verifies a saved data set and records the hashes of its published arrays beside it.

    Args:
        path: The folder written by ``CompiledDataset.save``.
        progress: Whether to show progress bars on stderr.

    Returns:
        What ``array_hashes`` returns; also in ``arrays.json``, with the digest.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If the data set is damaged, or ``arrays.json`` is there already and says
            something else; the message names the first array that differs.
    """
    dataset = verify(path)
    file = Path(path) / ARRAYS_FILE
    recorded = read_json(file) if file.exists() else None
    found = {"digest": dataset.digest, **array_hashes(dataset, progress=progress)}
    if recorded is None:
        write_json(file, found)
    elif recorded != found:
        theirs, ours = _flat(recorded), _flat(found)
        key = next(key for key in {**ours, **theirs} if theirs.get(key) != ours.get(key))
        raise ValueError(
            f"{file}: {key} must be {ours.get(key)}, found {theirs.get(key)} recorded;"
            " one of them is wrong: rebuild the data set and verify again"
        )
    return found


def array_hashes(dataset: CompiledDataset, *, progress: bool = False) -> dict[str, Any]:
    """Hashes the published arrays without ever holding them.

    Args:
        dataset: The data set.
        progress: Whether to show progress bars on stderr.

    Returns:
        For ``train`` and ``test``: ``total_groups``, ``mean_puzzle_examples``,
        ``num_puzzle_identifiers``, and shape, dtype and sha256 (raw C-order bytes) of each
        published array; for ``identifiers``: count, sha256 of the names joined by newlines,
        the first four and the last two.
    """
    names = dataset.identifiers()
    return {
        "train": _split_hashes(dataset.train, dataset, progress),
        "test": _split_hashes(dataset.test, dataset, progress),
        "identifiers": {
            "count": len(names),
            "sha256_of_newline_joined": hashlib.sha256("\n".join(names).encode()).hexdigest(),
            "first": names[:4],
            "last": names[-2:],
        },
    }


def _split_hashes(split: Split, dataset: CompiledDataset, progress: bool) -> dict[str, Any]:
    inputs, labels = hashlib.sha256(), hashlib.sha256()
    for chunk in tqdm(split.chunks(), "hashes", split.num_chunks, disable=not progress):
        inputs.update(np.ascontiguousarray(chunk["inputs"]).data)
        labels.update(np.ascontiguousarray(chunk["labels"]).data)
    tokens = {"shape": [split.num_examples, dataset.canvas**2], "dtype": "uint8"}
    num_variants = len(split.puzzle_identifiers)
    return {
        "total_groups": split.num_groups,
        "mean_puzzle_examples": split.num_examples / num_variants if num_variants else 0.0,
        "num_puzzle_identifiers": dataset.num_puzzle_identifiers,
        "inputs": {**tokens, "sha256": inputs.hexdigest()},
        "labels": {**tokens, "sha256": labels.hexdigest()},
        "puzzle_identifiers": _describe_array(split.puzzle_identifiers),
        "puzzle_indices": _describe_array(split.puzzle_indices),
        "group_indices": _describe_array(split.group_indices),
    }


def _describe_array(array: NDArray[Any]) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
    }


def _array_sha256(array: NDArray[Any]) -> str:
    """Hashes dtype, shape and C-order bytes: the .npy header may vary with numpy's version."""
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}\n".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _source_sha256(source: Source) -> str:
    lines = [
        f"{folder_name} {folder_name in source.evaluation_folders} {task.name}"
        f" {content_sha256(task)}"
        for folder_name, tasks in source.folders
        for task in tasks
    ]
    return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()


def _differing_tasks(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    names = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
    shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
    return f" ({len(names)} tasks differ: {shown})" if names else " (the same tasks)"


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Returns the leaves of nested objects by dotted name."""
    if not isinstance(value, dict):
        return {prefix: value}
    parts = (_flat(inner, f"{prefix}.{key}" if prefix else key) for key, inner in value.items())
    return {key: leaf for part in parts for key, leaf in part.items()}
