"""The page of kappa probes: one self-contained HTML file, made of their JSON alone."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arc_data.json_files import read_json, write_beside
from eval.html import listing, markup, render_page, residual_line, short
from eval.kappa_figures import (
    SIDES,
    Probes,
    draw_alignment,
    draw_first_step,
    draw_kappa,
    draw_visits,
)
from eval.plots import inline_svg

SCHEMA = "hrm_deeploop.kappa/1"
_TEMPLATE = "kappa.html.j2"
_ACCURATE = 0.1
"""Deviation up to which first order is said to describe a step."""


def read_probes(path: str | Path) -> dict[str, Any]:
    """Reads what ``hrm-deeploop kappa --out`` wrote.

    Args:
        path: The file.

    Returns:
        Its content.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is another kind of file.
    """
    content = read_json(path)
    found = content.get("schema") if isinstance(content, Mapping) else None
    if found != SCHEMA:
        raise ValueError(
            f"{path}: schema must be {SCHEMA!r}, found {found!r}; name a file that"
            " hrm-deeploop kappa --out wrote"
        )
    return dict(content)


def write_kappa_page(report: Mapping[str, Any], out: str | Path) -> Path:
    """Writes the page of a kappa probe.

    Args:
        report: Content of its JSON.
        out: The page, which is replaced.

    Returns:
        The page's path.
    """
    with write_beside(out) as file:
        file.write(render_kappa(Path(out).stem, report).encode("utf-8"))
    return Path(out)


def render_kappa(title: str, report: Mapping[str, Any]) -> str:
    """Renders the page.

    Args:
        title: Its title.
        report: Content of the probe's JSON.

    Returns:
        One HTML document with everything in it.
    """
    probes = Probes(report)
    alignment = draw_alignment(probes, _inline("alignment"))
    sections = [
        ("words", "In words", True),
        ("kappa", "kappa", True),
        ("alignment", "Alignment", alignment),
        ("first-step", "First step", True),
        ("visits", "Visits", True),
        ("probe", "Probe", True),
    ]
    return render_page(
        _TEMPLATE,
        {
            "title": title,
            "sections": [(key, label) for key, label, there in sections if there],
            "words": _words(probes),
            "kappa": draw_kappa(probes, _inline("kappa")),
            "alignment": alignment,
            "first_step": draw_first_step(probes, _inline("first-step")),
            "loop": probes.loop,
            "is_lm": probes.is_lm,
            "has_bound": probes.has_bound,
            "places": probes.places,
            "scale_keys": _scale_keys(probes),
            "level_rows": _level_rows(probes),
            "step_rows": _step_rows(probes),
            # The last first: it has the most visits.
            "visits": [
                (f"{probes.loop} {cycles}", draw_visits(row, _inline(f"visits-{cycles}")))
                for cycles, row in zip(probes.cycles[::-1], probes.rows[::-1], strict=True)
            ],
            "facts": _facts(probes),
        },
    )


def _inline(name: str) -> Any:
    return lambda fig: markup(inline_svg(fig, f"figure-{name}"))


def _words(probes: Probes) -> list[str]:
    """What the numbers say, no stronger than they are."""
    lines = []
    loop = probes.loop
    for name in probes.levels():
        if name not in probes.looped():
            lines.append(
                f"The gradient sees {name} once, so its kappa is exactly 1 and the exponent that"
                " is asked for 1/4."
            )
            continue
        found = [(cycles, row["kappa"]["levels"][name]) for cycles, row in _by_cycles(probes)]
        values = [
            f"{level['kappa']:.3g} of at most {level['rounds']} at {loop} {cycles}"
            for cycles, level in found
            if level["kappa"] is not None
        ]
        asked = ""
        if name in probes.slopes:
            slope = probes.slopes[name]
            asked = (
                f" Over {loop} it goes as {loop}^{slope:z.2f}, which asks for the exponent"
                f" {(1 + slope) / 4:.2f}"
            )
            p = probes.rows[-1]["residual"].get(name, {}).get("p")
            asked += "." if p is None else f"; the model has {p:g}."
        lines.append(f"Kappa of {name} is {', '.join(values) or 'undefined'}.{asked}")
    if not probes.has_bound:
        lines.append(
            "The theory's bound is for streams with alpha: there is none here, and an exponent is"
            " asked of arms with alpha only."
        )
    return [*lines, _step_words(probes)]


def _by_cycles(probes: Probes) -> list[tuple[int, Any]]:
    return list(zip(probes.cycles, probes.rows, strict=True))


def _step_words(probes: Probes) -> str:
    step = probes.rows[-1]["first_step"]
    found = step["changes"]["all"][probes.places[0]]
    share = 100 * found["actual"][0] / step["output_norm"]
    pairs = zip(step["rates"], found["deviation"], strict=True)
    good = [f"{rate:g}" for rate, deviation in pairs if deviation <= _ACCURATE]
    tried = ", ".join(f"{rate:g}" for rate in step["rates"])
    said = f"at lr {', '.join(good)}" if good else "at none"
    through = ", through the visible calls," if "visible" in probes.places else ""
    return (
        f"At {probes.loop} {probes.cycles[-1]} one step at lr {step['rates'][0]:g} moves the"
        f" logits{through} by {share:.3g} % of their norm; first order describes the"
        f" change within {100 * _ACCURATE:g} % {said} of the rates tried ({tried})."
    )


def _level_rows(probes: Probes) -> list[list[str]]:
    """A line per loop count and level."""
    cells = []
    for cycles, row in _by_cycles(probes):
        for name, level in row["kappa"]["levels"].items():
            sides = [
                max((s[side]["alignment"] or 0.0 for s in level["sublayers"]), default=None)
                for side in SIDES
            ]
            numbers = [level["kappa"], level["gamma"], level["exponent"], *sides]
            own = [_own(row["residual"], name, key) for key in _scale_keys(probes)]
            cells.append([str(cycles), name, str(level["rounds"]), *map(_number, numbers), *own])
    return cells


def _scale_keys(probes: Probes) -> list[str]:
    """The numbers that scale a level; eps where there is one."""
    levels = [v for v in probes.rows[0]["residual"].values() if isinstance(v, Mapping)]
    return ["p", "alpha", "beta", *(["eps"] if any("eps" in own for own in levels) else [])]


def _own(residual: Mapping[str, Any], name: str, key: str) -> str:
    """What scales a set of blocks; both levels' numbers where they share it and differ."""
    found = [_number(residual[level].get(key)) for level in name.split("+")]
    return found[0] if len(set(found)) == 1 else " / ".join(found)


def _step_rows(probes: Probes) -> list[list[str]]:
    """A line per loop count and rate."""
    cells = []
    for cycles, row in _by_cycles(probes):
        step = row["first_step"]
        for i, rate in enumerate(step["rates"]):
            numbers = [
                step["changes"]["all"][place][key][i]
                for place in probes.places
                for key in ("actual", "predicted", "deviation")
            ]
            cells.append([str(cycles), f"{rate:g}", *map(_number, [step["output_norm"], *numbers])])
    return cells


def _facts(probes: Probes) -> list[tuple[str, str]]:
    report, loop = probes.report, probes.loop
    source = report["source"]
    plain = {k: v for k, v in source.items() if not isinstance(v, Mapping)}
    facts = [("source", listing(plain))]
    facts += [
        (k.replace("_", " "), listing(v)) for k, v in source.items() if isinstance(v, Mapping)
    ]
    if "step" in report:
        facts.append(("first step", listing(report["step"])))
    arch = {k: v for k, v in report["rows"][0]["arch"].items() if k != loop}
    facts.append(("architecture", listing(arch)))
    facts += [
        (f"residual at {loop} {row['arch'][loop]}", residual_line(row["residual"]))
        for row in report["rows"]
    ]
    facts.append(("data set's digest", short(report["dataset"]["digest"])))
    return facts


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.4g}".replace("-", "\u2212")
