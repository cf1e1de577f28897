"""The page of a kappa probe: its numbers, its words, one file, and what it refuses."""

import re
from pathlib import Path

import pytest
from kappa_probes import make_loop_probe, make_probe

from arc_data.json_files import write_json
from eval.kappa_figures import Probes, draw_alignment, draw_kappa, draw_visits
from eval.kappa_page import read_probes, render_kappa, write_kappa_page
from eval.plots import inline_svg, save


def ids(text: str) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', text)


def test_everything_is_in_one_file(tmp_path: Path) -> None:
    probe = make_probe((1, 2, 4), rates=(1e-4, 1e-2))
    write_json(tmp_path / "k.json", probe)
    page = write_kappa_page(read_probes(tmp_path / "k.json"), tmp_path / "k.html")
    text = page.read_text(encoding="utf-8")
    assert len(ids(text)) == len(set(ids(text)))
    assert {"words", "kappa", "alignment", "first-step", "visits", "probe"} <= set(ids(text))
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert not re.search(r"@import|url\((?!#)", text)
    # kappa = sqrt R: gamma 1/2, which asks for 3/8.
    assert "<td>1.414</td><td>0.5</td><td>0.375</td>" in text
    assert "<td>0.5</td><td>3</td><td>0.5</td>" in text  # p, alpha, beta of L
    assert render_kappa("k", probe) == text


def test_words() -> None:
    text = render_kappa("k", make_probe((2, 4), rates=(1e-4, 1e-2)))
    assert "The gradient sees H once, so its kappa is exactly 1" in text
    assert (
        "Kappa of L is 1.41 of at most 2 at L_cycles 2, 2 of at most 4 at L_cycles 4. Over L_cycles"
        " it goes as L_cycles^0.50, which asks for the exponent 0.38; the model has 0.5."
    ) in text
    assert (
        "At L_cycles 4 one step at lr 0.0001 moves the logits, through the visible calls, by"
        " 0.018 % of their norm; first order describes the change within 10 % at lr 0.0001 of the"
        " rates tried (0.0001, 0.01)."
    ) in text


def test_one_probe_that_sees_every_level_once() -> None:
    text = render_kappa("k", make_probe((2,), rates=(1.0,), one_visit=True))
    assert "alignment" not in ids(text)
    assert "The gradient sees L once" in text
    assert "at none of the rates tried (1)" in text
    assert "by the slope" not in text


def test_what_is_unknown_is_left_out() -> None:
    probe = make_probe((2, 4))
    for row in probe["rows"]:
        row["kappa"]["bound_measured"] = None
        level = row["kappa"]["levels"]["L"]
        level.update(kappa=None, gamma=None, exponent=None)
        for sublayer in level["sublayers"]:
            sublayer["kappa"] = None
            sublayer["read"].update(alignment=None, cosines=[[None] * level["rounds"]] * 2)
        row["residual"]["L"] = {"alpha": 3.0, "beta": 1.0}
    probe["gamma_over_cycles"]["L"] = None
    text = render_kappa("k", probe)
    assert "Kappa of L is undefined." in text
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)


def test_figures(tmp_path: Path) -> None:
    probes = Probes(make_probe())
    svg = draw_kappa(probes, lambda fig: inline_svg(fig, "k"))
    for label in ("L: gamma = 0.50", "gamma = 1 (kappa = R)", "p of H", "p of L", "worst case"):
        assert label in svg, label
    assert "H: gamma" not in svg  # a level that is seen once has none
    assert draw_alignment(probes, lambda fig: inline_svg(fig, "k")).count('id="k-axes_') == 3
    path = draw_visits(probes.rows[-1], lambda fig: save(fig, tmp_path / "visits.png"))
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_language_models_page_speaks_of_rounds() -> None:
    probe = make_loop_probe((1, 3), rates=(1e-4, 1e-2))
    text = render_kappa("k", probe)
    assert (
        "Kappa of blocks is 1 of at most 1 at rounds 1, 1.73 of at most 3 at rounds 3. Over rounds"
        " it goes as rounds^0.50, which asks for the exponent 0.38; the model has 0.5."
    ) in text
    assert "At rounds 3 one step at lr 0.0001 moves the logits by 0.018 % of their norm" in text
    assert "L_cycles" not in text
    assert "visible calls" not in text
    assert "<em>Visible" not in text
    assert "<td>0.5</td><td>3</td><td>0.25</td><td>1</td>" in text  # p, alpha, beta, eps
    assert "optimizer adam_atan2, beta1 0.9" in text
    assert "M kappa (beta / alpha)^2" in text
    svg = draw_kappa(Probes(probe), lambda fig: inline_svg(fig, "k"))
    for label in ("rounds", "blocks: gamma = 0.50", "p of blocks", "worst case"):
        assert label in svg, label


def test_no_bound_is_shown_where_there_is_none() -> None:
    probe = make_loop_probe(has_alpha=False)
    text = render_kappa("k", probe)
    assert "bound is for streams with alpha: there is none here" in text
    assert "worst case" not in text
    assert "the model has" not in text
    assert "<td>-</td><td>1</td><td>1</td><td>0.125</td>" in text
    assert draw_kappa(Probes(probe), lambda fig: inline_svg(fig, "k")).count('id="k-axes_') == 2


def test_another_file_is_refused(tmp_path: Path) -> None:
    for content in ({"schema": "hrm_deeploop.sigma/1"}, [], {}):
        write_json(tmp_path / "a.json", content)
        with pytest.raises(ValueError, match=r"a\.json: schema must be 'hrm_deeploop.kappa/1'"):
            read_probes(tmp_path / "a.json")
    with pytest.raises(FileNotFoundError):
        read_probes(tmp_path / "none.json")
