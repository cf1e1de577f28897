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
from matplotlib.ticker import LogLocator, NullFormatter

from eval.plots import count_axis, panels, save

ARMS = {"vanilla": "p = 0", "deepnorm": "p = 1/4", "deeploop": "p = 1/2"}
ORDER = ("vanilla", "base", "deepnorm", "deeploop")


def mean_sd(values: Sequence[float], digits: int = 3) -> str:
    """``mean +- sd`` over seeds."""
    if not values:
        return "-"
    return f"{np.mean(values):.{digits}g} +- {np.std(values, ddof=1):.1g}"


def read_loops(folder: Path, level: str, loops: str) -> list[dict[str, Any]]:
    """One record per arm, seed and loop count of ARM-sSEED.json.

    Args:
        folder: Of the files.
        level: Whose kappa.
        loops: What the files call the loop count.
    """
    records = []
    for path in sorted(folder.glob("*-s*.json")):
        match = re.fullmatch(r"(\w+)-s(\d+)", path.stem)
        assert match is not None, path
        report = json.loads(path.read_text())
        for row in report["rows"]:
            found, step = row["kappa"]["levels"][level], row["first_step"]
            change = step["changes"]["all"]
            records.append(
                {
                    "arm": match[1],
                    "seed": int(match[2]),
                    "loops": row["arch"][loops],
                    "kappa": found["kappa"],
                    "gamma": report["gamma_over_cycles"][level],
                    "write": max(s["write"]["alignment"] for s in found["sublayers"]),
                    "read": max(s["read"]["alignment"] for s in found["sublayers"]),
                    "bound": row["kappa"]["bound_measured"],
                    "worst_case": row["kappa"]["bound_worst_case"],
                    # Per unit of learning rate and output norm, where first order holds.
                    **{
                        region: sides["actual"][0] / step["output_norm"] / step["rates"][0]
                        for region, sides in change.items()
                    },
                }
            )
    return records


def by_place(records: Iterable[dict[str, Any]], value: str) -> dict[tuple[str, int], list[float]]:
    """Values over seeds, by arm and loop count; an arm without the value has none."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for record in records:
        if record[value] is not None:
            found[record["arm"], record["loops"]].append(record[value])
    return found


def loop_table(records: list[dict[str, Any]], loops: str, regions: Sequence[str]) -> list[str]:
    """kappa, alignments, bound and the first step over loop counts, then their slopes."""
    columns = ("kappa", "write", "read", "bound", "worst_case", *regions)
    heads = [c.replace("_", " ") for c in columns[:5]] + [f"change, {r}" for r in regions]
    lines = [f"| arm | {loops} | {' | '.join(heads)} |", "|---" * (2 + len(heads)) + "|"]
    tables = {column: by_place(records, column) for column in columns}
    arms = list(dict.fromkeys(record["arm"] for record in records))
    for arm, count in sorted(tables["kappa"], key=lambda place: (arms.index(place[0]), place[1])):
        cells = [mean_sd(table[arm, count]) for table in tables.values()]
        lines.append(f"| {arm} | {count} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Slopes on log {loops}, mean +- s over seeds:",
        "",
        f"| arm | gamma: log kappa | exponent (1 + gamma)/4 | {' | '.join(heads[5:])} |",
        "|---" * (3 + len(regions)) + "|",
    ]
    for arm in arms:
        gammas = [r["gamma"] for r in records if r["arm"] == arm and r["loops"] == 2]
        cells = [mean_sd(gammas), mean_sd([(1 + gamma) / 4 for gamma in gammas])]
        cells += [mean_sd(slopes(records, arm, region)) for region in regions]
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return lines


def slopes(records: list[dict[str, Any]], arm: str, value: str) -> list[float]:
    """Per seed, the slope of the value's logarithm on that of the loop count."""
    found = []
    for seed in sorted({r["seed"] for r in records if r["arm"] == arm}):
        own = [r for r in records if r["arm"] == arm and r["seed"] == seed]
        line = np.polyfit(np.log([r["loops"] for r in own]), np.log([r[value] for r in own]), 1)
        found.append(float(line[0]))
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


def draw(records: list[dict[str, Any]], loops: str, regions: Sequence[str], path: Path) -> None:
    """kappa and the first step's output change over loop counts; a point per seed."""
    shown = {"kappa": "kappa at initialisation"}
    shown |= {region: f"output change / lr, {region}" for region in regions}
    with panels(len(shown), panel=(3.7, 3.2)) as (fig, axes):
        for ax, (value, title) in zip(axes, shown.items(), strict=True):
            table = by_place(records, value)
            for arm in dict.fromkeys(arm for arm, _ in table):
                counts = sorted(count for own, count in table if own == arm)
                means = [float(np.mean(table[arm, count])) for count in counts]
                (line,) = ax.plot(counts, means, label=arm)
                for count in counts:
                    values = table[arm, count]
                    ax.plot([count] * len(values), values, ".", color=line.get_color())
            count_axis(ax, sorted({count for _, count in table}), loops)
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_minor_formatter(NullFormatter())
            ax.set_title(title)
        axes[0].legend()
        save(fig, path)


def main() -> None:
    """Writes tables.md, and records and a figure of each model."""
    results, out = map(Path, sys.argv[1:])
    lines = []
    for title, name, level, loops, key, regions in (
        ("HRM, level L, last_cycle", "kappa", "L", "C_L", "L_cycles", ("whole", "visible")),
        ("Looped language model, blocks", "lm", "blocks", "R", "rounds", ("whole",)),
    ):
        records = read_loops(results / name, level, key)
        order = {arm: place for place, arm in enumerate(ORDER)}
        records.sort(key=lambda r: (order[r["arm"]], r["seed"], r["loops"]))
        lines += [f"### {title}", "", *loop_table(records, loops, regions), ""]
        (out / f"{name}.json").write_text(json.dumps(records, indent=0) + "\n")
        draw(records, loops, regions, out / f"{name}.png")
    lines += ["### bfloat16 streams at initialisation", "", *streams_table(results / "bf16")]
    (out / "tables.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
