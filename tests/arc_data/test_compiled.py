"""The compiled form: rows against the plain encoder, descriptions, ground truth, the folder."""

import json
from pathlib import Path

import numpy as np
import pytest

from arc_data.augment import apply
from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.sources import Source, mini
from arc_data.split import Split
from arc_data.tasks import Task, read_task
from arc_data.tokens import encode


def _check_rows(dataset: CompiledDataset, split: Split, tasks: dict[str, Task]) -> None:
    """Every row equals the plain encoding of what ``describe`` says it is."""
    rows = np.arange(split.num_examples)
    made, said = split.materialise(rows), split.describe(rows)
    names = dataset.identifiers()
    for row in rows:
        task = tasks[dataset.task_names[said["task"][row]]]
        pair = (task.test if split is dataset.test else task.pairs)[said["test_index"][row]]
        dihedral, color_map = int(said["dihedral"][row]), said["color_map"][row]
        pad_r, pad_c = split._pads[row].tolist()
        for key, grid in (("inputs", pair.input), ("labels", pair.output)):
            if grid is None:
                assert not made[key][row].any()
                continue
            turned = apply(grid, dihedral, color_map)
            assert np.array_equal(made[key][row], encode(turned, dataset.canvas, pad_r, pad_c))
        name = names[made["puzzle_identifiers"][row]]
        assert name.split("_")[0] == task.name
        assert (name == task.name) == (said["variant"][row] == 0)


def test_rows_equal_the_plain_encoding(two_folders: Source) -> None:
    tasks = {task.name: task for task in two_folders.tasks}
    dataset = build([two_folders], BuildOptions(num_aug=12, canvas=5))
    _check_rows(dataset, dataset.train, tasks)
    _check_rows(dataset, dataset.test, tasks)


def test_mini_rows_equal_the_plain_encoding(mini_dataset: CompiledDataset) -> None:
    tasks = {task.name: task for task in mini().tasks}
    _check_rows(mini_dataset, mini_dataset.train, tasks)
    _check_rows(mini_dataset, mini_dataset.test, tasks)
    pads = mini_dataset.plan.train_pads
    assert pads.any() and not mini_dataset.plan.test_pads.any()


def test_an_unknown_output_is_a_label_of_pad_only(mini_dataset: CompiledDataset) -> None:
    obj = {
        "train": [{"input": [[1]], "output": [[2]]}],
        "test": [{"input": [[3]]}, {"input": [[4, 4]], "output": [[5]]}],
    }
    task = read_task("t", obj, "t.json")
    for role in ("evaluation", "training"):
        held_out = frozenset({role} & {"evaluation"})
        source = Source("s", None, ((role, (task,)),), held_out)
        dataset = build([source], BuildOptions(num_aug=5, canvas=4))
        _check_rows(dataset, dataset.train, {"t": task})
        _check_rows(dataset, dataset.test, {"t": task})
        if held_out:
            first, second = dataset.truth()["t"]
            assert first is None
            assert second is not None and second.tolist() == [[5]]
        else:
            assert dataset.truth() == dataset.test_inputs() == {}


def test_truth_and_inputs_are_those_of_the_tasks(mini_dataset: CompiledDataset) -> None:
    truth, inputs = mini_dataset.truth(), mini_dataset.test_inputs()
    assert list(truth) == list(inputs) == mini_dataset.task_names
    for task in mini().tasks:
        pairs = zip(task.test, truth[task.name], inputs[task.name], strict=True)
        for pair, output, input_grid in pairs:
            assert np.array_equal(pair.input, input_grid)
            assert pair.output is not None and output is not None
            assert np.array_equal(pair.output, output)


def test_rows_come_in_any_order_with_repeats(mini_dataset: CompiledDataset) -> None:
    split = mini_dataset.train
    rows = np.array([1583, 0, 7, 7, 900])
    every = split.materialise(np.arange(split.num_examples))
    for key, value in split.materialise(rows).items():
        assert np.array_equal(value, every[key][rows])
        assert value.dtype == every[key].dtype
    assert split.materialise(rows[:0])["inputs"].shape == (0, 36)


@pytest.mark.parametrize("row", [-1, 1584])
def test_rows_out_of_range(mini_dataset: CompiledDataset, row: int) -> None:
    with pytest.raises(ValueError, match=r"rows must be in \[0, 1584\)"):
        mini_dataset.train.materialise(np.array([row]))
    with pytest.raises(ValueError, match=r"rows must be in \[0, 1584\)"):
        mini_dataset.train.describe(np.array([row]))


def test_save_and_load(mini_dataset: CompiledDataset, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "mini, 50% = ä"
    mini_dataset.save(path)
    assert [child.name for child in path.parent.iterdir()] == [path.name]
    loaded = CompiledDataset.load(path)
    assert (loaded.canvas, loaded.num_aug, loaded.seed) == (6, 8, 42)
    assert loaded.manifest == mini_dataset.manifest
    assert loaded.digest == mini_dataset.digest
    assert loaded.task_names == mini_dataset.task_names
    assert loaded.identifiers() == mini_dataset.identifiers()
    for name, array in loaded.plan.arrays().items():
        assert isinstance(array, np.memmap)
        assert np.array_equal(array, mini_dataset.plan.arrays()[name])
    rows = np.arange(0, 1584, 11)
    for key, value in loaded.train.materialise(rows).items():
        assert np.array_equal(value, mini_dataset.train.materialise(rows)[key])


def test_a_split_without_examples_is_saved_too(two_folders: Source, tmp_path: Path) -> None:
    source = Source("s", None, two_folders.folders, frozenset())
    build([source], BuildOptions(num_aug=2, canvas=6)).save(tmp_path / "d")
    loaded = CompiledDataset.load(tmp_path / "d")
    assert loaded.test.num_examples == 0
    assert loaded.train.num_groups == 4


def test_nothing_is_overwritten(mini_dataset: CompiledDataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a path that does not exist"):
        mini_dataset.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_nothing(
    mini_dataset: CompiledDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        mini_dataset.save(tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def saved(mini_dataset: CompiledDataset, tmp_path: Path) -> Path:
    mini_dataset.save(tmp_path / "d")
    return tmp_path / "d"


def _refused(path: Path, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match) as error:
        CompiledDataset.load(path)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["manifest.json", "grids.npy", "test_pads.npy"])
def test_a_missing_file_is_named(saved: Path, name: str) -> None:
    (saved / name).unlink()
    _refused(saved, FileNotFoundError, f"{name}: expected .* found no file")
    _refused(saved / "none", FileNotFoundError, "found no folder")


@pytest.mark.parametrize("name", ["grids.npy", "variant_dihedral.npy", "train_pads.npy"])
@pytest.mark.parametrize("length", [0, 20, -1], ids=["empty", "header", "last"])
def test_a_truncated_file_is_named(saved: Path, name: str, length: int) -> None:
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[:length])
    _refused(saved, ValueError, f"{name}: expected a whole .npy file")


def test_a_file_with_more_behind_the_array_is_named(saved: Path) -> None:
    with (saved / "shapes.npy").open("ab") as file:
        file.write(b"x")
    _refused(saved, ValueError, "shapes.npy: expected one array and nothing else")


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("shapes", np.zeros((3, 2, 2), dtype=np.uint8)),
        ("pair_task", np.zeros(3, dtype=np.int32)),
        ("variant_color_map", np.zeros((414, 9), dtype=np.uint8)),
        ("variant_dihedral", np.zeros(414, dtype=np.int64)),
        ("train_pads", np.zeros((1583, 2), dtype=np.uint8)),
        ("test_pads", np.zeros((477, 3), dtype=np.uint8)),
        ("grids", np.zeros((229, 2, 7, 7), dtype=np.uint8)),
    ],
)
def test_an_array_that_does_not_fit_the_others_is_named(
    saved: Path, name: str, array: np.ndarray
) -> None:
    np.save(saved / f"{name}.npy", array)
    _refused(saved, ValueError, rf"{name}\.npy: expected .* of shape .*, found")


def test_tasks_out_of_order_are_named(saved: Path) -> None:
    tasks = np.load(saved / "variant_task.npy")
    np.save(saved / "variant_task.npy", tasks[::-1])
    _refused(saved, ValueError, r"variant_task\.npy: expected the tasks 0\.\.45 in ascending")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"schema": 2}, "schema must be 1, found 2"),
        ({"tasks": []}, "key 'tasks' must be of type dict, found list"),
        ({"digest": None}, "key 'digest' must be of type str, found NoneType"),
        ({"options": {"num_aug": 8, "seed": 42}}, r"options\.canvas must be an integer"),
        ({"options": {"num_aug": 8, "canvas": 6}}, r"options\.seed must be an integer"),
        (
            {"options": {"num_aug": 8, "canvas": 6, "seed": None, "protocol": "x"}},
            r"options\.protocol must be one of published, strict, found 'x'",
        ),
    ],
)
def test_a_bad_manifest_is_named(saved: Path, change: dict[str, object], match: str) -> None:
    path = saved / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}))
    _refused(saved, ValueError, rf"manifest\.json: {match}")


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_a_manifest_that_is_no_object_is_named(saved: Path, content: str) -> None:
    (saved / "manifest.json").write_text(content)
    _refused(saved, ValueError, r"manifest\.json: expected")
