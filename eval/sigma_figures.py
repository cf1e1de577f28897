"""The figures of a sigma summary, made of sigma.json alone."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eval.arc_results import PRIMARY_K, PRIMARY_SCORE
from eval.plots import (
    INK,
    count_axis,
    draw_band,
    draw_interval,
    figure,
    legend_below,
    log_axis,
    panels,
    percent_axis,
    series_style,
    shared_legend,
)

if TYPE_CHECKING:
    from eval.plots import Axes

_ASIDE = 0.022
"""Share of the axis between two arms at one K, so that their intervals do not hide."""
_SEED_STYLE: dict[str, Any] = {
    "linestyle": "none",
    "markersize": 3.2,
    "markerfacecolor": "none",
    "alpha": 0.85,
}
_METRIC_TITLES = {
    "lm_loss": "token loss in training",
    "accuracy": "right tokens in training, %",
    "exact_accuracy": "right answers in training, %",
}


def headline(summary: Mapping[str, Any]) -> str:
    """The K that is looked at first: the primary one, else the first of the ladder."""
    top_k: list[str] = summary["top_k"]
    return PRIMARY_K if PRIMARY_K in top_k else top_k[0]


def draw_ladder(summary: Mapping[str, Any], leave: Any) -> Any:
    """Draws each arm's mean against K with its t-interval, and every seed as a hollow point.

    Args:
        summary: Content of sigma.json.
        leave: What takes the finished figure, such as ``plots.save`` with a path.

    Returns:
        What ``leave`` returns.
    """
    top_k = [int(k) for k in summary["top_k"]]
    with figure(panel=(6.4, 3.7)) as (fig, (ax,)):
        aside = max(10.0, top_k[-1] / top_k[0]) ** _ASIDE
        for number, arm in enumerate(summary["arms"]):
            by_k = arm["scores"][PRIMARY_SCORE].values()
            places = [k * aside**number for k in top_k]
            line = draw_means(ax, places, list(by_k), f"{arm['label']} (n = {len(arm['seeds'])})")
            for place, about in zip(places, by_k, strict=True):
                # Beside the interval, where its line does not cover them.
                draw_points(ax, [place * aside**0.4] * about["n"], about["values"], line)
        count_axis(ax, top_k, "K")
        percent_axis(ax, "tasks solved (strict), %")
        ax.set_title("mean over seeds, 95 % t-interval; hollow: each seed")
        legend_below(ax, 1)
        return leave(fig)


def draw_means(
    ax: "Axes", places: Sequence[float], abouts: Sequence[Mapping[str, Any]], label: str
) -> Any:
    """Means joined by the series' line, with an interval where one is defined."""
    (line,) = ax.plot(places, [about["mean"] for about in abouts], label=label)
    known = [(x, a) for x, a in zip(places, abouts, strict=True) if a["mean_interval"]]
    if known:
        xs = [x for x, _ in known]
        ends = [a["mean_interval"] for _, a in known]
        means = [a["mean"] for _, a in known]
        draw_interval(ax, xs, means, ends, linestyle="none", marker="", color=line.get_color())
    return line


def draw_points(ax: "Axes", x: Sequence[float], y: Sequence[float], line: Any) -> None:
    """Hollow points of single runs, in the look of their arm's line."""
    ax.plot(x, y, marker=line.get_marker(), color=line.get_color(), **_SEED_STYLE)


def draw_differences(summary: Mapping[str, Any], leave: Any) -> Any:
    """Draws the difference at each common seed, per pair of arms, with mean and t-interval.

    Args:
        summary: Content of sigma.json.
        leave: What takes the finished figure.

    Returns:
        What ``leave`` returns; None where no seeds pair.
    """
    k = headline(summary)
    found = [
        (_name(c, summary), c["scores"][PRIMARY_SCORE][k]["paired"], c["paired_seeds"])
        for c in summary["contrasts"]
        if c["paired"]
    ]
    return draw_seeds(
        found, [end for _, about, _ in found for end in ends_of(about)], "points", leave
    )


def draw_seeds(
    found: Sequence[tuple[str, Any, Sequence[int]]], shown: Sequence[float], unit: str, leave: Any
) -> Any:
    """Draws the differences of each pair of arms seed by seed, with mean and t-interval.

    Args:
        found: A title, the ``paired`` statistics and their seeds, per panel.
        shown: Values that the axes, the same in all panels, must hold.
        unit: Of the differences.
        leave: What takes the finished figure.

    Returns:
        What ``leave`` returns; None without a panel.
    """
    if not found:
        return None
    with panels(len(found), panel=(3.7, 2.9)) as (fig, axes):
        for ax, (title, about, seeds) in zip(axes, found, strict=True):
            places = range(about["n"])
            ax.axhline(0, color=INK, linewidth=0.9, linestyle="-")
            if about["interval"]:
                span = [-0.4, about["n"] - 0.6]
                low, high = ([end] * 2 for end in about["interval"])
                draw_band(ax, span, low, high, "C0")
            ax.axhline(about["difference"], color="C0", linestyle="--", linewidth=1.2)
            ax.vlines(places, 0, about["differences"], color="C0", linewidth=1.2)
            ax.plot(places, about["differences"], linestyle="none", marker="o", color="C0")
            ax.set_xticks(places, [str(seed) for seed in seeds])
            ax.set_xlim(-0.6, about["n"] - 0.4)
            room(ax.set_ylim, shown)
            ax.set_xlabel("seed")
            ax.set_ylabel(unit)
            ax.set_title(title, fontsize=8.5)
        return leave(fig)


def draw_forest(summary: Mapping[str, Any], leave: Any) -> Any:
    """Draws the difference over K per pair of arms: over seeds, and over tasks and seeds.

    Args:
        summary: Content of sigma.json.
        leave: What takes the finished figure.

    Returns:
        What ``leave`` returns; None without a pair of arms.
    """
    contrasts = summary["contrasts"]
    if not contrasts:
        return None
    top_k = summary["top_k"]
    found = [[_intervals(contrast, k) for k in top_k] for contrast in contrasts]
    ends = [end for rows in found for row in rows for end in row["ends"]]
    with panels(len(contrasts), panel=(3.7, 1.1 + 0.34 * len(top_k))) as (fig, axes):
        for ax, contrast, rows in zip(axes, contrasts, found, strict=True):
            draw_spans(ax, rows, "tasks and seeds (bootstrap)")
            ax.set_yticks(range(len(top_k)), [_row_name(contrast, k) for k in top_k])
            ax.set_ylim(len(top_k) - 0.4, -0.6)
            ax.grid(False, axis="y")
            room(ax.set_xlim, ends)
            ax.set_xlabel("points")
            ax.set_title(_name(contrast, summary), fontsize=8.5)
        shared_legend(fig, axes[0], 3)
        return leave(fig)


def _intervals(contrast: Mapping[str, Any], k: str) -> dict[str, Any]:
    found = contrast["scores"][PRIMARY_SCORE][k]["paired" if contrast["paired"] else "unpaired"]
    tasks = contrast["tasks"]
    over_tasks = tasks and tasks["by_k"][k]["bootstrap"]["interval"]
    ends = [found["difference"], *(found["interval"] or ()), *(over_tasks or ())]
    return {**found, "other": over_tasks, "ends": ends}


def draw_spans(ax: "Axes", rows: Sequence[Mapping[str, Any]], beside: str) -> None:
    """Draws differences as squares with two intervals each.

    Args:
        ax: The panel.
        rows: ``difference``, ``interval`` over seeds and ``other`` (or None), from the top.
        beside: What the other interval is over.
    """
    ax.axvline(0, color=INK, linewidth=0.9, linestyle="-")
    ways = (
        ("interval", "95 % over seeds (t)", -0.09, "C0", 2.0),
        ("other", f"95 % over {beside}", 0.15, "C1", 1.2),
    )
    for key, name, aside, color, width in ways:
        spans = [(i + aside, *row[key]) for i, row in enumerate(rows) if row[key]]
        if spans:
            places, low, high = zip(*spans, strict=True)
            ax.hlines(places, low, high, color=color, linewidth=width, label=name)
    middles = [row["difference"] for row in rows]
    at = [i - 0.09 for i in range(len(rows))]
    ax.plot(middles, at, linestyle="none", marker="s", color="C0", label="difference")


def draw_learning(summary: Mapping[str, Any], leave: Any) -> Any:
    """Draws each arm's curves: every seed thin, their mean, and the t-interval as a band.

    Args:
        summary: Content of sigma.json.
        leave: What takes the finished figure.

    Returns:
        What ``leave`` returns; None where no run has a curve.
    """
    metrics = [m for m in _METRIC_TITLES if any(m in arm["curves"] for arm in summary["arms"])]
    if not metrics:
        return None
    with panels(len(metrics), panel=(3.7, 2.7)) as (fig, axes):
        for ax, metric in zip(axes, metrics, strict=True):
            factor = 1 if metric == "lm_loss" else 100
            for number, arm in enumerate(summary["arms"]):
                if metric in arm["curves"]:
                    style = series_style(number)
                    _draw_curve(ax, arm["curves"][metric], factor, style, arm["label"])
            if factor == 1:
                log_axis(ax)
            else:
                percent_axis(ax, "")
            ax.set_xlim(left=0)
            ax.set_xlabel("step")
            ax.set_title(_METRIC_TITLES[metric])
        shared_legend(fig, axes[0])
        return leave(fig)


def _draw_curve(
    ax: "Axes", curve: Mapping[str, Any], factor: float, style: Mapping[str, Any], label: str
) -> None:
    steps, color = curve["step"], style["color"]
    thin: dict[str, Any] = {
        "color": color,
        "alpha": 0.35,
        "linewidth": 0.6,
        "linestyle": "-",
        "marker": "",
    }
    for values in curve["values"] if len(curve["seeds"]) > 1 else ():
        ax.plot(steps, [factor * v for v in values], **thin)
    own = {**style, "marker": style["marker"] if len(steps) == 1 else ""}
    ax.plot(steps, [factor * v for v in curve["mean"]], label=label, **own)
    known = [i for i, low in enumerate(curve["low"]) if low is not None]
    if known:
        low, high = ([factor * curve[key][i] for i in known] for key in ("low", "high"))
        draw_band(ax, [steps[i] for i in known], low, high, color)


def ends_of(found: Mapping[str, Any]) -> list[float]:
    """Paired differences and the ends of their interval."""
    return [*found["differences"], *(found["interval"] or ())]


def room(set_limits: Any, ends: Sequence[float]) -> None:
    """The same limits for all panels, with 0 in them."""
    low, high = min(0.0, *ends), max(0.0, *ends)
    margin = 0.08 * (high - low) or 1.0
    set_limits(low - margin, high + margin)


def _name(contrast: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    mark = " (primary)" if summary["primary"] and contrast is summary["contrasts"][0] else ""
    return f"{contrast['treatment']}\nminus {contrast['control']}{mark}"


def _row_name(contrast: Mapping[str, Any], k: str) -> str:
    return f"K = {k}" + ("*" if contrast["tests"][k]["role"] == "primary" else "")
