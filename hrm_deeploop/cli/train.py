"""``hrm-deeploop train``: one run, from configuration to the K ladder; or going on with one."""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hrm_deeploop.config import TrainConfig
from hrm_deeploop.settings import departures

if TYPE_CHECKING:
    import torch

    from hrm_deeploop.distributed import Ranks
    from hrm_deeploop.resumption import Resumption
    from hrm_deeploop.run_dir import RunDir
    from hrm_deeploop.signals import StopSignals
    from hrm_deeploop.workload import Workload

    MakeWorkload = Callable[[torch.device, Ranks], Workload]

EPILOG = """\
resume=RUN_DIR goes on with a run that was stopped, bit for bit on one machine with equal threads;
resume=RUN_DIR/checkpoints/step_... goes back to that checkpoint.  SIGTERM, SIGINT and SIGUSR1
finish the step, save and exit with status 143, 130 or 138; a second one stops at once.
"""
WARNED_DEPARTURES = ("optim.global_batch_size", "optim.lr", "optim.puzzle_emb_lr")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="settings and group choices, e.g. experiment=mini_deeploop seed=1 optim.lr=1e-3",
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="print parameters, memory and time, then stop: nothing starts, nothing is written",
    )
    parser.add_argument(
        "--world-size",
        type=int,
        default=1,
        metavar="N",
        help="with --estimate: processes that torchrun will start, default 1",
    )
    parser.add_argument(
        "--tflops",
        type=float,
        metavar="X",
        help="with --estimate: TFLOP/s of matrix products on another machine's processor; "
        "default: measured here, in a second",
    )


def run(options: argparse.Namespace) -> None:
    """Composes the configuration, checks everything that can be checked, then trains."""
    from hrm_deeploop.cli.compose import compose
    from hrm_deeploop.run_dir import RunDir
    from hrm_deeploop.signals import StopSignals

    overrides = options.overrides
    if options.estimate:
        from hrm_deeploop.cli.estimate import print_estimate

        print_estimate(overrides, options.world_size, options.tflops)
        return
    if options.world_size != 1 or options.tflops is not None:
        raise ValueError("--world-size and --tflops are for --estimate; ranks come from torchrun")
    with StopSignals() as stop:
        if any(override.startswith("resume=") for override in overrides):
            resume(overrides, stop)
            return
        config = compose(overrides)
        with joined_workload(config, overrides) as workload:
            run_dir = shared_run_dir(
                workload.ranks, lambda: RunDir.create(config, experiment_arm_name(config))
            )
            train_and_evaluate(config, workload, run_dir, stop)


def resume(overrides: Sequence[str], stop: "StopSignals") -> None:
    """Goes on with a run directory, from its newest checkpoint or the one named."""
    from hrm_deeploop import resumption
    from hrm_deeploop.cli.compose import override_saved
    from hrm_deeploop.run_dir import RunDir, read_config

    given = next(o for o in overrides if o.startswith("resume="))
    path, checkpoint = resumption.find_run(Path(given.partition("=")[2]))
    saved = read_config(path)
    config = replace(override_saved(saved, overrides), run_dir=str(path))
    changed = resumption.check_changes(saved, config)
    with joined_workload(config, overrides) as workload:
        run_dir = shared_run_dir(workload.ranks, lambda: RunDir(path))
        planned = resumption.plan(
            run_dir,
            checkpoint,
            changed,
            workload.dataset.digest,
            with_changes=config.resume_with_changes,
        )
        train_and_evaluate(config, workload, run_dir, stop, planned)


@contextmanager
def joined_workload(config: TrainConfig, overrides: Sequence[str]) -> Iterator["Workload"]:
    """Checks device, scaling, tracking and data, and builds the model; writes nothing.

    Inside, the processes that torchrun started belong together.
    """
    import torch

    from hrm_deeploop.cli.devices import choose_device
    from hrm_deeploop.distributed import Ranks
    from hrm_deeploop.tracking import check_installed

    device = choose_device(config.device)
    check_installed(config.tracking)
    make_workload = checked_lm if config.workload == "lm" else checked_arc
    make = make_workload(config, overrides)
    if config.hardware.threads is not None:
        torch.set_num_threads(config.hardware.threads)
    ranks = Ranks.start(device.type)
    try:
        yield make(device, ranks)
    finally:
        ranks.stop()


def checked_arc(config: TrainConfig, overrides: Sequence[str]) -> "MakeWorkload":
    """Checks scaling and data of a reasoner; what is returned builds it."""
    from hrm_deeploop.arc import ArcWorkload
    from hrm_deeploop.cli.run_data import RunData

    dataset = RunData().arc(config, overrides)
    return lambda device, ranks: ArcWorkload(config, dataset, device, ranks)


def checked_lm(config: TrainConfig, overrides: Sequence[str]) -> "MakeWorkload":
    """Checks the text of a language model; what is returned builds it."""
    from hrm_deeploop.cli.run_data import RunData
    from hrm_deeploop.looped_lm.workload import LmWorkload

    dataset = RunData().lm(config, overrides)
    return lambda device, ranks: LmWorkload(config, dataset, device, ranks)


def shared_run_dir(ranks: "Ranks", make: Callable[[], "RunDir"]) -> "RunDir":
    """The run's folder: the main process makes or takes it, the others learn where it is."""
    from hrm_deeploop.run_dir import RunDir

    made: list[RunDir] = []

    def make_and_keep() -> Path:
        made.append(make())
        return made[0].path

    path = ranks.main_does(make_and_keep)
    return made[0] if made else RunDir(path, writes=False)


def recipe(config: TrainConfig) -> TrainConfig:
    """The experiment's file as it stands; without an experiment the defaults."""
    from hrm_deeploop.cli.compose import compose

    return compose([f"experiment={config.experiment}"] if config.experiment else [])


def experiment_arm_name(config: TrainConfig) -> str:
    """The arm's name: what departs from the recipe."""
    from hrm_deeploop.run_dir import arm_name

    return arm_name(config, recipe(config))


def departure_warning(config: TrainConfig) -> list[str]:
    """One line if batch or learning rates are not the experiment's, else none."""
    found = departures(config, recipe(config)) if config.experiment else {}
    changes = [
        f"{key} is {found[key]['run']}, not {found[key]['recipe']}"
        for key in WARNED_DEPARTURES
        if key in found
    ]
    return [f"warning: not the recipe of {config.experiment}: {'; '.join(changes)}"][: len(changes)]


def train_and_evaluate(
    config: TrainConfig,
    workload: "Workload",
    run_dir: "RunDir",
    stop: "StopSignals",
    resumption: "Resumption | None" = None,
) -> None:
    """Trains, evaluates, and prints where things are.

    Args:
        config: The run.
        workload: A model on its data.
        run_dir: The run's folder, new or taken over.
        stop: Signals that end the run after a checkpoint.
        resumption: What to go on from; None: a new run.
    """
    from hrm_deeploop.optimizer import backend_of
    from hrm_deeploop.resumption import apply
    from hrm_deeploop.run_dir import describe_arm
    from hrm_deeploop.training import Trainer

    history = [] if resumption is None else resumption.history
    arm = describe_arm(config, experiment_arm_name(config), workload.residual(), history)
    counts = workload.parameter_counts()

    def say(text: str) -> None:
        if workload.ranks.is_main:
            print(text, flush=True)

    with run_dir.tracked():
        run_dir.set_status("running")
        say(f"run directory {run_dir.path}")
        say(f"arm {arm['name']} ({arm['digest'][:12]}), seed {config.seed}")
        parts = [f"{n:,} {key}" for key, n in counts.items()][:-1]
        say(f"parameters: {' + '.join(parts)}".replace("_", " "))
        say(workload.scaling_table())
        for line in departure_warning(config):
            say(line)
        if config.hardware.compile:
            say("compiling the step (up to a minute the first time)")
            workload.compile()
        meta = {"run": run_dir.path.name, "arm": arm, **workload.checkpoint_meta()}
        trainer = Trainer(workload, config, run_dir, meta)
        facts = {
            "dataset": workload.dataset_facts(),
            "arm": arm,
            "backends": {**workload.backends(), "optimizer": backend_of(trainer.optimizer)},
            "parameters": counts,
            "departures": departures(config, recipe(config)),
        }
        say(", ".join(f"{key} {value}" for key, value in facts["backends"].items()))
        if resumption is not None:
            for line in apply(resumption, trainer, facts):
                say(line)
        elif workload.ranks.is_main:
            run_dir.write_provenance(facts)
        checkpoint = trainer.fit(stop)
        out = run_dir.eval_dir(checkpoint.name)
        results = workload.evaluate(checkpoint, out, partial=False)
    say(workload.format(results))
    say(f"results {out / 'results.json'}")
    if workload.ranks.is_main:
        print(f"page {workload.write_page(run_dir.path)}")


def find_data(config: TrainConfig, overrides: Sequence[str]) -> Path:
    """The data set's folder.

    Raises:
        FileNotFoundError: If it does not exist; the message says how to build it.
        NotADirectoryError: If it is a file.
    """
    path = config.resolved_data_dir
    if Path(path).is_dir():
        return Path(path)
    if Path(path).exists():
        raise NotADirectoryError(f"data_dir {path} is not a folder")
    words = ["lm", "data", config.lm.dataset, "--out", path]
    if config.workload == "arc":
        words = ["data", "build"]
        words += [o for o in overrides if o.startswith(("experiment=", "data"))]
    command = shlex.join(["hrm-deeploop", *words])
    raise FileNotFoundError(f"data_dir {path} does not exist; build it: {command}")


if __name__ == "__main__":
    from hrm_deeploop.cli.main import main

    sys.exit(main(["train", *sys.argv[1:]]))
