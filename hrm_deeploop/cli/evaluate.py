"""``hrm-deeploop eval``: predict with a checkpoint and vote, into its run directory."""

import argparse
from pathlib import Path

from hrm_deeploop.cli.predict import add_compute_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("checkpoint", type=Path, help="run directory or checkpoint folder")
    parser.add_argument("--data", type=Path, help="data set; default: the one the run used")
    parser.add_argument(
        "--out", type=Path, help="folder for the results; default: eval/ of the run directory"
    )
    add_compute_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Predicts what is not there yet, votes, and prints the ladder."""
    from arc_data.manifest import verify
    from eval.scoring import format_ladder
    from hrm_deeploop import checkpoint as checkpoints
    from hrm_deeploop.cli.devices import choose_device
    from hrm_deeploop.config import TrainConfig
    from hrm_deeploop.inference import evaluate_checkpoint
    from hrm_deeploop.settings import from_dict

    path = checkpoints.find(options.checkpoint)
    if path.parent.name != "checkpoints":
        path = path.resolve()  # it may have been named from inside the run directory
    data = options.data
    if data is None:
        config = from_dict(TrainConfig, checkpoints.read_meta(path)["config"])
        data = Path(config.resolved_data_dir)
        if not data.is_dir():
            raise FileNotFoundError(f"the run's data_dir {data} is not here; give it with --data")
    out = options.out
    if out is None:
        if path.parent.name != "checkpoints":
            raise ValueError(f"{path} is not in a run directory; give --out")
        out = path.parent.parent / "eval" / path.name
    results = evaluate_checkpoint(
        path,
        verify(data),
        out,
        device=choose_device(options.device),
        batch_size=options.batch_size,
    )
    print(format_ladder(results))
    print(f"results {out / 'results.json'}")
