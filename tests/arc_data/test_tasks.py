"""Strict reading: what is refused, with which words; the content hash."""

import copy
import hashlib
import json
from typing import Any

import numpy as np
import pytest

from arc_data.tasks import content_sha256, read_grid, read_task

GOOD: dict[str, Any] = {
    "train": [{"input": [[1, 2]], "output": [[3], [4]]}],
    "test": [{"input": [[0]], "output": [[9]]}],
}


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ([[0]] * 31, r"1\.\.30 rows, found 31"),
        ([[0] * 31], r"row 0: a row must have 1\.\.30 cells, found 31"),
        ([[0, 1], [2]], "row 1: all rows must have the 2 cells of row 0, found 1"),
        ([[0, 10]], r"row 0 column 1: a colour must be an integer 0\.\.9, found 10"),
        ([[-1]], "found -1"),
        ([[256]], "found 256"),
        ([[1.5]], r"found 1\.5"),
        ([[1.0]], r"found 1\.0"),
        ([[True]], "found True"),
        ([["3"]], "found '3'"),
        ([[None]], "found None"),
        ([[[1]]], r"found \[1\]"),
        ([], r"1\.\.30 rows, found 0"),
        ([[]], r"1\.\.30 cells, found 0"),
        ([1, 2], "a row must be a list of colours, found 1"),
        (None, "must be a list of rows, found None"),
        ("12", "must be a list of rows, found '12'"),
        ({"a": 1}, "must be a list of rows"),
        (np.zeros((2, 2)), "must be a list of rows"),
    ],
)
def test_bad_grids_are_refused(value: object, match: str) -> None:
    with pytest.raises(ValueError, match=match) as error:
        read_grid(value, "f.json: train pair 0 input")
    message = str(error.value)
    assert message.startswith("f.json: train pair 0 input")
    assert len(message.splitlines()) == 1


def test_a_good_grid_is_read_only_uint8() -> None:
    grid = read_grid([[0, 1, 2], [3, 4, 9]], "x")
    assert grid.dtype == np.uint8
    assert grid.tolist() == [[0, 1, 2], [3, 4, 9]]
    with pytest.raises(ValueError, match="read-only"):
        grid[0, 0] = 1


def test_a_task_is_read_in_order() -> None:
    task = read_task("t", GOOD, "t.json")
    assert [len(task.train), len(task.test)] == [1, 1]
    assert [pair.input.tolist() for pair in task.pairs] == [[[1, 2]], [[0]]]
    output = task.pairs[0].output
    assert output is not None and output.tolist() == [[3], [4]]


def _bad(change: str) -> object:
    obj = copy.deepcopy(GOOD)
    if change == "no train":
        del obj["train"]
    elif change == "no test":
        del obj["test"]
    elif change == "empty train":
        obj["train"] = []
    elif change == "empty test":
        obj["test"] = []
    elif change == "train null":
        obj["train"] = None
    elif change == "other name":
        obj["name"] = "u"
    elif change == "no train output":
        del obj["train"][0]["output"]
    elif change == "no input":
        del obj["test"][0]["input"]
    elif change == "null test output":
        obj["test"][0]["output"] = None
    elif change == "misspelt":
        obj["test"][0]["outptu"] = obj["test"][0].pop("output")
    elif change == "pair list":
        obj["train"][0] = [[[1]], [[2]]]
    elif change == "bare pairs":
        return obj["train"]
    elif change == "list":
        return [1]
    return obj


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ("no train", r"key 'train' must be there, found \['test'\]"),
        ("no test", r"key 'test' must be there, found \['train'\]"),
        ("empty train", r"'train' must be a non-empty list of pairs, found \[\]"),
        ("empty test", r"'test' must be a non-empty list of pairs, found \[\]"),
        ("train null", "'train' must be a non-empty list of pairs, found None"),
        ("other name", "name key must equal the task's name 't', found 'u'"),
        ("no train output", "train pair 0: a train pair must have an 'output'"),
        ("no input", "test pair 0: key 'input' must be there"),
        ("null test output", "test pair 0 output: a grid must be a list of rows, found None"),
        ("misspelt", r"test pair 0: a pair may hold only input and output, found \['outptu'\]"),
        ("pair list", "train pair 0: a pair must be an object"),
        ("bare pairs", "looks like RE-ARC"),
        ("list", r"must be an object with train and test, found \[1\]"),
    ],
)
def test_bad_tasks_are_refused(change: str, match: str) -> None:
    with pytest.raises(ValueError, match=match) as error:
        read_task("t", _bad(change), "t.json")
    assert str(error.value).startswith("t.json: ")
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["", "a\nb", "a\n", "a\udcff"])
def test_bad_task_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="task name must be one non-empty line"):
        read_task(name, GOOD, "t.json")


def test_the_own_name_and_a_test_pair_without_output_are_allowed() -> None:
    task = read_task("t", {**GOOD, "name": "t", "test": [{"input": [[0]]}]}, "t.json")
    assert task.test[0].output is None


def test_the_content_hash_is_over_the_documented_bytes() -> None:
    expected = bytes([0, 0, 0, 1, 1, 2, 1, 2, 2, 1, 3, 4]) + bytes([0, 0, 0, 1, 1, 1, 0, 1, 1, 9])
    task = read_task("t", GOOD, "t.json")
    assert content_sha256(task) == hashlib.sha256(expected).hexdigest()
    hidden = read_task("t", {**GOOD, "test": [{"input": [[0]]}]}, "t.json")
    expected = expected[:-3] + bytes(2)
    assert content_sha256(hidden) == hashlib.sha256(expected).hexdigest()


def test_the_content_hash_sees_grids_and_roles_only() -> None:
    digest = content_sha256(read_task("t", GOOD, "t.json"))
    turned = json.loads(json.dumps({key: GOOD[key] for key in ("test", "train")}, indent=3))
    turned["train"][0] = {key: turned["train"][0][key] for key in ("output", "input")}
    turned["name"] = "other"
    assert content_sha256(read_task("other", turned, "o.json")) == digest
    swapped = {"train": GOOD["test"], "test": GOOD["train"]}
    assert content_sha256(read_task("t", swapped, "t.json")) != digest
