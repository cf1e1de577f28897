"""Sigma of a language model's validation loss: spread over seeds, arms compared round by round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval import contrasts as between
from eval.arms import Arm, ArmRun, check_comparable, check_steps, sort_into_arms
from eval.curves import curves_of
from eval.loss_results import document_nats, document_tokens, ratio_estimate
from eval.loss_words import conclude
from eval.run_results import RunResult
from eval.sample_statistics import LEVEL, describe, t_interval
from eval.sigma_inputs import Inputs, Unfinished

SCHEMA = "hrm_deeploop.loss_sigma/1"
BASELINE, TREATMENT = "base", "deeploop"
"""Residual forms: what each other arm is compared with, and the primary contrast's treatment."""
OTHER_FORM, OTHER_ROUNDS, DECLARED = "form", "rounds", "declared"
"""Kinds of comparison: with the baseline of the same rounds; the baseline over rounds."""


@dataclass(frozen=True, kw_only=True)
class LossRun(ArmRun):
    """One run of an arm: what sigma uses of it."""

    loss: float
    """Nats per token."""
    nats: NDArray[np.float64]
    """Of each document, (documents,)."""
    tokens: NDArray[np.int64]
    """Of each document, (documents,)."""


LossArm = Arm[LossRun]
_Pair = tuple[LossArm, LossArm, str]
"""Control, treatment, kind."""


def summarise_losses(
    inputs: Inputs,
    *,
    contrast: tuple[str, str] | None = None,
    pool_anyway: bool = False,
    random_seed: int = 0,
) -> dict[str, Any]:
    """Everything that validation losses over seeds say, for JSON.

    Each arm is compared with the arm ``base`` of the same blocks K and rounds R, and ``base`` at
    R > 1 with ``base`` at R = 1; both numbers are read from the results.

    Args:
        inputs: From ``sigma_inputs.collect``, of ``loss_results.LOSS``.
        contrast: Treatment and control of the primary contrast, each an arm's label, name or
            digest; None: deeploop - base, where they meet at one R only.
        pool_anyway: Compare results of unequal conditions, and newest evaluations of unfinished
            runs, with warnings.
        random_seed: Seed of the sign flips where not all are tried.

    Returns:
        schema, level, random_seed, conditions, num_documents, num_tokens, unigram_floor, arms,
        contrasts, uncompared, primary, warnings, unfinished and words. docs/sigma.md lists what
        each holds. It is the same for every order of the inputs.

    Raises:
        ValueError: If the results may not be compared (see ``arms.check_comparable``), no run is
            finished, or ``contrast`` names no two arms.
    """
    results, left, warnings = between.usable(inputs, anyway=pool_anyway)
    results, conditions, told = check_comparable(results, anyway=pool_anyway)
    arms = sort_into_arms([_loss_run(result) for result in results], _order)
    check_steps(arms, told)
    warnings += told
    pairs, uncompared = _pairs(arms)
    primary = _primary(arms, pairs, contrast)
    if primary is not None:
        same = (primary[:2], primary[1::-1])
        pairs = [primary, *(pair for pair in pairs if pair[:2] not in same)]
    contrasts = [_contrast(*pair, random_seed) for pair in pairs]
    tests = [found["test"] for found in contrasts]
    between.adjust(tests, None if primary is None else tests[0])
    floors = {float(result.field("scores.unigram_floor")) for result in results}
    tokens = document_tokens(results[0])
    summary = {
        "schema": SCHEMA,
        "level": LEVEL,
        "random_seed": random_seed,
        "conditions": conditions,
        "num_documents": len(tokens),
        "num_tokens": int(tokens.sum()),
        "unigram_floor": floors.pop() if len(floors) == 1 else None,
        "arms": [_describe_arm(arm, arms, left, warnings) for arm in arms],
        "contrasts": contrasts,
        "uncompared": uncompared,
        "primary": None
        if primary is None
        else {"treatment": primary[1].label, "control": primary[0].label},
        "warnings": warnings,
        "unfinished": [between.describe_unfinished(run) for run in left],
    }
    return {**summary, "words": conclude(summary)}


def _loss_run(result: RunResult) -> LossRun:
    return LossRun(
        result=result,
        loss=float(result.field("scores.validation_loss")),
        nats=document_nats(result),
        tokens=document_tokens(result),
    )


def _form(arm: LossArm) -> str:
    """The residual form, ``lm.arm``."""
    return str(arm.description["residual"]["arm"])


def _size(arm: LossArm) -> tuple[int, int]:
    """K, physical blocks, and R, rounds."""
    residual = arm.description["residual"]
    return residual["K"], residual["R"]


def _departures(arm: LossArm) -> str:
    """What follows form and rounds in the label."""
    return arm.label.removeprefix(f"{_form(arm)}-R{_size(arm)[1]}")


def _order(arm: LossArm) -> tuple[Any, ...]:
    p = arm.description["residual"]["p"]
    form = _form(arm)
    return (*_size(arm), form != BASELINE, form, -1.0 if p is None else p, arm.label)


def _pairs(arms: Sequence[LossArm]) -> tuple[list[_Pair], list[str]]:
    """Comparisons with baselines, those over rounds last; a line per arm that has none."""
    by_form: list[_Pair] = []
    by_rounds: list[_Pair] = []
    uncompared = []
    for arm in arms:
        K, R = _size(arm)
        is_baseline = _form(arm) == BASELINE
        if is_baseline and R == 1:
            continue
        at = (K, 1 if is_baseline else R)
        found = [other for other in arms if _form(other) == BASELINE and _size(other) == at]
        if len(found) > 1:
            found = [o for o in found if _departures(o) == _departures(arm)] or found
        if len(found) == 1 and is_baseline:
            by_rounds.append((found[0], arm, OTHER_ROUNDS))
        elif len(found) == 1:
            by_form.append((found[0], arm, OTHER_FORM))
        elif found or not is_baseline:
            uncompared.append(
                f"{arm.label} is compared with nothing: {len(found)} arms {BASELINE} at K = {K},"
                f" R = {at[1]}; say with which by --contrast"
            )
    return by_form + by_rounds, uncompared


def _primary(
    arms: Sequence[LossArm], pairs: Sequence[_Pair], contrast: tuple[str, str] | None
) -> _Pair | None:
    if contrast is not None:
        control, treatment = between.declared(arms, contrast)
        kinds = [kind for old, new, kind in pairs if (old, new) == (control, treatment)]
        return control, treatment, kinds[0] if kinds else DECLARED
    found = [pair for pair in pairs if pair[2] == OTHER_FORM and _form(pair[1]) == TREATMENT]
    return found[0] if len(found) == 1 else None


def _describe_arm(
    arm: LossArm, arms: Sequence[LossArm], left: Sequence[Unfinished], warnings: list[str]
) -> dict[str, Any]:
    K, R = _size(arm)
    over_documents = _over_documents([], arm.runs)
    bits = [run.result.field("scores.bits_per_byte") for run in arm.runs]
    under = [run.loss < run.result.field("scores.unigram_floor") for run in arm.runs]
    return {
        **between.describe_runs(arm, arms, left),
        "family": _form(arm) + _departures(arm),
        "num_blocks": K,
        "rounds": R,
        "loss": {
            **describe([run.loss for run in arm.runs]),
            "document_standard_error": over_documents and over_documents["standard_error"],
            "num_under_floor": sum(under),
        },
        "bits_per_byte": None if None in bits else describe(bits)["mean"],
        "curves": curves_of(arm, warnings),
    }


def _contrast(control: LossArm, treatment: LossArm, kind: str, random_seed: int) -> dict[str, Any]:
    """Everything on treatment - control, nats per token: below 0 the treatment is better."""
    pair = between.describe_pair(control, treatment)
    loss = between.compare(
        control, treatment, lambda run: run.loss, pair["paired_seeds"], random_seed
    )
    old, new = (between.compared_runs(arm, pair) for arm in (control, treatment))
    K, R = _size(treatment)
    return {
        **pair,
        "kind": kind,
        "family": _form(treatment) + _departures(treatment),
        "num_blocks": K,
        "rounds": R,
        "loss": loss,
        "test": between.headline_test(loss, pair["paired"]),
        "documents": _over_documents(old, new),
        "planning": between.planning(loss, pair["paired"], len(old), len(new)),
    }


def _over_documents(old: Sequence[LossRun], new: Sequence[LossRun]) -> dict[str, Any] | None:
    """Mean loss of the new runs, less that of the old, if other documents had been drawn.

    None where the runs were evaluated on different documents.
    """
    tokens = new[0].tokens
    if any(not np.array_equal(run.tokens, tokens) for run in (*old, *new)):
        return None
    nats = np.mean([run.nats for run in new], axis=0)
    if old:
        nats = nats - np.mean([run.nats for run in old], axis=0)
    value, error = ratio_estimate(nats, tokens)
    return {
        "value": value,
        "standard_error": error,
        "interval": t_interval(value, error, len(tokens) - 1) if error else None,
        "num_documents": len(tokens),
    }
