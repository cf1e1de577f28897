"""The p-sweep's outcomes: which runs get under the best constant guess, and how far they get.

A run succeeds when its held-out token loss is below ``floor``, the least that a constant guess
could have, at a look within the budget, and nothing in it stops being finite.  Every seed counts
once; a run that was stopped and went on is the same run.

**Source**: DeepLoop, arXiv 2607.13491 v2, p-sweep (there on a language model).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NOT_FINITE = "FloatingPointError"
"""How the error of a run begins that stopped because something was not finite."""
SHARES_OF_BUDGET = (0.25, 0.5, 1.0)
"""Where losses are compared unless steps are given."""


SCHEMA = "hrm_deeploop.psweep/2"
"""Of psweep.json."""


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """What one run's files say.

    Attributes:
        name: The run.
        point: The run's name without its seed: what the seeds of one setting share.
        arm: Label of its arm.
        preset: Residual preset.
        exponents: Exponent by level, the level that is looped most last; None: none was set for
            this arm.
        loops: How often it loops.
        loop_name: Symbol of ``loops``.
        lr: Peak learning rate.
        settings: The sweep's other settings, in words.
        seed: Run seed.
        state: As in ``run_status.STATES``, or ``waiting``.
        error: What ended it.
        floor: Loss of the best constant guess, nats per token; None: no look yet.
        losses: Held-out token loss by step, finite.
    """

    name: str
    point: str
    arm: str
    preset: str
    exponents: Mapping[str, float | None]
    loops: int
    loop_name: str
    lr: float
    settings: str
    seed: int
    state: str
    error: str | None = None
    floor: float | None = None
    losses: Mapping[int, float] = field(default_factory=dict)

    @property
    def is_finite(self) -> bool:
        """Whether nothing was seen that is not finite."""
        return not (self.state == "failed" and (self.error or "").startswith(NOT_FINITE))

    @property
    def counts(self) -> bool:
        """Whether the run used its budget, or spoiled it: others say nothing yet."""
        return self.state == "finished" or not self.is_finite

    @property
    def escaped_at(self) -> int | None:
        """The first look at which the loss was under the floor."""
        if self.floor is None:
            return None
        return min((s for s, loss in self.losses.items() if loss < self.floor), default=None)

    @property
    def succeeded(self) -> bool:
        """Whether it counts as a success."""
        return self.counts and self.is_finite and self.escaped_at is not None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        losses = {str(step): loss for step, loss in self.losses.items()}
        judged = {"succeeded": self.succeeded if self.counts else None, "finite": self.is_finite}
        return {**vars(self), "losses": losses, **judged, "escaped_at": self.escaped_at}


def default_steps(outcomes: Sequence[RunOutcome]) -> list[int]:
    """A quarter, a half and the whole of the looks that finished runs share; empty: none did."""
    looks = [set(run.losses) for run in outcomes if run.state == "finished"]
    shared = sorted(set.intersection(*looks)) if looks else []
    if not shared:
        return []
    return sorted({shared[math.ceil(share * len(shared)) - 1] for share in SHARES_OF_BUDGET})


def summarise(outcomes: Sequence[RunOutcome], steps: Sequence[int]) -> list[dict[str, Any]]:
    """One entry per point, in the order in which they come.

    Args:
        outcomes: All runs.
        steps: Where losses are compared.

    Returns:
        Per point its settings; ``runs`` that count, ``successes``, ``not_finite``, ``unfinished``
        (not counted); and ``loss``, per step the mean, least and most over the ``runs`` that have
        a loss there, and ``mean_of_successes``; null where there is none.
    """
    points: dict[str, list[RunOutcome]] = {}
    for run in outcomes:
        points.setdefault(run.point, []).append(run)
    return [_summarise_point(runs, steps) for runs in points.values()]


def _summarise_point(runs: Sequence[RunOutcome], steps: Sequence[int]) -> dict[str, Any]:
    first, counted = runs[0], [run for run in runs if run.counts]
    shared = ("point", "arm", "preset", "exponents", "loops", "loop_name", "lr", "settings")
    return {
        **{name: getattr(first, name) for name in shared},
        "runs": len(counted),
        "successes": sum(run.succeeded for run in counted),
        "not_finite": sum(not run.is_finite for run in counted),
        "unfinished": len(runs) - len(counted),
        "loss": {str(step): _summarise_losses(counted, step) for step in steps},
    }


def _summarise_losses(runs: Sequence[RunOutcome], step: int) -> dict[str, Any]:
    values = [run.losses[step] for run in runs if step in run.losses]
    trained = [run.losses[step] for run in runs if run.succeeded and step in run.losses]
    return {
        "runs": len(values),
        "mean": math.fsum(values) / len(values) if values else None,
        "least": min(values, default=None),
        "most": max(values, default=None),
        "mean_of_successes": math.fsum(trained) / len(trained) if trained else None,
    }


def rate_transfer(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The best learning rate of each arm and loop count, where a sweep has several rates.

    Best: the least mean loss at the last step compared, among rates at which every run has one.

    Args:
        points: From ``summarise``.

    Returns:
        Per arm and other settings: ``best``, loop count -> rate (null: no rate at which every run
        has a loss), ``at_edge``, the counts whose best rate is the smallest or largest tried there,
        so that the optimum may lie outside, and ``drift``, the largest best rate over the smallest.
    """
    groups: dict[tuple[str, str], dict[int, list[Mapping[str, Any]]]] = {}
    for point in points:
        group = groups.setdefault((point["arm"], point["settings"]), {})
        group.setdefault(point["loops"], []).append(point)
    found = []
    for (arm, settings), by_loops in groups.items():
        if all(len({p["lr"] for p in own}) < 2 for own in by_loops.values()):
            continue
        best, at_edge = {}, []
        for loops, own in sorted(by_loops.items()):
            rate = best[str(loops)] = _best_rate(own)
            rates = [p["lr"] for p in own]
            if rate in (min(rates), max(rates)):
                at_edge.append(loops)
        known = [rate for rate in best.values() if rate is not None]
        found.append(
            {
                "arm": arm,
                "settings": settings,
                "best": best,
                "at_edge": at_edge,
                "drift": max(known) / min(known) if known else None,
            }
        )
    return found


def _best_rate(points: Sequence[Mapping[str, Any]]) -> float | None:
    losses = []
    for point in points:
        last = list(point["loss"].values())[-1:]
        if last and point["runs"] and last[0]["runs"] == point["runs"] and not point["not_finite"]:
            losses.append((last[0]["mean"], point["lr"]))
    return min(losses)[1] if losses else None


def exponent_names(point: Mapping[str, Any]) -> list[str]:
    """What a point's exponents are called: with one level p, else by level."""
    levels = list(point["exponents"])
    return ["p"] if len(levels) == 1 else [f"p_{level}" for level in levels]


def table_rows(points: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The result table with its head: settings, successes of runs, mean loss at the steps."""
    first = points[0]
    steps = list(first["loss"])
    settings = [*exponent_names(first), first["loop_name"], "lr", "settings"]
    losses = [f"loss at {step}" for step in steps]
    rows = [["arm", *settings, "under the floor", "not finite", *losses]]
    for point in points:
        unfinished = f" ({point['unfinished']} unfinished)" if point["unfinished"] else ""
        rows.append(
            [
                point["arm"],
                *map(_number, point["exponents"].values()),
                str(point["loops"]),
                f"{point['lr']:g}",
                point["settings"] or "-",
                f"{point['successes']}/{point['runs']}{unfinished}",
                str(point["not_finite"]),
                *(_loss(point["loss"][step], point["runs"]) for step in steps),
            ]
        )
    place = rows[0].index("settings")
    if all(row[place] == "-" for row in rows[1:]):
        return [row[:place] + row[place + 1 :] for row in rows]
    return rows


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _loss(loss: Mapping[str, Any], runs: int) -> str:
    if loss["mean"] is None:
        return "-"
    fewer = f" (of {loss['runs']})" if loss["runs"] < runs else ""
    return f"{loss['mean']:.4f}{fewer}"


def format_text(result: Mapping[str, Any]) -> str:
    """The table for a terminal, with what is to be known beside it."""
    rows = table_rows(result["points"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([*lines, *notes(result)])


def format_markdown(result: Mapping[str, Any]) -> str:
    """The table and notes as Markdown."""
    head, *rows = table_rows(result["points"])
    lines = [head, ["---"] * len(head), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    listed = "\n".join(f"- {note}" for note in notes(result))
    return f"# p-sweep\n\n{table}\n\n{listed}\n"


def notes(result: Mapping[str, Any]) -> list[str]:
    """What the counts mean, flatness, uncounted runs, the measured gamma, best rates."""
    points = result["points"]
    floors = ", ".join(f"{floor:.4f}" for floor in result["floors"]) or "unknown"
    lines = [
        f"under the floor: runs whose held-out token loss gets below {floors} nats, that of the "
        f"best constant guess, within {result['budget_steps']} steps, and that stay finite",
        "loss: mean over the runs that have one at that step",
    ]
    if points and all(p["runs"] and p["successes"] == p["runs"] for p in points):
        lines.append("flat: every run succeeds, so this grid tells no two points apart by counts")
    unfinished = sum(point["unfinished"] for point in points)
    if unfinished:
        lines.append(f"{unfinished} unfinished runs are not counted")
    for level, gamma in (result["gammas"] or {}).items():
        lines.append(f"gamma measured for {level}: {gamma:.4g}, p >= {(1 + gamma) / 4:.4g}")
    for found in result["rate_transfer"]:
        best = ", ".join(
            f"{points[0]['loop_name']} {loops}: {'none' if rate is None else f'{rate:g}'}"
            + (" (edge of the rates tried)" if int(loops) in found["at_edge"] else "")
            for loops, rate in found["best"].items()
        )
        words = " ".join(word for word in (found["arm"], found["settings"]) if word)
        lines.append(f"best learning rate of {words}: {best}")
    return lines
