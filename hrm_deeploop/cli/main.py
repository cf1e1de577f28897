"""``hrm-deeploop``: one program, one subcommand per job."""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NoReturn

from hrm_deeploop.host_memory import keep_freed_memory
from hrm_deeploop.signals import Stopped

COMMANDS = {
    "data": ("build, verify, audit, compare, convert and show data sets", "hrm_deeploop.cli.data"),
    "train": ("train a model, then evaluate it", "hrm_deeploop.cli.train"),
    "predict": ("checkpoint x data set -> predictions", "hrm_deeploop.cli.predict"),
    "vote": ("predictions -> K ladder", "hrm_deeploop.cli.vote"),
    "eval": ("checkpoint -> predictions -> K ladder", "hrm_deeploop.cli.evaluate"),
    "analyse": ("variants, segments, puzzle ids, sizes, halting", "hrm_deeploop.cli.analyse"),
    "report": ("run, evaluation, sigma or kappa -> one HTML page", "hrm_deeploop.cli.report"),
    "import-checkpoint": (
        "published checkpoint -> run directory",
        "hrm_deeploop.cli.import_checkpoint",
    ),
    "export-checkpoint": (
        "checkpoint -> published format",
        "hrm_deeploop.cli.export_checkpoint",
    ),
    "sigma": ("launch seeds; results -> mean, s, intervals, tests", "hrm_deeploop.cli.sigma"),
    "lm": ("the looped language model: text, loss, a look", "hrm_deeploop.cli.lm"),
    "kappa": ("alignment of looped updates, first step, streams", "hrm_deeploop.cli.kappa"),
    "psweep": ("exponents x loop counts x seeds: which runs train", "hrm_deeploop.cli.psweep"),
}
BAD_INPUT, FAILED_RUN, INTERRUPTED = 2, 1, 130
BAD_INPUT_ERRORS = (
    ValueError,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: Words after the program's name; None: those of this process.

    Returns:
        Exit status: 0, 2 for bad input, 1 for a failure in the run, 128 + the signal's number when
        stopped by one (130 for Ctrl-C).
    """
    keep_freed_memory()  # before a command imports torch
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    parser = _Parser(
        prog="hrm-deeploop",
        description="Train hierarchical recurrent reasoners with DeepLoop scaling, and vote.",
        epilog="--debug anywhere shows the trace of an error.",
    )
    subparsers = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )
    # Only the chosen command's module is imported; the others are names with a line of help.
    chosen = next((word for word in words if word in COMMANDS), None)
    run: Callable[[argparse.Namespace], int | None] | None = None
    for name, (summary, module) in COMMANDS.items():
        sub = subparsers.add_parser(name, help=summary, description=summary)
        if name == chosen:
            command = import_module(module)
            command.add_arguments(sub)
            run = command.run
            if hasattr(command, "expand"):  # its first word may be left out
                after = words.index(name) + 1
                words = [*words[:after], *command.expand(words[after:])]
    options, rest = parser.parse_known_args(words)
    # argparse takes positional words from one place only; settings may stand anywhere.
    settings = getattr(options, "overrides", getattr(options, "words", None))
    if rest and settings is not None and all("=" in w and w[0] != "-" for w in rest):
        settings += rest
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    assert run is not None
    return guarded(run, options, f"hrm-deeploop {chosen}", debug=debug)


def guarded(
    run: Callable[[argparse.Namespace], int | None],
    options: argparse.Namespace,
    name: str,
    *,
    debug: bool,
) -> int:
    """Runs a command; errors become one line on stderr and an exit status."""
    if "RANK" in os.environ:
        name += f" (rank {os.environ['RANK']})"
    try:
        return run(options) or 0
    except KeyboardInterrupt as stop:
        print(f"{name}: {str(stop) or 'interrupted'}", file=sys.stderr)
        return stop.exit_status if isinstance(stop, Stopped) else INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the process ends here; --debug shows the trace
        if debug:
            traceback.print_exc()
        is_bad_input = isinstance(error, BAD_INPUT_ERRORS)
        message = str(error) if is_bad_input else f"{type(error).__name__}: {error}"
        print(f"{name}: {' '.join(message.split())}", file=sys.stderr)
        return BAD_INPUT if is_bad_input else FAILED_RUN


if __name__ == "__main__":
    sys.exit(main())
