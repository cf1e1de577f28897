"""Results on ARC tasks: what must be in them, and from which K each task is solved."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.run_results import BEST_ON_TEST, TEXT, Kind, RunResult, lookup
from eval.scoring import SCHEMA, SCORE_NAMES

PRIMARY_SCORE, PRIMARY_K = SCORE_NAMES[0], "2"
_FIELDS: dict[str, tuple[type, ...]] = {
    "protocol": (str,),
    "voting.rule": (str,),
    "voting.halting": TEXT,
    "voting.num_aug": (int, type(None)),
    "voting.sources": (list,),
    "voting.puzzle_id": TEXT,
    "voting.partial": (bool,),
    "tasks": (dict,),
    "unscored": (list,),
    "num_test_pairs": (int,),
}
_MUST_AGREE = (
    "dataset.manifest_sha256",
    "split",
    "protocol",
    "voting.rule",
    "voting.halting",
    "voting.num_aug",
    "voting.sources",
    "voting.puzzle_id",
    "checkpoint.weights",
)


def check_scores(content: Mapping[str, Any], path: Path) -> None:
    """Refuses ``scores`` that are not percentages by score name and K.

    Args:
        content: A result, or its part without seen pairs.
        path: The file, for the message.

    Raises:
        ValueError: If a score is missing or none.
    """
    for name in SCORE_NAMES:
        ladder = lookup(content, f"scores.{name}", path)
        if not isinstance(ladder, dict) or not ladder:
            raise ValueError(f"{path}: scores.{name} must hold a score per K, found {ladder!r}")
        for k, value in ladder.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_k = k.isdecimal() and int(k) >= 1
            if not is_k or not is_number or not 0 <= value <= 100:  # NaN too
                raise ValueError(
                    f"{path}: scores.{name} must be percentages by K, found {k!r}: {value!r};"
                    " evaluate again"
                )


def check_test_pairs(value: Any, name: str, path: Path) -> None:
    """Refuses anything but a list of ``task/index``; arguments as in ``check_scores``."""
    if not isinstance(value, list) or not all(isinstance(pair, str) for pair in value):
        raise ValueError(
            f"{path}: {name} must list test pairs as text, found {str(value)[:60]}; evaluate again"
        )


def _check(content: Mapping[str, Any], path: Path) -> None:
    check_scores(content, path)
    check_test_pairs(content["unscored"], "unscored", path)
    if not content["tasks"]:
        raise ValueError(f"{path}: tasks must hold at least one task, found none; evaluate again")
    for task, outcomes in content["tasks"].items():
        ranks = [o.get("rank", 0) for o in outcomes if isinstance(o, dict)]
        good = all(rank is None or (type(rank) is int and rank >= 1) for rank in ranks)
        if not isinstance(outcomes, list) or not ranks or len(ranks) < len(outcomes) or not good:
            raise ValueError(
                f"{path}: tasks.{task} must list a rank (from 1, or null) per test pair, found"
                f" {str(outcomes)[:60]}; evaluate again"
            )


def _conditions(result: RunResult) -> dict[str, Any]:
    values = {name: result.field(name) for name in _MUST_AGREE}
    values["checkpoint.rule"] = result.rule
    values["K list"] = [list(result.field(f"scores.{name}")) for name in SCORE_NAMES]
    if values["K list"].count(values["K list"][0]) == len(SCORE_NAMES):
        values["K list"] = values["K list"][0]
    values["scored tasks"] = len(task_ranks(result))
    return values


def _rating(result: RunResult) -> float:
    ladder = result.field(f"scores.{PRIMARY_SCORE}")
    if PRIMARY_K not in ladder:
        raise ValueError(
            f"{result.path}: {BEST_ON_TEST} needs a score at K = {PRIMARY_K}, found {list(ladder)};"
            " evaluate again"
        )
    return float(ladder[PRIMARY_K])


ARC = Kind(
    schema=SCHEMA,
    fields=_FIELDS,
    check=_check,
    conditions=_conditions,
    partial="voting.partial",
    whole="all tasks and variants",
    description=("residual", "grad_scope", "residual_sum", "carry_dtype"),
    rating=_rating,
    chosen=(
        "each run's checkpoint was chosen by its score on the test pairs: the scores are those"
        " of a choice made on the test, too high by an unknown amount"
    ),
)


def task_ranks(result: RunResult, leave_out: Sequence[str] = ()) -> dict[str, float]:
    """The K from which each task is solved: the worst rank of its scored test pairs.

    Args:
        result: One result.
        leave_out: Further test pairs, ``task/index``, that do not count.

    Returns:
        Task -> rank, infinite where a right grid was never voted for; tasks without a scored test
        pair are absent. Sorted by task.
    """
    without = {*result.content["unscored"], *leave_out}
    ranks: dict[str, float] = {}
    for task, outcomes in sorted(result.content["tasks"].items()):
        counted = [o["rank"] for i, o in enumerate(outcomes) if f"{task}/{i}" not in without]
        if counted:
            ranks[task] = max(math.inf if rank is None else rank for rank in counted)
    return ranks
