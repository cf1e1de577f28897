"""Figures of the p-sweep: where runs succeed, and their loss against p and learning rate."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eval.plots import INK, PAPER, SERIES, count_axis, figure

if TYPE_CHECKING:
    from eval.plots import Axes

Points = Sequence[Mapping[str, Any]]
MARKER_AREA = 130
PHASE_PANEL = (4.8, 3.6)
MAX_COLUMNS = 3
TEXT_SIZE = 7.5
LINE_STYLES = (":", "-", "--")
MARGIN = 0.06
"""Room around the exponents, in p: for the numbers beside the marks."""
LOOP_WORDS = {"C_L": "C_L, low-level steps per cycle", "R": "R, rounds of the blocks"}


def draw_phase(result: Mapping[str, Any], leave: Any) -> Any:
    """Draws the share of runs under the floor over p and loops, or over p_L and p_H per C_L.

    Args:
        result: What psweep.json holds.
        leave: What takes the finished figure, such as ``plots.save`` with a path.

    Returns:
        What ``leave`` returns; None where no point has exponents of its own.
    """
    points = [p for p in result["points"] if None not in p["exponents"].values()]
    if not points:
        return None
    gammas = result["gammas"] or {}
    if all(has_one_exponent(p) for p in points):
        groups = group_by(points, ("preset", "lr", "settings"))
        return _draw_panels(groups, lambda ax, own: _draw_over_loops(ax, own, gammas), leave)
    groups = group_by(points, ("preset", "lr", "settings", "loops"))
    return _draw_panels(groups, lambda ax, own: _draw_over_levels(ax, own, gammas), leave)


def draw_losses(result: Mapping[str, Any], leave: Any) -> Any:
    """Draws the last loss against p, and against the learning rate where there are several.

    Args:
        result: What psweep.json holds.
        leave: As for ``draw_phase``.

    Returns:
        What ``leave`` returns; None where there is nothing to draw.
    """
    points = [p for p in result["points"] if p["loss"] and has_one_exponent(p)]
    exponents = [p for p in points if exponent(p) is not None]
    swept = {arm["arm"] for arm in result["rate_transfer"]}
    panels = [(title, "p", own) for title, own in group_by(exponents, ("preset", "lr", "settings"))]
    panels = [panel for panel in panels if len({exponent(p) for p in panel[2]}) > 1]
    rates = [p for p in points if p["arm"] in swept]
    panels += [(title, "lr", own) for title, own in group_by(rates, ("arm", "settings"))]
    if not panels:
        return None
    floors = result["floors"]

    def draw(ax: "Axes", own: tuple[str, Points]) -> None:
        _draw_loss_lines(ax, own[0], own[1], floors)

    return _draw_panels([(title, (x, own)) for title, x, own in panels], draw, leave)


def has_one_exponent(point: Mapping[str, Any]) -> bool:
    """Whether all levels have the same exponent, or none."""
    return len(set(point["exponents"].values())) == 1


def exponent(point: Mapping[str, Any]) -> Any:
    """The exponent of the level that is looped most; None: none was set."""
    return list(point["exponents"].values())[-1]


def group_by(points: Points, keys: Sequence[str]) -> list[tuple[str, Points]]:
    """Points that agree in the keys, with the keys' values that differ between them as a title."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for point in points:
        groups.setdefault(tuple(point[key] for key in keys), []).append(point)
    names = {"lr": "learning rate ", "loops": f"{points[0]['loop_name']} "} if points else {}
    differing = [i for i in range(len(keys)) if len({values[i] for values in groups}) > 1]
    return [
        (", ".join(f"{names.get(keys[i], '')}{values[i]}" for i in differing if values[i]), own)
        for values, own in groups.items()
    ]


def _draw_panels(groups: Sequence[tuple[str, Any]], draw: Any, leave: Any) -> Any:
    columns = min(MAX_COLUMNS, len(groups))
    rows = -(-len(groups) // columns)
    with figure(rows, columns, panel=PHASE_PANEL) as (fig, axes):
        for ax, (title, own) in zip(axes, groups, strict=False):
            draw(ax, own)
            ax.set_title(title)
        for ax in axes[len(groups) :]:
            ax.set_visible(False)
        return leave(fig)


def _draw_over_loops(ax: "Axes", points: Points, gammas: Mapping[str, float]) -> None:
    loops = sorted({p["loops"] for p in points})
    exponents = [exponent(p) for p in points]
    _draw_marks(ax, points, [p["loops"] for p in points], exponents)
    _draw_lines(ax.axhline, gammas.get(list(points[0]["exponents"])[-1]))
    count_axis(ax, loops, LOOP_WORDS[points[0]["loop_name"]])
    ax.set_xlim(loops[0] / 1.3, loops[-1] * 1.6)
    _limit(ax.set_ylim, exponents)
    ax.set_ylabel(_exponent_label(points))
    _name_lines(ax)


def _exponent_label(points: Points) -> str:
    levels = list(points[0]["exponents"])
    return "p" if len(levels) == 1 else f"p of {' and '.join(levels)}"


def _draw_over_levels(ax: "Axes", points: Points, gammas: Mapping[str, float]) -> None:
    high, low = ([p["exponents"][level] for p in points] for level in "HL")
    _draw_marks(ax, points, low, high)
    _draw_lines(ax.axvline, gammas.get("L"))
    # H is visited once per step, so no gamma of its own asks for more.
    ax.axhline(0.25, color=INK, linewidth=1, linestyle=LINE_STYLES[0], zorder=1)
    _limit(ax.set_xlim, low)
    _limit(ax.set_ylim, high)
    ax.set_xlabel("p of L")
    ax.set_ylabel("p of H")
    _name_lines(ax)


def _limit(set_limits: Any, exponents: Sequence[float]) -> None:
    """Room for the points and for the lines of gamma 0 and 1."""
    set_limits(min(*exponents, 0.25) - MARGIN, max(*exponents, 0.5) + MARGIN)


def _draw_lines(line: Any, measured: float | None) -> None:
    """The least exponent, (1 + gamma) / 4, for gamma 0, measured and 1."""
    for gamma, style, name in zip(
        (0, measured, 1), LINE_STYLES, ("", ", measured", ""), strict=True
    ):
        if gamma is not None:
            label = rf"$\gamma$ = {gamma:.2g}{name}"
            line((1 + gamma) / 4, color=INK, linewidth=1, linestyle=style, label=label, zorder=1)


def _name_lines(ax: "Axes") -> None:
    """The legend under the panel, where no mark can be below it."""
    title = r"least p, (1 + $\gamma$)/4, at"
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=3, title=title, alignment="left")


def _draw_marks(ax: "Axes", points: Points, x: Sequence[float], y: Sequence[float]) -> None:
    """A disc per point, filled by the share of successes, with the counts and the loss beside."""
    shares = [p["successes"] / p["runs"] if p["runs"] else 0.0 for p in points]
    ax.scatter(x, y, s=MARKER_AREA, color=PAPER, zorder=2)
    for share, place_x, place_y in zip(shares, x, y, strict=True):
        ax.scatter(
            place_x, place_y, s=MARKER_AREA, color=SERIES[0], alpha=share, linewidth=0, zorder=3
        )
    ax.scatter(x, y, s=MARKER_AREA, facecolor="none", edgecolor=SERIES[0], zorder=4)
    for point, place_x, place_y in zip(points, x, y, strict=True):
        words = f"{point['successes']}/{point['runs']}"
        last = list(point["loss"].values())[-1:]
        if last and last[0]["mean"] is not None:
            words += f"\n{last[0]['mean']:.3f}"
        ax.annotate(
            words,
            (place_x, place_y),
            xytext=(8, 0),
            textcoords="offset points",
            fontsize=TEXT_SIZE,
            va="center",
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.4},
        )


def _draw_loss_lines(ax: "Axes", x: str, points: Points, floors: Sequence[float]) -> None:
    """One line per loop count: the mean over runs; bars from the least to the most."""
    for loops in sorted({p["loops"] for p in points}):
        own = [
            (p["lr"] if x == "lr" else exponent(p), list(p["loss"].values())[-1])
            for p in points
            if p["loops"] == loops
        ]
        own = sorted((at for at in own if at[1]["mean"] is not None), key=lambda at: at[0])
        if not own:
            continue
        places = [place for place, _ in own]
        (line,) = ax.plot(
            places, [loss["mean"] for _, loss in own], label=f"{points[0]['loop_name']} = {loops}"
        )
        ends = ([loss["least"] for _, loss in own], [loss["most"] for _, loss in own])
        ax.vlines(places, *ends, color=line.get_color(), linewidth=1)
    for floor in floors:
        ax.axhline(floor, color=INK, linewidth=1, linestyle=":", label="best constant guess")
    if x == "lr":
        rates = sorted({p["lr"] for p in points})
        ax.set_xscale("log")
        ax.set_xticks(rates, labels=[f"{rate:g}" for rate in rates])
        ax.set_xticks([], minor=True)
    ax.set_xlabel("peak learning rate" if x == "lr" else _exponent_label(points))
    ax.set_ylabel(f"held-out token loss at step {list(points[0]['loss'])[-1]}")
    ax.legend()
