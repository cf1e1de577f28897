"""The page of losses over seeds: words first, every seed, nothing hidden, one file."""

import re
from html import unescape
from pathlib import Path
from typing import Any

from loss_runs import seeds_of, study
from sigma_runs import write_run

from arc_data.json_files import write_json
from eval import loss_figures
from eval.loss_page import render_losses
from eval.loss_sigma import summarise_losses
from eval.plots import inline_svg
from eval.sigma_inputs import collect
from eval.sigma_page import write_sigma_page


def summary_of(folder: Path, results: list[dict[str, Any]]) -> dict[str, Any]:
    for i, result in enumerate(results):
        write_run(folder / f"{i:02d}", result, losses=[4.0, 3.0 + 0.01 * i])
    return summarise_losses(collect([folder]))


def ids(text: str) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', text)


def test_everything_is_in_one_file(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "dead", state="interrupted")
    summary = summary_of(tmp_path / "runs", study()[:-1])
    write_json(tmp_path / "sigma.json", summary)
    text = write_sigma_page(tmp_path).read_text(encoding="utf-8")
    assert len(ids(text)) == len(set(ids(text)))
    sections = ("words", "loss", "differences", "learning", "arms", "conditions")
    assert set(sections) <= set(ids(text))
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert not re.search(r"@import|url\((?!#)", text)
    for sentence in summary["words"]:
        assert sentence in unescape(text)
    assert text.index(summary["words"][0]) < text.index('id="loss"')
    assert text.index("Not counted") < text.index(summary["words"][0])
    assert "Missing seeds of deeploop-R7: 3; n is 3." in text
    assert "0: 2.8000, 1: 2.8300, 2: 2.7800, 3: 2.7900" in text
    assert "is 3.2000 nats per token" in text  # the floor
    assert '<th scope="col">R = 7</th>' in text
    assert text.count("deeploop-R3 minus base-R3") == 2  # both ways to compare
    assert "arm deeploop, K 2, R 3, N 6, p 0.5" in text


def test_one_run(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, seeds_of([3.0]))
    text = render_losses("s", summary)
    assert "differences" not in ids(text)
    assert "every sigma is undefined" in text
    assert loss_figures.draw_forest(summary, lambda fig: fig) is None
    assert loss_figures.draw_differences(summary, lambda fig: fig) is None


def test_figures_have_arms_rounds_and_intervals(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, study())
    rounds = loss_figures.draw_rounds(summary, lambda fig: inline_svg(fig, "a"))
    assert "base (n = 4, 4, 4)" in rounds
    forest = loss_figures.draw_forest(summary, lambda fig: inline_svg(fig, "b"))
    for label in ("95 % over seeds (t)", "95 % over documents, these runs", "minus base-R7"):
        assert label in forest, label


def test_texts_cannot_break_out(tmp_path: Path) -> None:
    results = seeds_of([3.0, 3.1], departures="</script><script>alert(1)</script>")
    assert "<script>alert" not in render_losses("</title>", summary_of(tmp_path, results))
