"""Two arms compared by one number per run, whatever it measures, and many such comparisons."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from eval import power
from eval.arms import Arm, Run
from eval.run_results import RunResult
from eval.sample_statistics import describe, holm, paired, welch
from eval.sigma_inputs import Inputs, Unfinished


def usable(inputs: Inputs, *, anyway: bool) -> tuple[list[RunResult], list[Unfinished], list[str]]:
    """Takes what counts of the inputs.

    Args:
        inputs: From ``sigma_inputs.collect``.
        anyway: Also count the newest evaluations of unfinished runs, with warnings.

    Returns:
        The results that count, the runs that do not, warnings.

    Raises:
        ValueError: If no run is finished.
    """
    results = [*inputs.results]
    warnings: list[str] = []
    left = []
    for run in inputs.unfinished:
        if anyway and run.newest is not None:
            results.append(run.newest)
            warnings.append(f"pooled anyway: {run.path} is {run.state}; {run.why}")
        else:
            left.append(run)
    if not results and left:
        raise ValueError(
            f"sigma needs a finished run, found {len(left)} unfinished; {left[0].path} is"
            f" {left[0].state}: {left[0].why}"
        )
    return results, left, warnings


def describe_unfinished(run: Unfinished) -> dict[str, Any]:
    """A run that is not counted, for JSON."""
    return {
        "path": str(run.path),
        "state": run.state,
        "why": run.why,
        "arm": run.arm,
        "seed": run.seed,
    }


def describe_runs(
    arm: Arm[Run], arms: Sequence[Arm[Run]], left: Sequence[Unfinished]
) -> dict[str, Any]:
    """Which runs an arm has and which it lacks, for JSON: seeds that any other run has."""
    own = set(arm.seeds)
    known = {seed for other in arms for seed in other.seeds if seed is not None}
    known |= {run.seed for run in left if run.seed is not None}
    return {
        "label": arm.label,
        "name": arm.name,
        "digest": arm.digest,
        **arm.description,
        "seeds": arm.seeds,
        "missing_seeds": sorted(known - own) if own != {None} else [],
        "files": [str(run.result.path) for run in arm.runs],
        "checkpoint_steps": [run.result.field("checkpoint.step") for run in arm.runs],
    }


def declared(arms: Sequence[Arm[Run]], contrast: tuple[str, str]) -> tuple[Arm[Run], Arm[Run]]:
    """Control and treatment of a declared contrast.

    Args:
        arms: All arms.
        contrast: Treatment and control, each an arm's label, name or digest.

    Raises:
        ValueError: If they are not two of the arms.
    """
    treatment, control = (_find_arm(arms, word) for word in contrast)
    if treatment is control:
        raise ValueError(f"--contrast must name two arms, found {treatment.label!r} twice")
    return control, treatment


def _find_arm(arms: Sequence[Arm[Run]], word: str) -> Arm[Run]:
    found = [arm for arm in arms if word in (arm.label, arm.name, arm.digest)]
    if len(found) != 1:
        known = ", ".join(repr(arm.label) for arm in arms)
        what = f"{len(found)} arms named {word!r}" if found else f"{word!r}"
        raise ValueError(f"--contrast must name arms of {known}; found {what}")
    return found[0]


def describe_pair(control: Arm[Run], treatment: Arm[Run]) -> dict[str, Any]:
    """Names of a pair of arms, and which of their seeds pair: at least two, or all there are."""
    both = [seed for seed in control.seeds if seed is not None and seed in treatment.seeds]
    return {
        "treatment": treatment.label,
        "control": control.label,
        "paired": len(both) > 1 or (len(both) == len(control.runs) == len(treatment.runs)),
        "paired_seeds": both,
        "unpaired_seeds": {
            "control": [seed for seed in control.seeds if seed not in both],
            "treatment": [seed for seed in treatment.seeds if seed not in both],
        },
    }


def compared_runs(arm: Arm[Run], pair: dict[str, Any]) -> Sequence[Run]:
    """The runs of one of a pair's arms that are compared: where seeds pair, those."""
    return arm.at_seeds(pair["paired_seeds"]) if pair["paired"] else arm.runs


def compare(
    control: Arm[Run],
    treatment: Arm[Run],
    value: Callable[[Run], float],
    seeds: Sequence[int],
    random_seed: int,
) -> dict[str, Any]:
    """Compares two arms by a number per run.

    Args:
        control: The arm that is subtracted.
        treatment: The other.
        value: A run's number.
        seeds: Those that both have.
        random_seed: Of the sign flips where not all are tried.

    Returns:
        ``unpaired`` (see ``sample_statistics.welch``) and ``paired`` (see ``paired`` there; None
        without a common seed).
    """
    old, new = ([value(run) for run in arm.runs] for arm in (control, treatment))
    differences = [
        value(after) - value(before)
        for before, after in zip(control.at_seeds(seeds), treatment.at_seeds(seeds), strict=True)
    ]
    return {
        "unpaired": welch(old, new),
        "paired": paired(differences, describe(old)["s"], random_seed) if seeds else None,
    }


def headline_test(found: dict[str, Any], is_paired: bool) -> dict[str, Any]:
    """The test that counts: sign-flip where seeds pair, Welch's where they do not."""
    if not is_paired:
        return {"test": "Welch", "p": found["unpaired"]["p"]}
    # One pair's only pattern and its mirror say nothing.
    is_sample = found["paired"]["n"] > 1
    return {"test": "sign-flip", "p": found["paired"]["sign_flip"]["p"] if is_sample else None}


def adjust(tests: Sequence[dict[str, Any]], primary: dict[str, Any] | None) -> None:
    """Says in each test whether it is primary; Holm over all others together."""
    secondary = []
    for test in tests:
        test.update(role="primary" if test is primary else "secondary", holm_p=None)
        if test is not primary and test["p"] is not None:
            secondary.append(test)
    for test, adjusted in zip(secondary, holm([test["p"] for test in secondary]), strict=True):
        test.update(holm_p=adjusted, num_tests=len(secondary))


def planning(
    found: dict[str, Any], is_paired: bool, num_control: int, num_treatment: int
) -> dict[str, Any] | None:
    """Seeds for the difference as found, the difference for the seeds there are, with power 0.8.

    None where the spread is undefined or 0.
    """
    wanted = power.POWERS[0]
    if is_paired:
        sd, num = found["paired"]["s"], num_control
    else:
        # Of arms of unequal spread and size: the spread and size that give the same error.
        error = found["unpaired"]["standard_error"]
        num = min(num_control, num_treatment)
        sd = None if error is None else error * math.sqrt(num / 2)
    if not sd:
        return None
    difference = found["paired" if is_paired else "unpaired"]["difference"]
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
