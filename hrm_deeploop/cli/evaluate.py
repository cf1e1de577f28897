"""``hrm-deeploop eval``: predict with a checkpoint and vote, into its run directory."""

import argparse
from pathlib import Path

from hrm_deeploop.cli.predict import add_checkpoint_argument, add_compute_arguments, mode_of
from hrm_deeploop.cli.vote import add_voting_arguments, count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_checkpoint_argument(parser)
    parser.add_argument("--data", type=Path, help="data set; default: the one the run used")
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for the results; default: eval/ of the run directory, for the whole "
        "evaluation of one checkpoint as published",
    )
    add_compute_arguments(parser)
    add_voting_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Predicts what is not there yet, votes, and prints the ladder."""
    from arc_data.manifest import verify
    from eval.candidates import check_shown
    from eval.ladder import read_ballots
    from eval.report import write_report
    from hrm_deeploop import checkpoint as checkpoints
    from hrm_deeploop.cli.devices import choose_device
    from hrm_deeploop.config import TrainConfig
    from hrm_deeploop.inference import predict_checkpoint
    from hrm_deeploop.prediction_mode import PredictionMode
    from hrm_deeploop.settings import from_dict

    mode = mode_of(options)
    paths = [checkpoints.find(path) for path in options.checkpoint]
    path = paths[0]
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
        if len(paths) > 1:
            raise ValueError("several checkpoints have no common run directory; give --out")
        if path.parent.name != "checkpoints":
            raise ValueError(f"{path} is not in a run directory; give --out")
        if PredictionMode(**mode) != PredictionMode():
            raise ValueError(
                "eval/ of the run directory is for the evaluation as published; give --out"
            )
        out = path.parent.parent / "eval" / path.name
    dataset = verify(data)
    if options.show is not None:
        check_shown(dataset, options.show)
    store = out / "predictions"
    predict_checkpoint(
        paths,
        dataset,
        store,
        device=choose_device(options.device),
        batch_size=options.batch_size,
        **mode,
    )
    count(read_ballots(store, dataset), dataset, out, options)
    print(f"page {write_report(out, dataset)}")
