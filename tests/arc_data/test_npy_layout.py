"""The published layout: plan -> arrays -> plan, its files, and folders that say what is not so."""

import json
import tempfile
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arc_data import npy_layout
from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.manifest import array_hashes
from arc_data.npy_layout import export
from arc_data.npy_reader import read_layout
from arc_data.sources import Source
from arc_data.tasks import read_task

GOLDEN = Path(__file__).parents[1] / "golden"
SIDES = st.integers(1, 4)
GRIDS = st.tuples(SIDES, SIDES).flatmap(
    lambda shape: st.lists(
        st.lists(st.integers(0, 9), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)
PAIRS = st.lists(st.fixed_dictionaries({"input": GRIDS, "output": GRIDS}), min_size=1, max_size=3)


@pytest.fixture
def exported(mini_dataset: CompiledDataset, tmp_path: Path) -> Path:
    export(mini_dataset, tmp_path / "layout")
    return tmp_path / "layout"


def test_mini_there_and_back(mini_dataset: CompiledDataset, exported: Path) -> None:
    again = read_layout(exported)
    for name, array in mini_dataset.plan.arrays().items():
        found = again.plan.arrays()[name]
        assert found.dtype == array.dtype and np.array_equal(found, array), name
    golden = json.loads((GOLDEN / "arc_build_mini_aug8_seed42.json").read_text(encoding="utf-8"))
    assert array_hashes(again) == golden
    assert again.manifest["tasks"] == mini_dataset.manifest["tasks"]
    assert again.manifest["plan"] == mini_dataset.manifest["plan"]
    assert (again.seed, again.num_aug, again.protocol) == (None, 8, "published")
    again.save(exported.parent / "again")
    assert CompiledDataset.load(exported.parent / "again").digest == again.digest


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.fixed_dictionaries({"train": PAIRS, "test": PAIRS}), min_size=1, max_size=3),
    st.integers(0, 6),
    st.integers(4, 6),
)
def test_any_held_out_tasks_there_and_back(
    objs: list[dict[str, object]], num_aug: int, canvas: int
) -> None:
    tasks = tuple(read_task(f"t{index}", obj, "hand") for index, obj in enumerate(objs))
    source = Source("hand", None, (("evaluation", tasks),), frozenset({"evaluation"}))
    dataset = build([source], BuildOptions(num_aug=num_aug, canvas=canvas))
    with tempfile.TemporaryDirectory() as folder:
        export(dataset, Path(folder) / "layout")
        again = read_layout(Path(folder) / "layout")
    for name, array in dataset.plan.arrays().items():
        assert np.array_equal(again.plan.arrays()[name], array), name


def test_the_files_are_the_published_ones(mini_dataset: CompiledDataset, exported: Path) -> None:
    golden = json.loads((GOLDEN / "arc_build_mini_aug8_seed42.json").read_text(encoding="utf-8"))
    assert sorted(path.name for path in exported.iterdir()) == ["identifiers.json", "test", "train"]
    names = json.loads((exported / "identifiers.json").read_text(encoding="utf-8"))
    assert names == mini_dataset.identifiers()
    for split in ("train", "test"):
        said = json.loads((exported / split / "dataset.json").read_text(encoding="utf-8"))
        facts = {key: golden[split][key] for key in golden[split] if key in said}
        assert said == {
            "pad_id": 0,
            "ignore_label_id": 0,
            "blank_identifier_id": 0,
            "vocab_size": 12,
            "seq_len": 36,
            "sets": ["all"],
            **facts,
        }
        assert len(facts) == 3
        arrays = sorted((exported / split).glob("*.npy"))
        assert len(arrays) == 5
        for file in arrays:
            array = np.load(file)
            expected = golden[split][file.stem.removeprefix("all__")]
            assert [list(array.shape), str(array.dtype)] == [expected["shape"], expected["dtype"]]


@pytest.mark.parametrize("protocol", ["published", "strict"])
def test_training_tasks_there_and_back(two_folders: Source, tmp_path: Path, protocol: str) -> None:
    """Roles of a training task's pairs are lost, nothing else."""
    obj = {"train": [{"input": [[1]], "output": [[2]]}], "test": [{"input": [[3, 4]]}]}
    hidden = read_task("e f_t1_0123456789x|é", obj, "hidden")
    folders = (("evaluation", (hidden,)), *two_folders.folders)
    folders = (("evaluation", (*two_folders.folders[0][1], hidden)), two_folders.folders[1])
    source = Source("hand", None, folders, two_folders.evaluation_folders)
    dataset = build([source], BuildOptions(num_aug=4, canvas=6, protocol=protocol))
    export(dataset, tmp_path / "layout")
    again = read_layout(tmp_path / "layout")
    assert again.protocol == protocol
    assert array_hashes(again) == array_hashes(dataset)
    truth = again.truth()
    assert truth.keys() == dataset.truth().keys() and truth[hidden.name] == [None]


def test_names_with_bars_are_read_too(mini_dataset: CompiledDataset, exported: Path) -> None:
    names = json.loads((exported / "identifiers.json").read_text(encoding="utf-8"))
    bars = [
        "|||".join([name[:8], name[9:11], name[12:]]) if len(name) > 8 else name for name in names
    ]
    bars[0] = names[0]
    (exported / "identifiers.json").write_text(json.dumps(bars), encoding="utf-8")
    assert read_layout(exported).identifiers() == mini_dataset.identifiers()


def test_nothing_half_written_is_left(
    mini_dataset: CompiledDataset, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(exported.parent.iterdir())
    with pytest.raises(ValueError, match="expected a path that does not exist"):
        export(mini_dataset, exported)
    usage = namedtuple("usage", ["total", "used", "free"])(1, 1, 1000)
    monkeypatch.setattr(npy_layout.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ValueError, match=r"expected 0\.00 GB of room"):
        export(mini_dataset, exported.parent / "other")
    assert sorted(exported.parent.iterdir()) == before


def test_an_empty_split_cannot_be_exported(two_folders: Source, tmp_path: Path) -> None:
    source = Source("s", None, two_folders.folders, frozenset())
    dataset = build([source], BuildOptions(num_aug=0, canvas=6))
    with pytest.raises(ValueError, match="examples in both splits, found none in test"):
        export(dataset, tmp_path / "layout")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("array", "match"),
    [
        ("inputs", r"all__(inputs|labels)\.npy: row \d+ must be the variant '.*' of its task's"),
        ("labels", r"all__labels\.npy: row 1500 must be the variant '.*' of its task's original"),
        ("puzzle_identifiers", "train|all__"),
        ("puzzle_indices", "ascending puzzle_indices|same number of examples"),
        ("group_indices", r"group_indices\.npy: expected every variant of a task"),
    ],
)
def test_one_changed_number_is_found(exported: Path, array: str, match: str) -> None:
    file = exported / "train" / f"all__{array}.npy"
    values = np.load(file)
    if values.ndim == 2:
        values[1500, 7] = 3 if values[1500, 7] != 3 else 4
    else:
        values[5] += 1
    np.save(file, values)
    with pytest.raises(ValueError, match=match) as error:
        read_layout(exported)
    assert len(str(error.value).splitlines()) == 1


def test_damaged_folders_are_named(exported: Path) -> None:
    file = exported / "test" / "all__inputs.npy"
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    with pytest.raises(ValueError, match=r"test/all__inputs\.npy: expected a whole"):
        read_layout(exported)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"test/all__inputs\.npy: expected an array"):
        read_layout(exported)
    file.write_bytes(whole)
    np.save(exported / "test" / "all__labels.npy", np.zeros((3, 36), dtype=np.uint8))
    with pytest.raises(ValueError, match=r"all__labels\.npy: expected uint8 of shape \(477, 36\)"):
        read_layout(exported)
    names = json.loads((exported / "identifiers.json").read_text(encoding="utf-8"))
    swapped = [*names[:2], names[11], *names[3:11], names[2], *names[12:]]
    for bad, match in (
        (["x"], "list of names with <blank> first"),
        (["<blank>", 1], "list of names"),
        (swapped, "follow each other"),
    ):
        (exported / "identifiers.json").write_text(json.dumps(bad), encoding="utf-8")
        with pytest.raises(ValueError, match=match):
            read_layout(exported)
    (exported / "identifiers.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"identifiers\.json: expected a JSON file"):
        read_layout(exported)
