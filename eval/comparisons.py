"""Which tasks separate two results: puzzle-id modes side by side, and discordant tasks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arc_data.compiled import CompiledDataset
from eval.analyses import (
    DEFAULT_TOP_K,
    STRICT,
    headline_k,
    in_words,
    known_ranks,
    opening,
    ranks_of,
    solved,
    up_to_segment,
)
from eval.intervals import compare_tasks, proportion, task_weights
from eval.plots import SERIES, draw_interval, figure, percent_axis, save
from eval.predictions import Predictions
from eval.store_votes import votes_from_predictions
from eval.voting import rank

REFERENCE_MODE = "right"
_SAME_HEADER = ("data_manifest_sha256", "split", "halting", "num_aug")
_MUST_AGREE = ("split", "dataset", "protocol", "num_tasks")


def analyse_puzzle_ids(
    stores: Sequence[Predictions],
    dataset: CompiledDataset,
    *,
    top_k: Sequence[int] = DEFAULT_TOP_K,
    seed: int = 0,
) -> dict[str, Any]:
    """Compares predictions made under right, blank and shuffled puzzle ids.

    Args:
        stores: Two or more stores of one checkpoint, each of another ``puzzle_id`` mode; one of
            them ``right``.
        dataset: The data set they were made on.
        top_k: The K, increasing.
        seed: Of the bootstrap over tasks.

    Returns:
        For JSON: modes, top_k, num_tasks, seed; per mode and K, in ``scores``, a ``proportion``;
        per other mode and K, in ``against_right``, ``compare_tasks`` from right to that mode.

    Raises:
        ValueError: If a mode is missing or occurs twice, or the stores differ in what must agree.
    """
    modes = [str(store.header["puzzle_id"]) for store in stores]
    if REFERENCE_MODE not in modes or len(set(modes)) != len(modes) or len(modes) < 2:
        raise ValueError(
            f"puzzle_id of the stores must be {REFERENCE_MODE!r} and other modes, each once, found"
            f" {modes}; predict with --puzzle-id"
        )
    _check_one_checkpoint(stores, modes)
    truth = dataset.truth()
    tables = {}
    for mode, store in zip(modes, stores, strict=True):
        votes = votes_from_predictions(up_to_segment(store), truth)
        tables[mode] = solved(ranks_of(rank(votes), truth), top_k)  # (tasks, K)
    order = [REFERENCE_MODE, *(mode for mode in modes if mode != REFERENCE_MODE)]
    num_tasks = len(tables[REFERENCE_MODE])
    weights = task_weights(num_tasks, seed)
    scores = {
        mode: {
            str(k): proportion(int(tables[mode][:, j].sum()), num_tasks)
            for j, k in enumerate(top_k)
        }
        for mode in order
    }
    against = {
        mode: {
            str(k): compare_tasks(tables[REFERENCE_MODE][:, j], tables[mode][:, j], weights)
            for j, k in enumerate(top_k)
        }
        for mode in order[1:]
    }
    found = {
        **opening("puzzle-ids", num_tasks, top_k),
        "seed": seed,
        "modes": order,
        "scores": scores,
        "against_right": against,
    }
    return {**found, "words": _puzzle_ids_words(found)}


def _puzzle_ids_words(found: Mapping[str, Any]) -> str:
    head, scores = str(headline_k(found["top_k"])), found["scores"]
    shares = {
        mode: in_words(scores[mode][head]["percent"], scores[mode][head]["interval"])
        for mode in found["modes"]
    }
    parts = [
        f"{mode} ids {shares[mode]},"
        f" {in_words(by_k[head]['difference'], by_k[head]['interval'], sign=True)} against right"
        f" (exact McNemar p = {by_k[head]['mcnemar_p']:.3g})"
        for mode, by_k in found["against_right"].items()
    ]
    return (
        f"Strict score at K = {head} over {found['num_tasks']} tasks: right puzzle ids"
        f" {shares[REFERENCE_MODE]}; {'; '.join(parts)}. Intervals: 95 % over tasks."
    )


def draw_puzzle_ids(analysis: Mapping[str, Any], path: str | Path) -> Path:
    """Draws the result of ``analyse_puzzle_ids`` into a file, svg or png."""
    top_k, modes = analysis["top_k"], analysis["modes"]
    with figure() as (fig, (ax,)):
        for number, mode in enumerate(modes):
            points = [analysis["scores"][mode][str(k)] for k in top_k]
            places = [i + 0.16 * (number - (len(modes) - 1) / 2) for i in range(len(top_k))]
            ends = [point["interval"] for point in points]
            percent = [point["percent"] for point in points]
            draw_interval(ax, places, percent, ends, f"{mode} ids", linestyle="none")
        ax.set_xticks(range(len(top_k)), [f"K = {k}" for k in top_k])
        ax.set_xlim(-0.5, len(top_k) - 0.5)
        ax.grid(axis="x", visible=False)
        percent_axis(ax, "tasks solved (strict), %")
        ax.set_title(f"95 % over {analysis['num_tasks']} tasks")
        ax.legend()
        return save(fig, path)


def analyse_discordant(
    first: Mapping[str, Any], second: Mapping[str, Any], *, seed: int = 0
) -> dict[str, Any]:
    """Lists the tasks that one of two results solves and the other does not.

    Args:
        first: Content of a results.json.
        second: Content of another, on the same data set, split, protocol and K.
        seed: Of the bootstrap over tasks.

    Returns:
        For JSON: names (of the two), top_k, num_tasks, seed; per K, in ``by_k``,
        ``compare_tasks`` with the task lists ``tasks_only_first`` and ``tasks_only_second``.

    Raises:
        ValueError: If the two may not be compared, or one is partial.
    """
    results = (first, second)
    _check_comparable(first, second)
    top_k = [int(k) for k in first["scores"][STRICT]]
    tables = [solved(known_ranks(result), top_k) for result in results]
    tasks = np.array(list(known_ranks(first)))
    weights = task_weights(len(tasks), seed)
    by_k = {}
    for j, k in enumerate(top_k):
        a, b = tables[0][:, j], tables[1][:, j]
        by_k[str(k)] = {
            **compare_tasks(a, b, weights),
            "tasks_only_first": tasks[a & ~b].tolist(),
            "tasks_only_second": tasks[b & ~a].tolist(),
        }
    names = _names(first, second)
    head = str(headline_k(top_k))
    found = by_k[head]
    words = (
        f"At K = {head}, {names[0]} alone solves {found['only_first']} of {len(tasks)} tasks,"
        f" {names[1]} alone {found['only_second']}, both {found['both']}, neither"
        f" {found['neither']}: {in_words(found['difference'], found['interval'], sign=True)} from"
        f" the first to the second, exact McNemar p = {found['mcnemar_p']:.3g}. Interval: 95 %"
        " over tasks; it says nothing about other seeds."
    )
    return {
        **opening("discordant", len(tasks), top_k),
        "names": names,
        "seed": seed,
        "by_k": by_k,
        "words": words,
    }


def draw_discordant(analysis: Mapping[str, Any], path: str | Path) -> Path:
    """Draws the result of ``analyse_discordant`` into a file, svg or png."""
    top_k = analysis["top_k"]
    heights = list(range(len(top_k)))[::-1]
    with figure() as (fig, (ax,)):
        for side, (key, hatch) in enumerate((("only_first", "////"), ("only_second", ""))):
            numbers = [analysis["by_k"][str(k)][key] for k in top_k]
            lengths = [number * (2 * side - 1) for number in numbers]
            label = f"only {analysis['names'][side]}"
            ax.barh(
                heights, lengths, 0.55, color=SERIES[side], hatch=hatch, edgecolor="w", label=label
            )
            for y, length, number in zip(heights, lengths, numbers, strict=True):
                ax.annotate(
                    str(number),
                    (length, y),
                    (8 * side - 4, 0),
                    textcoords="offset points",
                    ha=("right", "left")[side],
                    va="center",
                )
        most = max(1, *(analysis["by_k"][str(k)][n] for k in top_k for n in _DISCORDANT))
        ax.set_xlim(-1.2 * most, 1.2 * most)
        ax.axvline(0, color=ax.spines["left"].get_edgecolor(), linewidth=0.8)
        ax.set_yticks(
            heights, [f"K = {k}\np = {analysis['by_k'][str(k)]['mcnemar_p']:.2g}" for k in top_k]
        )
        ax.xaxis.set_major_formatter(lambda x, _: f"{abs(x):g}")
        ax.locator_params(axis="x", integer=True)
        ax.grid(axis="y", visible=False)
        ax.set_xlabel(f"tasks that one alone solves, of {analysis['num_tasks']} (strict)")
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
        return save(fig, path)


_DISCORDANT = ("only_first", "only_second")


def _check_one_checkpoint(stores: Sequence[Predictions], modes: Sequence[str]) -> None:
    def facts(store: Predictions) -> dict[str, Any]:
        producer = store.header["producer"]
        header = {key: store.header[key] for key in _SAME_HEADER}
        return {**header, "producer.checkpoint": producer.get("checkpoint")}

    expected = facts(stores[0])
    for mode, store in zip(modes[1:], stores[1:], strict=True):
        for key, value in facts(store).items():
            if value != expected[key]:
                raise ValueError(
                    f"{key} of the {mode!r} store must be {expected[key]!r} as in the"
                    f" {modes[0]!r} store, found {value!r}; compare one checkpoint's predictions"
                )


def _check_comparable(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    for number, result in enumerate((first, second), start=1):
        if result["voting"]["partial"] is not False:
            raise ValueError(
                f"result {number}: voting.partial must be false, found"
                f" {result['voting']['partial']!r}; evaluate all tasks and variants"
            )
    facts = [
        {
            **{key: result[key] for key in _MUST_AGREE},
            "K list": list(result["scores"][STRICT]),
            "tasks": sorted(known_ranks(result)),
        }
        for result in (first, second)
    ]
    for key, value in facts[0].items():
        if facts[1][key] != value:
            shown = "others" if key == "tasks" else repr(facts[1][key])
            raise ValueError(
                f"result 2: {key} must be the first's"
                f"{'' if key == 'tasks' else ' ' + repr(value)}, found {shown}; compare results of"
                " equal conditions only"
            )


def _names(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Two short names that differ: arms, else arms with seeds, else numbers."""
    arms = [str(result["arm"]["name"] or "unnamed") for result in (first, second)]
    if arms[0] != arms[1]:
        return arms
    seeds = [f"{arm} seed {r['seed']}" for arm, r in zip(arms, (first, second), strict=True)]
    return seeds if seeds[0] != seeds[1] else [f"{name} ({i})" for i, name in enumerate(arms, 1)]
