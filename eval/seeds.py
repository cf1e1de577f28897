"""Sigma over seeds: results of runs in, spread per arm and the differences of arms out."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from eval import contrasts as between
from eval.arc_results import PRIMARY_K, PRIMARY_SCORE
from eval.curves import curves_of
from eval.pooling import Arm, ArmRun, Pool, pool, preset_and_rest
from eval.sample_statistics import LEVEL, describe
from eval.scoring import SCORE_NAMES
from eval.sigma_inputs import Inputs, Unfinished
from eval.sigma_words import conclude
from eval.task_statistics import (
    COVERAGE_NOTE,
    NUM_DRAWS,
    Solved,
    bootstrap,
    mcnemar,
    score_standard_error,
)

SCHEMA = "hrm_deeploop.sigma/1"
PRIMARY_PRESETS = ("deeploop", "vanilla")
"""Treatment and control of the contrast that is primary unless another is declared."""


def summarise(
    inputs: Inputs,
    *,
    contrast: tuple[str, str] | None = None,
    pool_anyway: bool = False,
    unseen: bool = False,
    random_seed: int = 0,
    num_draws: int = NUM_DRAWS,
) -> dict[str, Any]:
    """Everything that results over seeds say, for JSON; text, tables and figures are made of it.

    Args:
        inputs: From ``sigma_inputs.collect``.
        contrast: Treatment and control of the primary contrast, each an arm's label, name or
            digest; None: deeploop - vanilla, where exactly one pair of arms has names that differ
            in nothing else (so of one gradient scope).
        pool_anyway: Compare results of unequal conditions, and newest evaluations of unfinished
            runs, with warnings.
        unseen: Score only the test pairs that training does not show.
        random_seed: Seed of the bootstrap, and of the sign flips where not all are tried.
        num_draws: Draws of the bootstrap.

    Returns:
        schema, level, random_seed, num_draws, test_pairs (all | unseen), conditions, warnings,
        unfinished, top_k, num_tasks, num_test_pairs, task_names, arms, contrasts, primary and
        words. docs/sigma.md lists what each holds. It is the same for every order of the inputs.

    Raises:
        ValueError: If the results may not be pooled (see ``pooling.pool``), no run is finished, or
            ``contrast`` names no two arms.
    """
    results, left, warnings = between.usable(inputs, anyway=pool_anyway)
    pooled = pool(results, anyway=pool_anyway, unseen=unseen)
    warnings += pooled.warnings
    primary = _primary(pooled.arms, contrast)
    pairs = _pairs(pooled.arms, primary)
    contrasts = [_contrast(old, new, pooled, random_seed, num_draws) for old, new in pairs]
    declared = None if primary is None else [arm.label for arm in primary]
    has_primary = declared is not None and PRIMARY_K in pooled.top_k
    tests = [test for found in contrasts for test in found["tests"].values()]
    between.adjust(tests, contrasts[0]["tests"][PRIMARY_K] if has_primary else None)
    summary = {
        "schema": SCHEMA,
        "level": LEVEL,
        "random_seed": random_seed,
        "num_draws": num_draws,
        "bootstrap_coverage": COVERAGE_NOTE,
        "test_pairs": "unseen" if unseen else "all",
        "conditions": dict(pooled.conditions),
        "top_k": list(pooled.top_k),
        "num_tasks": None if pooled.tasks is None else len(pooled.tasks),
        "num_test_pairs": pooled.num_test_pairs,
        "task_names": None if pooled.tasks is None else list(pooled.tasks),
        "arms": [_describe_arm(arm, pooled, left, warnings) for arm in pooled.arms],
        "unfinished": [between.describe_unfinished(run) for run in left],
        "contrasts": contrasts,
        "primary": None,
        "warnings": warnings,
    }
    if has_primary and declared is not None:
        old, new = declared
        summary["primary"] = {
            "treatment": new, "control": old, "score": PRIMARY_SCORE, "k": PRIMARY_K,
        }  # fmt: skip
    return {**summary, "words": conclude(summary)}


def _primary(arms: Sequence[Arm], contrast: tuple[str, str] | None) -> tuple[Arm, Arm] | None:
    """Control and treatment of the declared contrast."""
    if contrast is not None:
        return between.declared(arms, contrast)
    names = [(arm, *preset_and_rest(arm)) for arm in arms]
    found = [
        (old, new)
        for old, old_preset, old_rest in names
        for new, new_preset, new_rest in names
        if (new_preset, old_preset) == PRIMARY_PRESETS and new_rest == old_rest
    ]
    return found[0] if len(found) == 1 else None


def _pairs(arms: Sequence[Arm], primary: tuple[Arm, Arm] | None) -> list[tuple[Arm, Arm]]:
    """All pairs, (control, treatment), the primary one first and as declared."""
    pairs = list(combinations(arms, 2))
    if primary is None:
        return pairs
    return [primary, *(pair for pair in pairs if pair not in (primary, primary[::-1]))]


def _solved(runs: Sequence[ArmRun], pooled: Pool) -> Solved:
    """Whether each run solves each task; (K, runs, tasks)."""
    assert pooled.tasks is not None
    ranks = np.array([[run.ranks[task] for task in pooled.tasks] for run in runs])
    return np.stack([ranks <= int(k) for k in pooled.top_k])


def _describe_arm(
    arm: Arm, pooled: Pool, left: Sequence[Unfinished], warnings: list[str]
) -> dict[str, Any]:
    scores: dict[str, dict[str, Any]] = {
        name: {k: describe([run.scores[name][k] for run in arm.runs]) for k in pooled.top_k}
        for name in SCORE_NAMES
    }
    for about in scores[PRIMARY_SCORE].values():
        about["task_standard_error"] = (
            None if pooled.tasks is None
            else score_standard_error(about["mean"], len(pooled.tasks))
        )  # fmt: skip
    solved = solved_from = None
    if pooled.tasks is not None:
        solved_from = [[_whole(run.ranks[task]) for task in pooled.tasks] for run in arm.runs]
        counts = _solved(arm.runs, pooled).sum(axis=1)  # (K, tasks)
        solved = dict(zip(pooled.top_k, counts.tolist(), strict=True))
    return {
        **between.describe_runs(arm, pooled.arms, left),
        "scores": scores,
        "seeds_that_solve": solved,
        "solved_from": solved_from,
        "curves": curves_of(arm, warnings),
    }


def _whole(rank: float) -> int | None:
    """A rank as JSON has it: infinity, for never, is null."""
    return int(rank) if math.isfinite(rank) else None


def _contrast(
    control: Arm, treatment: Arm, pooled: Pool, random_seed: int, num_draws: int
) -> dict[str, Any]:
    """Everything on treatment - control."""
    pair = between.describe_pair(control, treatment)
    is_paired, both = pair["paired"], pair["paired_seeds"]

    def at(name: str, k: str) -> dict[str, Any]:
        return between.compare(
            control, treatment, lambda run: run.scores[name][k], both, random_seed
        )

    scores = {name: {k: at(name, k) for k in pooled.top_k} for name in SCORE_NAMES}
    strict = scores[PRIMARY_SCORE]
    old, new = (between.compared_runs(arm, pair) for arm in (control, treatment))
    return {
        **pair,
        "scores": scores,
        "tests": {k: between.headline_test(at_k, is_paired) for k, at_k in strict.items()},
        "tasks": _over_tasks(old, new, both if is_paired else [], pooled, random_seed, num_draws),
        "planning": {
            k: between.planning(at_k, is_paired, len(old), len(new)) for k, at_k in strict.items()
        },
    }


def _over_tasks(
    control: Sequence[ArmRun],
    treatment: Sequence[ArmRun],
    seeds: list[int],
    pooled: Pool,
    random_seed: int,
    num_draws: int,
) -> dict[str, Any] | None:
    """Strict score by tasks; None where the results have different tasks."""
    if pooled.tasks is None:
        return None
    old, new = _solved(control, pooled), _solved(treatment, pooled)
    intervals = bootstrap(old, new, paired=bool(seeds), seed=random_seed, num_draws=num_draws)
    by_k = {}
    for i, k in enumerate(pooled.top_k):
        counts = zip(pooled.tasks, old[i].sum(axis=0), new[i].sum(axis=0), strict=True)
        by_k[k] = {
            "bootstrap": intervals[i],
            "mcnemar": [{"seed": s, **mcnemar(old[i, j], new[i, j])} for j, s in enumerate(seeds)],
            # Task -> seeds of the control and of the treatment that solve it.
            "discordant_tasks": {
                task: [int(before), int(after)]
                for task, before, after in counts
                if before * len(treatment) != after * len(control)
            },
        }
    return {"num_control": len(control), "num_treatment": len(treatment), "by_k": by_k}
