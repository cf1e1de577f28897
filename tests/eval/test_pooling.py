"""What may be compared, what may not, and which runs are one arm."""

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from sigma_runs import make_result, ranks_of, write_result

from eval.pooling import Pool, pool
from eval.run_results import RunResult
from eval.sigma_inputs import collect, read_result


def read(folder: Path, *results: dict[str, Any]) -> list[RunResult]:
    paths = [write_result(folder / f"{i}.json", result) for i, result in enumerate(results)]
    return [read_result(path) for path in paths]


def labels(pooled: Pool) -> list[str]:
    return [arm.label for arm in pooled.arms]


DIFFERENT: dict[str, Any] = {
    "dataset__manifest_sha256": "bb" * 32,
    "split": "arc1-evaluation",
    "protocol": "strict",
    "voting__rule": "weighted",
    "voting__halting": "act",
    "voting__num_aug": 9,
    "voting__sources": ["a", "b"],
    "voting__puzzle_id": "blank",
    "checkpoint__weights": "ema",
    "checkpoint__rule": "best-on-test",
}


@pytest.mark.parametrize("field", DIFFERENT)
def test_unequal_conditions_name_both_files_and_values(field: str, tmp_path: Path) -> None:
    results = read(
        tmp_path,
        make_result(0, ranks_of(8)),
        make_result(1, ranks_of(9), **{field: DIFFERENT[field]}),
    )
    name = field.replace("__", ".")
    with pytest.raises(ValueError) as error:
        pool(results)
    text = str(error.value)
    assert text.startswith(f"{results[1].path}: {name} must be ")
    assert f"as in {results[0].path}" in text
    assert repr(DIFFERENT[field]) in text
    assert "--pool-anyway" in text
    pooled = pool(results, anyway=True)
    told = [warning for warning in pooled.warnings if f"{name} is" in warning]
    assert len(told) == 1
    assert str(results[1].path) in told[0]
    assert pooled.conditions[name] == {"differs": [results[0].field(name), DIFFERENT[field]]}


def test_k_lists(tmp_path: Path) -> None:
    short = make_result(1, ranks_of(9))
    for ladder in short["scores"].values():
        del ladder["10"]
    results = read(tmp_path, make_result(0, ranks_of(8)), short)
    with pytest.raises(ValueError, match=r"1\.json: K list must be \['1', '2', '10'\]"):
        pool(results)
    assert pool(results, anyway=True).top_k == ("1", "2")
    for ladder in short["scores"].values():
        ladder.clear()
        ladder["7"] = 45.0
    with pytest.raises(ValueError, match="must share a K"):
        pool(read(tmp_path, make_result(0, ranks_of(8)), short), anyway=True)


def test_tasks_of_other_names(tmp_path: Path) -> None:
    other = make_result(1, ranks_of(9))
    other["tasks"]["x"] = other["tasks"].pop("t000")
    results = read(tmp_path, make_result(0, ranks_of(8)), other)
    with pytest.raises(ValueError, match=r"1\.json: must have the tasks of .*0\.json"):
        pool(results)
    assert pool(results, anyway=True).tasks is None


def test_partial_results_are_always_refused(tmp_path: Path) -> None:
    results = read(tmp_path, make_result(0, ranks_of(8), voting__partial=True))
    for anyway in (False, True):
        with pytest.raises(ValueError, match=r"0\.json: voting\.partial must be false"):
            pool(results, anyway=anyway)


def test_one_seed_twice_in_an_arm_is_always_refused(tmp_path: Path) -> None:
    results = read(tmp_path, make_result(0, ranks_of(8)), make_result(0, ranks_of(9)))
    for anyway in (False, True):
        with pytest.raises(ValueError, match=r"1\.json: seed 0 of arm .* found it in .*0\.json"):
            pool(results, anyway=anyway)


def test_scores_must_be_those_of_the_tasks(tmp_path: Path) -> None:
    result = make_result(0, ranks_of(8), scores__task_accuracy_strict__2=45.0)
    with pytest.raises(ValueError, match=r"0\.json: task_accuracy_strict at K = 2 must be 40\.0"):
        pool(read(tmp_path, result))


def test_something_must_be_scored(tmp_path: Path) -> None:
    result = make_result(0, ranks_of(1, 2), unscored=["t000/0", "t001/0"])
    with pytest.raises(ValueError, match=r"0\.json: tasks must have a scored test pair"):
        pool(read(tmp_path, result))


@pytest.mark.parametrize("key", ["residual", "grad_scope", "residual_sum", "carry_dtype"])
def test_arms_that_differ_never_pool(key: str, tmp_path: Path) -> None:
    changed = {f"arm__{key}": "another"}
    first = make_result(0, ranks_of(8))
    by_digest = make_result(1, ranks_of(8), digest="another digest", **changed)
    for anyway in (False, True):
        pooled = pool(read(tmp_path, first, by_digest), anyway=anyway)
        assert [arm.seeds for arm in pooled.arms] in ([[0], [1]], [[1], [0]])
        assert labels(pooled) == ["vanilla-last_step [another ]", "vanilla-last_step [digest o]"]
        with pytest.raises(ValueError, match=rf"1\.json: arm\.{key} must be .* as in .*0\.json"):
            pool(read(tmp_path, first, make_result(1, ranks_of(8), **changed)), anyway=anyway)


def test_foreign_results_are_arms_of_their_own(tmp_path: Path) -> None:
    foreign = make_result(None, ranks_of(8), None, digest=None)
    pooled = pool(read(tmp_path, foreign, foreign))
    assert labels(pooled) == [f"unnamed [{tmp_path / name}]" for name in ("0.json", "1.json")]
    named = [make_result(seed, ranks_of(8), "mine", digest=None) for seed in (1, 0)]
    assert [arm.seeds for arm in pool(read(tmp_path, *named)).arms] == [[0, 1]]
    with pytest.raises(ValueError, match=r"0\.json: a result with a seed must have arm\.digest"):
        pool(read(tmp_path, make_result(0, ranks_of(8), None, digest=None)))


def test_order_does_not_matter_and_vanilla_comes_first(tmp_path: Path) -> None:
    arms = ("deeploop-last_step", "vanilla-last_step", "asymmetric-last_step")
    results = read(
        tmp_path,
        *(make_result(s, ranks_of(8 + s), arm) for arm, s in itertools.product(arms, range(3))),
    )
    pooled = pool(results)
    assert labels(pooled) == ["vanilla-last_step", "asymmetric-last_step", "deeploop-last_step"]
    for shuffle in range(5):
        assert pool(random.Random(shuffle).sample(results, len(results))) == pooled
    unlike = read(tmp_path, make_result(0, ranks_of(8)), make_result(1, ranks_of(8), split="x"))
    assert pool(unlike[::-1], anyway=True) == pool(unlike, anyway=True)


def test_choice_on_the_test_and_unlike_steps_are_called_so(tmp_path: Path) -> None:
    best = make_result(0, ranks_of(8), rule="best-on-test")
    pooled = pool(read(tmp_path, best, make_result(1, ranks_of(8), rule="best-on-test", step=4)))
    assert "chosen by its score on the test pairs" in pooled.warnings[0]
    assert pooled.warnings[1] == (
        "the checkpoints are of different steps: 4/9 in vanilla-last_step"
    )


def test_a_run_in_progress_is_refused(tmp_path: Path) -> None:
    path = write_result(tmp_path / "r/eval/step_9/results.json", make_result(0, ranks_of(8)))
    status = tmp_path / "r" / "status.json"
    status.write_text('{"state": "running", "host": "elsewhere", "pid": 1}')
    results = collect([path]).results
    with pytest.raises(ValueError, match=r"results\.json: its run must be finished"):
        pool(results)
    assert "still running" in pool(results, anyway=True).warnings[0]
    status.write_text('{"state": "failed"}')
    assert "marked failed" in pool(collect([path]).results).warnings[0]


def test_without_seen_pairs(tmp_path: Path) -> None:
    result = make_result(0, ranks_of(8))
    with pytest.raises(ValueError, match=r"0\.json: without_seen_pairs is missing"):
        pool(read(tmp_path, result), unseen=True)
    ladder = dict.fromkeys(("1", "2", "10"), 100 * 6 / 18)
    part = {"seen": ["t000/0", "t001/0"], "num_tasks": 18, "num_test_pairs": 18}
    scores = {name: ladder for name in result["scores"]}
    whole = {**result, "without_seen_pairs": {**part, "scores": scores}}
    pooled = pool(read(tmp_path, whole), unseen=True)
    assert (len(pooled.tasks or ()), pooled.num_test_pairs) == (18, 18)
    assert pooled.arms[0].runs[0].scores["task_accuracy_strict"]["2"] == pytest.approx(100 / 3)
    for bad, message in (
        ({**part, "scores": None}, "must have scores, found none"),
        ({**part, "seen": 3, "scores": scores}, "seen must list test pairs"),
        ({**part, "scores": {"x": 1}}, "scores.task_accuracy_strict is missing"),
    ):
        with pytest.raises(ValueError, match=message):
            pool(read(tmp_path, {**result, "without_seen_pairs": bad}), unseen=True)


def test_no_result() -> None:
    with pytest.raises(ValueError, match="at least one result"):
        pool([])
