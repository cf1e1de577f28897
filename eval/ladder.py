"""From a predictions store and its data set to the K ladder: results.json and submission.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arc_data.audit import audit_plan
from arc_data.compiled import CompiledDataset
from arc_data.json_files import write_json
from arc_data.manifest import check_digest
from eval.predictions import Predictions
from eval.predictions import read as read_predictions
from eval.scoring import DEFAULT_TOP_K, results, score
from eval.submission import build_submission
from eval.voting import Ranking, rank, votes_from_predictions

RULE = "count-first"

_SPLIT_NAMES = {"ARC-AGI-1": "arc1-evaluation", "ARC-AGI-2": "arc2-evaluation"}
_NO_CHECKPOINT = dict.fromkeys(("run", "step", "weights", "sha256", "rule"))
_NO_ARM = dict.fromkeys(("name", "digest", "residual", "grad_scope", "residual_sum", "carry_dtype"))


def split_name(dataset: CompiledDataset) -> str:
    """Names what a data set's test split evaluates: that of its first source.

    ``mini`` and ``mini_dev`` are their own names; the others ``arc1-evaluation`` and so on.
    """
    first = str(dataset.manifest["sources"][0]["name"])
    return _SPLIT_NAMES.get(first, first)


def dataset_name(dataset: CompiledDataset) -> str:
    """Names of a data set's sources, joined by ``+``."""
    return "+".join(source["name"] for source in dataset.manifest["sources"])


def vote(
    store: str | Path,
    dataset: CompiledDataset,
    out: str | Path,
    *,
    top_k: Sequence[int] = DEFAULT_TOP_K,
) -> dict[str, Any]:
    """Counts a store's votes and writes ``results.json`` and ``submission.json``.

    Args:
        store: Folder of a predictions store.
        dataset: The data set the predictions were made on.
        out: Folder for the two files; files of these names are replaced.
        top_k: The K at which to score.

    Returns:
        What results.json holds.

    Raises:
        FileNotFoundError: If there is no store.
        ValueError: If the store is damaged, was made on another data set, or names a task or
            test pair that the data set does not have.
    """
    predictions = read_predictions(store)
    if len(predictions) == 0:
        raise ValueError(f"{store} holds no predictions; predict first")
    header = predictions.header
    if header["data_manifest_sha256"] is not None:
        check_digest(header["data_manifest_sha256"], dataset)
    truth = dataset.truth()
    ranking = rank(votes_from_predictions(predictions, truth))
    producer: Mapping[str, Any] = header["producer"]
    scored = results(
        score(ranking, truth, top_k),
        protocol=dataset.protocol,
        split=split_name(dataset),
        dataset={"name": dataset_name(dataset), "manifest_sha256": dataset.digest},
        voting={
            "rule": RULE,
            "halting": header["halting"],
            "num_aug": dataset.num_aug,
            "sources": sorted(set(predictions.source.tolist())),
            "puzzle_id": header["puzzle_id"],
            "partial": _is_partial(predictions, dataset),
        },
        checkpoint=producer.get("checkpoint", _NO_CHECKPOINT),
        seed=producer.get("seed"),
        arm=producer.get("arm", _NO_ARM),
        num_predictions=len(predictions),
    )
    scored["without_seen_pairs"] = _without_seen_pairs(ranking, dataset, top_k)
    submission = build_submission(ranking, truth)
    Path(out).mkdir(parents=True, exist_ok=True)
    write_json(Path(out) / "submission.json", submission.attempts)
    write_json(Path(out) / "results.json", scored)
    return scored


def _without_seen_pairs(
    ranking: Ranking, dataset: CompiledDataset, top_k: Sequence[int]
) -> dict[str, Any]:
    """The scores over the test pairs that training does not show in any turn or colours.

    ``scores`` is None where training shows them all.
    """
    audit = dataset.manifest.get("audit") or audit_plan(
        dataset.plan, dataset.task_names, dataset.num_aug
    )
    seen = {pair for kind in audit["test_pairs_seen"].values() for pair in kind}
    unseen = {
        task: [None if f"{task}/{i}" in seen else grid for i, grid in enumerate(grids)]
        for task, grids in dataset.truth().items()
    }
    if all(grid is None for grids in unseen.values() for grid in grids):
        return {"seen": sorted(seen), "num_tasks": 0, "num_test_pairs": 0, "scores": None}
    scores = score(ranking, unseen, top_k)
    return {
        "seen": sorted(seen),
        "num_tasks": scores.num_tasks,
        "num_test_pairs": scores.num_test_pairs,
        "scores": {
            name: {str(k): value for k, value in by_k.items()}
            for name, by_k in scores.percent.items()
        },
    }


def _is_partial(predictions: Predictions, dataset: CompiledDataset) -> bool:
    """Whether any source leaves out a variant of any test pair."""
    num_sources = len(set(predictions.source.tolist())) or 1
    num_segments = len(set(predictions.segment.tolist())) or 1
    return len(predictions) < dataset.test.num_examples * num_sources * num_segments
