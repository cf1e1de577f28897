"""The figures of a sigma summary of losses, made of sigma.json alone."""

from collections.abc import Mapping
from typing import Any

from eval.loss_words import NATS, difference_of
from eval.plots import figure, legend_below
from eval.sigma_figures import draw_means, draw_points, draw_seeds, draw_spans, room

SCALE_NOTE = (
    "Axes are set by arms whose runs are all under the unigram floor, and by intervals of at least"
    " 3 seeds; others may run out of the picture, the tables have them."
)
_ASIDE = 0.09
"""Rounds between two arms, so that their intervals do not hide."""
_ROW_INCHES = 0.34
_FEW_SEEDS = 3
"""From so many on an interval is not mostly its own uncertainty: that of 2 is 12.7 s.e. long."""
_MARGIN = 0.06


def _trained(summary: Mapping[str, Any]) -> set[str]:
    """Labels of the arms all of whose runs are under the floor; of all arms if there is none."""
    arms = summary["arms"]
    found = {a["label"] for a in arms if a["loss"]["num_under_floor"] == a["loss"]["n"]}
    return found or {arm["label"] for arm in arms}


def _scaling(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The comparisons that set the scale of an axis; all if there is none."""
    trained = _trained(summary)
    contrasts: list[Mapping[str, Any]] = summary["contrasts"]
    return [c for c in contrasts if {c["treatment"], c["control"]} <= trained] or contrasts


def _interval(about: Mapping[str, Any], name: str, n: int) -> list[float]:
    """Ends of an interval, if so many seeds may set a scale."""
    return list(about[name] or ()) if n >= _FEW_SEEDS else []


def draw_rounds(summary: Mapping[str, Any], leave: Any) -> Any:
    """Draws each arm's mean loss against R with its t-interval, every seed as a hollow point.

    Args:
        summary: Content of sigma.json.
        leave: What takes the finished figure, such as ``plots.save`` with a path.

    Returns:
        What ``leave`` returns.
    """
    families: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for arm in summary["arms"]:
        families.setdefault((arm["num_blocks"], arm["family"]), []).append(arm)
    several = len({K for K, _ in families}) > 1
    # What all arms have in common would only make the legend wide.
    alike = len({family.partition("-")[2] for _, family in families}) == 1
    rounds = sorted({arm["rounds"] for arm in summary["arms"]})
    with figure(panel=(6.4, 3.7)) as (fig, (ax,)):
        for number, ((K, family), arms) in enumerate(families.items()):
            aside = _ASIDE * (number - (len(families) - 1) / 2)
            places = [arm["rounds"] + aside for arm in arms]
            counts = ", ".join(str(len(arm["seeds"])) for arm in arms)
            name = family.partition("-")[0] if alike else family
            name = f"{name}, K = {K}" if several else name
            line = draw_means(ax, places, [arm["loss"] for arm in arms], f"{name} (n = {counts})")
            for place, arm in zip(places, arms, strict=True):
                # Beside the interval, where its line does not cover them.
                beside = [place + 0.35 * _ASIDE] * len(arm["seeds"])
                draw_points(ax, beside, arm["loss"]["values"], line)
        ax.set_xticks(rounds, [str(R) for R in rounds])
        ax.set_xlim(rounds[0] - 0.5, rounds[-1] + 0.5)
        trained = _trained(summary)
        abouts = [arm["loss"] for arm in summary["arms"] if arm["label"] in trained]
        shown = [v for a in abouts for v in (*a["values"], *_interval(a, "mean_interval", a["n"]))]
        margin = _MARGIN * (max(shown) - min(shown)) or _MARGIN
        ax.set_ylim(min(shown) - margin, max(shown) + margin)
        ax.set_xlabel("R, rounds")
        ax.set_ylabel(f"validation loss, {NATS.unit}")
        ax.set_title("mean over seeds, 95 % t-interval; hollow: each seed")
        legend_below(ax, 2)
        return leave(fig)


def draw_forest(summary: Mapping[str, Any], leave: Any) -> Any:
    """Draws every comparison: its difference over seeds, and over documents.

    Args:
        summary: Content of sigma.json.
        leave: What takes the finished figure.

    Returns:
        What ``leave`` returns; None without a comparison.
    """
    rows = [
        {**difference_of(c), "other": c["documents"] and c["documents"]["interval"]}
        for c in summary["contrasts"]
    ]
    if not rows:
        return None
    sizes = {arm["label"]: len(arm["seeds"]) for arm in summary["arms"]}
    ends = []
    for contrast in _scaling(summary):
        found, other = difference_of(contrast), contrast["documents"]
        n = (
            found["n"]
            if contrast["paired"]
            else min(sizes[contrast[role]] for role in ("control", "treatment"))
        )
        ends += [found["difference"], *_interval(found, "interval", n)]
        ends += [] if other is None else other["interval"] or []
    names = [
        f"{c['treatment']}\nminus {c['control']}{' *' if c['test']['role'] == 'primary' else ''}"
        for c in summary["contrasts"]
    ]
    with figure(panel=(6.4, 1.2 + 1.3 * _ROW_INCHES * len(rows))) as (fig, (ax,)):
        draw_spans(ax, rows, "documents, these runs")
        ax.set_yticks(range(len(rows)), names)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.grid(False, axis="y")
        room(ax.set_xlim, ends)
        ax.set_xlabel(f"{NATS.unit}; left of 0 the first is better")
        legend_below(ax, 3)
        return leave(fig)


def draw_differences(summary: Mapping[str, Any], leave: Any) -> Any:
    """Draws the difference at each common seed, per comparison, with mean and t-interval.

    Args:
        summary: Content of sigma.json.
        leave: What takes the finished figure.

    Returns:
        What ``leave`` returns; None where no seeds pair.
    """
    found = [
        (f"{c['treatment']}\nminus {c['control']}", c["loss"]["paired"], c["paired_seeds"])
        for c in summary["contrasts"]
        if c["paired"]
    ]
    abouts = [c["loss"]["paired"] for c in _scaling(summary) if c["paired"]]
    shown = [v for a in abouts for v in (*a["differences"], *_interval(a, "interval", a["n"]))]
    return draw_seeds(found, shown, NATS.unit, leave)
