"""``hrm-deeploop kappa``: alignment, first step and streams of a checkpoint or a fresh model."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hrm_deeploop.cli.predict import positive

if TYPE_CHECKING:
    from hrm_deeploop.config import TrainConfig
    from hrm_deeploop.probes import Subject


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="CHECKPOINT | KEY=VALUE",
        help="a run directory or checkpoint folder; with --init: settings, as for train",
    )
    parser.add_argument("--init", action="store_true", help="probe a model at initialisation")
    parser.add_argument("--data", type=Path, help="data set; default: the one the run uses")
    parser.add_argument("--out", type=Path, help="JSON file to write everything measured to")
    parser.add_argument("--page", type=Path, metavar="FILE", help="HTML page to draw it all into")
    parser.add_argument(
        "--rounds",
        "--L-cycles",
        type=_counts,
        metavar="N,N,...",
        help="with --init: loop counts to probe (lm.rounds, arch.L_cycles), for gamma as a slope, "
        "e.g. 2,4,8,16",
    )
    parser.add_argument(
        "--rates",
        type=_rates,
        metavar="LR,LR,...",
        help="learning rates of the first step; default: the run's",
    )
    parser.add_argument(
        "--precision",
        choices=("run", "float32", "float64"),
        default="float32",
        help="dtype to compute in; run: the run's own (default float32)",
    )
    parser.add_argument("--batch-size", type=positive, default=64, help="examples (default 64)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")


def _counts(text: str) -> tuple[int, ...]:
    return tuple(positive(word) for word in text.split(","))


def _rates(text: str) -> tuple[float, ...]:
    rates = tuple(float(word) for word in text.split(","))
    if not all(0 < rate < float("inf") for rate in rates):
        raise argparse.ArgumentTypeError(f"must be positive; got {text}")
    return rates


def run(options: argparse.Namespace) -> None:
    """Probes, prints the table, writes the JSON file and the page."""
    from arc_data.json_files import write_json
    from eval.kappa_page import write_kappa_page
    from hrm_deeploop import checkpoint as checkpoints
    from hrm_deeploop.cli.compose import compose
    from hrm_deeploop.config import TrainConfig
    from hrm_deeploop.probes import format_probe, probe_checkpoint, probe_initial
    from hrm_deeploop.settings import from_dict

    if options.init:
        config = compose(options.arguments)
        subject = _subject(config, options.arguments, options)
        report = probe_initial(subject, config, loops=options.rounds, rates=options.rates)
    else:
        if len(options.arguments) != 1 or options.rounds is not None:
            raise ValueError(
                "kappa takes one run directory or checkpoint, or --init with settings and "
                f"--rounds; got {' '.join(options.arguments) or 'neither'}"
            )
        path = checkpoints.find(Path(options.arguments[0]))
        config = from_dict(TrainConfig, checkpoints.read_meta(path, None)["config"])
        report = probe_checkpoint(_subject(config, [], options), path, rates=options.rates)
    print(format_probe(report))
    if options.out is not None:
        write_json(options.out, report)
        print(f"wrote {options.out}")
    if options.page is not None:
        print(f"page {write_kappa_page(report, options.page)}")


def _subject(config: "TrainConfig", overrides: list[str], options: argparse.Namespace) -> "Subject":
    """The workload's subject, on its data, which are checked."""
    from hrm_deeploop.cli.devices import choose_device
    from hrm_deeploop.cli.train import find_data

    chosen = {
        "batch_size": options.batch_size,
        "precision": options.precision,
        "device": choose_device(options.device),
    }
    if config.workload == "lm":
        from hrm_deeploop.looped_lm import data as tokens
        from hrm_deeploop.looped_lm.probe import LmSubject

        path = options.data or find_data(config, overrides)
        return LmSubject(tokens.verify(path, config.lm.dataset), **chosen)
    from arc_data.manifest import verify
    from hrm_deeploop.reasoner_probe import ReasonerSubject
    from hrm_deeploop.scaling import resolve

    resolve(config.residual, config.arch)  # a mistake in it shows before data are looked for
    path = options.data or find_data(config, overrides)
    return ReasonerSubject(verify(path), **chosen)
