"""Measures voting: 400,000 predictions over 400 tasks, read, counted and scored in one process.

python scripts/bench.py vote                 half right, the rest near misses
python scripts/bench.py vote --distinct      the worst case: no two predictions of a pair agree
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from bench_data import peak_memory_gib

NUM_PREDICTIONS = 400_000
ROWS_PER_SHARD = 2048
SHARE_RIGHT, SHARE_GARBAGE = 0.5, 0.02


def bench_vote(distinct: bool) -> dict[str, Any]:
    """Makes a store in one process and votes on it in another.

    Args:
        distinct: Whether every prediction differs from every other.

    Returns:
        Seconds, peak memory and the number of predictions and distinct grids.
    """
    with tempfile.TemporaryDirectory() as folder:
        data, store = Path(folder) / "data", Path(folder) / "store"
        make_store(data, store, distinct)
        done = subprocess.run(
            [sys.executable, __file__, str(data), str(store), str(Path(folder) / "out")],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        disk_mb = sum(file.stat().st_size for file in store.iterdir()) / 1e6
        return {**json.loads(done.stdout), "store_mb": round(disk_mb, 1), "distinct": distinct}


def make_store(data: Path, store: Path, distinct: bool) -> None:
    """Writes predictions for ARC-AGI-1: right ones, near misses, some garbage."""
    from arc_data.build import BuildOptions, build
    from arc_data.sources import load_sources
    from arc_data.tokens import COLOR_OFFSET, NUM_COLORS
    from eval.predictions import PredictionsWriter, make_header

    dataset = build(load_sources("arc1"), BuildOptions(num_aug=1000))
    dataset.save(data)
    header = make_header(
        data_manifest_sha256=dataset.digest,
        canvas=dataset.canvas,
        split="arc1-evaluation",
        num_aug=dataset.num_aug,
        producer={},
        puzzle_id="right",
        halting="fixed",
    )
    writer = PredictionsWriter(store, header)
    rng = np.random.default_rng(0)
    test = dataset.test
    # The test split has somewhat fewer examples: the rest comes from a second source.
    every = np.concatenate([np.arange(test.num_examples)] * 2)[:NUM_PREDICTIONS]
    for start in range(0, NUM_PREDICTIONS, ROWS_PER_SHARD):
        rows = every[start : start + ROWS_PER_SHARD]
        source = np.where(np.arange(start, start + len(rows)) < test.num_examples, "a", "b")
        known, tokens = test.describe(rows), test.materialise(rows)["labels"].copy()
        kind = rng.random(len(rows))
        num_wrong = np.where(kind < SHARE_RIGHT, 0, rng.geometric(0.2, len(rows)))
        if distinct:
            num_wrong = np.full(len(rows), 12)
        for row, count in enumerate(num_wrong.tolist()):
            cells = rng.choice(np.flatnonzero(tokens[row] >= COLOR_OFFSET), count)
            tokens[row, cells] = rng.integers(COLOR_OFFSET, COLOR_OFFSET + NUM_COLORS, count)
        garbage = kind > 1 - SHARE_GARBAGE
        tokens[garbage] = rng.integers(0, 12, (int(garbage.sum()), tokens.shape[1]))
        writer.append(
            task_id=np.array(dataset.task_names)[known["task"]],
            test_index=known["test_index"],
            dihedral=known["dihedral"],
            color_map=known["color_map"],
            segment=np.full(len(rows), 16),
            source=source,
            tokens=tokens,
            q_halt_logit=rng.normal(size=len(rows)).astype(np.float32),
        )


def vote(data: Path, store: Path, out: Path) -> dict[str, Any]:
    """Reads the data set and the store, votes, and writes the results."""
    start = time.perf_counter()
    from arc_data.manifest import verify
    from eval.ladder import vote

    imported, cpu = time.perf_counter(), time.process_time()
    results = vote(store, verify(data), out)
    total_s, cpu_s = time.perf_counter() - imported, time.process_time() - cpu
    return {
        "predictions": results["num_predictions"],
        "tasks": results["num_tasks"],
        "candidates": results["summary"]["candidates"],
        "import_s": round(imported - start, 2),
        "total_s": round(total_s, 2),
        "processor_s": round(cpu_s, 2),  # what it takes where nothing else runs
        "predictions_per_s": round(results["num_predictions"] / total_s),
    }


def main() -> int:
    """Votes in this process."""
    parser = argparse.ArgumentParser()
    for name in ("data", "store", "out"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    report = vote(options.data, options.store, options.out)
    print(json.dumps({**report, "peak_memory_gib": round(peak_memory_gib(), 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
