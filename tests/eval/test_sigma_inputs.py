"""Finding runs and results, and reading them strictly."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from sigma_runs import changed, make_result, ranks_of, write_result, write_run

from eval.arc_results import task_ranks
from eval.sigma_inputs import collect, read_result


def some_result(**changes: Any) -> dict[str, Any]:
    return make_result(0, ranks_of(8), **changes)


def test_a_file_a_run_and_a_folder_are_searched_and_the_same_file_counts_once(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "runs" / "a", some_result())
    other = write_result(tmp_path / "runs" / "scored" / "results.json", some_result())
    write_result(tmp_path / "runs" / ".hidden" / "results.json", some_result())
    inside = run / "eval" / "step_000000009" / "results.json"
    found = collect([tmp_path / "runs"])
    assert [result.path for result in found.results] == [inside, other]
    assert [result.state for result in found.results] == ["finished", None]
    assert collect([other, run, inside, tmp_path / "runs", run.parent / "a"]) == found
    assert collect([inside]).results[0].run_dir == run
    assert not found.unfinished


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    run = write_run(tmp_path / "elsewhere" / "a", some_result())
    study = tmp_path / "study"
    study.mkdir()
    (study / "a").symlink_to(run)
    (study / "round").symlink_to(study)
    (study / "again").symlink_to(run)
    (result,) = collect([study]).results
    assert result.run_dir in (study / "a", study / "again")


def test_only_the_final_checkpoint_counts_unless_asked_otherwise(tmp_path: Path) -> None:
    early = make_result(0, ranks_of(12), rule="step", step=4)
    run = write_run(tmp_path / "a", early, make_result(0, ranks_of(8), step=9))
    write_result(run / "eval" / "step_000000009-blank" / "results.json", some_result(step=9))

    def step(checkpoint: str) -> tuple[int, str | None]:
        (result,) = collect([run], checkpoint).results
        return result.field("checkpoint.step"), result.rule

    assert step("final") == (9, "final")
    assert step("4") == (4, "step 4")
    assert step("best-on-test") == (4, "best-on-test")
    (left,) = collect([run], "5").unfinished
    assert left.why == f"no evaluation of step 5; run hrm-deeploop eval {run}"
    alone = run / "eval" / "step_000000004" / "results.json"
    assert collect([alone], "4").results[0].rule == "step 4"
    with pytest.raises(ValueError, match=r"results\.json: checkpoint\.rule must be 'final'.*--ch"):
        collect([alone])
    with pytest.raises(ValueError, match=r"results\.json: checkpoint\.step must be 9"):
        collect([alone], "9")
    with pytest.raises(ValueError, match="checkpoint must be final, best-on-test or a step"):
        collect([run], "newest")


def test_unfinished_runs_are_listed(tmp_path: Path) -> None:
    early = make_result(0, ranks_of(12), rule="step", step=4)
    dead = write_run(tmp_path / "dead", early, state="interrupted")
    (dead / "config.yaml").write_text("arch:\n  seed: 7\nseed: 3\n")
    (dead / "provenance.json").write_text(json.dumps({"arm": {"name": "deeploop-last_step"}}))
    live = write_run(tmp_path / "live", make_result(0, ranks_of(12)), state="running")
    found = collect([tmp_path])
    assert not found.results
    first, second = found.unfinished
    assert (first.path, first.state, first.arm, first.seed) == (
        dead, "interrupted", "deeploop-last_step", 3,
    )  # fmt: skip
    assert first.newest is not None
    assert first.newest.rule == "step 4"
    assert (second.path, second.state, second.why) == (live, "running", "it is training")


def test_best_on_test_waits_for_the_end(tmp_path: Path) -> None:
    early = make_result(0, ranks_of(12), rule="step", step=4)
    dead = write_run(tmp_path / "dead", early, state="interrupted")
    assert collect([dead], "best-on-test").unfinished


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        collect([tmp_path / "nowhere"])
    with pytest.raises(FileNotFoundError, match=r"holds no run and no results\.json"):
        collect([tmp_path])


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "schema": (
        {"schema": "older"},
        "schema must be 'hrm_deeploop.results/1' or 'hrm_deeploop.lm_results/1', found 'older'",
    ),
    "seed text": ({"seed": "0"}, "seed must be int or null, found '0'"),
    "seed bool": ({"seed": True}, "seed must be int or null, found 'True'"),
    "arm": ({"arm": None}, "arm.name is missing"),
    "voting": ({"voting": []}, "voting.rule is missing"),
    "scores": ({"scores": {}}, "scores.task_accuracy_strict is missing"),
    "no K": ({"scores__test_pair_accuracy": {}}, "must hold a score per K"),
    "K": ({"scores__test_pair_accuracy": {"two": 5.0}}, "percentages by K, found 'two'"),
    "K 0": ({"scores__test_pair_accuracy": {"0": 5.0}}, "percentages by K, found '0'"),
    "NaN": ({"scores__task_accuracy_strict__2": math.nan}, "percentages by K, found '2': nan"),
    "above 100": ({"scores__task_accuracy_strict__2": 101}, "percentages by K, found '2': 101"),
    "text score": ({"scores__task_accuracy_strict__2": "5"}, "percentages by K, found '2': '5'"),
    "no tasks": ({"tasks": {}}, "tasks must hold at least one task"),
    "tasks": ({"tasks": []}, "tasks must be dict, found '[]'"),
    "rank 0": ({"tasks__t000": [{"rank": 0}]}, "tasks.t000 must list a rank"),
    "rank bool": ({"tasks__t000": [{"rank": True}]}, "tasks.t000 must list a rank"),
    "no rank": ({"tasks__t000": [{}]}, "tasks.t000 must list a rank"),
    "no pairs": ({"tasks__t000": []}, "tasks.t000 must list a rank"),
    "no list": ({"tasks__t000": {"rank": 1}}, "tasks.t000 must list a rank"),
    "not dicts": ({"tasks__t000": [1]}, "tasks.t000 must list a rank"),
    "unscored": ({"unscored": [["t000", 0]]}, "unscored must list test pairs as text"),
    "partial": ({"voting__partial": None}, "voting.partial must be bool, found 'None'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_results_name_the_file_in_one_line(case: str, tmp_path: Path) -> None:
    changes, message = BAD[case]
    path = write_result(tmp_path / "results.json", changed(some_result(), **changes))
    with pytest.raises(ValueError) as error:
        read_result(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[1]", "null", "{", '{"schema": 1, "schema": 2}', "\x00"])
def test_files_that_are_no_result(text: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"results\.json: "):
        read_result(path)


def test_a_task_is_solved_from_its_worst_scored_pair_on(tmp_path: Path) -> None:
    tasks = {
        "b": [{"rank": 2}, {"rank": 7}],
        "a": [{"rank": 1}, {"rank": None}],
        "c": [{"rank": 3}],
    }
    path = write_result(tmp_path / "r.json", some_result(tasks=tasks, unscored=["c/0"]))
    result = read_result(path)
    assert task_ranks(result) == {"a": math.inf, "b": 7}
    assert task_ranks(result, ["a/1", "b/0", "b/1"]) == {"a": 1}
