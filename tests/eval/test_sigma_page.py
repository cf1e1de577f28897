"""The page of a sigma report: words first, every seed, nothing hidden, one file."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from sigma_runs import make_result, ranks_of, write_result, write_run

from arc_data.json_files import read_json, write_json
from eval import sigma_figures
from eval.plots import inline_svg
from eval.seeds import summarise
from eval.sigma_inputs import collect
from eval.sigma_page import render_sigma, write_sigma_page

ARMS = {
    "vanilla-last_step": {0: 40, 1: 41, 2: 45},
    "deeploop-last_step": {0: 42, 1: 44, 2: 46, 3: 47},
}


def summary_of(folder: Path, arms: dict[str, dict[int, int]] = ARMS) -> dict[str, Any]:
    for name, solved in arms.items():
        for seed, n in solved.items():
            result = make_result(seed, ranks_of(n, 100), name)
            write_run(folder / f"{name}{seed}", result, losses=[3.0, 2.0 + n / 100])
    return summarise(collect([folder]), num_draws=200)


def ids(text: str) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', text)


def plain(text: str) -> str:
    return re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)


def test_everything_is_in_one_file(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "dead", state="interrupted")
    summary = summary_of(tmp_path / "runs")
    write_json(tmp_path / "sigma.json", summary)
    text = write_sigma_page(tmp_path).read_text(encoding="utf-8")
    assert len(ids(text)) == len(set(ids(text)))
    sections = ("words", "ladder", "differences", "tasks", "learning", "arms", "conditions")
    assert set(sections) <= set(ids(text))
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert not re.search(r"@import|url\((?!#)", text)
    for sentence in summary["words"]:
        assert sentence in unescape(text)
    assert text.index(summary["words"][0]) < text.index('id="ladder"')
    assert re.search(r"Not counted: .*dead is interrupted", text)
    assert text.index("Not counted") < text.index(summary["words"][0])
    assert "Missing seeds of vanilla-last_step: 3; n is 3." in text
    assert "0: 40.00, 1: 41.00, 2: 45.00" in text
    assert "<td>2.65</td>" in text  # s of vanilla
    assert "seeds of the treatment without a partner: 3" in text
    assert write_sigma_page(tmp_path, out=tmp_path / "b.html").read_text(encoding="utf-8") == text


def test_which_seeds_solve_what(tmp_path: Path) -> None:
    text = plain(render_sigma("s", summary_of(tmp_path)))
    rows = re.findall(r'mono">(t\d+)</th>(.*?)</tr>', text, re.DOTALL)
    marks = {
        task: [re.findall(r'class="(on|off)">(\d)<', cell) for cell in row.split("</td>")[:2]]
        for task, row in rows
    }
    # 40, 41, 45 against 42, 44, 46 of the first tasks; seed 3 has no partner.
    assert sorted(marks) == ["t040", "t041", "t042", "t043", "t045"]
    assert marks["t041"] == [
        [("off", "0"), ("off", "1"), ("on", "2")],
        [("on", "0"), ("on", "1"), ("on", "2")],
    ]
    shares = [len([m for m in marks[task][1] if m[0] == "on"]) for task, _ in rows]
    before = [len([m for m in marks[task][0] if m[0] == "on"]) for task, _ in rows]
    gains = [abs(b - a) for a, b in zip(before, shares, strict=True)]
    assert gains == sorted(gains, reverse=True)


def test_one_seed_is_undefined_and_one_arm_has_no_differences(tmp_path: Path) -> None:
    text = render_sigma("s", summary_of(tmp_path, {"vanilla-last_step": {0: 40}}))
    assert "<td>undefined</td>" in text
    assert not {"differences", "tasks"} & set(ids(text))
    assert "every sigma is undefined" in text


def test_unpaired_foreign_results(tmp_path: Path) -> None:
    for i, (name, n) in enumerate((("them", 5), ("others", 9))):
        result = make_result(None, ranks_of(n), name, digest=None, rule=None, step=None)
        write_result(tmp_path / f"{i}.json", result)
    paths = [tmp_path / "0.json", tmp_path / "1.json"]
    summary = summarise(collect(paths), num_draws=200)
    text = render_sigma("s", summary)
    assert "learning" not in ids(text)
    assert "Unpaired" in text
    assert sigma_figures.draw_differences(summary, lambda fig: fig) is None


def test_figures_have_every_seed_interval_and_curve(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    ladder = sigma_figures.draw_ladder(summary, lambda fig: inline_svg(fig, "a"))
    assert "vanilla-last_step (n = 3)" in ladder
    forest = sigma_figures.draw_forest(summary, lambda fig: inline_svg(fig, "b"))
    for label in ("K = 1", "K = 2*", "K = 10", "95 % over seeds (t)", "(primary)"):
        assert label in forest, label
    learning = sigma_figures.draw_learning(summary, lambda fig: inline_svg(fig, "c"))
    assert "token loss in training" in learning
    assert sigma_figures.headline({"top_k": ["1", "2"]}) == "2"
    assert sigma_figures.headline({"top_k": ["5", "7"]}) == "5"


def test_texts_cannot_break_out(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    text = render_sigma(evil, summary_of(tmp_path / "a b", {evil.replace("/", "_"): {0: 1, 1: 3}}))
    assert "<script>alert" not in text


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"sigma\.json does not exist"):
        write_sigma_page(tmp_path)
    write_json(tmp_path / "sigma.json", {"schema": "other"})
    with pytest.raises(
        ValueError, match=r"schema must be 'hrm_deeploop\.sigma/1' or .*, found 'other'"
    ):
        write_sigma_page(tmp_path)
    assert read_json(tmp_path / "sigma.json") == {"schema": "other"}
