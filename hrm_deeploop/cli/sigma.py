"""``hrm-deeploop sigma``: results over seeds, per arm and between two arms; needs no torch."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("results", type=Path, nargs="+", help="run directories or results.json")
    parser.add_argument("--control", help="name of the arm the others are compared with")
    parser.add_argument("--json", type=Path, help="also write the summary to this file")


def run(options: argparse.Namespace) -> None:
    """Summarises and prints."""
    from arc_data.json_files import read_json, write_json
    from eval.seeds import format_summary, summarise

    paths = [find_results(path) for path in options.results]
    summary = summarise([read_json(path) for path in paths], control=options.control)
    if options.json is not None:
        write_json(options.json, summary)
    print(format_summary(summary))


def find_results(path: Path) -> Path:
    """The results.json meant by a path: itself, or a run directory's newest evaluation.

    Raises:
        FileNotFoundError: If there is none.
    """
    if path.is_dir():
        found = sorted(path.glob("eval/step_*/results.json"))
        if found:
            return found[-1]
        raise FileNotFoundError(f"{path} has no eval/step_*/results.json; run hrm-deeploop eval")
    return path
