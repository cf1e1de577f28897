"""The audit against the facts known of the public sets, and against leaks made by hand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from arc_data import audit
from arc_data.audit import _canonical_key, audit_plan, format_audit, load_errata
from arc_data.augment import apply
from arc_data.build import BuildOptions, build
from arc_data.compiled import CompiledDataset
from arc_data.sources import Source, load_sources
from arc_data.tasks import Pair, Task, read_task

OWN_TASK = ("00576224", "3979b1a8", "66e6c45b", "94414823", "992798f6", "ca8de6ea", "f3e62deb")
COLOR_MAPS = st.permutations(range(1, 10)).map(lambda rest: np.array([0, *rest], dtype=np.uint8))
GRIDS = npst.arrays(
    np.uint8, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.integers(0, 9)
)


def _check_arc1(dataset: CompiledDataset, training: int) -> None:
    findings = dataset.manifest["audit"]
    assert findings == audit_plan(dataset.plan, dataset.task_names, dataset.num_aug)
    assert findings["tasks"] == {"evaluation": 400, "training": training}
    assert findings["pairs"]["test"] == 419
    assert findings["test_pairs_per_task"] == {"1": 381, "2": 19}
    assert findings["evaluation_demonstrations_in_train"] is True
    assert findings["same_pairs"] == {
        "training": [],
        "evaluation": [],
        "across": [["070dd51e", "40853293"]],
    }
    seen = findings["test_pairs_seen"]
    assert seen["exact"] == {"070dd51e/0": ["40853293 test 0"]}
    assert list(seen["other_task"]) == ["070dd51e/0", "50a16a69/0"]
    assert seen["other_task"]["50a16a69/0"] == ["caa06a1f train 2"]
    assert list(seen["own_task"]) == [f"{task}/0" for task in OWN_TASK]


def test_arc1() -> None:
    _check_arc1(build(load_sources("arc1"), BuildOptions(num_aug=1)), 400)


def test_arc1_concept(concept_dir: Path) -> None:
    dataset = build(load_sources("arc1_concept", concept_dir), BuildOptions(num_aug=1))
    _check_arc1(dataset, 560)


def test_tasks_short_of_variants() -> None:
    obj = {"train": [{"input": [[5]], "output": [[5]]}], "test": [{"input": [[0]]}]}
    task = read_task("t", obj, "t")
    for num_aug, tasks, missing in ((50, {"t": 8}, 42), (8, {}, 0)):
        findings = build([_source([], [task])], BuildOptions(num_aug=num_aug, canvas=3)).manifest
        assert findings["audit"]["short_of_num_aug"] == {"tasks": tasks, "variants": missing}


@pytest.mark.slow
def test_tasks_that_cannot_reach_1000_variants() -> None:
    short = build(load_sources("arc1"), BuildOptions()).manifest["audit"]["short_of_num_aug"]
    numbers = list(short["tasks"].values())
    assert len(numbers) == 140
    assert sum(number <= 72 for number in numbers) == 20
    assert sum(72 < number <= 576 for number in numbers) == 120
    assert short["variants"] == 140 * 1000 - sum(numbers)


def test_mini(mini_dataset: CompiledDataset) -> None:
    findings = mini_dataset.manifest["audit"]
    assert findings["tasks"] == {"evaluation": 46, "training": 0}
    assert findings["test_pairs_seen"]["other_task"] == {}
    assert list(findings["test_pairs_seen"]["own_task"]) == [
        "0d3d703e/0",
        "27a28665/0",
        "27a28665/1",
        "bdad9b1f/0",
        "e9afcf9a/0",
    ]


def _source(evaluation: list[Task], training: list[Task]) -> Source:
    folders = (("evaluation", tuple(evaluation)), ("training", tuple(training)))
    return Source("hand", None, folders, frozenset({"evaluation"}))


def test_leaks_made_by_hand(make_task: Callable[..., Task]) -> None:
    held_out = make_task("h", 1, num_test=2)
    swap = np.array([0, 2, 1, *range(3, 10)], dtype=np.uint8)
    assert held_out.test[0].output is not None and held_out.test[1].output is not None
    turned = Pair(apply(held_out.test[1].input, 3, swap), apply(held_out.test[1].output, 3, swap))
    leaking = Task("l", (held_out.test[0],), (turned,))
    twin = Task("twin", held_out.test[::-1], held_out.train)
    findings = build([_source([held_out], [leaking])], BuildOptions(num_aug=2, canvas=6)).manifest[
        "audit"
    ]
    assert findings["test_pairs_seen"] == {
        "exact": {"h/0": ["l train 0"]},
        "other_task": {"h/0": ["l train 0"], "h/1": ["l test 0"]},
        "own_task": {},
    }
    assert findings["same_pairs"]["across"] == []
    held_twice = build([_source([held_out, twin], [])], BuildOptions(num_aug=0, canvas=6))
    assert held_twice.manifest["audit"]["same_pairs"]["evaluation"] == [["h", "twin"]]
    training_twice = build([_source([], [held_out, twin])], BuildOptions(num_aug=0, canvas=6))
    assert training_twice.manifest["audit"]["same_pairs"]["training"] == [["h", "twin"]]


def test_strict_shows_no_demonstration(two_folders: Source) -> None:
    options = BuildOptions(num_aug=1, canvas=6, protocol="strict")
    findings = build([two_folders], options).manifest["audit"]
    assert findings["evaluation_demonstrations_in_train"] is False
    assert findings["pairs"] == {"train": 10, "test": 3}


def test_an_unknown_output_is_seen_nowhere() -> None:
    hidden = {"train": [{"input": [[1]], "output": [[2]]}], "test": [{"input": [[3]]}]}
    tasks = [read_task(name, hidden, name) for name in ("a", "b")]
    seen = build([_source(tasks[:1], tasks[1:])], BuildOptions(num_aug=0)).manifest["audit"]
    assert not any(seen["test_pairs_seen"].values())


@settings(max_examples=60, deadline=None)
@given(GRIDS, GRIDS, st.integers(0, 7), COLOR_MAPS)
def test_the_canonical_key_forgets_turn_and_colours(
    first: np.ndarray, second: np.ndarray, dihedral: int, color_map: np.ndarray
) -> None:
    turned = [apply(grid, dihedral, color_map) for grid in (first, second)]
    assert _canonical_key(*turned) == _canonical_key(first, second)


def test_the_canonical_key_keeps_zero_and_joins_input_with_output() -> None:
    one, two, zero = (np.array([[color]], dtype=np.uint8) for color in (1, 2, 0))
    assert _canonical_key(one, one) != _canonical_key(zero, zero)
    assert _canonical_key(one, two) != _canonical_key(one, one)
    assert _canonical_key(one, two) == _canonical_key(two, one)
    flat, tall = np.array([[1, 2]], dtype=np.uint8), np.array([[1], [2]], dtype=np.uint8)
    assert _canonical_key(flat, flat) != _canonical_key(flat, tall)


def test_errata_have_sources(
    mini_dataset: CompiledDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    for entry in load_errata():
        assert entry.keys() == {"task", "source", "note"} and all(entry.values())
    entries = [
        {"task": name, "source": "somewhere", "note": "wrong"} for name in ("27a28665", "other")
    ]
    monkeypatch.setattr(audit, "load_errata", lambda: entries)
    findings = audit_plan(mini_dataset.plan, mini_dataset.task_names, mini_dataset.num_aug)
    assert findings["errata"] == entries[:1]
    assert format_audit(findings)[-1] == "  27a28665: wrong (somewhere)"


def test_the_text_has_counts_and_names(mini_dataset: CompiledDataset) -> None:
    text = "\n".join(format_audit(mini_dataset.manifest["audit"]))
    assert "tasks: 46 evaluation, 0 training" in text
    assert "test pairs per evaluation task: 40 with 1, 5 with 2, 1 with 3" in text
    assert "in their own task, up to dihedral and colours: 5" in text
    assert "bdad9b1f/0 = bdad9b1f train 1" in text
    assert "in any of these ways: 5" in text
