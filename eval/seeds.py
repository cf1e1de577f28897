"""Sigma over seeds: results of runs in, spread per arm and the differences of arms out."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from eval import power
from eval.curves import learning_curves
from eval.pooling import Arm, ArmRun, Pool, pool, preset_and_rest
from eval.sample_statistics import LEVEL, describe, holm, paired, welch
from eval.scoring import SCORE_NAMES
from eval.sigma_inputs import PRIMARY_K, PRIMARY_SCORE, Inputs, Unfinished
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
    results = [*inputs.results]
    warnings: list[str] = []
    left = []
    for run in inputs.unfinished:
        if pool_anyway and run.newest is not None:
            results.append(run.newest)
            warnings.append(f"pooled anyway: {run.path} is {run.state}; {run.why}")
        else:
            left.append(run)
    if not results and left:
        raise ValueError(
            f"sigma needs a finished run, found {len(left)} unfinished; {left[0].path} is"
            f" {left[0].state}: {left[0].why}"
        )
    pooled = pool(results, anyway=pool_anyway, unseen=unseen)
    warnings += pooled.warnings
    primary = _primary(pooled.arms, contrast)
    pairs = _pairs(pooled.arms, primary)
    contrasts = [_contrast(old, new, pooled, random_seed, num_draws) for old, new in pairs]
    declared = None if primary is None else [arm.label for arm in primary]
    has_primary = declared is not None and PRIMARY_K in pooled.top_k
    _adjust(contrasts, has_primary)
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
        "unfinished": [_describe_unfinished(run) for run in left],
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
        treatment, control = (_find_arm(arms, word) for word in contrast)
        if treatment is control:
            raise ValueError(f"--contrast must name two arms, found {treatment.label!r} twice")
        return control, treatment
    names = [(arm, *preset_and_rest(arm)) for arm in arms]
    found = [
        (old, new)
        for old, old_preset, old_rest in names
        for new, new_preset, new_rest in names
        if (new_preset, old_preset) == PRIMARY_PRESETS and new_rest == old_rest
    ]
    return found[0] if len(found) == 1 else None


def _find_arm(arms: Sequence[Arm], word: str) -> Arm:
    found = [arm for arm in arms if word in (arm.label, arm.name, arm.digest)]
    if len(found) != 1:
        known = ", ".join(repr(arm.label) for arm in arms)
        what = f"{len(found)} arms named {word!r}" if found else f"{word!r}"
        raise ValueError(f"--contrast must name arms of {known}; found {what}")
    return found[0]


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
    own = set(arm.seeds)
    known = {seed for other in pooled.arms for seed in other.seeds if seed is not None}
    known |= {run.seed for run in left if run.seed is not None}
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
    run_dirs = {
        run.seed: run.result.run_dir
        for run in arm.runs
        if run.seed is not None and run.result.run_dir is not None
    }
    return {
        "label": arm.label,
        "name": arm.name,
        "digest": arm.digest,
        **arm.description,
        "seeds": arm.seeds,
        "missing_seeds": sorted(known - own) if own != {None} else [],
        "files": [str(run.result.path) for run in arm.runs],
        "checkpoint_steps": [run.result.field("checkpoint.step") for run in arm.runs],
        "scores": scores,
        "seeds_that_solve": solved,
        "solved_from": solved_from,
        "curves": learning_curves(run_dirs, warnings),
    }


def _whole(rank: float) -> int | None:
    """A rank as JSON has it: infinity, for never, is null."""
    return int(rank) if math.isfinite(rank) else None


def _describe_unfinished(run: Unfinished) -> dict[str, Any]:
    return {
        "path": str(run.path),
        "state": run.state,
        "why": run.why,
        "arm": run.arm,
        "seed": run.seed,
    }


def _contrast(
    control: Arm, treatment: Arm, pooled: Pool, random_seed: int, num_draws: int
) -> dict[str, Any]:
    """Everything on treatment - control."""
    both = [seed for seed in control.seeds if seed is not None and seed in treatment.seeds]
    is_paired = len(both) > 1 or (len(both) == len(control.runs) == len(treatment.runs))
    scores = {
        name: {
            k: _differences(control, treatment, both, name, k, random_seed) for k in pooled.top_k
        }
        for name in SCORE_NAMES
    }
    tests = {k: _test(at_k, is_paired) for k, at_k in scores[PRIMARY_SCORE].items()}
    old, new = (arm.at_seeds(both) if is_paired else arm.runs for arm in (control, treatment))
    return {
        "treatment": treatment.label,
        "control": control.label,
        "paired": is_paired,
        "paired_seeds": both,
        "unpaired_seeds": {
            "control": [seed for seed in control.seeds if seed not in both],
            "treatment": [seed for seed in treatment.seeds if seed not in both],
        },
        "scores": scores,
        "tests": tests,
        "tasks": _over_tasks(old, new, both if is_paired else [], pooled, random_seed, num_draws),
        "planning": {
            k: _planning(scores[PRIMARY_SCORE][k], is_paired, len(old), len(new))
            for k in pooled.top_k
        },
    }


def _differences(
    control: Arm, treatment: Arm, both: list[int], name: str, k: str, random_seed: int
) -> dict[str, Any]:
    old, new = ([run.scores[name][k] for run in arm.runs] for arm in (control, treatment))
    differences = [
        after.scores[name][k] - before.scores[name][k]
        for before, after in zip(control.at_seeds(both), treatment.at_seeds(both), strict=True)
    ]
    control_s = describe(old)["s"]
    return {
        "unpaired": welch(old, new),
        "paired": paired(differences, control_s, random_seed) if both else None,
    }


def _test(at_k: dict[str, Any], is_paired: bool) -> dict[str, Any]:
    """The test that counts: sign-flip where seeds pair, Welch's where they do not."""
    if not is_paired:
        return {"test": "Welch", "p": at_k["unpaired"]["p"]}
    found = at_k["paired"]
    # One pair's only pattern and its mirror say nothing.
    return {"test": "sign-flip", "p": found["sign_flip"]["p"] if found["n"] > 1 else None}


def _adjust(contrasts: Sequence[dict[str, Any]], has_primary: bool) -> None:
    """Says which test is primary; Holm over all others together."""
    secondary = []
    for i, contrast in enumerate(contrasts):
        for k, test in contrast["tests"].items():
            is_primary = has_primary and i == 0 and k == PRIMARY_K
            test.update(role="primary" if is_primary else "secondary", holm_p=None)
            if not is_primary and test["p"] is not None:
                secondary.append(test)
    for test, adjusted in zip(secondary, holm([test["p"] for test in secondary]), strict=True):
        test.update(holm_p=adjusted, num_tests=len(secondary))


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


def _planning(
    at_k: dict[str, Any], is_paired: bool, num_control: int, num_treatment: int
) -> dict[str, Any] | None:
    """Seeds for the difference as found, the difference for the seeds there are, with power 0.8.

    None where the spread is undefined or 0.
    """
    wanted = power.POWERS[0]
    if is_paired:
        sd, num = at_k["paired"]["s"], num_control
    else:
        # Of arms of unequal spread and size: the spread and size that give the same error.
        error = at_k["unpaired"]["standard_error"]
        num = min(num_control, num_treatment)
        sd = None if error is None else error * math.sqrt(num / 2)
    if not sd:
        return None
    difference = at_k["paired" if is_paired else "unpaired"]["difference"]
    return {
        "power": wanted,
        "paired": is_paired,
        "sd": sd,
        "seeds": num,
        "detectable": power.detectable(num, sd, paired=is_paired, wanted=wanted),
        "seeds_needed": power.seeds_needed(difference, sd, paired=is_paired, wanted=wanted)
        if difference
        else None,
    }
