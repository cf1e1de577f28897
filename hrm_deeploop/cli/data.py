"""``hrm-deeploop data``: build and verify compiled data sets."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the subcommands."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    build = actions.add_parser("build", help="build a data set into data_dir")
    build.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="data=NAME, data.num_aug=N, data.seed=N, data.canvas=N, data_dir=DIR, experiment=NAME",
    )
    verify = actions.add_parser("verify", help="recompute a data set's hashes")
    verify.add_argument("data_dir", type=Path, metavar="DIR")
    verify.add_argument(
        "--full",
        action="store_true",
        help="also print the hashes of the arrays as the published layout holds them",
    )


def run(options: argparse.Namespace) -> None:
    """Builds or verifies."""
    if options.action == "build":
        build_dataset(options.overrides)
    else:
        verify_dataset(options.data_dir, full=options.full)


def build_dataset(overrides: list[str]) -> None:
    """Builds the data set that ``overrides`` describe, unless an equal one is there."""
    from arc_data.build import BuildOptions, build
    from arc_data.manifest import check_built_as, verify
    from arc_data.sources import load_sources
    from hrm_deeploop.cli.compose import compose

    for override in overrides:
        key = override.partition("=")[0]
        if not key.startswith("data") and key != "experiment":
            raise ValueError(
                f"{key} is no setting of data build, which reads data=, data.*, data_dir= and "
                "experiment="
            )
    config = compose(overrides)
    data = config.data
    path = Path(config.resolved_data_dir)
    options = BuildOptions(num_aug=data.num_aug, seed=data.seed, canvas=data.canvas)
    if path.exists():
        try:
            dataset = verify(path)
        except (ValueError, FileNotFoundError) as error:
            raise ValueError(f"data_dir {path} exists but: {error}; remove it first") from error
        check_built_as(dataset, data.name, options)
        print(f"{path} is there already: {_summary(dataset)}")
        return
    dataset = build(load_sources(data.name, data.concept_dir), options)
    dataset.save(path)
    print(f"built {path}: {_summary(dataset)}")


def verify_dataset(path: Path, *, full: bool) -> None:
    """Recomputes hashes and prints what the data set is."""
    import json

    from arc_data.manifest import array_hashes, verify

    dataset = verify(path)
    print(f"{path} is intact: {_summary(dataset)}")
    if full:
        print(json.dumps(array_hashes(dataset), indent=1))


def _summary(dataset) -> str:  # type: ignore[no-untyped-def]  # the class is imported lazily
    return (
        f"{len(dataset.task_names)} tasks, {dataset.num_puzzle_identifiers} puzzle ids, "
        f"{dataset.train.num_examples} train and {dataset.test.num_examples} test examples, "
        f"canvas {dataset.canvas}, digest {dataset.digest[:12]}"
    )
