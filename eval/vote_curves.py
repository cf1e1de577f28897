"""Score against the number of variants that vote, and against the segments that were run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arc_data.compiled import CompiledDataset
from eval.analyses import (
    DEFAULT_TOP_K,
    headline_k,
    in_words,
    opening,
    ranks_of,
    solved,
    up_to_segment,
)
from eval.intervals import bootstrap_mean, percentile_interval, proportion, task_weights
from eval.plots import count_axis, draw_band, draw_interval, figure, percent_axis, save
from eval.predictions import Predictions
from eval.resampling import hits_by_count, random_orders, right_votes
from eval.store_votes import votes_from_predictions
from eval.voting import rank

NUM_RESAMPLES = 100
_STEPS = (1, 2, 5)
_APART, _ASIDE = 1.04, 0.12
"""Between two K at one place: a factor on a logarithmic axis, segments; bars must not hide."""


def variant_counts(most: int) -> list[int]:
    """1, 2, 5, 10, 20, 50 ... below ``most``, then ``most``."""
    decades = range(len(str(most)))
    return sorted({s * 10**d for d in decades for s in _STEPS if s * 10**d < most} | {most})


def analyse_variants(
    predictions: Predictions,
    dataset: CompiledDataset,
    *,
    top_k: Sequence[int] = DEFAULT_TOP_K,
    resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Scores what fewer variants would have given.

    Each resample puts every task's variants in a random order and lets the first n vote, for all
    test pairs of the task alike; a task with fewer variants than n votes with all it has.

    Args:
        predictions: A store's rows; of several segments the last counts.
        dataset: The data set they were made on.
        top_k: The K, increasing.
        resamples: Random orders, at least 1.
        seed: Of the random orders and of the bootstrap over tasks.

    Returns:
        For JSON: counts, top_k, num_tasks, resamples, seed, and per K, in ``scores``, one entry
        per count: percent (mean over the resamples), resampling (the central 95 % of them) and
        interval (over tasks); ``gain``, at each K, is the last count's score minus that of the
        largest count at most half of it, with its interval over tasks.

    Raises:
        ValueError: If ``resamples`` is below 1 or a row is unknown to the data set.
    """
    if resamples < 1:
        raise ValueError(f"resamples must be 1 or more, found {resamples}")
    predictions = up_to_segment(predictions)
    truth = dataset.truth()
    votes = votes_from_predictions(predictions, truth)
    assert votes.variant is not None
    orders = random_orders(votes, votes.variant, resamples, np.random.default_rng(seed))
    counts = variant_counts(int(max(order.max() for order in orders if order.size)) + 1)
    hits = hits_by_count(votes, orders, truth, counts, top_k)  # (tasks, resamples, counts, K)
    weights = task_weights(len(hits), seed)
    half = max((i for i, n in enumerate(counts) if 2 * n <= counts[-1]), default=0)
    gained = 100 * (hits[:, :, -1] - hits[:, :, half].astype(np.float64)).mean(axis=1)
    ends = bootstrap_mean(gained, weights)
    found = {
        **opening("variants", len(hits), top_k),
        "resamples": resamples,
        "seed": seed,
        "counts": counts,
        "scores": _scores_by_count(hits, weights, top_k),
        "gain": {
            "from": counts[half],
            "to": counts[-1],
            "by_k": {
                str(k): {"points": float(gained[:, j].mean()), "interval": ends[j]}
                for j, k in enumerate(top_k)
            },
        },
    }
    return {**found, "words": _variants_words(found)}


def _scores_by_count(
    hits: NDArray[np.bool_], weights: NDArray[np.float64], top_k: Sequence[int]
) -> dict[str, list[dict[str, Any]]]:
    scores: dict[str, list[dict[str, Any]]] = {}
    for j, k in enumerate(top_k):
        draws = 100 * hits[..., j].mean(axis=0)  # (resamples, counts)
        columns = zip(
            draws.mean(axis=0).tolist(),
            percentile_interval(draws),
            bootstrap_mean(100 * hits[..., j].mean(axis=1), weights),
            strict=True,
        )
        scores[str(k)] = [
            {"percent": percent, "resampling": spread, "interval": interval}
            for percent, spread, interval in columns
        ]
    return scores


def _variants_words(found: Mapping[str, Any]) -> str:
    head, gain = str(headline_k(found["top_k"])), found["gain"]
    first, last = found["scores"][head][0], found["scores"][head][-1]
    brought = gain["by_k"][head]
    return (
        f"Strict score at K = {head} over {found['num_tasks']} tasks:"
        f" {in_words(first['percent'], first['interval'])} with {found['counts'][0]} variant,"
        f" {in_words(last['percent'], last['interval'])} with {gain['to']}; going from"
        f" {gain['from']} to {gain['to']} brings"
        f" {in_words(brought['points'], brought['interval'], sign=True)}."
        " Intervals: 95 % over tasks."
    )


def draw_variants(analysis: Mapping[str, Any], path: str | Path) -> Path:
    """Draws the result of ``analyse_variants`` into a file, svg or png."""
    counts, top_k = analysis["counts"], analysis["top_k"]
    with figure() as (fig, (ax,)):
        for number, k in enumerate(top_k):
            points = analysis["scores"][str(k)]
            places = [n * _APART ** (number - (len(top_k) - 1) / 2) for n in counts]
            (line,) = ax.plot(places, [p["percent"] for p in points], label=f"K = {k}")
            if k == headline_k(top_k):
                draw_band(ax, places, *_ends(points, "interval"), line.get_color())
            ax.vlines(places, *_ends(points, "resampling"), color=line.get_color(), linewidth=1)
        count_axis(ax, counts, "variants that vote, per task")
        percent_axis(ax, "tasks solved (strict), %")
        ax.set_title(
            f"Band: 95 % over {analysis['num_tasks']} tasks, at K = {headline_k(top_k)};"
            " bars: resampling"
        )
        ax.legend()
        return save(fig, path)


def analyse_segments(
    predictions: Predictions,
    dataset: CompiledDataset,
    *,
    top_k: Sequence[int] = DEFAULT_TOP_K,
    seed: int = 0,
) -> dict[str, Any]:
    """Scores the predictions as they stood after each segment.

    Args:
        predictions: A store's rows, of at least two segments.
        dataset: The data set they were made on.
        top_k: The K, increasing.
        seed: Of the bootstrap over tasks.

    Returns:
        For JSON: segments, top_k, num_tasks, seed; per K, in ``scores``, one ``proportion`` per
        segment with ``to_last``: the last segment's score minus this one's, in points, with its
        interval over tasks; ``canvases``: share of single predictions that are right, in percent.

    Raises:
        ValueError: If all rows are of one segment.
    """
    segments = np.unique(predictions.segment).tolist()
    if len(segments) < 2:
        raise ValueError(
            f"the store must have predictions of several segments, found only {segments}; predict"
            " with --every-segment"
        )
    truth = dataset.truth()
    tables, canvases = [], []
    for segment in segments:
        votes = votes_from_predictions(up_to_segment(predictions, segment), truth)
        tables.append(solved(ranks_of(rank(votes), truth), top_k))
        right = right_votes(votes, truth)
        canvases.append(100 * float(right[right >= 0].mean()))
    hits = np.stack(tables)  # (segments, tasks, K)
    num_tasks = hits.shape[1]
    weights = task_weights(num_tasks, seed)
    scores: dict[str, list[dict[str, Any]]] = {}
    for j, k in enumerate(top_k):
        missing = 100 * (hits[-1, :, j].astype(np.float64) - hits[:, :, j]).T  # (tasks, segments)
        ends = bootstrap_mean(missing, weights)
        scores[str(k)] = [
            {
                **proportion(int(hits[i, :, j].sum()), num_tasks),
                "to_last": {"points": float(missing[:, i].mean()), "interval": ends[i]},
            }
            for i in range(len(segments))
        ]
    found = {
        **opening("segments", num_tasks, top_k),
        "seed": seed,
        "segments": segments,
        "scores": scores,
        "canvases": canvases,
    }
    return {**found, "words": _segments_words(found)}


def _segments_words(found: Mapping[str, Any]) -> str:
    head, segments = str(headline_k(found["top_k"])), found["segments"]
    points = found["scores"][head]
    first, last = points[0], points[-1]
    best = max(range(len(segments)), key=lambda i: points[i]["percent"])
    return (
        f"Strict score at K = {head} over {found['num_tasks']} tasks:"
        f" {in_words(first['percent'], first['interval'])} after segment {segments[0]},"
        f" {in_words(last['percent'], last['interval'])} after segment {segments[-1]}, a difference"
        f" of {in_words(first['to_last']['points'], first['to_last']['interval'], sign=True)};"
        f" highest after segment {segments[best]}. Intervals: 95 % over tasks."
    )


def draw_segments(analysis: Mapping[str, Any], path: str | Path) -> Path:
    """Draws the result of ``analyse_segments`` into a file, svg or png."""
    segments = analysis["segments"]
    with figure() as (fig, (ax,)):
        middle = (len(analysis["top_k"]) - 1) / 2
        for number, (k, points) in enumerate(analysis["scores"].items()):
            places = [s + _ASIDE * (number - middle) for s in segments]
            ends = [point["interval"] for point in points]
            draw_interval(ax, places, [p["percent"] for p in points], ends, f"K = {k}")
        ax.plot(segments, analysis["canvases"], label="single predictions")
        ax.set_xticks(segments)
        ax.set_xlabel("segments run")
        percent_axis(ax, "tasks solved (strict), %")
        ax.set_title(f"95 % over {analysis['num_tasks']} tasks")
        ax.legend(ncols=2)
        return save(fig, path)


def _ends(points: Sequence[Mapping[str, Any]], key: str) -> tuple[list[float], list[float]]:
    return [point[key][0] for point in points], [point[key][1] for point in points]
