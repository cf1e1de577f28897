"""The canonical build: published hashes, the recipe written plainly, refusals."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from arc_data.augment import apply
from arc_data.build import BuildOptions, build
from arc_data.compiled import UNUSED, CompiledDataset
from arc_data.manifest import array_hashes
from arc_data.sources import Source, load_sources
from arc_data.tasks import Pair, Task, read_task
from arc_data.tokens import encode

GOLDEN = Path(__file__).parents[1] / "golden"
ROOT = Path(__file__).parents[2]


def _golden(name: str) -> dict[str, object]:
    return json.loads((GOLDEN / f"arc_build_{name}.json").read_text(encoding="utf-8"))


def test_mini_has_the_published_hashes(mini_dataset: CompiledDataset) -> None:
    assert array_hashes(mini_dataset) == _golden("mini_aug8_seed42")


@pytest.mark.parametrize(
    ("name", "num_aug", "seed"), [("arc1", 8, 42), ("arc2", 5, 7)], ids=["arc1", "arc2"]
)
def test_arc_has_the_published_hashes(name: str, num_aug: int, seed: int) -> None:
    dataset = build(load_sources(name), BuildOptions(num_aug=num_aug, seed=seed))
    assert array_hashes(dataset) == _golden(f"{name}_aug{num_aug}_seed{seed}")


def test_arc1_concept_has_the_published_hashes(concept_dir: Path) -> None:
    dataset = build(load_sources("arc1_concept", concept_dir), BuildOptions(num_aug=8))
    assert array_hashes(dataset) == _golden("arc1_concept_aug8_seed42")


@pytest.mark.slow
def test_arc_aug_1000_has_the_published_hashes(concept_dir: Path) -> None:
    dataset = build(load_sources("arc1_concept", concept_dir), BuildOptions())
    assert array_hashes(dataset) == _golden("arc1_concept_aug1000_seed42")


def _plain_build(
    source: Source, num_aug: int, seed: int, canvas: int
) -> tuple[list[str], dict[str, list[np.ndarray]], dict[str, list[np.ndarray]]]:
    """The recipe, one draw after the other, with nothing clever in it."""
    stream = np.random.RandomState(seed)
    groups = []
    for folder_name, tasks in source.folders:
        order = list(tasks)
        stream.shuffle(order)
        for task in order:
            variants = [(0, np.arange(10, dtype=np.uint8))]
            seen = [_multiset(task, *variants[0])]
            for _ in range(5 * num_aug):
                dihedral = stream.randint(0, 8)
                colors = stream.permutation(np.arange(1, 10, dtype=np.uint8))
                color_map = np.concatenate([np.zeros(1, dtype=np.uint8), colors])
                if _multiset(task, dihedral, color_map) not in seen:
                    seen.append(_multiset(task, dihedral, color_map))
                    variants.append((dihedral, color_map))
                if len(variants) == num_aug + 1:
                    break
            groups.append((task, folder_name in source.evaluation_folders, variants))
    names = ["<blank>"]
    inputs: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    labels: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    for split in ("train", "test"):
        for task, held_out, variants in groups:
            pairs: tuple[Pair, ...] = task.test if split == "test" else task.train
            if held_out is False:
                pairs = () if split == "test" else task.pairs
            for dihedral, color_map in variants if pairs else ():
                suffix = f"_t{dihedral}_{''.join(map(str, color_map))}"
                name = task.name + ("" if color_map is variants[0][1] else suffix)
                if name not in names:
                    names.append(name)
                still = stream.randint(0, len(pairs))
                for index, pair in enumerate(pairs):
                    assert pair.output is not None
                    grids = [apply(grid, dihedral, color_map) for grid in (pair.input, pair.output)]
                    pad_r = pad_c = 0
                    if split == "train" and index != still:
                        pad_r = stream.randint(0, canvas - max(g.shape[0] for g in grids) + 1)
                        pad_c = stream.randint(0, canvas - max(g.shape[1] for g in grids) + 1)
                    inputs[split].append(encode(grids[0], canvas, pad_r, pad_c))
                    labels[split].append(encode(grids[1], canvas, pad_r, pad_c))
    return names, inputs, labels


def _multiset(task: Task, dihedral: int, color_map: np.ndarray) -> Counter[tuple[object, ...]]:
    keys = []
    for pair in task.pairs:
        grids = [apply(g, dihedral, color_map) for g in (pair.input, pair.output) if g is not None]
        keys.append(tuple((grid.shape, grid.tobytes()) for grid in grids))
    return Counter(keys)


def test_the_build_is_the_recipe_read_plainly(two_folders: Source) -> None:
    dataset = build([two_folders], BuildOptions(num_aug=6, seed=3, canvas=7))
    names, inputs, labels = _plain_build(two_folders, 6, 3, 7)
    assert dataset.identifiers() == names
    for split_name, split in (("train", dataset.train), ("test", dataset.test)):
        made = split.materialise(np.arange(split.num_examples))
        assert np.array_equal(made["inputs"], inputs[split_name])
        assert np.array_equal(made["labels"], labels[split_name])


def test_the_trials_end_at_five_per_wanted_variant() -> None:
    one_cell = {"input": [[5]], "output": [[5]]}
    obj = {"train": [one_cell] * 3, "test": [one_cell]}
    tasks = tuple(read_task(name, obj, name) for name in ("t", "u"))
    source = Source("s", None, (("training", tasks),), frozenset())
    dataset = build([source], BuildOptions(num_aug=10, seed=1, canvas=4))
    names, inputs, _ = _plain_build(source, 10, 1, 4)
    assert dataset.identifiers() == names
    rows = np.arange(dataset.train.num_examples)
    assert np.array_equal(dataset.train.materialise(rows)["inputs"], inputs["train"])


def test_a_symmetric_task_has_fewer_variants() -> None:
    obj = {"train": [{"input": [[5]], "output": [[5]]}], "test": [{"input": [[0]]}]}
    source = Source("s", None, (("training", (read_task("t", obj, "t"),)),), frozenset())
    dataset = build([source], BuildOptions(num_aug=50, canvas=3))
    assert dataset.num_puzzle_identifiers == 1 + 9  # one variant per colour 1..9
    assert dataset.test.num_examples == dataset.test.num_groups == 0


def test_pairs_of_other_shapes_are_other_variants() -> None:
    obj = {"train": [{"input": [[0, 0]], "output": [[0]]}], "test": [{"input": [[0]]}]}
    source = Source("s", None, (("training", (read_task("t", obj, "t"),)),), frozenset())
    assert build([source], BuildOptions(num_aug=50, canvas=3)).num_puzzle_identifiers == 1 + 2


def test_no_augmentation_keeps_the_originals(two_folders: Source) -> None:
    dataset = build([two_folders], BuildOptions(num_aug=0, canvas=6))
    assert dataset.identifiers()[1:] == dataset.task_names
    assert sorted(dataset.task_names) == ["a", "b", "c", "d"]
    assert set(dataset.task_names[:2]) == {"c", "d"}  # evaluation comes before training


def test_the_hash_seed_changes_nothing() -> None:
    code = (
        "from arc_data.build import BuildOptions, build; from arc_data.sources import mini;"
        "print(build([mini()], BuildOptions(num_aug=8, seed=42, canvas=6)).digest)"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    ]
    assert digests[0] == digests[1] != ""


def test_the_order_of_folders_and_files_changes_nothing(two_folders: Source) -> None:
    turned = Source(
        "hand",
        None,
        tuple((name, tasks[::-1]) for name, tasks in two_folders.folders[::-1]),
        two_folders.evaluation_folders,
    )
    options = BuildOptions(num_aug=4, canvas=6)
    assert build([turned], options).digest == build([two_folders], options).digest


def test_one_name_in_two_places(two_folders: Source, make_task: Callable[..., Task]) -> None:
    other = Source("other", None, (("x", (make_task("c"),)),), frozenset())
    with pytest.raises(ValueError, match="'c' must be in one place, found in hand/evaluation and"):
        build([two_folders, other], BuildOptions(num_aug=1))


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("a_t1_0213456789", "must not look like a variant, found task 'a'"),
        ("<blank>", "is the blank id's"),
    ],
)
def test_names_that_could_be_confused(
    two_folders: Source, make_task: Callable[..., Task], name: str, match: str
) -> None:
    other = Source("other", None, (("x", (make_task(name),)),), frozenset())
    with pytest.raises(ValueError, match=match):
        build([two_folders, other], BuildOptions(num_aug=1))


def test_a_task_that_does_not_fit_the_canvas() -> None:
    obj = {"train": [{"input": [[1]], "output": [[1] * 7]}], "test": [{"input": [[1]]}]}
    source = Source("s", None, (("training", (read_task("wide", obj, "wide"),)),), frozenset())
    with pytest.raises(ValueError, match=r"'wide' must fit data\.canvas=6, found a grid of 1 x 7"):
        build([source], BuildOptions(canvas=6))


def test_large_tasks_are_left_out_on_demand(
    two_folders: Source, make_task: Callable[..., Task]
) -> None:
    obj = {"train": [{"input": [[1]], "output": [[1] * 7]}], "test": [{"input": [[1] * 8]}]}
    wide = read_task("wide", obj, "wide")
    folders = tuple(
        (name, (*tasks, wide)[: 3 - i]) for i, (name, tasks) in enumerate(two_folders.folders[::-1])
    )
    source = Source("hand", None, folders, two_folders.evaluation_folders)
    options = BuildOptions(num_aug=4, canvas=6, leave_out_large=True)
    dataset, plain = build([source], options), build([two_folders], options)
    assert dataset.manifest["left_out"] == {"wide": [1, 7]}
    assert plain.manifest["left_out"] == {}
    assert array_hashes(dataset) == array_hashes(plain)
    with pytest.raises(ValueError, match="at least one task"):
        build([Source("s", None, (("x", (wide,)),), frozenset())], options)


def test_strict_keeps_ids_and_trains_on_nothing_of_evaluation(two_folders: Source) -> None:
    published, strict = (
        build([two_folders], BuildOptions(num_aug=6, seed=3, canvas=7, protocol=protocol))
        for protocol in ("published", "strict")
    )
    assert strict.protocol == "strict" and published.protocol == "published"
    assert strict.digest != published.digest
    assert strict.identifiers() == published.identifiers()
    rows = np.arange(published.train.num_examples)
    tasks = np.array(published.task_names)[published.train.describe(rows)["task"]]
    kept = rows[np.isin(tasks, ["a", "b"])]  # those of the folder training
    expected = published.train.materialise(kept)
    made = strict.train.materialise(np.arange(strict.train.num_examples))
    for key, value in expected.items():
        assert np.array_equal(made[key], value)
    rows = np.arange(published.test.num_examples)
    for key, value in published.test.materialise(rows).items():
        assert np.array_equal(strict.test.materialise(rows)[key], value)
    assert (strict.plan.pair_split == UNUSED).sum() == 6  # three demonstrations each
    assert strict.truth().keys() == {"c", "d"}
    said = strict.test.describe(rows)
    assert np.array_equal(said["test_index"], published.test.describe(rows)["test_index"])


@pytest.mark.parametrize("name", ["mini", "mini_dev"])
def test_strict_needs_something_to_train_on(name: str) -> None:
    options = BuildOptions(num_aug=1, canvas=6, protocol="strict")
    with pytest.raises(ValueError, match=r"data\.protocol=strict .* found no other tasks"):
        build(load_sources(name), options)


def test_no_task_at_all() -> None:
    with pytest.raises(ValueError, match="at least one task"):
        build([], BuildOptions())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_aug", -1),
        ("num_aug", 1.0),
        ("seed", -1),
        ("seed", 2**32),
        ("seed", True),
        ("canvas", 0),
        ("canvas", 65),
        ("canvas", "30"),
        ("protocol", "Strict"),
        ("leave_out_large", 1),
    ],
)
def test_bad_options(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"data\.{key} must be .*, found {value!r}"):
        BuildOptions(**{key: value})  # type: ignore[arg-type]
