"""Tables and figures of this folder's README from what ``commands.sh`` wrote.

python docs/studies/kappa/summarise.py RESULTS docs/studies/kappa
"""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.plots import panels, save

ARMS = {"vanilla": "p = 0", "deepnorm": "p = 1/4", "deeploop": "p = 1/2"}
SMALL_RATE = 0
"""Index of the smallest learning rate of the first step, where first order holds."""


def mean_sd(values: Sequence[float], digits: int = 3) -> str:
    """``mean +- sd`` over seeds."""
    return f"{np.mean(values):.{digits}g} +- {np.std(values, ddof=1):.1g}"


def read_loops(folder: Path) -> list[dict[str, Any]]:
    """One record per arm, seed and C_L of kappa/ARM-sSEED.json."""
    records = []
    for path in sorted(folder.glob("*-s*.json")):
        match = re.fullmatch(r"(\w+)-s(\d+)", path.stem)
        assert match is not None, path
        report = json.loads(path.read_text())
        for row in report["rows"]:
            level, step = row["kappa"]["levels"]["L"], row["first_step"]
            change = step["changes"]["all"]
            records.append(
                {
                    "arm": match[1],
                    "seed": int(match[2]),
                    "C_L": row["arch"]["L_cycles"],
                    "kappa_L": level["kappa"],
                    "gamma_L": level["gamma"],
                    "gamma_over_cycles": report["gamma_over_cycles"]["L"],
                    "write": max(s["write"]["alignment"] for s in level["sublayers"]),
                    "read": max(s["read"]["alignment"] for s in level["sublayers"]),
                    "bound": row["kappa"]["bound_measured"],
                    "worst": row["kappa"]["bound_worst_case"],
                    "rates": step["rates"],
                    "output_norm": step["output_norm"],
                    **{
                        f"{region}_{kind}": change[region][kind]
                        for region in ("whole", "visible")
                        for kind in ("actual", "predicted")
                    },
                }
            )
    return records


def by_place(records: Iterable[dict[str, Any]], value: str) -> dict[tuple[str, int], list[float]]:
    """Values over seeds, by arm and C_L."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for record in records:
        found[record["arm"], record["C_L"]].append(record[value])
    return found


def change_per_rate(record: dict[str, Any], region: str, rate: int) -> float:
    """Relative output change of one step, per unit of learning rate."""
    return record[f"{region}_actual"][rate] / record["output_norm"] / record["rates"][rate]


def loop_table(records: list[dict[str, Any]]) -> list[str]:
    """kappa, alignments, bound and the first step over C_L."""
    lines = [
        "| arm | C_L | kappa_L | write | read | bound | change of output, whole | visible calls |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for record in records:
        for region in ("whole", "visible"):
            record[region] = change_per_rate(record, region, SMALL_RATE)
    tables = {
        value: by_place(records, value)
        for value in ("kappa_L", "write", "read", "bound", "whole", "visible")
    }
    for arm in ARMS:
        for cycles in sorted({record["C_L"] for record in records}):
            cells = [mean_sd(table[arm, cycles]) for table in tables.values()]
            lines.append(f"| {arm} ({ARMS[arm]}) | {cycles} | {' | '.join(cells)} |")
    lines += ["", "| arm | gamma: slope of log kappa_L on log C_L | exponent (1 + gamma)/4 |"]
    lines.append("|---|---|---|")
    for arm in ARMS:
        gammas = [r["gamma_over_cycles"] for r in records if r["arm"] == arm and r["C_L"] == 2]
        exponents = [(1 + gamma) / 4 for gamma in gammas]
        lines.append(f"| {arm} | {mean_sd(gammas)} | {mean_sd(exponents)} |")
    return lines


def slopes(records: list[dict[str, Any]], region: str) -> dict[str, list[float]]:
    """Per arm and seed, the slope of log output change on log C_L."""
    found: dict[str, list[float]] = defaultdict(list)
    for arm in ARMS:
        for seed in sorted({r["seed"] for r in records}):
            own = [r for r in records if r["arm"] == arm and r["seed"] == seed]
            changes = [np.log(change_per_rate(r, region, SMALL_RATE)) for r in own]
            found[arm].append(float(np.polyfit(np.log([r["C_L"] for r in own]), changes, 1)[0]))
    return found


def streams_table(folder: Path) -> list[str]:
    """Shares of stream elements that a sublayer leaves unchanged, at initialisation."""
    shares: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for path in sorted(folder.glob("*.json")):
        size, arm, carry, total, _ = path.stem.split("-")
        (row,) = json.loads(path.read_text())["rows"]
        cell = shares.setdefault((size, arm, carry, total), defaultdict(list))
        for name in ("unchanged", "lost"):
            values = [s[name] for v in row["streams"]["visits"] for s in v["sublayers"]]
            cell[name].append(100 * float(np.mean(values)))
    lines = [
        "| width | arm | stream stored in | summed in | unchanged, % | update lost, % |",
        "|---|---|---|---|---|---|",
    ]
    order = sorted(shares, key=lambda key: (key[0], list(ARMS).index(key[1]), *key[2:]))
    for key in order:
        size, arm, carry, total = key
        stored = "bfloat16" if carry == "compute" else "float32"
        summed = "bfloat16" if total == "compute" else "float32"
        width = {"mini": "96, 1 + 1 layers", "wide": "512, 4 + 4 layers"}[size]
        cells = " | ".join(mean_sd(shares[key][name]) for name in ("unchanged", "lost"))
        lines.append(f"| {width} | {arm} ({ARMS[arm]}) | {stored} | {summed} | {cells} |")
    return lines


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """kappa_L and the first step's output change over C_L; a point per seed."""
    shown = (
        ("kappa_L", "kappa_L at initialisation"),
        ("whole", "relative output change / lr, whole segment"),
        ("visible", "the same, through the visible calls"),
    )
    with panels(len(shown), panel=(3.7, 3.2)) as (fig, axes):
        for ax, (value, title) in zip(axes, shown, strict=True):
            table = by_place(records, value)
            for arm, label in ARMS.items():
                cycles = sorted(c for a, c in table if a == arm)
                means = [float(np.mean(table[arm, c])) for c in cycles]
                (line,) = ax.plot(cycles, means, label=f"{arm} ({label})")
                for c in cycles:
                    ax.plot([c] * len(table[arm, c]), table[arm, c], ".", color=line.get_color())
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ax.set_xlabel("C_L")
            ax.set_title(title)
        axes[0].legend()
        save(fig, path)


def main() -> None:
    """Writes tables.md, loops.json and loops.png."""
    results, out = map(Path, sys.argv[1:])
    records = read_loops(results / "kappa")
    lines = loop_table(records)
    for region in ("whole", "visible"):
        found = slopes(records, region)
        told = ", ".join(f"{arm} {mean_sd(values, 2)}" for arm, values in found.items())
        lines += ["", f"Slope of log output change ({region}) on log C_L: {told}."]
    lines += ["", *streams_table(results / "bf16")]
    (out / "tables.md").write_text("\n".join(lines) + "\n")
    (out / "loops.json").write_text(json.dumps(records, indent=1) + "\n")
    draw(records, out / "loops.png")


if __name__ == "__main__":
    main()
