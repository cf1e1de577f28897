"""``hrm-deeploop analyse``: what lies behind a score, as figure, JSON and words; needs no torch."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hrm_deeploop.cli.predict import positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the analyses."""
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")

    def declare(
        name: str, summary: str, run_analysis: Callable[[argparse.Namespace], Any], *inputs: str
    ) -> argparse.ArgumentParser:
        kind = kinds.add_parser(name, help=summary, description=summary)
        kind.set_defaults(run_analysis=run_analysis)
        for dest in inputs:
            kind.add_argument(dest, type=Path, metavar=dest.upper())
        kind.add_argument("--out", type=Path, required=True, help="folder for figure and JSON")
        kind.add_argument("--png", action="store_true", help="draw the figure as PNG, not SVG")
        return kind

    variants = declare("variants", "score against number of variants", _variants, "predictions")
    variants.add_argument("--resamples", type=positive, default=100, help="random orders")
    segments = declare("segments", "score against segments run", _segments, "predictions")
    modes = declare("puzzle-ids", "right, blank, shuffled puzzle ids side by side", _puzzle_ids)
    modes.add_argument("predictions", type=Path, nargs="+", help="a store per mode")
    sizes = declare("sizes", "score by task size and number of colours", _sizes, "results")
    halting = declare(
        "halting", "confidence of q_halt against what is right", _halting, "predictions"
    )
    discordant = declare(
        "discordant", "tasks that one of two results alone solves", _discordant, "first", "second"
    )
    for kind in (variants, segments, modes, sizes, halting):
        kind.add_argument("--data", type=Path, required=True, help="data set it was made on")
    for kind in (variants, segments, modes, sizes):
        kind.add_argument(
            "--top-k", type=positive, nargs="+", default=[1, 2, 10], metavar="K", help="1 2 10"
        )
    for kind in (variants, segments, modes, halting, discordant):
        kind.add_argument("--seed", type=int, default=0, help="of all random draws; 0")


def run(options: argparse.Namespace) -> None:
    """Analyses, writes and says what came out."""
    from eval.analyses import write

    analysis, draw = options.run_analysis(options)
    table, picture = write(analysis, draw, options.out, "png" if options.png else "svg")
    print(analysis["words"])
    print(f"figure {picture}, numbers {table}")


def _top_k(options: argparse.Namespace) -> tuple[int, ...]:
    from eval.scoring import check_top_k

    return check_top_k(options.top_k)


def _variants(options: argparse.Namespace) -> Any:
    from arc_data.manifest import verify
    from eval.analyses import read_store
    from eval.vote_curves import analyse_variants, draw_variants

    dataset = verify(options.data)
    analysis = analyse_variants(
        read_store(options.predictions, dataset),
        dataset,
        top_k=_top_k(options),
        resamples=options.resamples,
        seed=options.seed,
    )
    return analysis, draw_variants


def _segments(options: argparse.Namespace) -> Any:
    from arc_data.manifest import verify
    from eval.analyses import read_store
    from eval.vote_curves import analyse_segments, draw_segments

    dataset = verify(options.data)
    store = read_store(options.predictions, dataset)
    analysis = analyse_segments(store, dataset, top_k=_top_k(options), seed=options.seed)
    return analysis, draw_segments


def _puzzle_ids(options: argparse.Namespace) -> Any:
    from arc_data.manifest import verify
    from eval.analyses import read_store
    from eval.comparisons import analyse_puzzle_ids, draw_puzzle_ids

    dataset = verify(options.data)
    stores = [read_store(path, dataset) for path in options.predictions]
    analysis = analyse_puzzle_ids(stores, dataset, top_k=_top_k(options), seed=options.seed)
    return analysis, draw_puzzle_ids


def _sizes(options: argparse.Namespace) -> Any:
    from arc_data.manifest import verify
    from eval.analyses import read_results
    from eval.breakdowns import analyse_sizes, draw_sizes

    results = read_results(options.results)
    return analyse_sizes(results, verify(options.data), top_k=_top_k(options)), draw_sizes


def _halting(options: argparse.Namespace) -> Any:
    from arc_data.manifest import verify
    from eval.analyses import read_store
    from eval.breakdowns import analyse_halting, draw_halting

    dataset = verify(options.data)
    store = read_store(options.predictions, dataset)
    return analyse_halting(store, dataset, seed=options.seed), draw_halting


def _discordant(options: argparse.Namespace) -> Any:
    from eval.analyses import read_results
    from eval.comparisons import analyse_discordant, draw_discordant

    results = [read_results(path) for path in (options.first, options.second)]
    return analyse_discordant(*results, seed=options.seed), draw_discordant
