"""``hrm-deeploop psweep``: residual exponents x loop counts x seeds, and which runs train."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hrm_deeploop.cli import launch
from hrm_deeploop.config import TrainConfig
from hrm_deeploop.sweep_terms import TERMS, SweepTerms

if TYPE_CHECKING:
    from eval.phase import RunOutcome
    from hrm_deeploop.psweep import Round
    from hrm_deeploop.sweep_plan import Sweep

EPILOG = """\
p=0.25,0.5 gives both levels these exponents; residual.H.p=... residual.L.p=... a grid over both;
arms=A,B (as for sigma launch) stand beside or in place of p=.  Any setting with several values is
a grid: optim.lr=1e-3,2e-3 asks for the best rate of every arm and arch.L_cycles (of a language
model, as experiment=lm_tiny_base, lm.rounds).  max_steps= is the budget.  A run succeeds when its
held-out token loss gets under that of the best constant guess.
"""
DEFAULTS = {
    "experiment": "mini_vanilla",
    "arch.grad_scope": "last_cycle",
    "arch.L_cycles": "2,4,8",
    "seeds": "0-2",
}
PILOT_DEFAULTS = {**DEFAULTS, "arch.L_cycles": "2,16", "seeds": "0"}
LM_DEFAULTS = {"lm.rounds": "3", "seeds": "0-2"}
LM_PILOT_DEFAULTS = {"lm.rounds": "1,7", "seeds": "0"}
DEFAULT_EXPONENTS = {"arc": "0,0.125,0.25,0.375,0.5", "lm": "0.3,0.35,0.4,0.45,0.5,0.55,0.6"}
LOOKS = 20
"""Looks at the held-out loss within the budget, unless a cadence is given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    launch.add_arguments(parser)
    parser.epilog = EPILOG
    parser.add_argument(
        "--gamma",
        type=Path,
        metavar="FILE",
        help="what kappa --init --out wrote: its gamma's line in the phase plot",
    )
    parser.add_argument(
        "--at", type=_steps, metavar="N,N,...", help="steps at which losses are compared"
    )
    parser.add_argument(
        "--pilot",
        action="store_true",
        help="climb in learning rate without scaling to a regime where something can fail",
    )
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="with --pilot: its budget (default 10)"
    )


def _steps(text: str) -> tuple[int, ...]:
    from hrm_deeploop.cli.predict import positive

    return tuple(positive(word) for word in text.split(","))


def run(options: argparse.Namespace) -> int:
    """Does the runs, then writes and prints what they came to.

    Returns:
        0 if all runs that are told about finished or stopped being finite, 1 if not.
    """
    return run_pilot(options) if options.pilot else run_sweep(options)


@dataclass(frozen=True)
class Planned:
    """A sweep with the configuration of each of its runs by name."""

    sweep: "Sweep"
    configs: dict[str, TrainConfig]

    @property
    def budget_steps(self) -> int:
        """Steps of the longest run."""
        return max(run.num_steps for run in self.sweep.runs)


def run_sweep(options: argparse.Namespace) -> int:
    """The sweep, its table and figures."""
    from arc_data.json_files import write_beside, write_json
    from eval.phase import format_markdown, format_text
    from eval.phase_page import write_phase_page
    from eval.phase_plots import draw_losses, draw_phase
    from eval.plots import FORMATS, save
    from hrm_deeploop.gamma_file import read_gammas, read_round_gammas
    from hrm_deeploop.psweep import make_result

    is_lm = launch.workload_of(options.words) == "lm"
    planned = plan(complete(options.words, LM_DEFAULTS if is_lm else DEFAULTS, exponents=True))
    configs = list(planned.configs.values())
    gammas = None
    if options.gamma is not None:
        config = configs[0]
        gammas = (
            read_round_gammas(options.gamma, config.lm)
            if is_lm
            else read_gammas(options.gamma, config.arch)
        )
    for step in options.at or ():
        for config in configs:
            check_step(step, config, planned.budget_steps)
    outcomes = do(planned, options)
    result = make_result(
        outcomes, budget_steps=planned.budget_steps, steps=options.at, gammas=gammas
    )
    folder = planned.sweep.folder
    write_json(folder / "psweep.json", result)
    with write_beside(folder / "psweep.md") as file:
        file.write(format_markdown(result).encode())
    for name, draw in (("phase", draw_phase), ("losses", draw_losses)):
        for kind in FORMATS:
            path = folder / f"{name}.{kind}"
            draw(result, lambda figure, path=path: save(figure, path))
    page = write_phase_page(result, folder / "psweep.html", folder.name)
    print(format_text(result))
    print(f"wrote {folder}/psweep.json, psweep.md and figures")
    print(f"page {page}")
    return 0 if all(outcome.counts for outcome in outcomes) else 1


def complete(words: Sequence[str], defaults: dict[str, str], *, exponents: bool) -> list[str]:
    """The launcher's words: ``p=`` as arms, and the defaults of what is not given.

    Args:
        words: As given.
        defaults: By key.
        exponents: Whether ``p=`` has a default where no arms or exponents are given.

    Raises:
        ValueError: If exponents are given twice, or are no numbers.
    """
    given = {word.partition("=")[0]: word.partition("=")[2] for word in words}
    own = [word for word in words if word.partition("=")[0] not in ("p", "arms")]
    arms = [given["arms"]] if "arms" in given else []
    workload = launch.workload_of(words)
    terms = TERMS[workload]
    levels = [key for key in terms.exponent_keys.values() if key in given]
    if "p" in given and levels:
        what = "both levels' exponents" if len(terms.exponent_keys) > 1 else "the exponent"
        raise ValueError(f"p= sets {what}; leave out p= or {', '.join(levels)}=")
    default = DEFAULT_EXPONENTS[workload] if exponents and not arms and not levels else None
    p = given.get("p", default)
    if p is not None:
        arms += [exponent_arm(text, terms) for text in p.split(",")]
    elif levels and not arms:
        arms = [terms.exponent_arm]
    own += [f"arms={','.join(arms)}"] if arms else []
    return own + [f"{key}={value}" for key, value in defaults.items() if key not in given]


def exponent_arm(text: str, terms: SweepTerms) -> str:
    """``0.25`` -> the overrides of the arm with this exponent on all levels."""
    try:
        p = float(text)
    except ValueError:
        raise ValueError(f"p={text}: expected numbers as 0.25,0.5; got {text!r}") from None
    exponents = [f"{key}={p:g}" for key in terms.exponent_keys.values()]
    return " ".join([f"{terms.arm_key}={terms.exponent_arm}", *exponents])


def plan(words: Sequence[str]) -> Planned:
    """Checks all runs and sees to it that they look at the held-out loss.

    Raises:
        ValueError: If a setting is impossible or there is no budget of steps.
        FileNotFoundError: If the data are not there.
    """
    from hrm_deeploop.cli.compose import compose
    from hrm_deeploop.sweep_plan import cross

    own, overrides, grid = launch.split_words(words)
    arms = launch.parse_arms(own.get("arms"), overrides)
    # With its arm: without it, some settings that all runs share may be impossible.
    (_, departures), *_ = cross(arms, grid, [0])
    config = compose([*overrides, *departures])
    if config.max_steps is None:
        raise ValueError("psweep needs a fixed budget of steps; give max_steps=N")
    if config.diagnostics.validation_every_steps is None:
        every = max(1, config.max_steps // LOOKS)
        words = [*words, f"diagnostics.validation_every_steps={every}"]
    sweep = launch.plan(words)
    return Planned(sweep, {run.name: compose(run.overrides) for run in sweep.runs})


def check_step(step: int, config: TrainConfig, last: int) -> None:
    """Checks that a run looks at the held-out loss at a step.

    Raises:
        ValueError: If not.
    """
    every = config.diagnostics.validation_every_steps
    assert every is not None
    if step > last or (step % every and step != last):
        raise ValueError(
            f"--at {step}: the held-out loss is known at multiples of {every}, up to {last}; set "
            "diagnostics.validation_every_steps"
        )


def do(planned: Planned, options: argparse.Namespace) -> "list[RunOutcome]":
    """Does the runs; what they came to."""
    from hrm_deeploop.psweep import read_outcomes

    launch.launch_sweep(planned.sweep, options)
    return read_outcomes(planned.sweep.folder, planned.configs)


def run_pilot(options: argparse.Namespace) -> int:
    """The arm without scaling at rising learning rates, until it no longer trains."""
    from arc_data.json_files import write_json
    from hrm_deeploop.cli.compose import compose
    from hrm_deeploop.psweep import climb, conclude, round_of

    workload = launch.workload_of(options.words)
    defaults = LM_PILOT_DEFAULTS if workload == "lm" else PILOT_DEFAULTS
    terms = TERMS[workload]
    words = complete(options.words, defaults, exponents=False)
    own, overrides, grid = launch.split_words(words)
    for key, is_given in (("p or arms", "arms" in own), ("several optim.lr", "optim.lr" in grid)):
        if is_given:
            raise ValueError(f"--pilot runs {terms.baseline} at rates of its own choice; got {key}")
    folder = Path(own["out"])
    rate = compose(overrides).optim.lr
    common = [word for word in words if not word.startswith(("out=", "optim.lr="))]

    def try_rate(number: int, lr: float) -> "Round":
        place = f"out={folder / f'round-{number}'}"
        planned = plan([*common, f"arms={terms.baseline}", f"optim.lr={lr:g}", place])
        print(f"pilot round {number}: learning rate {lr:g}", flush=True)
        return round_of(do(planned, options), lr)

    rounds, end = climb(rate, try_rate, budget_s=60 * options.minutes, clock=time.monotonic)
    found: dict[str, Any] = conclude(rounds, end, terms)
    write_json(folder / "pilot.json", found)
    for each in rounds:
        name = terms.loop_name
        counts = [f"{name} {n}: {k}/{each.runs[n]}" for n, k in each.successes.items()]
        print(f"learning rate {each.lr:g}  under the floor  {'  '.join(counts)}")
    print(found["words"])
    print(f"wrote {folder}/pilot.json")
    return 0
