"""Cells, notes and figures of sigma's pages, whatever is measured."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eval.html import markup
from eval.plots import inline_svg
from eval.sigma_format import UNDEFINED, listed

_MINUS = str.maketrans("-", "\u2212")


def figure(draw: Callable[..., Any], summary: Mapping[str, Any], name: str) -> Any:
    """Draws a figure for the page; empty or None where there is nothing to draw."""
    svg = draw(summary, lambda fig: inline_svg(fig, f"figure-{name}"))
    return svg and markup(svg)


def notes(summary: Mapping[str, Any]) -> list[str]:
    """Everything that takes from the report, before the report."""
    lines = list(summary["warnings"])
    for run in summary["unfinished"]:
        arm = run["arm"] or "unknown"
        who = "" if run["seed"] is None else f" (arm {arm}, seed {run['seed']})"
        lines.append(f"Not counted: {run['path']}{who} is {run['state']}: {run['why']}")
    lines += [
        f"Missing seeds of {arm['label']}: {listed(arm['missing_seeds'])};"
        f" n is {len(arm['seeds'])}."
        for arm in summary["arms"]
        if arm["missing_seeds"]
    ]
    return lines


def fact(value: Any) -> str:
    """A condition's value, or those that differ."""
    if isinstance(value, Mapping):
        return "differs: " + " / ".join(map(fact, value["differs"]))
    if isinstance(value, list):
        return listed(value)
    return "not recorded" if value is None else str(value)


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many digits after the point."""
    return UNDEFINED if value is None else f"{value:z.{digits}f}".translate(_MINUS)


def signed(value: float, digits: int = 2) -> str:
    """A difference; ``-0`` has no minus."""
    return f"{value:+z.{digits}f}".translate(_MINUS)


def interval(ends: Sequence[float] | None, digits: int = 2) -> str:
    """Both ends of an interval."""
    if ends is None:
        return UNDEFINED
    return f"{number(ends[0], digits)} to {number(ends[1], digits)}"
