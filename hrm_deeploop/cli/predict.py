"""``hrm-deeploop predict``: a checkpoint's predictions for every variant of the test pairs."""

import argparse
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_checkpoint_argument(parser)
    parser.add_argument("--data", type=Path, required=True, help="data set it was trained on")
    parser.add_argument("--out", type=Path, required=True, help="predictions store to write")
    parser.add_argument(
        "--part",
        type=_part,
        default=(0, 1),
        metavar="I/N",
        help="predict every N-th shard, from the I-th (from 1) on: N processes fill one store",
    )
    add_compute_arguments(parser)


def add_checkpoint_argument(parser: argparse.ArgumentParser) -> None:
    """Declares which checkpoints."""
    parser.add_argument(
        "checkpoint",
        type=Path,
        nargs="+",
        metavar="RUN_OR_CHECKPOINT",
        help="run directory or checkpoint folder; several vote together, each a named source",
    )


def add_compute_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what to predict, where and in what portions."""
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--batch-size", type=positive, help="examples per forward pass; default: found"
    )
    parser.add_argument(
        "--puzzle-id",
        choices=("right", "blank", "shuffled"),
        default="right",
        help="which row of the puzzle table an example is shown with",
    )
    parser.add_argument(
        "--halting",
        choices=("fixed", "adaptive"),
        default="fixed",
        help="all segments, or each example until its q values say halt",
    )
    parser.add_argument(
        "--every-segment", action="store_true", help="keep the prediction after each segment"
    )
    parser.add_argument(
        "--tasks", nargs="+", metavar="TASK", help="these tasks only: a partial result"
    )
    parser.add_argument(
        "--num-aug",
        type=int,
        help="so many variants per task besides the original: a partial result",
    )


def mode_of(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of ``PredictionMode`` that the options give."""
    names = ("puzzle_id", "halting", "every_segment", "tasks", "num_aug")
    return {name: getattr(options, name) for name in names}


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more; got {value}")
    return value


def _part(text: str) -> tuple[int, int]:
    first, slash, count = text.partition("/")
    if not (slash and first.isdecimal() and count.isdecimal() and 1 <= int(first) <= int(count)):
        raise argparse.ArgumentTypeError(f"must be I/N with I in 1..N, such as 2/4; got {text}")
    return int(first) - 1, int(count)


def run(options: argparse.Namespace) -> None:
    """Predicts into the store, or continues it."""
    from arc_data.manifest import verify
    from hrm_deeploop.cli.devices import choose_device
    from hrm_deeploop.inference import predict_checkpoint

    num_rows = predict_checkpoint(
        options.checkpoint,
        verify(options.data),
        options.out,
        device=choose_device(options.device),
        batch_size=options.batch_size,
        part=options.part,
        **mode_of(options),
    )
    print(f"{num_rows} predictions in {options.out}")
