"""``hrm-deeploop sigma``: launching seeds, results over them, planning, and claims.

Only launching needs torch.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hrm_deeploop.cli import launch

if TYPE_CHECKING:
    from eval.sigma_inputs import Inputs

ACTIONS = ("report", "launch", "plan", "claim")
"""The first is what ``hrm-deeploop sigma`` does when no action's name follows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the actions; ``expand`` puts in the name of the first."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    summary = "what runs say: spread per arm, differences (also without the word report)"
    report = actions.add_parser(ACTIONS[0], help=summary, description=summary)
    report.set_defaults(run_action=run_report)
    report.add_argument(
        "results", type=Path, nargs="+", metavar="RUN_OR_RESULTS",
        help="run directories, folders of them, results.json files",
    )  # fmt: skip
    report.add_argument("--out", type=Path, metavar="DIR", help="write sigma.json, .md, .html")
    report.add_argument(
        "--contrast", nargs=2, metavar=("TREATMENT", "CONTROL"),
        help="arms of the primary comparison; default: deeploop and vanilla of one scope",
    )  # fmt: skip
    report.add_argument(
        "--checkpoint", default="final", metavar="WHICH",
        help="final (default), a step number, or best-on-test",
    )  # fmt: skip
    report.add_argument(
        "--without-seen-pairs", action="store_true",
        help="score only the test pairs that training shows in no turn or colours",
    )  # fmt: skip
    report.add_argument(
        "--pool-anyway", action="store_true",
        help="compare unlike or unfinished runs, with warnings",
    )  # fmt: skip
    report.add_argument("--random-seed", type=int, default=0, metavar="N", help="default 0")

    summary = "train arms x seeds, one run each, going on where it stopped"
    launched = actions.add_parser("launch", help=summary, description=summary)
    launched.set_defaults(run_action=launch.run)
    launch.add_arguments(launched)

    summary = "how many seeds find a difference, or what a number of seeds finds"
    plan = actions.add_parser("plan", help=summary, description=summary)
    plan.set_defaults(run_action=run_plan)
    plan.add_argument("--sd", type=float, required=True, help="s over seeds of one arm, points")
    plan.add_argument("--paired-sd", type=float, help="s of paired differences; default sd*sqrt 2")
    plan.add_argument("--delta", type=float, help="true difference to find, points")
    plan.add_argument("--seeds", type=int, help="instead of --delta: seeds per arm")
    plan.add_argument("--power", type=float, nargs="+", help="default 0.8 0.9")
    _add_tasks(plan)
    plan.add_argument("--score", type=float, default=40.0, help="strict score, %%; default 40")

    summary = "what two single runs and an s from elsewhere say; default: DeepLoop's claim"
    claim = actions.add_parser("claim", help=summary, description=summary)
    claim.set_defaults(run_action=run_claim)
    claim.add_argument("--control", type=float, default=36.5, help="strict score, %%; default 36.5")
    claim.add_argument("--treatment", type=float, default=39.75, help="default 39.75")
    claim.add_argument("--sd", type=float, default=0.5, help="s over seeds, points; default 0.5")
    claim.add_argument("--sd-runs", type=int, default=4, help="runs behind that s; default 4")
    _add_tasks(claim)


def _add_tasks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, default=400, help="tasks of the split; default 400")


def expand(words: list[str]) -> list[str]:
    """Puts ``report`` before words that begin with no action; a run named like one: ./plan."""
    named = bool(words) and words[0] in (*ACTIONS, "-h", "--help")
    return words if named else [ACTIONS[0], *words]


def run(options: argparse.Namespace) -> int | None:
    """Runs the chosen action."""
    return options.run_action(options)


def run_report(options: argparse.Namespace) -> None:
    """Collects, summarises, writes and prints."""
    from arc_data.json_files import write_beside, write_json
    from eval.loss_results import LOSS
    from eval.sigma_inputs import collect
    from eval.sigma_page import JSON_FILE, write_sigma_page

    if options.random_seed < 0:
        raise ValueError(f"--random-seed must be at least 0, found {options.random_seed}")
    if options.out is not None:
        there = next(path for path in (options.out, *options.out.parents) if path.exists())
        if not there.is_dir():
            raise NotADirectoryError(f"--out {options.out}: {there} is a file; name a folder")
    inputs = collect(options.results, options.checkpoint)
    is_loss = any(result.kind is LOSS for result in inputs.evaluations)
    text, markdown, summary = (_losses if is_loss else _scores)(inputs, options)
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_json(options.out / JSON_FILE, summary)
        with write_beside(options.out / "sigma.md") as file:
            file.write(markdown.encode())
        page = write_sigma_page(options.out)
        print(f"\nwritten {options.out / JSON_FILE}, {options.out / 'sigma.md'} and {page}")


def _scores(inputs: "Inputs", options: argparse.Namespace) -> tuple[str, str, dict[str, Any]]:
    """ARC scores as terminal text, Markdown and JSON."""
    from eval.seeds import summarise
    from eval.sigma_text import format_markdown, format_summary

    summary = summarise(
        inputs,
        contrast=options.contrast,
        pool_anyway=options.pool_anyway,
        unseen=options.without_seen_pairs,
        random_seed=options.random_seed,
    )
    return format_summary(summary), format_markdown(summary), summary


def _losses(inputs: "Inputs", options: argparse.Namespace) -> tuple[str, str, dict[str, Any]]:
    """A language model's losses likewise."""
    from eval.loss_sigma import summarise_losses
    from eval.loss_text import format_losses, format_markdown

    if options.without_seen_pairs:
        raise ValueError(
            "--without-seen-pairs goes with ARC results, found those of a language model; leave it"
            " out"
        )
    summary = summarise_losses(
        inputs,
        contrast=options.contrast,
        pool_anyway=options.pool_anyway,
        random_seed=options.random_seed,
    )
    return format_losses(summary), format_markdown(summary), summary


def run_plan(options: argparse.Namespace) -> None:
    """Prints a plan."""
    from eval.power import POWERS, plan
    from eval.sigma_text import format_plan

    powers = POWERS if options.power is None else tuple(options.power)
    print(
        format_plan(
            plan(
                sd=options.sd,
                paired_sd=options.paired_sd,
                delta=options.delta,
                seeds=options.seeds,
                powers=powers,
                tasks=options.tasks,
                score=options.score,
            )
        )
    )


def run_claim(options: argparse.Namespace) -> None:
    """Prints what a claim from two single runs is worth."""
    from eval.power import single_runs
    from eval.sigma_text import format_claim

    print(
        format_claim(
            single_runs(
                options.control,
                options.treatment,
                sd=options.sd,
                sd_runs=options.sd_runs,
                tasks=options.tasks,
            )
        )
    )
