"""From predictions and their data set to the K ladder: results.json and submission.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arc_data.audit import audit_plan
from arc_data.compiled import CompiledDataset
from arc_data.json_files import write_json
from arc_data.manifest import check_digest
from eval.plain_votes import votes_from_json_lines
from eval.predictions import read_header, read_shards
from eval.scoring import (
    DEFAULT_TOP_K,
    Scores,
    check_top_k,
    results,
    score,
    summarise_outcomes,
)
from eval.store_votes import StoreVotes
from eval.submission import build_submission, check_submission, read_challenges
from eval.voting import COUNT_FIRST, Grids, Ranking, Votes, rank

_SPLIT_NAMES = {"ARC-AGI-1": "arc1-evaluation", "ARC-AGI-2": "arc2-evaluation"}
_NO_CHECKPOINT = dict.fromkeys(("run", "step", "weights", "sha256", "rule"))
_NO_ARM = dict.fromkeys(("name", "digest", "residual", "grad_scope", "residual_sum", "carry_dtype"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Ballots:
    """Votes, and what results.json says of where they come from."""

    votes: Votes
    truth: Grids
    """The outputs that are scored: those of all tasks, or of the only ones asked for."""
    sources: Sequence[str]
    partial: bool
    """Whether tasks or variants were left out."""
    halting: str | None = None
    puzzle_id: str | None = None
    num_aug: int | None = None
    producer: Mapping[str, Any] = field(default_factory=dict)
    segments: Mapping[int, int] = field(default_factory=dict)
    """Segments run -> predictions read after so many."""


def split_name(dataset: CompiledDataset) -> str:
    """Names what a data set's test split evaluates: that of its first source.

    ``mini`` and ``mini_dev`` are their own names; the others ``arc1-evaluation`` and so on.
    """
    first = str(dataset.manifest["sources"][0]["name"])
    return _SPLIT_NAMES.get(first, first)


def dataset_name(dataset: CompiledDataset) -> str:
    """Names of a data set's sources, joined by ``+``."""
    return "+".join(source["name"] for source in dataset.manifest["sources"])


def read_ballots(path: str | Path, dataset: CompiledDataset) -> Ballots:
    """Reads votes.

    Args:
        path: Folder of a predictions store, or a file of plain votes (JSON lines).
        dataset: The data set they were made on.

    Returns:
        The votes, and what is known about them.

    Raises:
        FileNotFoundError: If there is neither.
        ValueError: If the store or file is damaged or empty, was made on another data set, or
            names a task or test pair that the data set does not have.
    """
    if Path(path).is_file():
        votes = votes_from_json_lines(path, dataset.truth())
        ballots = Ballots(votes=votes, truth=dataset.truth(), sources=[], partial=False)
    else:
        ballots = _read_store(path, dataset)
    if len(ballots.votes) == 0:
        raise ValueError(f"{path} holds no predictions; predict first")
    return ballots


def vote(
    path: str | Path,
    dataset: CompiledDataset,
    out: str | Path,
    *,
    top_k: Sequence[int] = DEFAULT_TOP_K,
    rule: str = COUNT_FIRST,
) -> dict[str, Any]:
    """Counts votes and writes ``results.json`` and ``submission.json``.

    Args:
        path: Folder of a predictions store, or a file of plain votes (JSON lines).
        dataset: The data set the predictions were made on.
        out: Folder for the two files; files of these names are replaced.
        top_k: The K at which to score.
        rule: A name in ``voting.RULES``.

    Returns:
        What results.json holds.

    Raises:
        FileNotFoundError: See ``read_ballots``.
        ValueError: See ``read_ballots``, or if there is no such rule.
    """
    check_top_k(top_k)
    ballots = read_ballots(path, dataset)
    ranking = rank(ballots.votes, rule)
    return write_results(ballots, ranking, dataset, out, top_k=top_k, rule=rule)


def write_results(
    ballots: Ballots,
    ranking: Ranking,
    dataset: CompiledDataset,
    out: str | Path,
    *,
    top_k: Sequence[int],
    rule: str,
    challenges: str | Path | None = None,
) -> dict[str, Any]:
    """Scores a ranking and writes ``results.json`` and ``submission.json``.

    Args:
        ballots: What was ranked.
        ranking: The candidates of every test pair.
        dataset: The data set.
        out: Folder for the two files; files of these names are replaced.
        top_k: The K at which to score.
        rule: Name of the rule that ranked.
        challenges: The ARC Prize's file that the submission is for and is checked against;
            None: it is not checked, and its tasks stand in the data set's order.

    Returns:
        What results.json holds.

    Raises:
        FileNotFoundError: If there is no challenges file.
        ValueError: If the submission does not fit it.
    """
    scores = score(ranking, ballots.truth, top_k)
    found = _describe(scores, ballots, dataset, rule)
    submission = build_submission(ranking, dataset.truth())
    found["summary"] = summarise_outcomes(scores)
    found["segments"] = {str(k): ballots.segments[k] for k in sorted(ballots.segments)}
    found["submission_fillers"] = list(submission.fillers)
    found["without_seen_pairs"] = _without_seen_pairs(ranking, ballots.truth, dataset, top_k)
    attempts = submission.attempts
    if challenges is not None:
        attempts = check_submission(attempts, read_challenges(challenges))
    Path(out).mkdir(parents=True, exist_ok=True)
    write_json(Path(out) / "submission.json", attempts)
    write_json(Path(out) / "results.json", found)
    return found


def _describe(
    scores: Scores, ballots: Ballots, dataset: CompiledDataset, rule: str
) -> dict[str, Any]:
    return results(
        scores,
        protocol=dataset.protocol,
        split=split_name(dataset),
        dataset={"name": dataset_name(dataset), "manifest_sha256": dataset.digest},
        voting={
            "rule": rule,
            "halting": ballots.halting,
            "num_aug": ballots.num_aug,
            "sources": sorted(ballots.sources),
            "puzzle_id": ballots.puzzle_id,
            "partial": ballots.partial,
        },
        checkpoint=ballots.producer.get("checkpoint", _NO_CHECKPOINT),
        seed=ballots.producer.get("seed"),
        arm=ballots.producer.get("arm", _NO_ARM),
        num_predictions=len(ballots.votes),
    )


def _restrict(truth: Grids, tasks: Sequence[str] | None, where: Path) -> Grids:
    """The ground truth of some tasks, or of all where none are named."""
    if tasks is None:
        return truth
    for name in tasks:
        if name not in truth:
            raise ValueError(
                f"{where}: unknown task {name!r}; use the data set the predictions were made on"
            )
    return {name: grids for name, grids in truth.items() if name in set(tasks)}


def _read_store(path: str | Path, dataset: CompiledDataset) -> Ballots:
    header = read_header(path)
    if header["data_manifest_sha256"] is not None:
        check_digest(header["data_manifest_sha256"], dataset)
    truth = _restrict(dataset.truth(), header["tasks"], Path(path) / "header.json")
    collected = StoreVotes(truth)
    for shard in read_shards(path):
        collected.add(shard)
    votes = collected.votes()
    num_aug = dataset.num_aug if header["num_aug"] is None else header["num_aug"]
    # A foreign solver may have variants of its own: so their number alone does not say it.
    is_whole = len(truth) == len(dataset.truth()) and (
        min(collected.num_answered(), default=0) >= dataset.test.num_examples
    )
    return Ballots(
        votes=votes,
        truth=truth,
        sources=collected.sources,
        partial=not is_whole,
        halting=header["halting"],
        puzzle_id=header["puzzle_id"],
        num_aug=num_aug,
        producer=header["producer"],
        segments=collected.segments,
    )


def _without_seen_pairs(
    ranking: Ranking, truth: Grids, dataset: CompiledDataset, top_k: Sequence[int]
) -> dict[str, Any]:
    """The scores over the test pairs that training does not show in any turn or colours.

    ``scores`` is None where training shows them all.
    """
    audit = dataset.manifest.get("audit") or audit_plan(
        dataset.plan, dataset.task_names, dataset.num_aug
    )
    seen = {pair for kind in audit["test_pairs_seen"].values() for pair in kind}
    seen &= {f"{task}/{i}" for task, grids in truth.items() for i in range(len(grids))}
    unseen = {
        task: [None if f"{task}/{i}" in seen else grid for i, grid in enumerate(grids)]
        for task, grids in truth.items()
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
