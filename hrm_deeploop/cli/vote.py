"""``hrm-deeploop vote``: the K ladder of a predictions store; needs no torch."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("predictions", type=Path, help="predictions store")
    parser.add_argument("--data", type=Path, required=True, help="data set it was made on")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for results.json and submission.json; default: beside a run's predictions, "
        "else in the store",
    )


def run(options: argparse.Namespace) -> None:
    """Counts the votes and prints the ladder."""
    from arc_data.manifest import verify
    from eval.ladder import vote
    from eval.scoring import format_ladder

    store = options.predictions
    out = options.out
    if out is None:
        out = store.parent if store.name == "predictions" else store
    print(format_ladder(vote(store, verify(options.data), out)))
    print(f"results {out / 'results.json'}")
