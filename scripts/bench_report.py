"""Measures the page and the analyses on made-up tasks; prints JSON, asserts nothing.

python scripts/bench_report.py   (chromium and playwright for the time to open)
"""

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PHONE_SLOWDOWN = 4


def bench_report(num_tasks: int, num_aug: int, keep: Path | None = None) -> dict[str, Any]:
    """Makes data and votes, votes, writes the page, opens it.

    Args:
        num_tasks: Tasks.
        num_aug: Variants per task besides the original.
        keep: Folder for the data and the page; None: a temporary one.

    Returns:
        Seconds per phase, peak memory, the page's size and its seconds until it is ready in
        chromium, on this machine and with its processor slowed down four times.
    """
    sys.path.insert(0, str(ROOT / "tests" / "eval"))
    from made_up import made_up_dataset, write_votes

    from eval.analyses import read_store
    from eval.breakdowns import analyse_halting
    from eval.ladder import vote
    from eval.report import write_report
    from eval.vote_curves import analyse_variants

    report: dict[str, Any] = {"tasks": num_tasks, "variants": num_aug + 1}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if keep is None else keep
        folder.mkdir(parents=True, exist_ok=True)
        clock = _Clock(report)
        dataset = made_up_dataset(num_tasks, num_aug)
        clock.lap("build_s")
        write_votes(folder / "predictions", dataset)
        clock.lap("write_votes_s")
        vote(folder / "predictions", dataset, folder)
        clock.lap("vote_s")
        page = write_report(folder, dataset)
        clock.lap("page_s")
        predictions = read_store(folder / "predictions", dataset)
        clock.lap("read_store_s")
        report["variants_words"] = analyse_variants(predictions, dataset)["words"]
        clock.lap("analyse_variants_s")
        report["halting_words"] = analyse_halting(predictions, dataset)["words"]
        clock.lap("analyse_halting_s")
        report["page_megabytes"] = page.stat().st_size / 1e6
        report["peak_memory_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        browser = shutil.which("chromium")
        if browser is None:
            report["ready_s"] = "chromium is not installed"
        else:
            report["ready_s"] = _open(page, browser, 1)
            report["ready_slowed_s"] = _open(page, browser, PHONE_SLOWDOWN)
    return report


class _Clock:
    def __init__(self, report: dict[str, Any]) -> None:
        self._report, self._start = report, time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self._report[name], self._start = round(now - self._start, 2), now


def _open(page: Path, browser: str, slowdown: int) -> float:
    """Seconds from the start of the navigation until the task browser stands."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        tab = chromium.new_page()
        client = tab.context.new_cdp_session(tab)
        client.send("Emulation.setCPUThrottlingRate", {"rate": slowdown})
        tab.goto(page.resolve().as_uri())
        seconds = float(tab.evaluate("performance.getEntriesByName('ready')[0].startTime")) / 1000
        chromium.close()
    return round(seconds, 3)


def main() -> None:
    """Measures and prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--num-aug", type=int, default=999)
    parser.add_argument("--keep", type=Path, help="folder to keep the data and the page in")
    options = parser.parse_args()
    print(json.dumps(bench_report(options.tasks, options.num_aug, options.keep), indent=1))


if __name__ == "__main__":
    main()
