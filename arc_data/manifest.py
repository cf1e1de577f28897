"""What a compiled data set is made of, by hash: the manifest, its checks, the golden hashes.

A manifest says schema, builder, options, sources, the content hash of every task, the group
order and the hash of every plan array. ``digest`` is over all of that, so that two data sets
with one digest give the same batches on every machine.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arc_data.compiled import (
    MANIFEST_FILE,
    SCHEMA,
    CompiledDataset,
    Plan,
    load_manifest,
    load_plan,
)
from arc_data.sources import SOURCE_NAMES, Source
from arc_data.split import Split
from arc_data.tasks import Task, content_sha256

if TYPE_CHECKING:
    from arc_data.build import BuildOptions

BUILDER_VERSION = 1
"""Changes whenever the same sources and options give other arrays."""

_CHUNK_ROWS = 4096
_NAMES_SHOWN = 5


def make_manifest(
    sources: Sequence[Source], options: "BuildOptions", tasks: Sequence[Task], plan: Plan
) -> dict[str, Any]:
    """Describes a build.

    Args:
        sources: The sources in the order they were given.
        options: The build's options.
        tasks: All tasks in group order.
        plan: The arrays.

    Returns:
        The manifest, of JSON values only: ``schema``, ``builder``, ``options``, ``sources``
        (name, upstream, num_tasks, sha256), ``tasks`` {name: content sha256}, ``task_names`` in
        group order, ``plan`` {file: sha256}, ``digest``.
    """
    content = {task.name: content_sha256(task) for task in tasks}
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "builder": BUILDER_VERSION,
        "options": asdict(options),
        "sources": [
            {
                "name": source.name,
                "upstream": source.upstream,
                "num_tasks": len(source.tasks),
                "sha256": _source_sha256(source, content),
            }
            for source in sources
        ],
        "tasks": content,
        "task_names": [task.name for task in tasks],
        "plan": {f"{name}.npy": _array_sha256(array) for name, array in plan.arrays().items()},
    }
    manifest["digest"] = manifest_digest(manifest)
    return manifest


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Returns the sha256 of the canonical JSON of a manifest without its ``digest``.

    Canonical: UTF-8, keys sorted, no white space.
    """
    content = {key: value for key, value in manifest.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
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


def check_digest(expected: str | Mapping[str, Any], dataset: CompiledDataset) -> None:
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
        theirs, ours = expected["tasks"], dataset.manifest["tasks"]
        names = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
        detail = f" ({len(names)} tasks differ: {shown})" if names else " (the same tasks)"
    raise ValueError(
        f"data set digest must be {digest}, found {dataset.digest}{detail};"
        " use the data set this was made with, or rebuild it with the same options"
    )


def check_built_as(dataset: CompiledDataset, name: str, options: "BuildOptions") -> None:
    """Checks that a data set is the named one, built with certain options.

    Args:
        dataset: The data set at hand.
        name: One of ``sources.SOURCE_NAMES``.
        options: How it should have been built.

    Raises:
        ValueError: If not; the message names what differs.
    """
    found = [source["name"] for source in dataset.manifest["sources"]]
    if found != list(SOURCE_NAMES[name]):
        raise ValueError(
            f"data={name} is made of {', '.join(SOURCE_NAMES[name])}, but the data set in"
            f" data_dir of {', '.join(found)}; choose another data_dir, or correct data="
        )
    for key, expected in asdict(options).items():
        value = dataset.manifest["options"][key]
        if value != expected:
            raise ValueError(
                f"data.{key} is {expected}, but the data set in data_dir was built with {value};"
                " choose another data_dir, or correct the setting"
            )


def array_hashes(dataset: CompiledDataset) -> dict[str, Any]:
    """Hashes the published arrays without ever holding them.

    Args:
        dataset: The data set.

    Returns:
        For ``train`` and ``test``: ``total_groups``, ``mean_puzzle_examples``,
        ``num_puzzle_identifiers``, and shape, dtype and sha256 (raw C-order bytes) of each
        published array; for ``identifiers``: count, sha256 of the names joined by newlines,
        the first four and the last two.
    """
    names = dataset.identifiers()
    return {
        "train": _split_hashes(dataset.train, dataset),
        "test": _split_hashes(dataset.test, dataset),
        "identifiers": {
            "count": len(names),
            "sha256_of_newline_joined": hashlib.sha256("\n".join(names).encode()).hexdigest(),
            "first": names[:4],
            "last": names[-2:],
        },
    }


def _split_hashes(split: Split, dataset: CompiledDataset) -> dict[str, Any]:
    inputs, labels = hashlib.sha256(), hashlib.sha256()
    for start in range(0, split.num_examples, _CHUNK_ROWS):
        rows = np.arange(start, min(start + _CHUNK_ROWS, split.num_examples))
        chunk = split.materialise(rows)
        inputs.update(chunk["inputs"].tobytes())
        labels.update(chunk["labels"].tobytes())
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


def _source_sha256(source: Source, content: Mapping[str, str]) -> str:
    """Hashes which task stands in which folder, in which role, with which content."""
    lines = [
        f"{folder_name} {folder_name in source.evaluation_folders} {task.name} {content[task.name]}"
        for folder_name, tasks in source.folders
        for task in tasks
    ]
    return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()
