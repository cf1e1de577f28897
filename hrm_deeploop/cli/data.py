"""``hrm-deeploop data``: build, verify, audit, compare, convert and look at data sets."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arc_data.build import BuildOptions
    from arc_data.compiled import CompiledDataset
    from hrm_deeploop.config import DataConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the subcommands."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def declare(
        name: str, summary: str, run: Callable[[argparse.Namespace], None]
    ) -> argparse.ArgumentParser:
        action = actions.add_parser(name, help=summary, description=summary)
        action.set_defaults(run_action=run)
        return action

    build = declare("build", "build a data set into data_dir", run_build)
    build.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="data=NAME, data.num_aug=N, data.seed=N, data.canvas=N, data.protocol=NAME, "
        "data.folder_dir=DIR and so on, data_dir=DIR, experiment=NAME",
    )
    verify = declare("verify", "recompute a data set's hashes", run_verify)
    _add_path(verify, "data_dir", "DIR")
    verify.add_argument(
        "--full",
        action="store_true",
        help="also hash the arrays as the published layout holds them, print the hashes and "
        "record them in DIR/arrays.json, or check them if they are recorded",
    )
    audit = declare("audit", "counts, duplicates, test pairs seen in training", run_audit)
    _add_path(audit, "data_dir", "DIR")
    audit.add_argument("--json", action="store_true", help="print the findings as JSON")
    diff = declare("diff", "say how two data sets differ: task, split, pair, cell", run_diff)
    _add_path(diff, "first", "A")
    _add_path(diff, "second", "B")
    export = declare("export", "write a data set in the published .npy layout", run_export)
    _add_path(export, "data_dir", "DIR")
    _add_path(export, "out", "OUT")
    load = declare("import", "read a folder of the published .npy layout", run_import)
    _add_path(load, "layout", "LAYOUT")
    _add_path(load, "data_dir", "DIR")
    show = declare("show", "draw a task and some of its variants", run_show)
    _add_path(show, "data_dir", "DIR")
    show.add_argument("task", metavar="TASK")
    show.add_argument("--variants", type=int, default=2, metavar="N", help="default 2")
    show.add_argument("--png", type=Path, metavar="FILE", help="draw into a file instead")


def run(options: argparse.Namespace) -> None:
    """Runs the chosen subcommand."""
    options.run_action(options)


def build_options(data: "DataConfig") -> "BuildOptions":
    """The settings that ``arc_data.build`` takes."""
    from arc_data.build import BuildOptions

    return BuildOptions(
        num_aug=data.num_aug,
        seed=data.seed,
        canvas=data.canvas,
        protocol=data.protocol,
        leave_out_large=data.leave_out_large,
    )


def run_build(options: argparse.Namespace) -> None:
    """Builds the data set that the overrides describe, unless an equal one is there."""
    from arc_data.build import build
    from arc_data.manifest import check_built_as, check_content, verify
    from arc_data.sources import load_sources
    from hrm_deeploop.cli.compose import compose

    for override in options.overrides:
        key = override.partition("=")[0]
        if not key.startswith("data") and key != "experiment":
            raise ValueError(
                f"{key} is no setting of data build, which reads data=, data.*, data_dir= and "
                "experiment="
            )
    config = compose(options.overrides)
    if config.workload != "arc":
        raise ValueError(f"workload {config.workload} has no ARC data; use lm data")
    data = config.data
    path = Path(config.resolved_data_dir)
    dataset = None
    if path.exists():
        try:
            dataset = verify(path)
        except (ValueError, FileNotFoundError) as error:
            raise ValueError(f"data_dir {path} exists but: {error}; remove it first") from error
        check_built_as(dataset, data.name, build_options(data))
    sources = load_sources(
        data.name,
        data.concept_dir,
        folder_dir=data.folder_dir,
        kaggle_files=data.kaggle_files,
        role=data.role,
    )
    for skipped in (name for source in sources for name in source.skipped):
        print(f"skipped {skipped}")
    if dataset is not None:
        check_content(dataset, sources)
        print(f"{path} is there already: {_summary(dataset)}")
        return
    dataset = build(sources, build_options(data), progress=_wants_progress())
    dataset.save(path)
    for name, (rows, cols) in dataset.manifest["left_out"].items():
        print(f"left out {name}: a grid of {rows} x {cols}")
    print(f"built {path}: {_summary(dataset)}")


def run_verify(options: argparse.Namespace) -> None:
    """Recomputes hashes and prints what the data set is."""
    import json

    from arc_data.manifest import record_array_hashes, verify

    if options.full:
        print(
            json.dumps(record_array_hashes(options.data_dir, progress=_wants_progress()), indent=1)
        )
    else:
        print(f"{options.data_dir} is intact: {_summary(verify(options.data_dir))}")


def run_audit(options: argparse.Namespace) -> None:
    """Prints what a score on the data set can mean."""
    import json

    from arc_data.audit import audit_plan, format_audit
    from arc_data.manifest import verify

    dataset = verify(options.data_dir)
    findings = audit_plan(dataset.plan, dataset.task_names, dataset.num_aug)
    if options.json:
        print(json.dumps(findings, indent=1, ensure_ascii=False))
        return
    print(f"{options.data_dir}: protocol {dataset.protocol}, num_aug {dataset.num_aug}")
    print("\n".join(format_audit(findings)))
    if findings != dataset.manifest.get("audit", findings):
        print("the findings in the manifest are others, of an older version of the audit")


def run_diff(options: argparse.Namespace) -> None:
    """Prints how the second data set differs from the first."""
    from arc_data.compiled import CompiledDataset
    from arc_data.difference import differences

    first, second = CompiledDataset.load(options.first), CompiledDataset.load(options.second)
    lines = list(differences(first, second))
    print("\n".join(lines) if lines else "no difference")


def run_export(options: argparse.Namespace) -> None:
    """Writes the published layout."""
    from arc_data.manifest import verify
    from arc_data.npy_layout import export

    export(verify(options.data_dir), options.out, progress=_wants_progress())
    print(f"wrote {options.out}")


def run_import(options: argparse.Namespace) -> None:
    """Reads the published layout and saves a compiled data set."""
    from arc_data.npy_reader import read_layout

    dataset = read_layout(options.layout, progress=_wants_progress())
    dataset.save(options.data_dir)
    print(f"wrote {options.data_dir}: {_summary(dataset)}")


def run_show(options: argparse.Namespace) -> None:
    """Draws a task."""
    from arc_data.compiled import CompiledDataset
    from arc_data.show import save_png, show_task

    dataset = CompiledDataset.load(options.data_dir)
    if options.png is not None:
        save_png(dataset, options.task, options.png, variants=options.variants)
        print(f"wrote {options.png}")
    else:
        show_task(dataset, options.task, variants=options.variants)


def _add_path(parser: argparse.ArgumentParser, name: str, metavar: str) -> None:
    parser.add_argument(name, type=Path, metavar=metavar)


def _wants_progress() -> bool:
    return sys.stderr.isatty()


def _summary(dataset: "CompiledDataset") -> str:
    return (
        f"{len(dataset.task_names)} tasks, {dataset.num_puzzle_identifiers} puzzle ids, "
        f"{dataset.train.num_examples} train and {dataset.test.num_examples} test examples, "
        f"canvas {dataset.canvas}, protocol {dataset.protocol}, digest {dataset.digest[:12]}"
    )
