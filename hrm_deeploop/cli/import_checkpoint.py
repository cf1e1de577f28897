"""``hrm-deeploop import-checkpoint``: a published HRM or TRM checkpoint becomes a run."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "checkpoint", type=Path, metavar="STEP_N", help="the file; all_config.yaml is beside it"
    )
    parser.add_argument("--data", type=Path, required=True, help="data set it was trained on")
    parser.add_argument("--out", type=Path, required=True, help="run directory to make")


def run(options: argparse.Namespace) -> None:
    """Converts, and says what could not be checked."""
    from arc_data.manifest import verify
    from hrm_deeploop.published import import_checkpoint

    dataset = verify(options.data)
    path = import_checkpoint(options.checkpoint, dataset, options.data, options.out)
    print(f"imported {path}: {dataset.num_puzzle_identifiers} puzzle ids, as the data set has")
    print("their order is not in the file: a data set built in another order scores about nothing")
