"""Shared fixtures: small tasks by hand, the mini data set, and where ConceptARC lies."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.sources import Source, mini
from arc_data.tasks import Task, read_task


@pytest.fixture(scope="session")
def mini_dataset() -> CompiledDataset:
    return build([mini()], BuildOptions(num_aug=8, seed=42, canvas=6))


@pytest.fixture(scope="session")
def concept_dir() -> Path:
    default = Path(__file__).parents[2].parent / "shared" / "data" / "ConceptARC" / "corpus"
    path = Path(os.environ.get("HRM_DEEPLOOP_CONCEPT_DIR", default))
    if not path.is_dir():
        pytest.skip(f"ConceptARC is not at {path}; set HRM_DEEPLOOP_CONCEPT_DIR")
    return path


@pytest.fixture(scope="session")
def make_task() -> Callable[..., Task]:
    def make(name: str, seed: int = 0, num_train: int = 3, num_test: int = 2) -> Task:
        stream = np.random.RandomState(seed)

        def pair() -> dict[str, list[list[int]]]:
            return {
                side: stream.randint(0, 10, size=stream.randint(1, 6, size=2)).tolist()
                for side in ("input", "output")
            }

        obj = {
            "train": [pair() for _ in range(num_train)],
            "test": [pair() for _ in range(num_test)],
        }
        return read_task(name, obj, name)

    return make


@pytest.fixture
def two_folders(make_task: Callable[..., Task]) -> Source:
    return Source(
        name="hand",
        upstream=None,
        folders=(
            ("training", (make_task("b", 1), make_task("a", 2))),
            ("evaluation", (make_task("d", 3), make_task("c", 4, num_test=1))),
        ),
        evaluation_folders=frozenset({"evaluation"}),
    )
