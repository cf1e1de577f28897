"""The page of a p-sweep: its figures and its table."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arc_data.json_files import write_beside
from eval.html import markup, render_page
from eval.phase import notes, table_rows
from eval.phase_plots import draw_losses, draw_phase
from eval.plots import PAPER, inline_svg

if TYPE_CHECKING:
    from eval.plots import Figure

_TEMPLATE = "phase.html.j2"


def write_phase_page(result: Mapping[str, Any], path: str | Path, title: str) -> Path:
    """Writes the page.

    Args:
        result: What psweep.json holds.
        path: The page; it is replaced.
        title: Its title.

    Returns:
        The page's path.
    """
    with write_beside(Path(path)) as file:
        file.write(render(result, title).encode("utf-8"))
    return Path(path)


def render(result: Mapping[str, Any], title: str) -> str:
    """Renders the page; arguments as in ``write_phase_page``."""
    head, *rows = table_rows(result["points"])
    phase = draw_phase(result, lambda fig: _embed(fig, "phase"))
    losses = draw_losses(result, lambda fig: _embed(fig, "losses"))
    sections = [("phase", "Training", phase), ("losses", "Losses", losses)]
    return render_page(
        _TEMPLATE,
        {
            "title": f"p-sweep: {title}",
            "sections": [(key, label) for key, label, there in sections if there]
            + [("table", "All points")],
            "notes": notes(result),
            "phase": phase,
            "losses": losses,
            "head": head,
            "rows": rows,
        },
    )


def _embed(fig: "Figure", name: str) -> Any:
    # Here paper is only ever behind words, so it is the page's, whatever its theme.
    return markup(inline_svg(fig, name).replace(PAPER, "var(--paper)"))
