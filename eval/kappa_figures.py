"""The figures of kappa probes, made of the JSON that ``hrm-deeploop kappa --out`` writes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eval.plots import (
    INK,
    count_axis,
    draw_cosines,
    legend_below,
    log_axis,
    panels,
    percent_axis,
    series_style,
)

if TYPE_CHECKING:
    from eval.plots import Axes

PANEL = (3.7, 3.2)
SIDES = ("write", "read")
_SHADE = 0.13
_REFERENCE: dict[str, Any] = {"color": INK, "linewidth": 0.9, "marker": "", "zorder": 1}
_FIRST_ORDER: dict[str, Any] = {"linestyle": "none", "marker": "x", "markersize": 8}
_SIZES = {"before_rms": "before", "stream_rms": "after", "update_rms": "update"}
_SHARES = {"unchanged": "unchanged", "lost": "lost"}
_EXPONENTS = {"gamma = 0": 0.25, "gamma = 1": 0.5}


@dataclass(frozen=True)
class Probes:
    """The content of a probe's JSON, as figures read it."""

    report: Mapping[str, Any]

    @property
    def rows(self) -> list[Any]:
        """One probe per loop count."""
        return list(self.report["rows"])

    @property
    def is_lm(self) -> bool:
        """Whether the model is the looped language model, not the reasoner."""
        return bool(self.report.get("workload") == "lm")

    @property
    def loop(self) -> str:
        """What the loop count is called; files without the name are of reasoners."""
        return str(self.report.get("loop", "L_cycles"))

    @property
    def cycles(self) -> list[int]:
        """The loop count of each row."""
        return [row["arch"][self.loop] for row in self.rows]

    @property
    def places(self) -> list[str]:
        """Where a step's effect is told, first what the gradient sees; one where it sees all."""
        return list(self.rows[0]["first_step"]["changes"]["all"])

    @property
    def has_bound(self) -> bool:
        """Whether the stability bound is defined for the probed models."""
        return self.rows[0]["kappa"]["bound_worst_case"] is not None

    def where(self, place: str) -> str:
        """A place in brackets, where there are several."""
        return f" ({place})" if len(self.places) > 1 else ""

    @property
    def slopes(self) -> dict[str, float]:
        """gamma as the slope over loop counts, of the levels that are looped and have one."""
        found = self.report["gamma_over_cycles"]
        return {level: found[level] for level in self.looped() if found[level] is not None}

    def levels(self) -> list[str]:
        """The names of the levels, the same in all rows."""
        return list(self.rows[0]["kappa"]["levels"])

    def looped(self) -> list[str]:
        """Levels that the gradient sees more than once in some row."""
        tables = [row["kappa"]["levels"] for row in self.rows]
        return [level for level in self.levels() if max(t[level]["rounds"] for t in tables) > 1]

    def finish(self, ax: "Axes", title: str, *, log: bool = True) -> None:
        """Axes, title and legend of a panel."""
        if log:
            log_axis(ax)
        count_axis(ax, self.cycles, self.loop)
        ax.set_title(title)
        legend_below(ax)


def draw_kappa(probes: Probes, leave: Any) -> Any:
    """Draws kappa, the exponent it asks for, and the stability bound where there is one.

    Args:
        probes: Content of a probe's JSON.
        leave: What takes the finished figure, such as ``plots.save`` with a path.

    Returns:
        What ``leave`` returns.
    """
    with panels(2 + probes.has_bound, panel=PANEL) as (fig, (kappas, exponents, *rest)):
        for level in probes.levels():
            found = [row["kappa"]["levels"][level] for row in probes.rows]
            (line,) = _plot(kappas, probes, [f["kappa"] for f in found], level)
            _plot(exponents, probes, [f["exponent"] for f in found], f"{level} asks for")
            if level in probes.slopes:
                _draw_slope(kappas, probes, level, line.get_color())
        for bounds in rest:
            for key, name in (("bound_measured", "measured"), ("bound_worst_case", "worst case")):
                _plot(bounds, probes, [row["kappa"][key] for row in probes.rows], name)
            probes.finish(bounds, "stability bound" if probes.is_lm else "two-module bound")
        _draw_rounds(kappas, probes, "gamma = 1 (kappa = R)")
        _draw_exponents(exponents, probes)
        probes.finish(kappas, "kappa")
        probes.finish(exponents, "exponent p = (1 + gamma) / 4", log=False)
        return leave(fig)


def _plot(
    ax: "Axes", probes: Probes, values: Sequence[float | None], label: str, **style: Any
) -> Any:
    known = [math.nan if value is None else value for value in values]
    return ax.plot(probes.cycles, known, label=label, **style)


def _draw_slope(ax: "Axes", probes: Probes, level: str, color: str) -> None:
    """The least-squares line that ``gamma_over_cycles`` is the slope of."""
    slope = probes.slopes[level]
    logs = [math.log(row["kappa"]["levels"][level]["kappa"]) for row in probes.rows]
    cycles = [math.log(cycle) for cycle in probes.cycles]
    start = math.fsum(logs) / len(logs) - slope * math.fsum(cycles) / len(cycles)
    ends = [min(cycles), max(cycles)]
    fitted = [math.exp(start + slope * end) for end in ends]
    style: dict[str, Any] = {"linestyle": "-", "marker": "", "linewidth": 0.8}
    label = f"{level}: gamma = {slope:z.2f}"
    ax.plot([math.exp(end) for end in ends], fitted, color=color, label=label, **style)


def _draw_rounds(ax: "Axes", probes: Probes, label: str) -> None:
    """R, the most that kappa and an alignment can be."""
    rounds = [max(v["rounds"] for v in row["kappa"]["levels"].values()) for row in probes.rows]
    ax.plot(probes.cycles, rounds, linestyle="--", label=label, **_REFERENCE)


def _draw_exponents(ax: "Axes", probes: Probes) -> None:
    """Lines at the exponents of gamma 0, 1 and the slope, and the p of the probed models."""
    for (name, exponent), line in zip(_EXPONENTS.items(), (":", "--"), strict=True):
        ax.axhline(exponent, linestyle=line, label=name, **_REFERENCE)
    lines: list[tuple[str, float, dict[str, Any]]] = [
        (f"{level}: by the slope", (1 + slope) / 4, {}) for level, slope in probes.slopes.items()
    ]
    wide = {"linewidth": 2.6, "alpha": 0.5}
    lines += [(f"p of {' and '.join(names)}", p, wide) for p, names in _own_exponents(probes)]
    for i, (label, exponent, style) in enumerate(lines, start=len(probes.levels())):
        ax.axhline(exponent, label=label, **{**series_style(i), "marker": "", **style})


def _own_exponents(probes: Probes) -> list[tuple[float, list[str]]]:
    """The exponents that the probed models have, with the levels that have them."""
    found: dict[float, list[str]] = {}
    for row in probes.rows:
        for level, own in row["residual"].items():
            p = own.get("p") if isinstance(own, Mapping) else None
            if p is not None and level not in found.setdefault(p, []):
                found[p].append(level)
    return sorted(found.items())


def draw_alignment(probes: Probes, leave: Any) -> Any:
    """Draws alignment of the visits and kappa of every sublayer, a row of panels per level.

    Args:
        probes: Content of a probe's JSON.
        leave: What takes the finished figure.

    Returns:
        What ``leave`` returns; None where the gradient sees every level once.
    """
    levels = probes.looped()
    if not levels:
        return None
    with panels(3 * len(levels), panel=PANEL) as (fig, axes):
        for number, level in enumerate(levels):
            write, read, kappas = axes[3 * number : 3 * number + 3]
            _draw_sublayers((write, read, kappas), probes, level)
            for ax in (write, read):
                _draw_rounds(ax, probes, "R: equal")
                ax.axhline(1, linestyle=":", label="1: orthogonal", **_REFERENCE)
            probes.finish(write, f"{level}: write side, alignment", log=False)
            probes.finish(read, f"{level}: read side, alignment", log=False)
            probes.finish(kappas, f"{level}: kappa of each sublayer", log=False)
        return leave(fig)


def _draw_sublayers(axes: Sequence["Axes"], probes: Probes, level: str) -> None:
    tables = [row["kappa"]["levels"][level]["sublayers"] for row in probes.rows]
    for i, sublayer in enumerate(tables[0]):
        label = f"{sublayer['sublayer']} {sublayer['block'] + 1}"
        for ax, side in zip(axes, SIDES, strict=False):
            _plot(ax, probes, [table[i][side]["alignment"] for table in tables], label)
        _plot(axes[2], probes, [table[i]["kappa"] for table in tables], label)


def draw_first_step(probes: Probes, leave: Any) -> Any:
    """Draws how far the first optimizer step moves the logits, and how far it was to.

    Args:
        probes: Content of a probe's JSON.
        leave: What takes the finished figure.

    Returns:
        What ``leave`` returns.
    """
    has_course = len(probes.cycles) > 1 and probes.has_bound
    many_rates = any(len(row["first_step"]["rates"]) > 1 for row in probes.rows)
    with panels(2 + has_course + 2 * many_rates, panel=PANEL) as (fig, axes):
        rest = list(axes)
        _draw_change(rest.pop(0), probes)
        if has_course:
            _draw_course(rest.pop(0), probes)
        _draw_groups(rest.pop(0), probes)
        if many_rates:
            _draw_rates(rest[0], rest[1], probes)
        return leave(fig)


def _relative(row: Mapping[str, Any], group: str, place: str, key: str) -> float:
    """A change of the logits at the first rate, as a share of their norm."""
    step = row["first_step"]
    share: float = step["changes"][group][place][key][0] / step["output_norm"]
    return share


def _draw_change(ax: "Axes", probes: Probes) -> None:
    for place in probes.places:
        name = place if len(probes.places) > 1 else "change"
        found = [_relative(row, "all", place, "actual") for row in probes.rows]
        (line,) = _plot(ax, probes, found, name)
        expected = [_relative(row, "all", place, "predicted") for row in probes.rows]
        style = {**_FIRST_ORDER, "color": line.get_color()}
        _plot(ax, probes, expected, f"{name}, first order", **style)
    rate = probes.rows[0]["first_step"]["rates"][0]
    probes.finish(ax, f"change / norm of the logits, lr {rate:g}")


def _draw_course(ax: "Axes", probes: Probes) -> None:
    rows, place = probes.rows, probes.places[0]
    for name, values in (
        (f"change{probes.where(place)}", [_relative(r, "all", place, "actual") for r in rows]),
        ("bound, measured", [row["kappa"]["bound_measured"] for row in rows]),
        ("bound, worst case", [row["kappa"]["bound_worst_case"] for row in rows]),
    ):
        if values[0]:
            _plot(ax, probes, [value and value / values[0] for value in values], name)
    probes.finish(ax, "course, as a multiple of the first")


def _draw_groups(ax: "Axes", probes: Probes) -> None:
    for group in probes.rows[0]["first_step"]["changes"]:
        values = [_relative(row, group, "whole", "actual") for row in probes.rows]
        _plot(ax, probes, values, "all parameters" if group == "all" else group)
    probes.finish(ax, f"change by {'part' if probes.is_lm else 'level'}{probes.where('whole')}")


def _draw_rates(change: "Axes", deviation: "Axes", probes: Probes) -> None:
    place = probes.places[0]
    for cycles, row in zip(probes.cycles, probes.rows, strict=True):
        step = row["first_step"]
        rates, norm = step["rates"], step["output_norm"]
        found = step["changes"]["all"][place]
        label = f"{probes.loop} {cycles}"
        (line,) = change.plot(rates, [value / norm for value in found["actual"]], label=label)
        style = {**_FIRST_ORDER, "color": line.get_color()}
        change.plot(rates, [value / norm for value in found["predicted"]], **style)
        deviation.plot(rates, found["deviation"], label=label)
    change.set_title(f"change / norm{probes.where(place)}; x: first order")
    deviation.set_title(f"deviation from first order{probes.where(place)}")
    for ax in (change, deviation):
        ax.set_xscale("log")
        log_axis(ax)
        ax.set_xlabel("learning rate")
        legend_below(ax)


def draw_visits(row: Mapping[str, Any], leave: Any) -> Any:
    """Draws one probe's streams, increments, and the visits of the sublayers that set kappa.

    Args:
        row: An entry of ``rows``.
        leave: What takes the finished figure.

    Returns:
        What ``leave`` returns.
    """
    visited = [(n, level) for n, level in row["kappa"]["levels"].items() if level["rounds"] > 1]
    increments = row["streams"]["increment_cosines"]
    matrices = [(f"{name}: increments, cosines", increments[name]) for name in sorted(increments)]
    for name, level in visited:
        top = max(level["sublayers"], key=lambda s: s["kappa"] or 0.0)
        where = f"{name}, {top['sublayer']} {top['block'] + 1}"
        matrices += [(f"{where}: visits, {side} side", top[side]["cosines"]) for side in SIDES]
    with panels(2 + len(matrices), panel=PANEL) as (fig, (sizes, shares, *squares)):
        visits = row["streams"]["visits"]
        _draw_streams(sizes, visits, _SIZES, 1)
        log_axis(sizes)
        sizes.set_title("RMS at each sublayer visit")
        _draw_streams(shares, visits, _SHARES, 100)
        percent_axis(shares, "", max(1.0, shares.get_ylim()[1]))
        shares.set_title("stream elements left unchanged, %")
        for ax, (title, matrix) in zip(squares, matrices, strict=True):
            draw_cosines(ax, matrix)
            ax.set_title(title)
        return leave(fig)


def _draw_streams(
    ax: "Axes", visits: Sequence[Mapping[str, Any]], names: Mapping[str, str], factor: float
) -> None:
    """Values at every sublayer visit in order.

    Shaded: the calls that the gradient sees; of one level alone, which it sees always, every other.
    """
    levels = list(dict.fromkeys(visit["level"] for visit in visits))
    is_one = len(levels) == 1
    found: dict[tuple[str, str], tuple[list[int], list[float]]] = {
        (name, level): ([], []) for name in names for level in levels
    }
    place = 0
    for number, visit in enumerate(visits):
        first = place + 1
        for sublayer in visit["sublayers"]:
            place += 1
            for name in names:
                places, values = found[name, visit["level"]]
                places.append(place)
                values.append(factor * sublayer[name])
        if number % 2 if is_one else visit["visible"]:
            ax.axvspan(first - 0.5, place + 0.5, color=INK, alpha=_SHADE, linewidth=0)
    for (name, level), (places, values) in found.items():
        label = names[name] if is_one else f"{names[name]} {level}"
        ax.plot(places, values, label=label, linestyle="none", markersize=3.5)
    shaded = "every other round" if is_one else "seen by the gradient"
    ax.set_xlabel(f"sublayer visit; shaded: {shaded}")
    legend_below(ax)
