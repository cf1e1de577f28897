"""ARC results that are compared: what of them is scored, and of which arms they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval import arms
from eval.arc_results import PRIMARY_SCORE, check_scores, check_test_pairs, task_ranks
from eval.run_results import RunResult
from eval.scoring import SCORE_NAMES

UNSEEN = "without_seen_pairs"
_FIRST_PRESET = "vanilla"
_PERCENT_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class ArmRun(arms.ArmRun):
    """One run of an arm: what sigma uses of it."""

    scores: Mapping[str, Mapping[str, float]]
    """Score name -> K -> percent."""
    ranks: Mapping[str, float]
    """Task -> the K from which it is solved, see ``task_ranks``."""


Arm = arms.Arm[ArmRun]


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Results that are compared."""

    arms: tuple[Arm, ...]
    conditions: Mapping[str, Any]
    """What all results share; what they do not is a warning and {"differs": [values]}."""
    top_k: tuple[str, ...]
    tasks: tuple[str, ...] | None
    """The scored tasks, sorted; None where results have different ones (pooled anyway)."""
    num_test_pairs: int
    warnings: tuple[str, ...]


def pool(results: Sequence[RunResult], *, anyway: bool = False, unseen: bool = False) -> Pool:
    """Checks that results may be compared, and sorts them into arms.

    Args:
        results: At least one.
        anyway: Turn unequal conditions into warnings. Partial results, one seed twice in an arm,
            and arms that differ stay what they are.
        unseen: Score only the test pairs that training shows in no turn or colours.

    Returns:
        The pool, the same for every order of the results.

    Raises:
        ValueError: If results differ in what must agree, one is partial, a seed comes twice in an
            arm, or the scores of a file are not those of its tasks. The message names the files.
    """
    results, conditions, warnings = arms.check_comparable(results, anyway=anyway)
    runs = [_arm_run(result, unseen) for result in results]
    top_k = [k for k in runs[0].scores[PRIMARY_SCORE] if all(_has(run, k) for run in runs)]
    if not top_k:
        raise ValueError(f"{results[-1].path}: must share a K with {results[0].path}, found none")
    other = next((run for run in runs if run.ranks.keys() != runs[0].ranks.keys()), None)
    if other is not None and not anyway:
        raise ValueError(
            f"{other.result.path}: must have the tasks of {results[0].path}, found others; compare"
            " results of equal conditions"
        )
    sorted_arms = arms.sort_into_arms(runs, _order)
    arms.check_steps(sorted_arms, warnings)
    return Pool(
        arms=sorted_arms,
        conditions=conditions,
        top_k=tuple(top_k),
        tasks=tuple(runs[0].ranks) if other is None else None,
        num_test_pairs=_part(results[0], unseen)["num_test_pairs"],
        warnings=tuple(warnings),
    )


def _has(run: ArmRun, k: str) -> bool:
    return all(k in run.scores[name] for name in SCORE_NAMES)


def _part(result: RunResult, unseen: bool) -> Mapping[str, Any]:
    """Where scores and counts stand: the result itself, or its part without seen pairs."""
    if not unseen:
        return result.content
    part = result.content.get(UNSEEN)
    if not isinstance(part, Mapping) or not {"seen", "scores", "num_test_pairs"} <= set(part):
        raise ValueError(f"{result.path}: {UNSEEN} is missing; score it again with this version")
    check_test_pairs(part["seen"], f"{UNSEEN}.seen", result.path)
    if not part["scores"]:
        raise ValueError(
            f"{result.path}: {UNSEEN} must have scores, found none: training shows every test"
            " pair; leave out --without-seen-pairs"
        )
    check_scores(part, result.path)
    return part


def _arm_run(result: RunResult, unseen: bool) -> ArmRun:
    part = _part(result, unseen)
    ranks = task_ranks(result, part["seen"] if unseen else ())
    if not ranks:
        raise ValueError(f"{result.path}: tasks must have a scored test pair, found none")
    for k, score in part["scores"][PRIMARY_SCORE].items():
        solved = sum(rank <= int(k) for rank in ranks.values())
        found = 100 * solved / len(ranks)
        if not abs(found - score) <= _PERCENT_TOLERANCE:
            raise ValueError(
                f"{result.path}: {PRIMARY_SCORE} at K = {k} must be {found:.4f} as its tasks say,"
                f" found {score:.4f}; evaluate again"
            )
    return ArmRun(result=result, scores=part["scores"], ranks=ranks)


def preset_and_rest(arm: Arm) -> tuple[str, str]:
    """The residual preset that an arm's name begins with, and what follows: scope, departures."""
    name, _, rest = (arm.name or "").partition("-")
    return name, rest


def _order(arm: Arm) -> tuple[bool, str]:
    """Vanilla arms first: what comes later is compared with what comes earlier."""
    return (preset_and_rest(arm)[0] != _FIRST_PRESET, arm.label)
