"""``hrm-deeploop vote``: the K ladder of anybody's predictions; needs no torch for a store."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hrm_deeploop.cli.predict import positive

if TYPE_CHECKING:
    from arc_data.compiled import CompiledDataset
    from eval.ladder import Ballots

RULES = (
    "count-first",
    "confidence-first",
    "count-x-confidence",
    "original-only",
    "uniform-dihedral",
)
"""Names in ``eval.voting.RULES``, here so that --help need not import it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "predictions",
        type=Path,
        nargs="+",
        help="predictions store, file of JSON lines, or the published *_all_preds.* files",
    )
    parser.add_argument("--data", type=Path, required=True, help="data set it was made on")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for results.json and submission.json; default: beside a run's predictions, "
        "in another store, or in a folder named after the file",
    )
    parser.add_argument(
        "--identifiers",
        type=Path,
        help="identifiers.json of the published files' data; default: the data set's names",
    )
    add_voting_arguments(parser)


def add_voting_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how to count and what to show."""
    parser.add_argument("--k", type=_ladder, metavar="1,2,10", help="the K of the ladder")
    parser.add_argument(
        "--rule",
        choices=RULES,
        default=RULES[0],
        help="what ranks the candidates; count-first is the headline, the others are for "
        "comparison and go into a folder of their own",
    )
    parser.add_argument(
        "--challenges", type=Path, help="ARC Prize file to check submission.json against"
    )
    parser.add_argument(
        "--show", metavar="TASK", help="draw a task's candidates and where they differ"
    )


def _ladder(text: str) -> tuple[int, ...]:
    return tuple(sorted({positive(word) for word in text.split(",")}))


def run(options: argparse.Namespace) -> None:
    """Counts the votes and prints the ladder."""
    from arc_data.manifest import verify
    from eval.candidates import check_shown

    paths: list[Path] = options.predictions
    first = paths[0]
    out = options.out
    if out is None and first.is_file():
        out = first.with_name(f"{first.name}.votes")
    elif out is None:
        out = first.parent if first.name == "predictions" else first
    dataset = verify(options.data)
    if options.show is not None:
        check_shown(dataset, options.show)
    count(read(paths, dataset, options.identifiers), dataset, out, options)


def read(paths: list[Path], dataset: "CompiledDataset", identifiers: Path | None) -> "Ballots":
    """Reads votes in any of the forms.

    Raises:
        ValueError: If several paths are given that are not files of one published evaluation, or
            ``identifiers`` has no effect.
    """
    from eval.ladder import read_ballots

    if all("_all_preds." in path.name for path in paths):
        from hrm_deeploop.published import read_all_preds  # the only form that needs torch

        return read_all_preds(paths, dataset, identifiers)
    if len(paths) > 1:
        raise ValueError(
            f"several predictions must all be *_all_preds.* files, found {paths[0]} among them;"
            " pool checkpoints with predict"
        )
    if identifiers is not None:
        raise ValueError("--identifiers has an effect on *_all_preds.* files only; leave it out")
    return read_ballots(paths[0], dataset)


def count(
    ballots: "Ballots", dataset: "CompiledDataset", out: Path, options: argparse.Namespace
) -> None:
    """Ranks, writes, prints the ladder, and draws what is to be shown."""
    from eval.candidates import show_candidates
    from eval.ladder import write_results
    from eval.scoring import DEFAULT_TOP_K, format_ladder
    from eval.voting import rank

    if options.rule != RULES[0]:
        out = out / options.rule
    ranking = rank(ballots.votes, options.rule)
    results = write_results(
        ballots,
        ranking,
        dataset,
        out,
        top_k=options.k or DEFAULT_TOP_K,
        rule=options.rule,
        challenges=options.challenges,
    )
    print(format_ladder(results))
    if options.show is not None:
        show_candidates(ranking, dataset, options.show)
    print(f"results {out / 'results.json'}")
