"""Scores by what a task is like, and how far the halting head knows when a grid is right."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from arc_data.compiled import CompiledDataset
from arc_data.manifest import check_digest
from eval.analyses import (
    DEFAULT_TOP_K,
    SCHEMA,
    headline_k,
    in_words,
    known_ranks,
    opening,
    solved,
    up_to_segment,
)
from eval.intervals import percentile_interval, proportion, task_weights
from eval.plots import EDGE, draw_interval, figure, percent_axis, save
from eval.predictions import Predictions
from eval.resampling import right_votes
from eval.store_votes import votes_from_predictions

CELL_EDGES = (0, 9, 16, 25, 36, 64, 100, 225, 400, 900)
"""Bins of the cells of a task's largest grid: squares, up to ARC's 30 x 30."""
NUM_BINS = 10
"""Bins of confidence, of equal width."""


def describe_tasks(dataset: CompiledDataset) -> dict[str, dict[str, int]]:
    """Measures every task of a data set.

    Args:
        dataset: The data set.

    Returns:
        Task -> cells of its largest grid, and number of its distinct colours; inputs and known
        outputs of all pairs count.
    """
    plan = dataset.plan
    found: dict[str, dict[str, int]] = {}
    cells = plan.shapes.astype(np.int64).prod(axis=-1)  # (pairs, 2)
    for task, name in enumerate(dataset.task_names):
        pairs = np.flatnonzero(plan.pair_task == task)
        colors = {
            int(color)
            for pair in pairs.tolist()
            for side in (0, 1)
            for color in np.unique(_grid(dataset, pair, side))
        }
        found[name] = {"cells": int(cells[pairs].max()), "colors": len(colors)}
    return found


def analyse_sizes(
    results: Mapping[str, Any],
    dataset: CompiledDataset,
    *,
    top_k: Sequence[int] = DEFAULT_TOP_K,
) -> dict[str, Any]:
    """Splits the strict score by task size and by number of colours.

    Args:
        results: Content of a results.json.
        dataset: The data set it was made on.
        top_k: The K, increasing.

    Returns:
        For JSON: top_k, num_tasks; ``by_cells`` and ``by_colors``, each with ``bins`` [{label,
        low, high, scores {K: ``proportion``}}] and, per K in ``trend``, ``larger_unsolved``: the
        probability that an unsolved task has more cells (colours) than a solved one, ties half,
        with its two-sided Mann-Whitney p; None where all or no tasks are solved.

    Raises:
        ValueError: If the result was made on another data set.
    """
    check_digest(results["dataset"]["manifest_sha256"], dataset)
    ranks = known_ranks(results)
    table = solved(ranks, top_k)
    about = describe_tasks(dataset)
    cells = np.array([about[task]["cells"] for task in ranks])
    colors = np.array([about[task]["colors"] for task in ranks])
    by_cells = _by_bin(cells, CELL_EDGES, table, top_k)
    by_colors = _by_bin(colors, tuple(range(11)), table, top_k)
    head = str(headline_k(top_k))
    words = (
        f"Strict score at K = {head} over {len(table)} tasks."
        f" By the largest grid: {_split_in_words(by_cells, 'cells', head)}"
        f" By distinct colours: {_split_in_words(by_colors, 'colours', head)}"
        " Intervals: 95 % over tasks."
    )
    return {
        **opening("sizes", len(table), top_k),
        "by_cells": by_cells,
        "by_colors": by_colors,
        "words": words,
    }


def draw_sizes(analysis: Mapping[str, Any], path: str | Path) -> Path:
    """Draws the result of ``analyse_sizes`` into a file, svg or png."""
    with figure(1, 2) as (fig, axes):
        for ax, key, label in (
            (axes[0], "by_cells", "cells of the task's largest grid"),
            (axes[1], "by_colors", "distinct colours of the task"),
        ):
            bins = analysis[key]["bins"]
            top_k = analysis["top_k"]
            for number, k in enumerate(top_k):
                points = [b["scores"][str(k)] for b in bins]
                places = [i + 0.16 * (number - (len(top_k) - 1) / 2) for i in range(len(bins))]
                ends = [point["interval"] for point in points]
                percent = [point["percent"] for point in points]
                draw_interval(ax, places, percent, ends, f"K = {k}", linestyle="none")
            totals = [b["scores"][str(top_k[0])]["total"] for b in bins]
            names = [f"{b['label']}\nn={n}" for b, n in zip(bins, totals, strict=True)]
            ax.set_xticks(range(len(bins)), names)
            ax.grid(axis="x", visible=False)
            ax.set_xlabel(label)
            percent_axis(ax, "tasks solved (strict), %", 100)
        axes[0].set_title(f"95 % over {analysis['num_tasks']} tasks")
        axes[1].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
        return save(fig, path)


def analyse_halting(
    predictions: Predictions, dataset: CompiledDataset, *, seed: int = 0
) -> dict[str, Any]:
    """Compares the halting head's confidence with what is right, prediction by prediction.

    Args:
        predictions: A store's rows; of several segments the last counts.
        dataset: The data set they were made on.
        seed: Of the bootstrap over tasks, which keeps a task's predictions together.

    Returns:
        For JSON: num_tasks, num_predictions, seed; ``bins`` [{low, high, predictions,
        mean_confidence, percent (right), interval}], empty ones with None; and, each as {value,
        interval}, ``percent_right``, ``mean_confidence`` (percent), ``calibration_error`` (mean
        distance of the two over the bins, weighted, points), ``agreement`` (percent in which
        confidence >= 0.5 just when right) and ``brier``; ``auc``, the probability that a right
        prediction has the higher confidence, None where all or none are right.

    Raises:
        ValueError: If no output is known.

    **Source**: reliability curve and expected calibration error: Guo et al. (2017); Brier (1950).
    """
    predictions = up_to_segment(predictions)
    truth = dataset.truth()
    votes = votes_from_predictions(predictions, truth)
    right = right_votes(votes, truth)
    known = right >= 0
    if not known.any():
        raise ValueError("the data set must have test pairs with a known output, found none")
    is_right, confidence = right[known].astype(np.float64), votes.confidence[known]
    tasks, task = np.unique(predictions.task_id[known], return_inverse=True)
    bins = np.minimum((confidence * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    sums = _sums(is_right, confidence, bins, task, len(tasks))  # (tasks, bins, quantities)
    draws = np.tensordot(task_weights(len(tasks), seed), sums, axes=1)  # (draws, bins, quantities)
    bin_entries = _bin_entries(sums.sum(axis=0), draws)
    values = _summary(sums.sum(axis=0)[None])
    drawn = _summary(draws)
    facts: dict[str, dict[str, Any]] = {
        name: {"value": float(values[name][0]), "interval": percentile_interval(d[:, None])[0]}
        for name, d in drawn.items()
    }
    found = {
        "schema": SCHEMA,
        "analysis": "halting",
        "num_tasks": len(tasks),
        "num_predictions": len(is_right),
        "seed": seed,
        "bins": bin_entries,
        **facts,
        "auc": _auc(confidence, is_right),
    }
    return {**found, "words": _halting_words(found)}


def _halting_words(found: Mapping[str, Any]) -> str:
    told = {
        name: in_words(found[name]["value"], found[name]["interval"])
        for name in ("mean_confidence", "percent_right", "agreement")
    }
    auc = "undefined" if found["auc"] is None else f"{found['auc']:.3f}"
    return (
        f"Over {found['num_predictions']} predictions of {found['num_tasks']} tasks the halting"
        f" head's mean confidence is {told['mean_confidence']}, and {told['percent_right']} are"
        f" right; expected calibration error {found['calibration_error']['value']:.1f} points,"
        f" agreement {told['agreement']}, AUC {auc}. Intervals: 95 % over tasks."
    )


def draw_halting(analysis: Mapping[str, Any], path: str | Path) -> Path:
    """Draws the result of ``analyse_halting`` into a file, svg or png."""
    bins = [b for b in analysis["bins"] if b["predictions"]]
    with figure(1, 2) as (fig, (curve, histogram)):
        curve.plot([0, 100], [0, 100], color=EDGE, linestyle=":", marker="", label="calibrated")
        draw_interval(
            curve,
            [b["mean_confidence"] for b in bins],
            [b["percent"] for b in bins],
            [b["interval"] for b in bins],
            "halting head",
        )
        curve.set_xlabel("confidence, sigmoid of q_halt, %")
        curve.set_xlim(-2, 102)
        percent_axis(curve, "predictions that are right, %", 100)
        curve.set_title(f"95 % over {analysis['num_tasks']} tasks")
        curve.legend()
        histogram.bar(
            [50 * (b["low"] + b["high"]) for b in bins],
            [b["predictions"] for b in bins],
            width=90 / NUM_BINS,
        )
        histogram.set_xlim(-2, 102)
        histogram.set_xlabel("confidence, sigmoid of q_halt, %")
        histogram.set_ylabel("predictions")
        return save(fig, path)


def _grid(dataset: CompiledDataset, pair: int, side: int) -> NDArray[np.uint8]:
    rows, cols = dataset.plan.shapes[pair, side].tolist()
    return dataset.plan.grids[pair, side, :rows, :cols]


def _by_bin(
    values: NDArray[np.int64],
    edges: Sequence[int],
    table: NDArray[np.bool_],
    top_k: Sequence[int],
) -> dict[str, Any]:
    bins = []
    for low, high in pairwise(edges):
        is_in = (values > low) & (values <= high)
        if not is_in.any():
            continue
        scores = {
            str(k): proportion(int(table[is_in, j].sum()), int(is_in.sum()))
            for j, k in enumerate(top_k)
        }
        label = str(high) if high == low + 1 else f"{low + 1}-{high}"
        bins.append({"label": label, "low": low + 1, "high": high, "scores": scores})
    trend: dict[str, dict[str, float] | None] = {}
    for j, k in enumerate(top_k):
        unsolved, hit = values[~table[:, j]], values[table[:, j]]
        trend[str(k)] = None
        if len(unsolved) and len(hit):
            test = stats.mannwhitneyu(unsolved, hit)
            chance = float(test.statistic) / (len(unsolved) * len(hit))
            trend[str(k)] = {"larger_unsolved": chance, "p": float(test.pvalue)}
    return {"bins": bins, "trend": trend}


def _split_in_words(split: Mapping[str, Any], what: str, k: str) -> str:
    """The two outer bins and the trend."""
    bins = split["bins"]
    text = "; ".join(
        f"{in_words(b['scores'][k]['percent'], b['scores'][k]['interval'])} of the"
        f" {b['scores'][k]['total']} with {b['label']} {what}"
        for b in (bins[:1] if len(bins) == 1 else (bins[0], bins[-1]))
    )
    trend = split["trend"][k]
    if trend is None:
        return f"{text}."
    return (
        f"{text}; an unsolved task has more {what} than a solved one with probability"
        f" {trend['larger_unsolved']:.2f} (Mann-Whitney p = {trend['p']:.2g})."
    )


def _sums(
    is_right: NDArray[np.float64],
    confidence: NDArray[np.float64],
    bins: NDArray[np.int64],
    task: NDArray[np.int64],
    num_tasks: int,
) -> NDArray[np.float64]:
    """Per task and bin: predictions, right ones, confidence, agreeing ones, squared errors."""
    cell = task * NUM_BINS + bins
    agree = (confidence >= 0.5) == (is_right == 1)
    squared = (confidence - is_right) ** 2
    columns = (np.ones_like(is_right), is_right, confidence, agree, squared)
    sums = [np.bincount(cell, column, num_tasks * NUM_BINS) for column in columns]
    return np.stack(sums, axis=-1).reshape(num_tasks, NUM_BINS, -1).astype(np.float64)


def _summary(sums: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """The figures over all bins, per draw; ``sums`` (draws, bins, quantities)."""
    total = sums.sum(axis=1)  # (draws, quantities)
    gap = np.abs(sums[..., 1] - sums[..., 2]).sum(axis=1)
    number = total[:, 0]
    return {
        "percent_right": 100 * total[:, 1] / number,
        "mean_confidence": 100 * total[:, 2] / number,
        "calibration_error": 100 * gap / number,
        "agreement": 100 * total[:, 3] / number,
        "brier": total[:, 4] / number,
    }


def _bin_entries(sums: NDArray[np.float64], draws: NDArray[np.float64]) -> list[dict[str, Any]]:
    entries = []
    for i, (number, num_right, confidence, _, _) in enumerate(sums.tolist()):
        entry: dict[str, Any] = {"low": i / NUM_BINS, "high": (i + 1) / NUM_BINS}
        entry["predictions"] = int(number)
        entry.update(dict.fromkeys(("mean_confidence", "percent", "interval")))
        if number:
            entry["mean_confidence"] = 100 * confidence / number
            entry["percent"] = 100 * num_right / number
            drawn = draws[draws[:, i, 0] > 0, i]  # a draw may miss the bin's tasks
            entry["interval"] = percentile_interval(100 * drawn[:, [1]] / drawn[:, [0]])[0]
        entries.append(entry)
    return entries


def _auc(confidence: NDArray[np.float64], is_right: NDArray[np.float64]) -> float | None:
    right, wrong = confidence[is_right == 1], confidence[is_right == 0]
    if not len(right) or not len(wrong):
        return None
    return float(stats.mannwhitneyu(right, wrong).statistic) / (len(right) * len(wrong))
