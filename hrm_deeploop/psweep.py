"""The p-sweep's runs, read back from their directories, and the pilot's climb in learning rate."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arc_data.json_files import read_json
from eval.phase import SCHEMA, RunOutcome, default_steps, rate_transfer, summarise
from eval.run_curves import read_metrics
from eval.run_status import STATUS_FILE
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.sweep_job import SweepFiles
from hrm_deeploop.sweep_plan import SWEEP_FILE, short_name
from hrm_deeploop.sweep_terms import TERMS, SweepTerms

RATE_FACTOR = 2.0
MAX_ROUNDS = 10


def read_outcomes(folder: Path, configs: Mapping[str, TrainConfig]) -> list[RunOutcome]:
    """Reads what a sweep's runs came to.

    Args:
        folder: The sweep's folder.
        configs: Configuration of each run by name.

    Raises:
        ValueError: If a file of a run is damaged.
    """
    sweep = read_json(folder / SWEEP_FILE)
    grid, common = sweep["grid"], len(sweep["overrides"])
    outcomes = []
    for run in sweep["runs"]:
        words = run["overrides"][common:]
        own_arm, place = words[: len(words) - len(grid) - 1], words[len(words) - len(grid) - 1 : -1]
        (arm,) = (label for label, overrides in sweep["arms"].items() if overrides == own_arm)
        files = SweepFiles(folder=folder, name=run["name"])
        config = configs[run["name"]]
        terms = TERMS[config.workload]
        own_columns = (terms.loops_key, "optim.lr", *terms.exponent_keys.values())
        settings = [word for word in place if word.partition("=")[0] not in own_columns]
        outcomes.append(
            _read_outcome(files, config, arm, " ".join(short_name(word) for word in settings))
        )
    return outcomes


def _read_outcome(files: SweepFiles, config: TrainConfig, arm: str, settings: str) -> RunOutcome:
    state = files.state()
    metrics = read_metrics(files.run_dir / "metrics.jsonl")
    steps, losses = metrics.get("validation_loss", ([], []))
    _, floors = metrics.get("validation_floor", ([], []))
    terms = TERMS[config.workload]
    return RunOutcome(
        name=files.name,
        point=re.sub(r"-s\d+$", "", files.name),
        arm=arm,
        preset=terms.arm(config),
        exponents=terms.exponents(config),
        loops=terms.loops(config),
        loop_name=terms.loop_name,
        lr=config.optim.lr,
        settings=settings,
        seed=config.seed,
        state=state,
        error=read_json(files.run_dir / STATUS_FILE)["error"] if state == "failed" else None,
        floor=floors[-1] if floors else None,
        losses=dict(zip(steps, losses, strict=True)),
    )


def make_result(
    outcomes: Sequence[RunOutcome],
    *,
    budget_steps: int,
    steps: Sequence[int] | None,
    gammas: Mapping[str, float] | None,
) -> dict[str, Any]:
    """What psweep.json holds.

    Args:
        outcomes: All runs.
        budget_steps: Steps of each.
        steps: Where losses are compared; None: a quarter, a half and all of the budget.
        gammas: Measured, by level.
    """
    steps = list(steps) if steps is not None else default_steps(outcomes)
    points = summarise(outcomes, steps)
    return {
        "schema": SCHEMA,
        "budget_steps": budget_steps,
        "steps": steps,
        "floors": sorted({run.floor for run in outcomes if run.floor is not None}),
        "gammas": None if gammas is None else dict(gammas),
        "points": points,
        "rate_transfer": rate_transfer(points),
        "runs": [run.as_dict() for run in outcomes],
    }


@dataclass(frozen=True, kw_only=True)
class Round:
    """The arm without scaling at one learning rate.

    Attributes:
        lr: Peak learning rate.
        successes: Loop count -> runs under the floor.
        runs: Loop count -> runs.
    """

    lr: float
    successes: Mapping[int, int]
    runs: Mapping[int, int]

    def trains(self, loops: int) -> bool:
        """Whether every run succeeds with as many loops."""
        return self.successes[loops] == self.runs[loops]


def round_of(outcomes: Sequence[RunOutcome], lr: float) -> Round:
    """Counts a round's runs.

    Raises:
        RuntimeError: If a run neither finished nor stopped being finite.
    """
    for run in outcomes:
        if not run.counts:
            raise RuntimeError(f"{run.name} is {run.state}: {run.error}; the pilot cannot go on")
    loops = sorted({run.loops for run in outcomes})
    return Round(
        lr=lr,
        successes={n: sum(run.succeeded for run in outcomes if run.loops == n) for n in loops},
        runs={n: sum(run.loops == n for run in outcomes) for n in loops},
    )


def climb(
    lr: float,
    try_rate: Callable[[int, float], Round],
    *,
    budget_s: float,
    clock: Callable[[], float],
) -> tuple[list[Round], str]:
    """Doubles the rate until the fewest loops no longer train, or time is short.

    Args:
        lr: The first rate.
        try_rate: Does a round's runs: number of the round, rate -> round.
        budget_s: No round begins that would end after it, if it took as long as the one before.
        clock: Seconds.

    Returns:
        The rounds, and why they end: ``failed``, ``time`` or ``rounds``.
    """
    start = clock()
    rounds: list[Round] = []
    while len(rounds) < MAX_ROUNDS:
        before = clock()
        found = try_rate(len(rounds), lr * RATE_FACTOR ** len(rounds))
        rounds.append(found)
        if not found.trains(min(found.runs)):
            return rounds, "failed"
        now = clock()
        if 2 * now - before - start > budget_s:
            return rounds, "time"
    return rounds, "rounds"


def conclude(rounds: Sequence[Round], end: str, terms: SweepTerms) -> dict[str, Any]:
    """What the pilot found, for JSON.

    Args:
        rounds: From ``climb``.
        end: From ``climb``.
        terms: Of the workload.

    Returns:
        ``lr``, the highest rate at which the fewest loops train (None: at none); ``can_fail``, the
        loop counts that fail there; the rounds, and ``words``.
    """
    shallow, name = min(rounds[0].runs), terms.loop_name
    trained = [each for each in rounds if each.trains(shallow)]
    best = trained[-1] if trained else None
    can_fail = [] if best is None else [c for c in best.runs if not best.trains(c)]
    if best is None:
        words = (
            f"{terms.baseline} does not train at learning rate {rounds[0].lr:g} and {name} "
            f"{shallow} within the budget of steps: give more steps or a smaller optim.lr"
        )
    else:
        at_least = "" if end == "failed" else f" (at least; ended by {end})"
        words = (
            f"highest learning rate at which {terms.baseline} trains at {name} {shallow}: "
            f"{best.lr:g}{at_least}; "
        )
        words += (
            f"there it fails at {name} {', '.join(map(str, can_fail))}: p can matter"
            if can_fail
            else f"there nothing fails at any {name} tried: expect a flat p-sweep"
        )
    return {
        "lr": None if best is None else best.lr,
        "can_fail": can_fail,
        "ended_by": end,
        "rounds": [
            {"lr": each.lr, "successes": dict(each.successes), "runs": dict(each.runs)}
            for each in rounds
        ],
        "words": words,
    }
