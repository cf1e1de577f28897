"""``hrm-deeploop report``: a run, an evaluation, sigma, a kappa probe or a p-sweep as an HTML page.

Needs no torch.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "path",
        type=Path,
        help="run, folder of results.json or sigma.json, JSON of kappa, psweep.json",
    )
    parser.add_argument("--data", type=Path, help="data set; default: the one the run used")
    parser.add_argument(
        "--predictions", type=Path, help="store behind the results; default: in their folder"
    )
    parser.add_argument(
        "--out", type=Path, help="the page; default: in the folder, or beside the JSON"
    )
    parser.add_argument(
        "--curves", type=Path, metavar="FILE", help="also draw a run's curves into FILE.svg or .png"
    )


def run(options: argparse.Namespace) -> None:
    """Writes the page."""
    from arc_data.manifest import verify
    from eval.plots import save
    from eval.report import find_evaluation, write_report
    from eval.run_curves import draw_curves, is_run_dir, read_run

    path = options.path
    if _write_other_page(options):
        return
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: expected a run directory or evaluation, found no folder")
    is_run = is_run_dir(path)
    dataset = None
    if not is_run or find_evaluation(path) is not None:
        data = options.data if options.data is not None else _data_dir(path)
        dataset = verify(data)
    if options.curves is not None:
        if not is_run:
            raise ValueError(f"--curves needs a run directory, found {path}; leave it out")
        draw_curves(read_run(path), lambda figure: save(figure, options.curves))
    print(f"page {write_report(path, dataset, store=options.predictions, out=options.out)}")


def _write_other_page(options: argparse.Namespace) -> bool:
    """Writes the page of a sigma report, a kappa probe or a p-sweep, if the path is one.

    Raises:
        ValueError: If an option was given that only the pages of runs and evaluations have.
    """
    from arc_data.json_files import read_json
    from eval.kappa_page import read_probes, write_kappa_page
    from eval.phase import SCHEMA as PSWEEP_SCHEMA
    from eval.phase_page import write_phase_page
    from eval.sigma_page import is_sigma_dir, write_sigma_page

    path, out = options.path, options.out
    if not is_sigma_dir(path) and not path.is_file():
        return False
    for name in ("data", "predictions", "curves"):
        if getattr(options, name) is not None:
            raise ValueError(
                f"--{name} goes with a run or an evaluation, found {path}; leave it out"
            )
    if path.is_file():
        target = path.with_suffix(".html") if out is None else out
        content = read_json(path)
        if isinstance(content, dict) and content.get("schema") == PSWEEP_SCHEMA:
            page = write_phase_page(content, target, path.resolve().parent.name)
        else:
            page = write_kappa_page(read_probes(path), target)
    else:
        page = write_sigma_page(path, out=out)
    print(f"page {page}")
    return True


def _data_dir(path: Path) -> Path:
    """The data set of the run that a path is, or lies in.

    Raises:
        FileNotFoundError: If there is no such run, or its data set is not here.
    """
    import yaml

    from hrm_deeploop.config import TrainConfig
    from hrm_deeploop.settings import from_dict

    configs = [folder / "config.yaml" for folder in (path, *path.resolve().parents[:2])]
    config = next((file for file in configs if file.is_file()), None)
    if config is None:
        raise FileNotFoundError(f"{path} is in no run directory; give the data set with --data")
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    data = Path(from_dict(TrainConfig, settings).resolved_data_dir)
    if not data.is_dir():
        raise FileNotFoundError(f"the run's data_dir {data} is not here; give it with --data")
    return data
