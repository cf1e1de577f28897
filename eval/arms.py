"""Which results may be compared, and which of them are runs of one arm, whatever they measure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic, TypeVar

from eval.run_results import BEST_ON_TEST, FINAL, RunResult


@dataclass(frozen=True, kw_only=True)
class ArmRun:
    """One run of an arm."""

    result: RunResult

    @property
    def seed(self) -> int | None:
        """The run seed; None for a foreign solver."""
        seed: int | None = self.result.content["seed"]
        return seed


Run = TypeVar("Run", bound=ArmRun)


@dataclass(frozen=True, kw_only=True)
class Arm(Generic[Run]):
    """Runs that differ in nothing that can change a result, but for their seed."""

    label: str
    """The name; with the digest's first digits, or the file, where other arms have that name."""
    name: str | None
    digest: str | None
    description: Mapping[str, Any]
    """What of the results' ``arm`` describes it, see ``Kind.description``."""
    runs: tuple[Run, ...]
    """In the order of their seeds."""

    @property
    def seeds(self) -> list[int | None]:
        """The run seeds, ascending."""
        return [run.seed for run in self.runs]

    def at_seeds(self, seeds: Sequence[int]) -> list[Run]:
        """The runs of some seeds, in the given order."""
        by_seed = {run.seed: run for run in self.runs}
        return [by_seed[seed] for seed in seeds]


def check_comparable(
    results: Sequence[RunResult], *, anyway: bool = False
) -> tuple[list[RunResult], dict[str, Any], list[str]]:
    """Checks that results of one kind may be compared.

    Args:
        results: At least one.
        anyway: Turn unequal conditions into warnings. Partial results stay refused.

    Returns:
        The results by path; what all of them share ({"differs": [values]} where they do not);
        warnings.

    Raises:
        ValueError: If results differ in what must agree, one is partial, or a run is not finished.
            The message names the files.
    """
    if not results:
        raise ValueError("sigma needs at least one result, found none; evaluate a run first")
    results = sorted(results, key=lambda result: str(result.path))
    kind = results[0].kind
    for result in results:
        if result.field(kind.partial):
            raise ValueError(
                f"{result.path}: {kind.partial} must be false, found true; evaluate {kind.whole}"
            )
    warnings: list[str] = []
    names = kind.conditions(results[0])
    conditions = {name: _agree(results, name, anyway, warnings) for name in names}
    for result in results:
        _check_ended(result, anyway, warnings)
    if BEST_ON_TEST in {result.rule for result in results}:
        warnings.append(kind.chosen)
    return results, conditions, warnings


def _agree(results: Sequence[RunResult], name: str, anyway: bool, warnings: list[str]) -> Any:
    first, *others = [result.kind.conditions(result)[name] for result in results]
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


def sort_into_arms(runs: Sequence[Run], order: Callable[[Arm[Run]], Any]) -> tuple[Arm[Run], ...]:
    """Groups runs by digest; a file without a seed is an arm of its own.

    Args:
        runs: At least one.
        order: Sort key of arms.

    Returns:
        The arms, in their order.

    Raises:
        ValueError: If a seed comes twice in an arm, or runs of one digest describe it differently.
    """
    groups: dict[tuple[Any, ...], list[Run]] = {}
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
    return tuple(sorted(labelled, key=order))


def _arm(group: list[Run]) -> Arm[Run]:
    group = sorted(group, key=lambda run: (run.seed or 0, str(run.result.path)))
    first = group[0].result
    for before, run in pairwise(group):
        if before.seed == run.seed:
            raise ValueError(
                f"{run.result.path}: seed {run.seed} of arm {first.field('arm.name')!r} must occur"
                f" once, found it in {before.result.path} too; leave out one of the two"
            )
    description = {key: first.content["arm"].get(key) for key in first.kind.description}
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


def _told_apart(arm: Arm[Run]) -> Arm[Run]:
    told = arm.digest[:8] if arm.digest and arm.seeds != [None] else arm.runs[0].result.path
    return replace(arm, label=f"{arm.label} [{told}]")


def check_steps(arms: Sequence[Arm[Run]], warnings: list[str]) -> None:
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
