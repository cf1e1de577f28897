"""Pages: templates rendered to one HTML document each that holds all it needs. jinja2 is here."""

from collections.abc import Mapping
from typing import Any

SHOWN_DIGITS = 12
"""Digits of a digest that are shown."""


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """Renders a template of eval/templates.

    Args:
        template: Its file name.
        values: What it uses; plain text is escaped, ``markup`` is not.

    Returns:
        The document.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("eval"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(**values)


def markup(text: str) -> Any:
    """Marks text as HTML of our own, such as ``plots.inline_svg``, so that it is not escaped."""
    from markupsafe import Markup

    return Markup(text)


def listing(values: Mapping[str, Any] | None) -> str:
    """Names and values on one line, floats with 6 digits, without what is None."""
    shown = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in (values or {}).items()}
    return ", ".join(f"{key} {value}" for key, value in shown.items() if value is not None)


def residual_line(residual: Mapping[str, Any] | None) -> str:
    """Resolved residual scaling on one line: each level's numbers, then what holds for both."""
    if not residual:
        return ""
    levels = [f"{k} ({listing(v)})" for k, v in residual.items() if isinstance(v, Mapping)]
    others = [f"{k} {v}" for k, v in residual.items() if not isinstance(v, Mapping)]
    return "; ".join(levels + others)


def short(digest: str | None) -> str:
    """The first digits of a digest."""
    return digest[:SHOWN_DIGITS] if digest else "not recorded"
