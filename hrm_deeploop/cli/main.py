"""``hrm-deeploop``: one program, one subcommand per job."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

COMMANDS = {
    "data": ("build, verify or list data sets", "hrm_deeploop.cli.data"),
    "train": ("train a reasoner, then predict and vote", "hrm_deeploop.cli.train"),
    "predict": ("checkpoint x data set -> predictions", "hrm_deeploop.cli.predict"),
    "vote": ("predictions -> K ladder", "hrm_deeploop.cli.vote"),
    "eval": ("checkpoint -> predictions -> K ladder", "hrm_deeploop.cli.evaluate"),
    "sigma": ("results over seeds -> mean, s, intervals, tests", "hrm_deeploop.cli.sigma"),
}
BAD_INPUT, FAILED_RUN, INTERRUPTED = 2, 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: Words after the program's name; None: those of this process.

    Returns:
        Exit status: 0, 2 for bad input, 1 for a failure in the run, 130 when interrupted.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="hrm-deeploop",
        description="Train hierarchical recurrent reasoners with DeepLoop scaling, and vote.",
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # Only the chosen command's module is imported; the others are names with a line of help.
    chosen = next((word for word in arguments if word in COMMANDS), None)
    run: Callable[[argparse.Namespace], int | None] | None = None
    for name, (summary, module) in COMMANDS.items():
        sub = subparsers.add_parser(name, help=summary, description=summary)
        sub.add_argument("--debug", action="store_true", help="show the trace of an error")
        if name == chosen:
            command = import_module(module)
            command.add_arguments(sub)
            run = command.run
    options = parser.parse_args(arguments)
    assert run is not None
    return guarded(run, options, f"hrm-deeploop {chosen}", debug=options.debug)


def guarded(
    run: Callable[[argparse.Namespace], int | None],
    options: argparse.Namespace,
    name: str,
    *,
    debug: bool,
) -> int:
    """Runs a command; errors become one line on stderr and an exit status."""
    try:
        return run(options) or 0
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, FileNotFoundError, FileExistsError, NotADirectoryError) as error:
        status, message = BAD_INPUT, str(error)
    except (RuntimeError, ArithmeticError, OSError, MemoryError) as error:
        status, message = FAILED_RUN, f"{type(error).__name__}: {error}"
    if debug:
        import traceback

        traceback.print_exc()
    print(f"{name}: {' '.join(message.split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
