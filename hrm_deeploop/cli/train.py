"""``hrm-deeploop train``: one run, from configuration to the K ladder."""

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="settings and group choices, e.g. experiment=mini_deeploop seed=1 optim.lr=1e-3",
    )


def run(options: argparse.Namespace) -> None:
    """Composes the configuration, trains, evaluates, and prints where things are."""
    from hrm_deeploop.cli.compose import compose

    config = compose(options.overrides)
    groups = [o for o in options.overrides if o.startswith("experiment=")]
    base = compose(groups)

    import torch

    from arc_data.manifest import verify
    from eval.ladder import dataset_name
    from eval.scoring import format_ladder
    from hrm_deeploop.arc import ArcWorkload
    from hrm_deeploop.cli.devices import choose_device
    from hrm_deeploop.run_dir import RunDir, arm_name, describe_arm
    from hrm_deeploop.scaling import format_table, resolve
    from hrm_deeploop.training import Trainer

    device = choose_device(config.device)
    scales = resolve(config.residual, config.arch)
    dataset = verify(find_data(config.resolved_data_dir, options.overrides))
    check_data(config.data, dataset)
    if config.hardware.threads is not None:
        torch.set_num_threads(config.hardware.threads)
    workload = ArcWorkload(config, dataset, device)
    name = arm_name(config, base)
    arm = describe_arm(config, name, scales.as_dict())

    run_dir = RunDir.create(config, name)
    data_facts = {"name": dataset_name(dataset), "digest": dataset.digest}
    meta = {
        "run": run_dir.path.name,
        "arm": arm,
        "canvas": dataset.canvas,
        "num_puzzle_identifiers": dataset.num_puzzle_identifiers,
        "dataset": {**data_facts, "tasks": dataset.manifest["tasks"]},
    }
    trainer = Trainer(workload, config, run_dir, meta)
    counts = workload.reasoner.parameter_counts()
    run_dir.write_provenance(
        {
            "dataset": data_facts,
            "arm": arm,
            "device": str(device),
            "optimizer_backend": trainer.optimizer.backend(),
            "attention_backend": "torch scaled_dot_product_attention",
            "compile": config.hardware.compile,
            "parameters": counts,
        }
    )
    print(f"run directory {run_dir.path}")
    print(
        f"arm {name} ({arm['digest'][:12]}), seed {config.seed}, {device}, "
        f"{torch.get_num_threads()} threads, {config.arch.forward_dtype}"
    )
    print(f"parameters: {counts['core']:,} core + {counts['puzzle_table']:,} puzzle table")
    print(format_table(scales, config.arch), flush=True)
    checkpoint = trainer.fit()
    out = run_dir.eval_dir(checkpoint.name)
    results = workload.evaluate(checkpoint, out)
    print(format_ladder(results))
    print(f"results {out / 'results.json'}")


def find_data(path: str, overrides: list[str]) -> Path:
    """The data set's folder.

    Raises:
        FileNotFoundError: If it does not exist; the message says how to build it.
    """
    if not Path(path).is_dir():
        wanted = [
            o for o in overrides if o.startswith(("experiment=", "data=", "data.", "data_dir="))
        ]
        command = " ".join(["hrm-deeploop data build", *wanted])
        raise FileNotFoundError(f"data_dir {path} does not exist; build it: {command}")
    return Path(path)


def check_data(data, dataset) -> None:  # type: ignore[no-untyped-def]  # imported lazily
    """Checks that a built data set is the configured one.

    Raises:
        ValueError: If an option differs; the message names it.
    """
    for key, found in dataset.manifest["options"].items():
        expected = getattr(data, key)
        if found != expected:
            raise ValueError(
                f"data.{key} is {expected}, but the data set in data_dir was built with {found}; "
                "rebuild it, or correct the setting"
            )


if __name__ == "__main__":
    from hrm_deeploop.cli.main import main

    sys.exit(main(["train", *sys.argv[1:]]))
