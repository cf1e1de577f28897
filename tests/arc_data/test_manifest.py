"""The manifest: what is in it, what the digest depends on, what verify finds."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset, Plan
from arc_data.manifest import (
    check_built_as,
    check_content,
    check_digest,
    describe_sources,
    manifest_digest,
    verify,
)
from arc_data.sources import KNOWN_SOURCES, Source, load_sources, mini
from arc_data.tasks import Task, content_sha256

OLD_KEYS = ("schema", "builder", "options", "sources", "tasks", "task_names", "plan")
PLAN_FIELDS = [field.name for field in fields(Plan)]


def test_the_manifest_says_what_was_built(mini_dataset: CompiledDataset) -> None:
    manifest = mini_dataset.manifest
    assert manifest["options"] == {
        "num_aug": 8,
        "seed": 42,
        "canvas": 6,
        "protocol": "published",
        "leave_out_large": False,
    }
    assert manifest["left_out"] == {}
    assert manifest["audit"]["tasks"] == {"evaluation": 46, "training": 0}
    (source,) = manifest["sources"]
    assert (source["name"], source["upstream"], source["num_tasks"]) == ("mini", "aa922be", 46)
    assert manifest["tasks"] == {task.name: content_sha256(task) for task in mini().tasks}
    assert sorted(manifest["plan"]) == sorted(f"{name}.npy" for name in PLAN_FIELDS)
    assert json.loads(json.dumps(manifest)) == manifest


def test_the_digest_is_over_the_canonical_json(mini_dataset: CompiledDataset) -> None:
    manifest = mini_dataset.manifest
    rest = {key: manifest[key] for key in OLD_KEYS}
    rest["options"] = {"num_aug": 8, "seed": 42, "canvas": 6}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert mini_dataset.digest == hashlib.sha256(text.encode()).hexdigest()
    assert manifest_digest(dict(reversed(manifest.items()))) == mini_dataset.digest
    assert manifest_digest(rest) == mini_dataset.digest


def test_a_manifest_from_before_protocols_is_read(
    mini_dataset: CompiledDataset, tmp_path: Path
) -> None:
    mini_dataset.save(tmp_path / "d")
    path = tmp_path / "d" / "manifest.json"
    old = {key: mini_dataset.manifest[key] for key in (*OLD_KEYS, "digest")}
    old["options"] = {"num_aug": 8, "seed": 42, "canvas": 6}
    path.write_text(json.dumps(old), encoding="utf-8")
    dataset = verify(tmp_path / "d")
    assert dataset.protocol == "published"
    check_built_as(dataset, "mini", BuildOptions(num_aug=8, seed=42, canvas=6))
    check_content(dataset, [mini()])


def test_protocol_and_tasks_left_out_are_part_of_the_digest(mini_dataset: CompiledDataset) -> None:
    manifest = mini_dataset.manifest
    options = manifest["options"]
    changed = [
        {**manifest, "options": {**options, "protocol": "strict"}},
        {**manifest, "left_out": {"a": [7, 7]}},
    ]
    assert len({mini_dataset.digest, *map(manifest_digest, changed)}) == 3


def test_known_sources_are_known_by_content(concept_dir: Path) -> None:
    sources = [
        source
        for name in ("mini", "mini_dev", "arc1_concept", "arc2")
        for source in load_sources(name, concept_dir)
    ]
    renamed = [replace(source, name="x", upstream=None) for source in sources]
    found = [(entry["name"], entry["upstream"]) for entry in describe_sources(renamed)]
    assert found == list(KNOWN_SOURCES.values())
    other = renamed[0].without([renamed[0].tasks[0].name])
    (entry,) = describe_sources([other])
    assert (entry["name"], entry["upstream"], entry["num_tasks"]) == ("x", None, 45)


def test_verify_accepts_what_was_saved(mini_dataset: CompiledDataset, tmp_path: Path) -> None:
    mini_dataset.save(tmp_path / "d")
    assert verify(tmp_path / "d").digest == mini_dataset.digest


@pytest.mark.parametrize("name", PLAN_FIELDS)
def test_verify_names_the_changed_file(
    mini_dataset: CompiledDataset, tmp_path: Path, name: str
) -> None:
    mini_dataset.save(tmp_path / "d")
    file = tmp_path / "d" / f"{name}.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}\.npy: ") as error:
        verify(tmp_path / "d")
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("key", ["tasks", "plan", "sources", "task_names", "builder"])
def test_verify_names_a_changed_manifest(
    mini_dataset: CompiledDataset, tmp_path: Path, key: str
) -> None:
    mini_dataset.save(tmp_path / "d")
    path = tmp_path / "d" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    changed = {
        "tasks": {**manifest["tasks"], "d511f180": "0" * 64},
        "plan": {**manifest["plan"], "grids.npy": "0" * 64},
        "sources": [],
        "task_names": manifest["task_names"][::-1],
        "builder": 0,
    }
    path.write_text(json.dumps({**manifest, key: changed[key]}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"manifest\.json: digest must be"):
        verify(tmp_path / "d")


@pytest.mark.parametrize("option", [{"num_aug": 4}, {"seed": 43}, {"canvas": 7}])
def test_every_option_changes_the_digest(
    mini_dataset: CompiledDataset, option: dict[str, int]
) -> None:
    options = BuildOptions(**{"num_aug": 8, "seed": 42, "canvas": 6, **option})
    assert build([mini()], options).digest != mini_dataset.digest


def test_check_digest(mini_dataset: CompiledDataset) -> None:
    check_digest(mini_dataset.digest, mini_dataset)
    check_digest(mini_dataset.manifest, mini_dataset)
    with pytest.raises(ValueError, match=f"must be abc, found {mini_dataset.digest}; use"):
        check_digest("abc", mini_dataset)
    other = {**mini_dataset.manifest, "digest": "abc"}
    with pytest.raises(ValueError, match=re.escape("(the same tasks)")):
        check_digest(other, mini_dataset)


def test_check_digest_names_the_tasks_that_differ(
    two_folders: Source, make_task: Callable[..., Task]
) -> None:
    changed = Source(
        "hand", None, (("evaluation", (make_task("c", 9), make_task("e"))),), frozenset()
    )
    options = BuildOptions(num_aug=1, canvas=6)
    ours, theirs = build([changed], options), build([two_folders], options)
    with pytest.raises(ValueError, match=re.escape("(5 tasks differ: a, b, c, d, e)")) as error:
        check_digest(theirs.manifest, ours)
    assert len(str(error.value).splitlines()) == 1


def test_the_role_of_a_folder_is_part_of_the_digest(two_folders: Source) -> None:
    options = BuildOptions(num_aug=0, canvas=6)
    other = Source("hand", None, two_folders.folders, frozenset())
    first, second = (build([source], options).manifest for source in (two_folders, other))
    assert first["sources"][0]["sha256"] != second["sources"][0]["sha256"]
    assert first["tasks"] == second["tasks"]
