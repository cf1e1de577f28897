"""The p-sweep's runs, read back from their directories, and the pilot's climb in learning rate."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arc_data.json_files import read_json
from eval.phase import RunOutcome, default_steps, rate_transfer, summarise
from eval.run_curves import read_metrics
from eval.run_status import STATUS_FILE
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.sweep_job import SweepFiles
from hrm_deeploop.sweep_plan import SWEEP_FILE, short_name

SCHEMA = "hrm_deeploop.psweep/1"
OWN_COLUMNS = ("arch.L_cycles", "optim.lr", "residual.H.p", "residual.L.p")
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
        settings = [word for word in place if not word.startswith(OWN_COLUMNS)]
        files = SweepFiles(folder=folder, name=run["name"])
        config = configs[run["name"]]
        outcomes.append(
            _read_outcome(files, config, arm, " ".join(short_name(word) for word in settings))
        )
    return outcomes


def _read_outcome(files: SweepFiles, config: TrainConfig, arm: str, settings: str) -> RunOutcome:
    state = files.state()
    metrics = read_metrics(files.run_dir / "metrics.jsonl")
    steps, losses = metrics.get("validation_loss", ([], []))
    _, floors = metrics.get("validation_floor", ([], []))
    residual = config.residual
    return RunOutcome(
        name=files.name,
        point=re.sub(r"-s\d+$", "", files.name),
        arm=arm,
        preset=residual.preset,
        p_H=residual.H.p,
        p_L=residual.L.p,
        L_cycles=config.arch.L_cycles,
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
    """vanilla at one learning rate.

    Attributes:
        lr: Peak learning rate.
        successes: C_L -> runs under the floor.
        runs: C_L -> runs.
    """

    lr: float
    successes: Mapping[int, int]
    runs: Mapping[int, int]

    def trains(self, cycles: int) -> bool:
        """Whether every run succeeds at this C_L."""
        return self.successes[cycles] == self.runs[cycles]


def round_of(outcomes: Sequence[RunOutcome], lr: float) -> Round:
    """Counts a round's runs.

    Raises:
        RuntimeError: If a run neither finished nor stopped being finite.
    """
    for run in outcomes:
        if not run.counts:
            raise RuntimeError(f"{run.name} is {run.state}: {run.error}; the pilot cannot go on")
    cycles = sorted({run.L_cycles for run in outcomes})
    return Round(
        lr=lr,
        successes={c: sum(run.succeeded for run in outcomes if run.L_cycles == c) for c in cycles},
        runs={c: sum(run.L_cycles == c for run in outcomes) for c in cycles},
    )


def climb(
    lr: float,
    try_rate: Callable[[int, float], Round],
    *,
    budget_s: float,
    clock: Callable[[], float],
) -> tuple[list[Round], str]:
    """Doubles the rate until vanilla no longer trains at the smallest C_L, or time is short.

    Args:
        lr: The first rate.
        try_rate: Runs vanilla: number of the round, rate -> round.
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


def conclude(rounds: Sequence[Round], end: str) -> dict[str, Any]:
    """What the pilot found, for JSON.

    Args:
        rounds: From ``climb``.
        end: From ``climb``.

    Returns:
        ``lr``, the highest rate at which vanilla trains at the smallest C_L (None: at none);
        ``can_fail``, the C_L that fail there; the rounds, and ``words``.
    """
    shallow = min(rounds[0].runs)
    trained = [each for each in rounds if each.trains(shallow)]
    best = trained[-1] if trained else None
    can_fail = [] if best is None else [c for c in best.runs if not best.trains(c)]
    if best is None:
        words = (
            f"vanilla does not train at learning rate {rounds[0].lr:g} and C_L {shallow} within "
            "the budget of steps: give more steps or a smaller optim.lr"
        )
    else:
        at_least = "" if end == "failed" else f" (at least; ended by {end})"
        words = (
            f"highest learning rate at which vanilla trains at C_L {shallow}: "
            f"{best.lr:g}{at_least}; "
        )
        words += (
            f"there it fails at C_L {', '.join(map(str, can_fail))}: p can matter"
            if can_fail
            else "there nothing fails at any C_L tried: expect a flat p-sweep"
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
