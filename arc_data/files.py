"""Files: folders of ARC JSON, challenges and solutions of the ARC Prize, whole new folders.

Whatever is no task file is passed over and listed; whatever looks like one must be one.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arc_data.json_files import read_json
from arc_data.tasks import Pair, Task, read_grid, read_task

KAGGLE_FOLDERS = ("training", "evaluation", "test")
"""What a challenges file's name may say; it becomes the name of the sub-folder."""

_MAX_SHOWN = 3


@dataclass(frozen=True, eq=False)
class FolderContent:
    """What a folder holds.

    Attributes:
        folders: Tasks by sub-folder; a flat folder has the one sub-folder ``""``.
        skipped: What was passed over, as paths relative to the folder, ``/`` after a folder.
    """

    folders: dict[str, tuple[Task, ...]]
    skipped: tuple[str, ...]


@contextmanager
def new_folder(target: Path, fix: str) -> Iterator[Path]:
    """Gives a folder to fill, which gets its name when all went well and is removed if not.

    Args:
        target: The name; nothing may have it. Missing parent folders are made.
        fix: How to choose another one, for the message.

    Yields:
        The folder to fill, beside ``target``.

    Raises:
        ValueError: If ``target`` exists.
    """
    if target.exists() or target.is_symlink():
        raise ValueError(f"{target}: expected a path that does not exist, found one; {fix}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.parent / f".{target.name}.{secrets.token_hex(4)}.partial"
    partial.mkdir()
    try:
        yield partial
        os.rename(partial, target)
    finally:
        if partial.exists():
            shutil.rmtree(partial)


def read_folder(root: Path) -> FolderContent:
    """Reads a folder of ARC JSON files, nested one level or flat.

    Hidden files and folders, files of other kinds, and sub-folders without task files are passed
    over. A task's name is its file's name without ``.json``.

    Args:
        root: The folder.

    Returns:
        Its tasks and what was passed over.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If it holds no task, mixes both levels, or a file is not a valid task.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: expected a folder of ARC JSON files, found no folder")
    flat, skipped = _read_level(root, "")
    nested = {}
    for child in sorted(path for path in root.iterdir() if path.is_dir()):
        if child.name.startswith("."):
            skipped.append(f"{child.name}/")
            continue
        tasks, passed_over = _read_level(child, f"{child.name}/")
        deeper = (path for path in child.iterdir() if path.is_dir())
        skipped += [*passed_over, *(f"{child.name}/{path.name}/" for path in deeper)]
        if tasks:
            nested[child.name] = tasks
        else:
            skipped.append(f"{child.name}/")
    if bool(nested) == bool(flat):
        found = "both" if flat else "neither"
        raise ValueError(
            f"{root}: expected ARC JSON files either in it or in its sub-folders, found {found};"
            " give a folder such as ARC-AGI/data or ARC-AGI/data/training"
        )
    return FolderContent(nested or {"": flat}, tuple(sorted(skipped)))


def read_kaggle(challenges: Path, solutions: Path | None) -> tuple[str, tuple[Task, ...]]:
    """Reads a challenges file of the ARC Prize, with its solutions where there are any.

    Args:
        challenges: ``{task: {"train": [pair, ...], "test": [{"input": grid}, ...]}}``; its name
            says training, evaluation or test.
        solutions: ``{task: [grid, ...]}`` with one output for each test input of every task of
            ``challenges``, or None where the outputs are not known.

    Returns:
        The sub-folder's name, one of ``KAGGLE_FOLDERS``, and the tasks.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is damaged, its name says nothing, a task is not valid, or the two
            files do not belong together.
    """
    folder_name = _kaggle_folder(challenges)
    tasks = {
        name: read_task(name, value, f"{challenges}: task {name}")
        for name, value in _read_object(challenges).items()
    }
    if not tasks:
        raise ValueError(f"{challenges}: expected at least one task, found none; check the file")
    if solutions is None:
        return folder_name, tuple(tasks.values())
    answers = _read_object(solutions)
    _check_same_tasks(challenges, tasks, solutions, answers)
    return folder_name, tuple(
        _with_outputs(task, answers[name], challenges, f"{solutions}: task {name}")
        for name, task in tasks.items()
    )


def _read_level(folder: Path, prefix: str) -> tuple[tuple[Task, ...], list[str]]:
    """Returns the tasks right in ``folder`` by name, and the other files in it."""
    tasks, skipped = [], []
    for file in sorted(path for path in folder.iterdir() if not path.is_dir()):
        if file.suffix != ".json" or file.name.startswith(".") or not file.is_file():
            skipped.append(f"{prefix}{file.name}")
            continue
        tasks.append(read_task(file.stem, read_json(file), str(file)))
    return tuple(tasks), skipped


def _read_object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(
            f"{path}: expected an object of tasks by name, found a {type(content).__name__};"
            " give an ARC Prize file, or use data=folder for a folder of single tasks"
        )
    return content


def _kaggle_folder(challenges: Path) -> str:
    said = [word for word in KAGGLE_FOLDERS if word in challenges.stem.lower()]
    if len(said) != 1:
        raise ValueError(
            f"{challenges}: the file's name must say one of {', '.join(KAGGLE_FOLDERS)},"
            f" found {' and '.join(said) or 'none'}; rename it, as in arc_evaluation_challenges"
        )
    return said[0]


def _check_same_tasks(
    challenges: Path, tasks: dict[str, Task], solutions: Path, answers: dict[str, Any]
) -> None:
    for path, missing, fix in (
        (solutions, tasks.keys() - answers.keys(), "add the missing solutions"),
        (challenges, answers.keys() - tasks.keys(), "solutions without a challenge: use its pair"),
    ):
        if missing:
            names = sorted(missing)
            shown = ", ".join(names[:_MAX_SHOWN]) + (", ..." if len(names) > _MAX_SHOWN else "")
            raise ValueError(
                f"{path}: expected the tasks of {(challenges, solutions)[path == challenges]},"
                f" found {len(names)} missing ({shown}); {fix}"
            )


def _with_outputs(task: Task, answers: Any, challenges: Path, where: str) -> Task:
    if not isinstance(answers, list) or len(answers) != len(task.test):
        found = len(answers) if isinstance(answers, list) else type(answers).__name__
        raise ValueError(
            f"{where}: expected a list of {len(task.test)} outputs, one per test input of"
            f" {challenges}, found {found}; use the solutions that belong to it"
        )
    if any(pair.output is not None for pair in task.test):
        raise ValueError(
            f"{challenges}: task {task.name}: expected test pairs without outputs beside a"
            " solutions file, found outputs; leave data.solutions_file out"
        )
    test = (
        Pair(pair.input, read_grid(answer, f"{where} output {index}"))
        for index, (pair, answer) in enumerate(zip(task.test, answers, strict=True))
    )
    return Task(task.name, task.train, tuple(test))
