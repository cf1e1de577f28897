"""kappa along training from a p-sweep's runs: a table on stdout.

python docs/studies/psweep/summarise.py SWEEP > docs/studies/psweep/kappa.md
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from eval.run_curves import read_metrics


def main() -> None:
    """Prints mean +- s over seeds of kappa_L and the write side, by p, C_L and step."""
    sweep = Path(sys.argv[1])
    found: dict[tuple[float, int, int], list[tuple[float, float]]] = defaultdict(list)
    for run in json.loads((sweep / "psweep.json").read_text())["runs"]:
        metrics = read_metrics(sweep / "runs" / run["name"] / "metrics.jsonl")
        steps, kappas = metrics.get("kappa_L", ([], []))
        writes = metrics.get("write_alignment_L", ([], []))[1]
        for step, *values in zip(steps, kappas, writes, strict=True):
            found[run["exponents"]["L"], run["loops"], step].append((values[0], values[1]))
    print("| p | C_L | step | runs | kappa_L | write-side alignment |")
    print("|---|---|---|---|---|---|")
    for (p, loops, step), values in sorted(found.items()):
        means = np.mean(values, axis=0)
        spread = np.std(values, axis=0, ddof=1) if len(values) > 1 else [float("nan")] * 2
        cells = [f"{m:.2f} +- {s:.2f}" for m, s in zip(means, spread, strict=True)]
        print(f"| {p:g} | {loops} | {step} | {len(values)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
