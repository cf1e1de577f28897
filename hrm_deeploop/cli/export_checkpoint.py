"""``hrm-deeploop export-checkpoint``: a checkpoint in the published format."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "checkpoint",
        type=Path,
        metavar="RUN_OR_CHECKPOINT",
        help="run directory or checkpoint folder",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to make")


def run(options: argparse.Namespace) -> None:
    """Converts."""
    from hrm_deeploop.published import export_checkpoint

    print(f"wrote {export_checkpoint(options.checkpoint, options.out)}")
