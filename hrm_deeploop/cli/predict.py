"""``hrm-deeploop predict``: a checkpoint's predictions for every variant of the test pairs."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("checkpoint", type=Path, help="run directory or checkpoint folder")
    parser.add_argument("--data", type=Path, required=True, help="data set it was trained on")
    parser.add_argument("--out", type=Path, required=True, help="predictions store to write")
    add_compute_arguments(parser)


def add_compute_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares where and in what portions to compute."""
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--batch-size", type=positive, default=512, help="examples per forward pass"
    )


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more; got {value}")
    return value


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
    )
    print(f"{num_rows} predictions in {options.out}")
