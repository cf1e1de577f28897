"""The house look: files that repeat, SVG for the page, colours that can be read."""

import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import matplotlib
import pytest

from eval.plots import (
    EDGE,
    INK,
    PAPER,
    SERIES,
    count_axis,
    draw_band,
    draw_interval,
    figure,
    inline_svg,
    percent_axis,
    save,
)

ROOT = Path(__file__).parents[2]
READABLE, VISIBLE = 4.5, 3.0
"""Least contrast of text and of marks, WCAG 2.1, 1.4.3 and 1.4.11."""


def draw(path: Path) -> bytes:
    with figure(1, 2) as (fig, (ax, other)):
        draw_interval(ax, [1, 2, 5], [10, 20, 30], [(5, 15), (12, 30), (25, 31)], "strict <&>")
        draw_band(other, [1, 2], [0, 1], [2, 3], SERIES[1])
        count_axis(ax, [1, 2, 5], "variants")
        percent_axis(ax, "solved, %", 100)
        ax.legend()
        return save(fig, path).read_bytes()


def test_equal_data_give_equal_bytes_and_leave_no_trace(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    for kind, start in (("svg", b"<?xml"), ("png", b"\x89PNG")):
        first = draw(tmp_path / f"a.{kind}")
        assert first == draw(tmp_path / f"b.{kind}")
        assert first.startswith(start)
    assert dict(matplotlib.rcParams) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "a.svg", "b.png", "b.svg"]


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.svg or \.png, found '\.gif'"):
        draw(tmp_path / "a.gif")


def test_inline_svg_has_the_page_s_colours_and_its_own_ids() -> None:
    with figure() as (fig, (ax,)):
        draw_interval(ax, [1, 2], [1, 2], [(0, 2), (1, 3)], "a <b>")
        ax.legend()
        svg = inline_svg(fig, "one")
    assert svg.startswith("<svg ")
    assert svg.endswith("</svg>")
    assert not re.search(r"#[0-9a-fA-F]{6}\b", svg)
    assert "var(--series-0)" in svg
    assert "<style" not in svg
    assert "<script" not in svg
    assert "a &lt;b&gt;" in svg
    ids = set(re.findall(r'\bid="([^"]+)"', svg))
    assert ids
    assert all(name.startswith("one-") for name in ids)
    used = set(re.findall(r'href="#([^"]+)"', svg)) | set(re.findall(r"url\(#([^)]+)\)", svg))
    assert used
    assert used <= ids


def luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first: str, second: str) -> float:
    dark, light = sorted(map(luminance, (first, second)))
    return (light + 0.05) / (dark + 0.05)


def themes() -> list[dict[str, str]]:
    css = (resources.files("eval") / "templates" / "page.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root[^{]*\{([^}]*)\}", css)
    return [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", block)) for block in blocks]


def test_colours_can_be_read_on_paper_and_on_the_page() -> None:
    light, dark = themes()
    assert light["paper"] == PAPER
    assert light["ink"] == INK
    assert light["edge"] == EDGE
    assert [light[f"series-{i}"] for i in range(len(SERIES))] == list(SERIES)
    for theme in (light, dark):
        for ground in ("paper", "raised", "chosen"):
            assert contrast(theme["ink"], theme[ground]) >= READABLE, ground
        for name in ("muted", "link", *(f"series-{i}" for i in range(len(SERIES)))):
            assert contrast(theme[name], theme["paper"]) >= READABLE, name
        for name in ("edge", "focus"):
            assert contrast(theme[name], theme["raised"]) >= VISIBLE, name


def test_every_series_differs_in_line_and_marker_too() -> None:
    with figure():
        cycle = matplotlib.rcParams["axes.prop_cycle"].by_key()
    assert cycle["color"] == list(SERIES)
    for key in ("marker", "linestyle"):
        assert len(set(map(str, cycle[key]))) == len(SERIES), key


def test_eval_imports_without_matplotlib_and_jinja2() -> None:
    modules = sorted(p.stem for p in (ROOT / "eval").glob("*.py") if p.stem != "__init__")
    program = f"""
import importlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("matplotlib", "jinja2", "markupsafe", "torch"):
            raise ImportError(name + " is blocked in this test")
sys.meta_path.insert(0, Blocked())
for module in {modules}:
    importlib.import_module("eval." + module)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
