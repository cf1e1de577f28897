"""The pages of sigma and kappa in a real browser: themes, phones, figures, no network."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kappa_probes import make_loop_probe, make_probe
from loss_runs import study
from sigma_runs import make_result, ranks_of, write_result

from arc_data.json_files import write_json
from eval.kappa_page import write_kappa_page
from eval.loss_sigma import summarise_losses
from eval.seeds import summarise
from eval.sigma_inputs import collect
from eval.sigma_page import write_sigma_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

OPEN_ALL = "document.querySelectorAll('details').forEach((details) => { details.open = true; })"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, gain in (("vanilla", 0), ("deeploop", 2)):
        for seed in range(3):
            result = make_result(seed, ranks_of(7 + gain + seed), f"{name}-last_step")
            write_result(folder / "runs" / f"{name}{seed}" / "results.json", result)
    write_json(folder / "sigma.json", summarise(collect([folder / "runs"]), num_draws=100))
    for i, result in enumerate(study()):
        write_result(folder / "loss" / "runs" / f"{i}" / "results.json", result)
    write_json(folder / "loss" / "sigma.json", summarise_losses(collect([folder / "loss/runs"])))
    return {
        "sigma": write_sigma_page(folder),
        "loss": write_sigma_page(folder / "loss"),
        "kappa": write_kappa_page(make_probe((1, 2, 4), rates=(1e-4, 1e-3)), folder / "k.html"),
        "rounds": write_kappa_page(make_loop_probe((1, 3), rates=(1e-4, 1e-3)), folder / "r.html"),
    }


@pytest.mark.parametrize("name", ["sigma", "kappa", "loss", "rounds"])
def test_themes_sections_and_figures(
    name: str, open_file: "Callable[..., Page]", pages: dict[str, Path]
) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page = open_file(pages[name], color_scheme="dark")
    assert page.evaluate(ground) == "rgb(15, 20, 26)"
    page.locator("#theme").click()
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    links = page.locator("nav a").all()
    assert links
    for link in links:
        link.click()
        assert page.locator(str(link.get_attribute("href"))).is_visible()
    page.evaluate(OPEN_ALL)
    figures = page.locator("figure svg").all()
    assert len(figures) >= 3
    for figure in figures:
        box = figure.bounding_box()
        assert box is not None
        assert box["width"] > 200
    assert page.locator("figure:not([aria-label])").count() == 0


@pytest.mark.parametrize("name", ["sigma", "kappa", "loss", "rounds"])
def test_a_phone_needs_no_sideways_scrolling(
    name: str, open_file: "Callable[..., Page]", pages: dict[str, Path]
) -> None:
    page = open_file(pages[name], viewport={"width": 360, "height": 740}, is_mobile=True)
    page.evaluate(OPEN_ALL)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_seeds_that_solve_a_task_are_told_apart(
    open_file: "Callable[..., Page]", pages: dict[str, Path]
) -> None:
    page = open_file(pages["sigma"])
    row = page.locator(".discordant tbody tr", has_text="t009")  # solved from 10 tasks on
    control, treatment = row.locator(".seeds").all()
    assert control.locator(".on").all_inner_texts() == []
    assert treatment.locator(".on").all_inner_texts() == ["1", "2"]
    assert treatment.get_attribute("aria-label") == "solved by 2 of 3 seeds: 1, 2"
    on, off = treatment.locator(".on").first, treatment.locator(".off").first
    color = "e => getComputedStyle(e).backgroundColor"
    assert on.evaluate(color) != off.evaluate(color)
