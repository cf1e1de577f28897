"""``hrm-deeploop sigma launch``: arms x grid x seeds, one ordinary ``train`` each."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hrm_deeploop.config import PATH_KEYS
from hrm_deeploop.sweep_terms import TERMS

if TYPE_CHECKING:
    from hrm_deeploop.cli.run_data import RunData
    from hrm_deeploop.sweep_plan import Sweep, SweepRun
    from hrm_deeploop.sweeps import Resources, RunReport

EPILOG = """\
arms=A,B: residual presets (of a language model: values of lm.arm), or overrides in quotes:
arms='vanilla,residual=deeploop optim.lr=1e-3'.
seeds=0-5 or seeds=0,2,7.  out=DIR: the sweep's folder.  A setting with several values,
optim.lr=1e-3,2e-3, is a grid.  The same command again goes on: finished runs are skipped,
interrupted ones resumed.  Ctrl-C and SIGTERM stop local runs after a checkpoint; SLURM's jobs stay
in its queue.
"""
OWN_KEYS = ("arms", "seeds", "out")
PER_RUN_KEYS = ("seed", "run_dir", "resume")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "words",
        nargs="+",
        metavar="KEY=VALUE",
        help="arms=, seeds=, out= and settings of all runs, e.g. experiment=mini_vanilla",
    )
    parser.add_argument("--parallel", type=int, help="runs at a time; default 1, or all GPUs")
    parser.add_argument("--threads", type=int, help="CPU threads of each run")
    parser.add_argument("--gpus-per-run", type=int, help="default 1 where there are GPUs, else 0")
    parser.add_argument("--cluster", choices=("local", "slurm"), default="local")
    parser.add_argument(
        "--slurm",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of sbatch, e.g. time=1440 (minutes), partition=gpu; may be repeated",
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="go on with failed runs too, not only list them"
    )


def run(options: argparse.Namespace) -> int:
    """Checks every run's configuration and data, then does the runs.

    Returns:
        0 if all are finished, 1 if not.
    """
    reports = launch_sweep(plan(options.words), options)
    return 1 if any(report.state != "finished" for report in reports) else 0


def launch_sweep(sweep: "Sweep", options: argparse.Namespace) -> "list[RunReport]":
    """Does the runs and tells how they ended.

    Raises:
        Stopped: If a signal came; says what goes on and how.
    """
    from hrm_deeploop.cli.sweep_display import SweepDisplay
    from hrm_deeploop.signals import Stopped, StopSignals
    from hrm_deeploop.sweep_plan import claimed
    from hrm_deeploop.sweeps import Launcher

    resources = choose_resources(options)
    with StopSignals() as stop, claimed(sweep):
        launcher = Launcher(sweep, resources, retry_failed=options.retry_failed)
        try:
            with SweepDisplay() as display:
                reports = launcher.launch(stop, display.show)
        except Stopped as stopped:
            assert stop.received is not None
            raise Stopped(
                stop.received,
                f"{stopped}; {what_stays(resources, sweep)}the same command goes on",
            ) from None
    unfinished = [report for report in reports if report.state != "finished"]
    print(
        f"{len(reports) - len(unfinished)} of {len(reports)} runs finished in {sweep.folder}/runs"
    )
    for report in unfinished:
        print(f"{report.state}: {describe_end(report, sweep)}", file=sys.stderr)
    return reports


def what_stays(resources: "Resources", sweep: "Sweep") -> str:
    """What a stopped launcher leaves running."""
    if resources.cluster == "local":
        return "the runs are saved; "
    return f"jobs stay in SLURM's queue (scancel --name={sweep.folder.name} removes them); "


def describe_end(report: "RunReport", sweep: "Sweep") -> str:
    """One line about a run that did not finish."""
    error = f" {report.error}" if report.error else ""
    again = "--retry-failed" if report.state == "failed" else "the same command"
    log = sweep.folder / "logs" / f"{report.name}.log"
    return f"{report.name} step {report.step}{error} (log {log}; {again} goes on with it)"


def plan(words: Sequence[str]) -> "Sweep":
    """The sweep that the words ask for, its configurations and data checked.

    Raises:
        ValueError: If a word, or a run's configuration, is impossible.
        FileNotFoundError: If the data are not there; says how to build them.
    """
    from hrm_deeploop.cli.run_data import RunData
    from hrm_deeploop.sweep_plan import Sweep, cross

    own, overrides, grid = split_words(words)
    first = [*overrides, *(f"{key}={values[0]}" for key, values in grid.items())]
    arm_key = TERMS[workload_of(words)].arm_key
    if "arms" not in own and arm_key in grid:
        own["arms"] = ",".join(grid.pop(arm_key))
    arms = parse_arms(own.get("arms"), first)
    seeds = parse_seeds(own["seeds"])
    data = RunData()
    runs = [
        make_run(name, [*overrides, *departures], data)
        for name, departures in cross(arms, grid, seeds)
    ]
    same: dict[tuple[str, str], str] = {}
    for each in runs:
        other = same.setdefault((each.digest, each.overrides[-1]), each.name)
        if other != each.name:
            raise ValueError(f"{other} and {each.name} are the same run; leave one out")
    asked = {
        "command": shlex.join(["hrm-deeploop", *sys.argv[1:]]),
        "overrides": overrides,
        "arms": arms,
        "grid": grid,
        "seeds": seeds,
    }
    return Sweep(folder=Path(own["out"]), asked=asked, runs=tuple(runs))


def split_words(
    words: Sequence[str],
) -> tuple[dict[str, str], list[str], dict[str, list[str]]]:
    """The launcher's own words, the overrides of all runs, and the grid's values by setting."""
    own: dict[str, str] = {}
    overrides: list[str] = []
    grid: dict[str, list[str]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"expected key=value; got {word!r}")
        if key in OWN_KEYS:
            if key in own:
                raise ValueError(f"{key} is given twice: {own[key]!r} and {value!r}")
            own[key] = value
        elif key in PER_RUN_KEYS:
            raise ValueError(f"{word}: a sweep gives each run its own {key}; use seeds= and out=")
        elif key not in PATH_KEYS and len(values := several(word)) > 1:
            grid[key] = values
        else:
            overrides.append(word)
    for key, example in (("seeds", "seeds=0-5"), ("out", "out=runs/study")):
        if not own.get(key):
            raise ValueError(f"{key}= is missing, for instance {example}")
    return own, overrides, grid


def several(override: str) -> list[str]:
    """The values of an override that has several, in hydra's notation; else nothing."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException:  # ``compose`` says what is wrong
        return []
    return list(parsed.sweep_string_iterator()) if parsed.is_sweep_override() else []


def workload_of(words: Sequence[str]) -> str:
    """The workload of the experiment that the words choose, of the first where it is a grid."""
    from hrm_deeploop.cli.compose import compose

    experiment = [word for word in words if word.startswith("experiment=")]
    first = [f"experiment={values[0]}" for word in experiment if (values := several(word))]
    return compose(first or experiment).workload


def parse_arms(text: str | None, overrides: Sequence[str]) -> dict[str, list[str]]:
    """Label -> overrides of each arm.

    Args:
        text: ``arms=``; None: one arm as the overrides have it.
        overrides: Of all runs, and the first values of the grid.

    Raises:
        ValueError: If an arm is unknown, or given twice.
    """
    from hrm_deeploop.cli.compose import compose
    from hrm_deeploop.settings import nearest
    from hrm_deeploop.sweep_plan import short_name

    terms = TERMS[workload_of(overrides)]
    if text is None:
        return {terms.arm(compose(overrides)): []}
    lexer = shlex.shlex(text, posix=True, punctuation_chars="")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = ",", True, ""
    arms: dict[str, list[str]] = {}
    for arm in (word.strip() for word in lexer):
        settings = shlex.split(arm) if "=" in arm else [f"{terms.arm_key}={arm}"]
        if "=" not in arm and arm not in terms.arms:
            raise ValueError(
                f"unknown arm {arm!r}; an arm is one of {', '.join(terms.arms)} or overrides in "
                f"quotes{nearest(arm, terms.arms)}"
            )
        label = "-".join(short_name(setting) for setting in settings)
        if label in arms:
            raise ValueError(f"two arms would be called {label}; give each arm once")
        arms[label] = settings
    return arms


def parse_seeds(text: str) -> list[int]:
    """``0-2,7`` -> [0, 1, 2, 7].

    Raises:
        ValueError: If it is not such a list, or names a seed twice.
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not (last.isdecimal() and int(last) > int(first))):
            raise ValueError(f"seeds={text}: expected whole numbers as 0-5 or 0,2,7; got {part!r}")
        seeds += range(int(first), int(last or first) + 1)
    for seed in seeds:
        if seeds.count(seed) > 1:
            raise ValueError(f"seeds={text} names {seed} twice; give each seed once")
    return seeds


def make_run(name: str, overrides: Sequence[str], data: "RunData") -> "SweepRun":
    """Checks one run's configuration and data."""
    from hrm_deeploop.cli.compose import compose
    from hrm_deeploop.settings import digest
    from hrm_deeploop.sweep_plan import SweepRun

    config = compose(overrides)
    return SweepRun(
        name=name,
        overrides=tuple(overrides),
        digest=digest(config),
        num_steps=data.num_steps(config, overrides),
    )


def choose_resources(options: argparse.Namespace) -> "Resources":
    """What the options and this machine give.

    Raises:
        ValueError: If they do not fit together.
    """
    from hrm_deeploop.sweeps import Resources

    is_local = options.cluster == "local"
    devices = local_devices() if is_local and options.gpus_per_run != 0 else []
    gpus = (1 if devices else 0) if options.gpus_per_run is None else options.gpus_per_run
    parallel = options.parallel
    if parallel is None:
        parallel = max(1, len(devices) // gpus) if gpus and is_local else 1
    threads = any(word.startswith("hardware.threads=") for word in options.words)
    if threads and options.threads is not None:
        raise ValueError("hardware.threads= and --threads are the same; give one of them")
    if is_local and not gpus and parallel > 1 and options.threads is None and not threads:
        raise ValueError(
            f"--parallel {parallel} on the CPU needs --threads N, the threads of each run "
            f"(here {max(1, (os.cpu_count() or 1) // parallel)}, say): runs repeat bit for bit "
            "only with equal threads"
        )
    return Resources(
        cluster=options.cluster,
        parallel=parallel,
        threads=options.threads,
        gpus_per_run=gpus,
        devices=tuple(devices),
        slurm=dict(slurm_option(text) for text in options.slurm),
    )


def slurm_option(text: str) -> tuple[str, Any]:
    """``time=60`` -> ("time", 60)."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"--slurm {text}: expected KEY=VALUE, for instance time=1440")
    return key.replace("-", "_"), int(value) if value.isdecimal() else value


def local_devices() -> list[str]:
    """GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]
