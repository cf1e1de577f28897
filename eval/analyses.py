"""What the analyses share: reading stores and results, and writing JSON, figure and words.

An analysis is a dict for JSON with the keys ``schema``, ``analysis`` (its name) and ``words`` (its
message in plain words); its figure is drawn from that dict alone.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arc_data.compiled import CompiledDataset
from arc_data.json_files import read_json, write_json
from arc_data.manifest import check_digest
from eval.predictions import Predictions
from eval.predictions import read as read_predictions
from eval.scoring import SCHEMA as RESULTS_SCHEMA
from eval.scoring import score
from eval.voting import Grids, Ranking, variant_codes

SCHEMA = "hrm_deeploop.analysis/1"
DEFAULT_TOP_K = (1, 2, 10)
HEADLINE_K = 2
STRICT = "task_accuracy_strict"
"""The score that every analysis is about."""

Ranks = Mapping[str, Sequence[int | None]]
"""Per task the rank of the right grid of each test pair with a known output."""


def read_store(path: str | Path, dataset: CompiledDataset) -> Predictions:
    """Reads a store and checks that it was made on a data set.

    Args:
        path: Folder of the store.
        dataset: The data set.

    Returns:
        All rows.

    Raises:
        FileNotFoundError: If there is no store.
        ValueError: If it is damaged, empty, or was made on another data set.
    """
    predictions = read_predictions(path)
    if len(predictions) == 0:
        raise ValueError(f"{path} holds no predictions; predict first")
    if predictions.header["data_manifest_sha256"] is not None:
        check_digest(predictions.header["data_manifest_sha256"], dataset)
    return predictions


def up_to_segment(predictions: Predictions, segment: int | None = None) -> Predictions:
    """Keeps each variant's latest prediction at or before a segment.

    Args:
        predictions: Rows, perhaps of several segments per (test pair, variant, source).
        segment: The last segment that counts; None: the last one there is.

    Returns:
        At most one row per (test pair, variant, source), in the order of the rows.
    """
    if segment is not None:
        predictions = predictions.select(predictions.segment <= segment)
    _, task = np.unique(predictions.task_id, return_inverse=True)
    _, source = np.unique(predictions.source, return_inverse=True)
    variant = variant_codes(predictions.dihedral, predictions.color_map)
    keys = np.stack([task, predictions.test_index, variant, source])
    order = np.lexsort([predictions.segment, *keys])
    is_last = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
    return predictions.select(np.sort(order[np.append(is_last, True)[: len(order)]]))


def known_ranks(results: Mapping[str, Any]) -> Ranks:
    """Ranks of the right grids in a result, the test pairs without a known output left out."""
    unscored = set(results["unscored"])
    ranks = {
        task: [o["rank"] for i, o in enumerate(outcomes) if f"{task}/{i}" not in unscored]
        for task, outcomes in results["tasks"].items()
    }
    return {task: found for task, found in ranks.items() if found}


def ranks_of(ranking: Ranking, truth: Grids) -> Ranks:
    """Ranks of the right grids in a ranking; arguments as for ``scoring.score``."""
    scores = score(ranking, truth)
    unscored = set(scores.unscored)
    ranks = {
        task: [o.rank for i, o in enumerate(outcomes) if f"{task}/{i}" not in unscored]
        for task, outcomes in scores.outcomes.items()
    }
    return {task: found for task, found in ranks.items() if found}


def solved(ranks: Ranks, top_k: Sequence[int]) -> NDArray[np.bool_]:
    """Says which tasks are solved: all their test pairs have the right grid among the first K.

    Args:
        ranks: Per task the ranks of the right grids, None where no candidate is right.
        top_k: The K.

    Returns:
        Whether each task, in the order of ``ranks``, is solved at each K, (tasks, K).

    **Source**: ``task_accuracy_strict`` of ``scoring.score``, task by task.
    """
    return np.array(
        [
            [all(rank is not None and rank <= k for rank in found) for k in top_k]
            for found in ranks.values()
        ],
        dtype=np.bool_,
    ).reshape(-1, len(top_k))


def read_results(path: str | Path) -> dict[str, Any]:
    """Reads a results.json, also when its folder is named.

    Args:
        path: The file, its folder, or a run directory, whose newest evaluation is taken.

    Returns:
        Its content.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is another schema's.
    """
    path = Path(path)
    if path.is_dir():
        places = [path / "results.json", *sorted(path.glob("eval/*/results.json"))[::-1]]
        found = [place for place in places if place.is_file()]
        if not found:
            raise FileNotFoundError(f"{path}: holds no results.json; evaluate or vote first")
        path = found[0]
    results = read_json(path)
    if not isinstance(results, dict) or results.get("schema") != RESULTS_SCHEMA:
        raise ValueError(f"{path}: schema must be {RESULTS_SCHEMA!r}, found another; vote again")
    return results


def write(
    analysis: Mapping[str, Any],
    draw: Callable[[Mapping[str, Any], str | Path], Path],
    out: str | Path,
    kind: str,
) -> list[Path]:
    """Writes an analysis as JSON and figure.

    Args:
        analysis: The dict.
        draw: Its drawing, given the dict and the file.
        out: Folder, made if missing; files named after the analysis are replaced.
        kind: ``svg`` or ``png``.

    Returns:
        The two files.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    table = out / f"{analysis['analysis']}.json"
    write_json(table, analysis)
    return [table, draw(analysis, out / f"{analysis['analysis']}.{kind}")]


def opening(name: str, num_tasks: int, top_k: Sequence[int]) -> dict[str, Any]:
    """The keys that every analysis of the strict score begins with."""
    return {
        "schema": SCHEMA,
        "analysis": name,
        "score": STRICT,
        "num_tasks": num_tasks,
        "top_k": list(top_k),
    }


def headline_k(top_k: Sequence[int]) -> int:
    """The K that the words are about: 2 where it is there, else the first."""
    return HEADLINE_K if HEADLINE_K in top_k else top_k[0]


def in_words(value: float, interval: Sequence[float], sign: bool = False) -> str:
    """A number in percent or points with its interval: ``36.5 % (31.9 to 41.3)``."""
    form = "+.1f" if sign else ".1f"
    unit = "points" if sign else "%"
    return f"{value:{form}} {unit} ({interval[0]:{form}} to {interval[1]:{form}})"
