"""Measures arc-aug-1000: built, loaded, batched, hashed, each in a process of its own.

python scripts/bench.py data --concept-dir CORPUS   (or HRM_DEEPLOOP_CONCEPT_DIR)
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH_SIZE = 768
TIMED_BATCHES = 300
LOADS = 5


def bench_data(concept_dir: str | None, num_aug: int) -> dict[str, Any]:
    """Runs all phases.

    Args:
        concept_dir: ConceptARC's corpus folder; None: ``HRM_DEEPLOOP_CONCEPT_DIR``.
        num_aug: Variants per task.

    Returns:
        Seconds, peak memory and what else each phase measures.

    Raises:
        ValueError: If no folder is given.
    """
    concept_dir = concept_dir or os.environ.get("HRM_DEEPLOOP_CONCEPT_DIR")
    if not concept_dir:
        raise ValueError("expected ConceptARC's corpus folder; give --concept-dir")
    report = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "data")
        for phase in PHASES:
            done = subprocess.run(
                [sys.executable, __file__, phase, path, concept_dir, str(num_aug)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            report[phase] = json.loads(done.stdout)
    return report


def build(path: Path, concept_dir: str, num_aug: int) -> dict[str, Any]:
    """Reads the sources, builds, saves."""
    from arc_data.build import BuildOptions, build
    from arc_data.sources import load_sources

    start = time.perf_counter()
    sources = load_sources("arc1_concept", concept_dir)
    read = time.perf_counter()
    dataset = build(sources, BuildOptions(num_aug=num_aug))
    built = time.perf_counter()
    dataset.save(path)
    end = time.perf_counter()
    return {
        "read_s": round(read - start, 2),
        "build_s": round(built - read, 2),
        "save_s": round(end - built, 2),
        "total_s": round(end - start, 2),
        "disk_mb": round(sum(file.stat().st_size for file in path.iterdir()) / 1e6, 1),
    }


def load(path: Path, concept_dir: str, num_aug: int) -> dict[str, Any]:
    """Opens the data set, with and without recomputing its hashes."""
    from arc_data.compiled import CompiledDataset
    from arc_data.manifest import verify

    loads = [seconds(lambda: CompiledDataset.load(path)) for _ in range(LOADS)]
    return {
        "first_load_s": round(loads[0], 3),
        "load_s": round(min(loads), 3),
        "verify_s": round(seconds(lambda: verify(path)), 3),
    }


def batches(path: Path, concept_dir: str, num_aug: int) -> dict[str, Any]:
    """Makes batches in training order on one core."""
    from arc_data.batches import EpochOrder
    from arc_data.compiled import CompiledDataset

    dataset = CompiledDataset.load(path)
    start = time.perf_counter()
    split = dataset.train
    order = EpochOrder(split, seed=0)
    split.materialise(order.batch_rows(0, BATCH_SIZE))
    first = time.perf_counter() - start
    start = time.perf_counter()
    for index in range(1, TIMED_BATCHES + 1):
        split.materialise(order.batch_rows(index, BATCH_SIZE))
    spent = time.perf_counter() - start
    return {
        "batch_size": BATCH_SIZE,
        "first_batch_s": round(first, 3),
        "batches": TIMED_BATCHES,
        "examples_per_s": round(TIMED_BATCHES * BATCH_SIZE / spent),
    }


def hashes(path: Path, concept_dir: str, num_aug: int) -> dict[str, Any]:
    """Hashes the arrays of the published layout."""
    from arc_data.manifest import record_array_hashes

    start = time.perf_counter()
    found = record_array_hashes(path)
    return {
        "total_s": round(time.perf_counter() - start, 1),
        "train_inputs_sha256": found["train"]["inputs"]["sha256"],
    }


PHASES: dict[str, Callable[[Path, str, int], dict[str, Any]]] = {
    "build": build,
    "load": load,
    "batches": batches,
    "hashes": hashes,
}


def seconds(function: Callable[[], Any]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def peak_memory_gib() -> float:
    """Most memory this process has held."""
    status = Path("/proc/self/status")
    if status.exists():  # unlike getrusage, this leaves out what the parent process held
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> int:
    """Runs one phase in this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("phase", choices=list(PHASES))
    parser.add_argument("path", type=Path)
    parser.add_argument("concept_dir")
    parser.add_argument("num_aug", type=int)
    options = parser.parse_args()
    report = PHASES[options.phase](options.path, options.concept_dir, options.num_aug)
    print(json.dumps({**report, "peak_memory_gib": round(peak_memory_gib(), 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
