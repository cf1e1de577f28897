"""Which results may be compared, and which of them are runs of one arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from eval.scoring import SCORE_NAMES
from eval.sigma_inputs import (
    BEST_ON_TEST,
    FINAL,
    PRIMARY_SCORE,
    RunResult,
    check_scores,
    check_test_pairs,
    task_ranks,
)

UNSEEN = "without_seen_pairs"
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
_DESCRIPTION = ("residual", "grad_scope", "residual_sum", "carry_dtype")
_FIRST_PRESET = "vanilla"
_PERCENT_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class ArmRun:
    """One run of an arm: what sigma uses of it."""

    result: RunResult
    scores: Mapping[str, Mapping[str, float]]
    """Score name -> K -> percent."""
    ranks: Mapping[str, float]
    """Task -> the K from which it is solved, see ``task_ranks``."""

    @property
    def seed(self) -> int | None:
        """The run seed; None for a foreign solver."""
        seed: int | None = self.result.content["seed"]
        return seed


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Runs that differ in nothing that can change a result, but for their seed."""

    label: str
    """The name; with the digest's first digits, or the file, where other arms have that name."""
    name: str | None
    digest: str | None
    description: Mapping[str, Any]
    """residual, grad_scope, residual_sum, carry_dtype of the results' ``arm``."""
    runs: tuple[ArmRun, ...]
    """In the order of their seeds."""

    @property
    def seeds(self) -> list[int | None]:
        """The run seeds, ascending."""
        return [run.seed for run in self.runs]

    def at_seeds(self, seeds: Sequence[int]) -> list[ArmRun]:
        """The runs of some seeds, in the given order."""
        by_seed = {run.seed: run for run in self.runs}
        return [by_seed[seed] for seed in seeds]


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
    if not results:
        raise ValueError("sigma needs at least one result, found none; evaluate a run first")
    results = sorted(results, key=lambda result: str(result.path))
    _check_whole(results)
    warnings: list[str] = []
    conditions = {name: _agree(results, name, anyway, warnings) for name in _conditions(results[0])}
    for result in results:
        _check_ended(result, anyway, warnings)
    if BEST_ON_TEST in {result.rule for result in results}:
        warnings.append(
            "each run's checkpoint was chosen by its score on the test pairs: the scores are those"
            " of a choice made on the test, too high by an unknown amount"
        )
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
    arms = _arms(runs)
    _check_steps(arms, warnings)
    return Pool(
        arms=arms,
        conditions=conditions,
        top_k=tuple(top_k),
        tasks=tuple(runs[0].ranks) if other is None else None,
        num_test_pairs=_part(results[0], unseen)["num_test_pairs"],
        warnings=tuple(warnings),
    )


def _has(run: ArmRun, k: str) -> bool:
    return all(k in run.scores[name] for name in SCORE_NAMES)


def _check_whole(results: Sequence[RunResult]) -> None:
    for result in results:
        if result.field("voting.partial"):
            raise ValueError(
                f"{result.path}: voting.partial must be false, found true; evaluate all tasks and"
                " variants"
            )


def _conditions(result: RunResult) -> dict[str, Any]:
    """The values that must agree, by name."""
    values = {name: result.field(name) for name in _MUST_AGREE}
    values["checkpoint.rule"] = result.rule
    values["K list"] = [list(result.field(f"scores.{name}")) for name in SCORE_NAMES]
    if values["K list"].count(values["K list"][0]) == len(SCORE_NAMES):
        values["K list"] = values["K list"][0]
    values["scored tasks"] = len(task_ranks(result))
    return values


def _agree(results: Sequence[RunResult], name: str, anyway: bool, warnings: list[str]) -> Any:
    first, *others = [_conditions(result)[name] for result in results]
    for result, value in zip(results[1:], others, strict=True):
        if value == first:
            continue
        fact = (
            f"{name} must be {first!r} as in {results[0].path}, found {value!r}"
            if not anyway
            else f"{name} is {first!r} in {results[0].path}, but {value!r} in {result.path}"
        )
        if not anyway:
            raise ValueError(
                f"{result.path}: {fact}; compare results of equal conditions, or pool them with"
                " --pool-anyway"
            )
        warnings.append(f"pooled anyway: {fact}")
        found = [first, *others]
        return {"differs": [v for i, v in enumerate(found) if v not in found[:i]]}
    return first


def _check_ended(result: RunResult, anyway: bool, warnings: list[str]) -> None:
    if result.state in (None, "finished"):
        return
    if result.state == "running":
        if not anyway:
            raise ValueError(
                f"{result.path}: its run must be finished, found it running; wait, or pool it with"
                " --pool-anyway"
            )
        warnings.append(f"pooled anyway: the run of {result.path} is still running")
    elif result.rule == FINAL:
        warnings.append(
            f"{result.run_dir}: the run is marked {result.state}, but its final checkpoint was"
            " evaluated; it counts"
        )


def _check_steps(arms: Sequence[Arm], warnings: list[str]) -> None:
    """Final checkpoints of different lengths of training may be compared, but not unseen."""
    steps = {
        arm.label: sorted({run.result.field("checkpoint.step") or 0 for run in arm.runs})
        for arm in arms
    }
    if len({tuple(found) for found in steps.values()}) > 1 or any(
        len(s) > 1 for s in steps.values()
    ):
        told = ", ".join(f"{'/'.join(map(str, s))} in {label}" for label, s in steps.items())
        warnings.append(f"the checkpoints are of different steps: {told}")


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


def _arms(runs: Sequence[ArmRun]) -> tuple[Arm, ...]:
    """Groups runs by digest; a file without a seed is an arm of its own."""
    groups: dict[tuple[Any, ...], list[ArmRun]] = {}
    for run in runs:
        name, digest = run.result.field("arm.name"), run.result.field("arm.digest")
        if run.seed is not None and digest is None and name is None:
            raise ValueError(
                f"{run.result.path}: a result with a seed must have arm.digest or arm.name, found"
                " neither; name the arm, or leave the seed out"
            )
        alone = str(run.result.path) if run.seed is None else None
        # The digest names an arm; only where a foreign solver has none does its name.
        key = (digest, name if digest is None else None, alone)
        groups.setdefault(key, []).append(run)
    arms = [_arm(group) for group in groups.values()]
    names = [arm.name for arm in arms]
    labelled = [arm if names.count(arm.name) == 1 else _told_apart(arm) for arm in arms]
    return tuple(sorted(labelled, key=_order))


def _arm(group: list[ArmRun]) -> Arm:
    group = sorted(group, key=lambda run: (run.seed or 0, str(run.result.path)))
    first = group[0].result
    for before, run in pairwise(group):
        if before.seed == run.seed:
            raise ValueError(
                f"{run.result.path}: seed {run.seed} of arm {first.field('arm.name')!r} must occur"
                f" once, found it in {before.result.path} too; leave out one of the two"
            )
    description = {key: first.content["arm"].get(key) for key in _DESCRIPTION}
    for run in group[1:]:
        for key, value in description.items():
            other = run.result.content["arm"].get(key)
            if other != value:
                raise ValueError(
                    f"{run.result.path}: arm.{key} must be {value!r} as in {first.path} of the"
                    f" same arm.digest, found {other!r}; evaluate both again"
                )
    return Arm(
        label=first.field("arm.name") or "unnamed",
        name=first.field("arm.name"),
        digest=first.field("arm.digest"),
        description=description,
        runs=tuple(group),
    )


def _told_apart(arm: Arm) -> Arm:
    told = arm.digest[:8] if arm.digest and arm.seeds != [None] else arm.runs[0].result.path
    return Arm(
        label=f"{arm.label} [{told}]",
        name=arm.name,
        digest=arm.digest,
        description=arm.description,
        runs=arm.runs,
    )


def preset_and_rest(arm: Arm) -> tuple[str, str]:
    """The residual preset that an arm's name begins with, and what follows: scope, departures."""
    name, _, rest = (arm.name or "").partition("-")
    return name, rest


def _order(arm: Arm) -> tuple[bool, str]:
    """Vanilla arms first: what comes later is compared with what comes earlier."""
    return (preset_and_rest(arm)[0] != _FIRST_PRESET, arm.label)
