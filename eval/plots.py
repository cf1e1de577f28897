"""The house look of all figures: colours, sizes, SVG and PNG. matplotlib is imported when drawing.

A figure is drawn inside ``figure`` and leaves it through ``save`` or ``inline_svg``; nothing of
matplotlib's global state is touched. Equal data give equal bytes.
"""

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arc_data.json_files import write_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES = ("#0072b2", "#c2410c", "#00795a", "#9d3f86", "#7a6000", "#4d5661")
"""Colours in their order: told apart by people with any colour vision, at least 4.5:1 on white."""
INK, EDGE, RULE, PAPER = "#1f2328", "#6e7781", "#d8dee4", "#ffffff"
FORMATS = ("svg", "png")
PANEL_INCHES = (4.6, 3.0)
"""Width and height of one panel."""
BAND_ALPHA = 0.18
_LEGEND_DROP = 0.5
"""Inches from a panel to the legend below it: what ticks and label of the axis take."""
_LOG_FROM, _FEW_DECADES = 4.0, 300.0
"""Ratio of largest to smallest value from which an axis is logarithmic, and has plain decades."""
_SOLID = 0.85
"""Cosine from which a cell is dark enough for white digits."""
_MOST_NUMBERS = 8
"""Rows of a matrix up to which its cells show their numbers."""
MAX_POINTS = 600
"""Points of a curve in a figure; more are averaged, or a long run's page would be megabytes."""

_STYLE_FILE = "figures.mplstyle"
_CSS_NAMES = {
    INK: "var(--ink)",
    EDGE: "var(--edge)",
    RULE: "var(--rule)",
    **{color: f"var(--series-{i})" for i, color in enumerate(SERIES)},
}


@contextmanager
def figure(
    rows: int = 1, cols: int = 1, *, panel: tuple[float, float] = PANEL_INCHES
) -> Iterator[tuple["Figure", list["Axes"]]]:
    """Opens a figure in the house look; draw and save it before leaving the block.

    Args:
        rows: Rows of panels.
        cols: Columns of panels.
        panel: Width and height of a panel in inches.

    Yields:
        The figure and its panels, row by row.
    """
    import matplotlib
    import matplotlib.style
    from matplotlib.figure import Figure

    with (
        matplotlib.rc_context(),
        resources.as_file(resources.files("eval") / _STYLE_FILE) as style,
    ):
        matplotlib.style.use(style)
        fig = Figure(figsize=(panel[0] * cols, panel[1] * rows))
        axes = fig.subplots(rows, cols, squeeze=False).ravel().tolist()
        yield fig, axes


@contextmanager
def panels(
    number: int, *, cols: int = 3, panel: tuple[float, float] = PANEL_INCHES
) -> Iterator[tuple["Figure", list["Axes"]]]:
    """``figure`` with exactly so many panels, row by row, and at most ``cols`` in a row."""
    cols = min(cols, number)
    with figure(math.ceil(number / cols), cols, panel=panel) as (fig, axes):
        for ax in axes[number:]:
            ax.set_visible(False)
        yield fig, axes[:number]


def series_style(number: int) -> dict[str, Any]:
    """Colour, line and marker of the series of that number; only inside ``figure``."""
    import matplotlib

    cycle = list(matplotlib.rcParams["axes.prop_cycle"])
    style: dict[str, Any] = cycle[number % len(cycle)]
    return style


def save(fig: "Figure", path: str | Path) -> Path:
    """Writes a figure, whole or not at all.

    Args:
        fig: From ``figure``, whose block must still be open.
        path: The file, which is replaced; its ending, ``.svg`` or ``.png``, is the format.

    Returns:
        The path.

    Raises:
        ValueError: If the ending is another one.
        FileNotFoundError: If the folder does not exist.
    """
    path = Path(path)
    kind = path.suffix[1:]
    if kind not in FORMATS:
        raise ValueError(f"{path}: a figure must end in .svg or .png, found {path.suffix!r}")
    # Without a date the file depends on the figure alone.
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with write_beside(path) as file:
        fig.savefig(file, format=kind, metadata=metadata)
    return path


def inline_svg(fig: "Figure", name: str) -> str:
    """Renders a figure for a page that sets its colours.

    Args:
        fig: From ``figure``, whose block must still be open.
        name: Prefix of all ids inside, unique on the page: letters, digits, ``-``.

    Returns:
        An ``<svg>`` element on no background. Its house colours are the page's ``--ink``,
        ``--edge``, ``--rule`` and ``--series-0`` ...; the page sets ``stroke-linejoin: round``.
    """
    file = io.StringIO()
    fig.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    # matplotlib's own style element names every element and would reach out into the page.
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    # Equal images get equal ids, which nothing refers to.
    svg = re.sub(r'(<image [^>]*?)\bid="[^"]*"', r"\1", svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    for color, css in _CSS_NAMES.items():
        svg = svg.replace(color, css)
    return re.sub(r"\s*\n\s*", " ", svg).strip()


def draw_band(
    ax: "Axes", x: Sequence[float], low: Sequence[float], high: Sequence[float], color: Any
) -> None:
    """Shades an interval along a curve."""
    ax.fill_between(x, low, high, color=color, alpha=BAND_ALPHA, linewidth=0)


def draw_interval(
    ax: "Axes",
    x: Sequence[float],
    mid: Sequence[float],
    intervals: Sequence[Sequence[float]],
    label: str | None = None,
    **style: Any,
) -> Any:
    """Draws points with their intervals, joined by the series' line.

    Args:
        ax: The panel.
        x: Places, (n,).
        mid: Values, (n,).
        intervals: Lower and upper end of each, (n, 2); they need not be symmetric.
        label: Entry in the legend.
        **style: For matplotlib's ``errorbar``.

    Returns:
        matplotlib's container, whose first element is the line.
    """
    below = [m - low for m, (low, _) in zip(mid, intervals, strict=True)]
    above = [high - m for m, (_, high) in zip(mid, intervals, strict=True)]
    # An interval may miss its value by rounding, never by more.
    ends = [[max(0.0, value) for value in side] for side in (below, above)]
    return ax.errorbar(x, mid, yerr=ends, label=label, **style)


def legend_below(ax: "Axes", cols: int = 2) -> None:
    """Puts a panel's legend under its axis, where no curve can run through it."""
    from matplotlib.transforms import ScaledTranslation

    down = ScaledTranslation(0, -_LEGEND_DROP, ax.figure.dpi_scale_trans)
    ax.legend(
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + down,
        ncols=cols,
        borderaxespad=0,
        columnspacing=1.2,
        handlelength=2.2,
    )


def shared_legend(fig: "Figure", ax: "Axes", cols: int = 2) -> None:
    """Puts one panel's legend under all of them."""
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower left", ncols=cols)


def draw_cosines(ax: "Axes", matrix: Sequence[Sequence[float | None]]) -> None:
    """Draws a square of cosines: blue above 0, orange below, clear at 0, so on any background.

    Args:
        ax: The panel.
        matrix: (n, n) in [-1, 1]; None: undefined, left blank.
    """
    colors = [tuple(int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)) for color in SERIES[:2]]
    ax.imshow(
        [
            [(*colors[(c or 0) < 0], min(1.0, abs(c or 0))) for c in row] for row in matrix
        ],  # (n, n, red green blue opacity)
        interpolation="none",
    )
    if len(matrix) <= _MOST_NUMBERS:
        for i, row in enumerate(matrix):
            for j, cosine in enumerate(row):
                text = "-" if cosine is None else f"{cosine:z.2f}"
                ink = PAPER if abs(cosine or 0) > _SOLID else INK
                ax.text(j, i, text, ha="center", va="center", fontsize=7, color=ink)
    places = range(0, len(matrix), -(-len(matrix) // _MOST_NUMBERS))
    ax.set_xticks(places, [str(place + 1) for place in places])
    ax.set_yticks(places, [str(place + 1) for place in places])
    ax.grid(False)


def log_axis(ax: "Axes") -> None:
    """Makes the vertical axis logarithmic where positive values span enough of it to need that.

    Ticks stand at 1, 2 and 5 of each decade while there are few decades.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    drawn: list[Any] = [line.get_ydata() for line in ax.get_lines()]
    values = [float(value) for line in drawn for value in line if math.isfinite(value)]
    if not values or min(values) <= 0 or max(values) < _LOG_FROM * min(values):
        return
    ax.set_yscale("log")
    if max(values) < _FEW_DECADES * min(values):
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def percent_axis(ax: "Axes", label: str, top: float | None = None) -> None:
    """Labels the vertical axis as a percentage from 0, with room for a marker at either end."""
    top = ax.get_ylim()[1] if top is None else top
    ax.set_ylabel(label)
    ax.set_ylim(-0.025 * top, 1.025 * top)


def count_axis(ax: "Axes", values: Sequence[int], label: str) -> None:
    """Makes the horizontal axis logarithmic with the given counts as its only ticks."""
    ax.set_xscale("log")
    ax.set_xticks(list(values), [str(value) for value in values])
    ax.minorticks_off()
    ax.set_xlabel(label)
