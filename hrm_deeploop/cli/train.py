"""``hrm-deeploop train``: one run, from configuration to the K ladder."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hrm_deeploop.config import TrainConfig
from hrm_deeploop.scaling import format_table, resolve

if TYPE_CHECKING:
    from hrm_deeploop.arc import ArcWorkload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="settings and group choices, e.g. experiment=mini_deeploop seed=1 optim.lr=1e-3",
    )


def run(options: argparse.Namespace) -> None:
    """Composes the configuration, checks everything that can be checked, then trains."""
    from hrm_deeploop.cli.compose import compose

    config = compose(options.overrides)
    base = compose([o for o in options.overrides if o.startswith("experiment=")])

    import torch

    from arc_data.manifest import check_built_as, verify
    from hrm_deeploop.arc import ArcWorkload
    from hrm_deeploop.cli.data import build_options
    from hrm_deeploop.cli.devices import choose_device

    device = choose_device(config.device)
    resolve(config.residual, config.arch)
    dataset = verify(find_data(config.resolved_data_dir, options.overrides))
    check_built_as(dataset, config.data.name, build_options(config.data))
    if config.hardware.threads is not None:
        torch.set_num_threads(config.hardware.threads)
    train_and_evaluate(config, base, ArcWorkload(config, dataset, device))


def train_and_evaluate(config: TrainConfig, base: TrainConfig, workload: "ArcWorkload") -> None:
    """Makes the run directory, trains, evaluates, and prints where things are.

    Args:
        config: The run.
        base: Its experiment as the file says it, for the arm's name.
        workload: The reasoner on its data.
    """
    from eval.ladder import dataset_name
    from eval.scoring import format_ladder
    from hrm_deeploop.run_dir import RunDir, arm_name, describe_arm
    from hrm_deeploop.training import Trainer

    scales = resolve(config.residual, config.arch)
    name = arm_name(config, base)
    arm = describe_arm(config, name, scales.as_dict())
    dataset = workload.dataset
    data_facts = {"name": dataset_name(dataset), "digest": dataset.digest}
    counts = workload.reasoner.parameter_counts()
    run_dir = RunDir.create(config, name)
    with run_dir.tracked():
        print(f"run directory {run_dir.path}")
        print(f"arm {name} ({arm['digest'][:12]}), seed {config.seed}")
        print(f"parameters: {counts['core']:,} core + {counts['puzzle_table']:,} puzzle table")
        print(format_table(scales, config.arch), flush=True)
        if config.hardware.compile:
            print("compiling the step (up to a minute the first time)", flush=True)
            workload.compile()
        meta = {
            "run": run_dir.path.name,
            "arm": arm,
            "canvas": dataset.canvas,
            "num_puzzle_identifiers": dataset.num_puzzle_identifiers,
            "dataset": {**data_facts, "tasks": dataset.manifest["tasks"]},
        }
        trainer = Trainer(workload, config, run_dir, meta)
        backends = {**workload.backends(), "optimizer": trainer.optimizer.backend()}
        run_dir.write_provenance(
            {"dataset": data_facts, "arm": arm, "backends": backends, "parameters": counts}
        )
        print(", ".join(f"{key} {value}" for key, value in backends.items()), flush=True)
        checkpoint = trainer.fit()
        out = run_dir.eval_dir(checkpoint.name)
        results = workload.evaluate(checkpoint, out)
    print(format_ladder(results))
    print(f"results {out / 'results.json'}")


def find_data(path: str, overrides: list[str]) -> Path:
    """The data set's folder.

    Raises:
        FileNotFoundError: If it does not exist; the message says how to build it.
        NotADirectoryError: If it is a file.
    """
    if Path(path).is_dir():
        return Path(path)
    if Path(path).exists():
        raise NotADirectoryError(f"data_dir {path} is not a folder")
    wanted = [o for o in overrides if o.startswith(("experiment=", "data"))]
    command = shlex.join(["hrm-deeploop", "data", "build", *wanted])
    raise FileNotFoundError(f"data_dir {path} does not exist; build it: {command}")


if __name__ == "__main__":
    from hrm_deeploop.cli.main import main

    sys.exit(main(["train", *sys.argv[1:]]))
