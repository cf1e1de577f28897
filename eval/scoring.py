"""The three ARC scores at each K, what happened to every test pair, and results.json."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from eval.decoding import grid_digest
from eval.voting import Candidate, Grids, Ranking

__all__ = [
    "DEFAULT_TOP_K",
    "SCHEMA",
    "SCORE_NAMES",
    "PairOutcome",
    "Scores",
    "check_top_k",
    "format_ladder",
    "results",
    "score",
    "summarise_outcomes",
]

SCHEMA = "hrm_deeploop.results/1"
SCORE_NAMES = ("task_accuracy_strict", "task_accuracy_fraction", "test_pair_accuracy")
DEFAULT_TOP_K = (1, 2, 10, 100, 1000)

_CHOICES = {
    "protocol": ("published", "strict"),
    "voting.puzzle_id": ("right", "blank", "shuffled", None),
    "checkpoint.weights": ("raw", "ema", None),
    "checkpoint.rule": ("final", "step", "best-on-test", None),
}
_KEYS = {
    "dataset": ("name", "manifest_sha256"),
    "voting": ("rule", "halting", "num_aug", "sources", "puzzle_id", "partial"),
    "checkpoint": ("run", "step", "weights", "sha256", "rule"),
    "arm": ("name", "digest", "residual", "grad_scope", "residual_sum", "carry_dtype"),
}


@dataclass(frozen=True, kw_only=True)
class PairOutcome:
    """What voting made of one test pair."""

    rank: int | None
    """Rank of the right grid among the distinct candidates, from 1; None if it is not there."""
    candidates: int
    """Distinct candidates."""
    votes: int | float
    """Sum of the candidates' counts."""
    top_count: int | float
    """Count of the first candidate, 0 without candidates."""
    tied_on_count: int
    """Candidates with the top count: 1 if the first stands alone, 0 without candidates."""
    tied_on_confidence: int
    """Those of them that also have the first's mean confidence, so that the digest decides."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of one ranking against the ground truth."""

    top_k: tuple[int, ...]
    """The K of the ladder, increasing."""
    num_tasks: int
    """Tasks with a known output: the denominator of both task accuracies."""
    num_test_pairs: int
    """Test pairs with a known output: the denominator of the test pair accuracy."""
    percent: dict[str, dict[int, float]]
    """Score name -> K -> percent."""
    num_tasks_solved: dict[int, int]
    """K -> tasks with all their scored test pairs hit."""
    num_test_pairs_hit: dict[int, int]
    """K -> scored test pairs hit."""
    outcomes: dict[str, tuple[PairOutcome, ...]]
    """Task -> one outcome per test pair, in the order of the data."""
    missing: tuple[str, ...]
    """Test pairs, ``task/index``, that nothing voted for: wrong where they are scored."""
    unscored: tuple[str, ...]
    """Test pairs, ``task/index``, without a known output."""


def check_top_k(top_k: Sequence[int]) -> tuple[int, ...]:
    """Checks a ladder of K.

    Args:
        top_k: Whole numbers, at least 1, increasing; any number of them.

    Returns:
        The same as a tuple.

    Raises:
        ValueError: If it is empty, not increasing, or holds anything but whole numbers above 0.
    """
    is_increasing = all(a < b for a, b in pairwise(top_k))
    if not top_k or not all(type(k) is int and k >= 1 for k in top_k) or not is_increasing:
        raise ValueError(
            f"top_k must be increasing whole numbers of at least 1, found {list(top_k)};"
            f" use for example {list(DEFAULT_TOP_K)}"
        )
    return tuple(top_k)


def score(ranking: Ranking, truth: Grids, top_k: Sequence[int] = DEFAULT_TOP_K) -> Scores:
    """Scores a ranking.

    At each K a test pair is hit if its right grid is among the first K candidates.
    ``task_accuracy_strict`` counts tasks with all test pairs hit, ``task_accuracy_fraction`` is
    the mean over tasks of the hit fraction, ``test_pair_accuracy`` counts test pairs. The ground
    truth gives the denominators; test pairs without a known output are left out of all three.

    Args:
        ranking: Candidates per test pair, best first; absent test pairs count as not answered.
        truth: Outputs of every test pair, None where unknown.
        top_k: See ``check_top_k``.

    Returns:
        The scores in percent and the outcome of every test pair.

    Raises:
        ValueError: If ``top_k`` is malformed, the ranking has a test pair that the truth lacks,
            or no output is known.

    **Source**: strict: HRM ``arc_eval.ipynb`` @ 42410da and the ARC rules; fraction: TRM
    ``evaluators/arc.py`` @ e7b6871; test pairs: the ARC Prize score.
    """
    top_k = check_top_k(top_k)
    for task, index in ranking:
        if task not in truth or not 0 <= index < len(truth[task]):
            raise ValueError(
                f"ranking: test pair {task}/{index} must be in the truth, found only other pairs;"
                " use the data set the predictions were made on"
            )
    outcomes: dict[str, tuple[PairOutcome, ...]] = {}
    scored: list[list[int | None]] = []
    missing, unscored = [], []
    for task, outputs in truth.items():
        lists = [ranking.get((task, index), []) for index in range(len(outputs))]
        outcomes[task] = tuple(
            _outcome(candidates, None if output is None else grid_digest(output))
            for candidates, output in zip(lists, outputs, strict=True)
        )
        missing += [f"{task}/{i}" for i, candidates in enumerate(lists) if not candidates]
        unscored += [f"{task}/{i}" for i, output in enumerate(outputs) if output is None]
        known = [i for i, output in enumerate(outputs) if output is not None]
        if known:
            scored.append([outcomes[task][i].rank for i in known])
    if not scored:
        raise ValueError(
            "truth must have a test pair with a known output, found none; such data can only be"
            " put into a submission"
        )
    return _tally(scored, top_k, outcomes, tuple(missing), tuple(unscored))


def results(
    scores: Scores,
    *,
    protocol: str,
    split: str,
    dataset: Mapping[str, Any],
    voting: Mapping[str, Any],
    checkpoint: Mapping[str, Any],
    seed: int | None,
    arm: Mapping[str, Any],
    num_predictions: int,
) -> dict[str, Any]:
    """Builds the content of results.json.

    Args:
        scores: From ``score``.
        protocol: ``published`` or ``strict``: which pairs were trained on.
        split: The evaluated split, for example ``arc1-evaluation``.
        dataset: name, manifest_sha256.
        voting: rule, halting, num_aug, sources, puzzle_id (right, blank, shuffled or None) and
            partial (whether tasks or variants were left out).
        checkpoint: run, step, weights (raw, ema), sha256, rule (final, step, best-on-test); every
            value may be None for a foreign solver.
        seed: Run seed, None for a foreign solver.
        arm: name, digest, residual, grad_scope, residual_sum, carry_dtype.
        num_predictions: Predictions that voted.

    Returns:
        A dict that ``write_json`` takes, its keys in a fixed order.

    Raises:
        ValueError: If a part has missing or unknown keys, or a value that is none of its choices.
    """
    parts = {"dataset": dataset, "voting": voting, "checkpoint": checkpoint, "arm": arm}
    ordered = {name: _ordered(name, part) for name, part in parts.items()}
    for field, choices in _CHOICES.items():
        name, _, key = field.partition(".")
        value = ordered[name][key] if key else protocol
        if value not in choices:
            raise ValueError(f"{field} must be one of {list(choices)}, found {value!r}; correct it")
    if not isinstance(voting["partial"], bool):
        raise ValueError(f"voting.partial must be true or false, found {voting['partial']!r}")
    if seed is not None and type(seed) is not int:
        raise ValueError(f"seed must be a whole number or None, found {seed!r}; give the run seed")
    return {
        "schema": SCHEMA,
        "protocol": protocol,
        "split": split,
        "dataset": ordered["dataset"],
        "voting": ordered["voting"],
        "checkpoint": ordered["checkpoint"],
        "seed": seed,
        "arm": ordered["arm"],
        "num_tasks": scores.num_tasks,
        "num_test_pairs": scores.num_test_pairs,
        "num_predictions": num_predictions,
        "scores": {
            name: {str(k): value for k, value in scores.percent[name].items()}
            for name in SCORE_NAMES
        },
        "missing": list(scores.missing),
        "unscored": list(scores.unscored),
        "tasks": {
            task: [asdict(outcome) for outcome in outcomes]
            for task, outcomes in scores.outcomes.items()
        },
    }


def summarise_outcomes(scores: Scores) -> dict[str, int]:
    """Counts what happened to the test pairs that are scored.

    Args:
        scores: From ``score``.

    Returns:
        ``right_first``; ``covered``, the right grid is among the candidates at any rank, so
        ``right_first`` is part of it; ``wrong``, answered and not covered; ``no_answer``, no
        candidate at all; ``candidates``, distinct grids in all; ``tied_on_count``, the first
        candidate shares its count; ``tied_on_confidence``, its mean confidence too, so that the
        digest decides.
    """
    unscored = set(scores.unscored)
    outcomes = [
        outcome
        for task, pairs in scores.outcomes.items()
        for index, outcome in enumerate(pairs)
        if f"{task}/{index}" not in unscored
    ]
    return {
        "right_first": sum(o.rank == 1 for o in outcomes),
        "covered": sum(o.rank is not None for o in outcomes),
        "wrong": sum(o.rank is None and o.candidates > 0 for o in outcomes),
        "no_answer": sum(o.candidates == 0 for o in outcomes),
        "candidates": sum(o.candidates for o in outcomes),
        "tied_on_count": sum(o.tied_on_count > 1 for o in outcomes),
        "tied_on_confidence": sum(o.tied_on_confidence > 1 for o in outcomes),
    }


def format_ladder(results: Mapping[str, Any]) -> str:
    """Lays out the K ladder of a result as plain text.

    Args:
        results: From ``results``, or read from a results.json.

    Returns:
        A heading, a line per K with the three scores in percent and the tasks and test pairs
        behind them, and lines on what is missing, unscored, partial or seen in training where
        there is any.
    """
    columns = ["K", "strict %", "fraction %", "pairs %", "tasks", "test pairs"]
    unscored = set(results["unscored"])
    ranks = {
        task: [o["rank"] for i, o in enumerate(outcomes) if f"{task}/{i}" not in unscored]
        for task, outcomes in results["tasks"].items()
    }
    lines = [columns]
    for k in results["scores"][SCORE_NAMES[0]]:
        hits = [[r is not None and r <= int(k) for r in task] for task in ranks.values() if task]
        lines.append(
            [
                k,
                *(f"{results['scores'][name][k]:.2f}" for name in SCORE_NAMES),
                f"{sum(map(all, hits))}/{results['num_tasks']}",
                f"{sum(map(sum, hits))}/{results['num_test_pairs']}",
            ]
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    text = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    notes = [f"{len(results[key])} {key}" for key in ("missing", "unscored") if results[key]]
    if results["voting"]["partial"]:
        notes.append("partial: not comparable with whole evaluations")
    text += ["; ".join(notes)] if notes else []
    text += _format_summary(results)
    unseen = results.get("without_seen_pairs")
    if unseen and unseen["seen"]:
        by_k = unseen["scores"][SCORE_NAMES[0]] if unseen["scores"] else {}
        ladder = ", ".join(f"{value:.2f} at K = {k}" for k, value in by_k.items()) or "none left"
        text.append(
            f"strict % without the {len(unseen['seen'])} test pairs that training shows in some"
            f" turn or colours: {ladder}"
        )
    return "\n".join(text)


def _format_summary(results: Mapping[str, Any]) -> list[str]:
    summary, num_pairs = results.get("summary"), results["num_test_pairs"]
    if summary is None:
        return []
    lines = [
        f"of {num_pairs} test pairs: right grid first {summary['right_first']}, among the"
        f" candidates {summary['covered']}, wrong {summary['wrong']}, no answer"
        f" {summary['no_answer']}; {summary['candidates'] / num_pairs:.1f} candidates each;"
        f" first place tied on count {summary['tied_on_count']}, on confidence too"
        f" {summary['tied_on_confidence']}"
    ]
    if len(results["segments"]) > 1:
        steps = ", ".join(f"{step}: {count}" for step, count in results["segments"].items())
        lines.append(f"predictions by segments run: {steps}")
    return lines


def _outcome(candidates: Sequence[Candidate], right: str | None) -> PairOutcome:
    ranks = [place for place, c in enumerate(candidates, start=1) if c.digest == right]
    on_count = [c for c in candidates if c.count == candidates[0].count]
    on_confidence = [c for c in on_count if c.mean_confidence == candidates[0].mean_confidence]
    votes = math.fsum(c.count for c in candidates)
    return PairOutcome(
        rank=ranks[0] if ranks else None,
        candidates=len(candidates),
        votes=int(votes) if votes.is_integer() else votes,
        top_count=candidates[0].count if candidates else 0,
        tied_on_count=len(on_count),
        tied_on_confidence=len(on_confidence),
    )


def _tally(
    scored: list[list[int | None]],
    top_k: tuple[int, ...],
    outcomes: dict[str, tuple[PairOutcome, ...]],
    missing: tuple[str, ...],
    unscored: tuple[str, ...],
) -> Scores:
    num_tasks, num_pairs = len(scored), sum(map(len, scored))
    percent: dict[str, dict[int, float]] = {name: {} for name in SCORE_NAMES}
    num_solved, num_hit = {}, {}
    for k in top_k:
        hits = [[rank is not None and rank <= k for rank in ranks] for ranks in scored]
        num_solved[k] = sum(map(all, hits))
        num_hit[k] = sum(map(sum, hits))
        fraction = 100 * math.fsum(sum(task) / len(task) for task in hits) / num_tasks
        strict, pairs = 100 * num_solved[k] / num_tasks, 100 * num_hit[k] / num_pairs
        for name, value in zip(SCORE_NAMES, (strict, fraction, pairs), strict=True):
            percent[name][k] = value
    return Scores(
        top_k=top_k,
        num_tasks=num_tasks,
        num_test_pairs=num_pairs,
        percent=percent,
        num_tasks_solved=num_solved,
        num_test_pairs_hit=num_hit,
        outcomes=outcomes,
        missing=missing,
        unscored=unscored,
    )


def _ordered(name: str, part: Mapping[str, Any]) -> dict[str, Any]:
    keys = _KEYS[name]
    for key in sorted(set(part) ^ set(keys)):
        state = "is missing" if key in keys else "is unknown"
        raise ValueError(f"{name} must have the keys {list(keys)}, {key!r} {state}; correct it")
    return {key: part[key] for key in keys}
