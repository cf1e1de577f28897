"""The page in a real browser: filters, search, keys, links, themes, phones, no network."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from made_up import made_up_dataset, write_votes

from arc_data.json_files import read_json
from eval.ladder import vote
from eval.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

NUM_TASKS = 35
STATES = ("solved", "near", "wrong", "none")
PIXELS = """(canvas, [rows, cols]) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const cell = (canvas.width - 1) / cols;
  const hex = (x, y) => "#" + [0, 1, 2].map((channel) =>
    data[4 * (y * canvas.width + x) + channel].toString(16).padStart(2, "0")).join("");
  const middle = (place) => Math.floor((place + 0.5) * cell + 0.5);
  const colors = [...Array(rows).keys()].map((r) =>
    [...Array(cols).keys()].map((c) => hex(middle(c), middle(r))));
  let bright = 0;
  for (let i = 0; i < data.length; i += 4) bright += Math.min(...data.slice(i, i + 3)) > 200;
  return [colors, bright];
}"""
"""Colour in the middle of each cell, and the number of nearly white pixels."""


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    dataset = made_up_dataset(NUM_TASKS, 15, canvas=12)
    write_votes(folder / "predictions", dataset)
    vote(folder / "predictions", dataset, folder)
    write_report(folder, dataset)
    return folder


@pytest.fixture
def open_page(open_file: "Callable[..., Page]", evaluation: Path) -> "Callable[..., Page]":
    """Opens the page once it is ready."""

    def open_(fragment: str = "", **options: Any) -> "Page":
        page = open_file(evaluation / "report.html", fragment, **options)
        assert page.locator("html").get_attribute("data-ready") == "true"  # since it is loaded
        return page

    return open_


@pytest.fixture(scope="module")
def tasks(evaluation: Path) -> list[str]:
    return list(read_json(evaluation / "results.json")["tasks"])


def current(page: "Page") -> str:
    """The task shown, which the list marks too."""
    shown = str(page.locator("#task").get_attribute("data-task"))
    assert page.locator('#list a[aria-current="true"] .name').inner_text() == shown
    return shown


def listed(page: "Page") -> list[str]:
    return page.locator("#list .name").all_inner_texts()


def totals(page: "Page") -> dict[str, int]:
    buttons = page.locator("#states button").all()
    return {
        str(b.get_attribute("data-state")): int(b.locator(".total").inner_text()) for b in buttons
    }


def test_filters_by_outcome_at_k(
    open_page: "Callable[..., Page]", evaluation: Path, tasks: list[str]
) -> None:
    page = open_page()
    results = read_json(evaluation / "results.json")
    for k in ("1", "2", "1000"):
        page.locator("#k").select_option(k)
        found = totals(page)
        percent = results["scores"]["task_accuracy_strict"][k]
        assert found["solved"] == round(percent * NUM_TASKS / 100)
        assert found["all"] == NUM_TASKS == sum(found[state] for state in STATES)
        parts = []
        for state in STATES:
            page.locator(f'#states [data-state="{state}"]').click()
            names = listed(page)
            assert len(names) == found[state]
            parts += names
            if names:
                assert current(page) in names
            else:
                assert page.locator("#task").is_hidden()
                assert page.locator("#count").inner_text() == "no task fits the filters"
        assert sorted(parts) == sorted(tasks)
        page.locator('#states [data-state="all"]').click()
    assert all(totals(page)[state] for state in ("solved", "wrong", "none"))


def test_search_and_its_keys(open_page: "Callable[..., Page]", tasks: list[str]) -> None:
    page = open_page()
    page.keyboard.press("/")
    page.keyboard.type("1A")
    assert listed(page) == [task for task in tasks if "1a" in task] != []
    page.keyboard.press("ArrowRight")  # moves the cursor in the field, not the task
    assert current(page) == listed(page)[0]
    page.keyboard.press("Escape")
    assert listed(page) == tasks
    page.locator("#search").fill("no such task")
    assert listed(page) == []
    assert page.locator("#task").is_hidden()


def test_unseen_only(open_page: "Callable[..., Page]", evaluation: Path, tasks: list[str]) -> None:
    page = open_page()
    seen = read_json(evaluation / "results.json")["without_seen_pairs"]["seen"]
    if not seen:
        assert page.locator("#unseen-label").is_hidden()
        return
    page.locator("#unseen").check()
    left_out = {pair.partition("/")[0] for pair in seen}
    assert listed(page) == [task for task in tasks if task not in left_out]


def test_arrows_and_buttons_walk_the_list(
    open_page: "Callable[..., Page]", tasks: list[str]
) -> None:
    page = open_page()
    assert current(page) == tasks[0]
    page.keyboard.press("ArrowLeft")
    assert current(page) == tasks[0]
    assert page.locator("#previous").is_disabled()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert current(page) == tasks[2]
    page.locator("#next").click()
    assert current(page) == tasks[3]
    assert page.locator("#count").inner_text() == f"4 of {NUM_TASKS} tasks"
    page.locator("#previous").click()
    page.locator("#list a").nth(5).click()
    assert current(page) == tasks[5]
    page.keyboard.press("ArrowDown")  # the list has the focus
    assert current(page) == tasks[6]
    focused = page.evaluate("document.activeElement.querySelector('.name').textContent")
    assert focused == tasks[6]
    assert page.locator('#list a[tabindex="0"]').count() == 1


def test_links_lead_to_a_task(open_page: "Callable[..., Page]", tasks: list[str]) -> None:
    page = open_page(f"#task={tasks[-1]}")
    assert current(page) == tasks[-1]
    box = page.locator("#tasks").bounding_box()
    assert box is not None
    assert box["y"] < 450  # scrolled to the browser
    page.keyboard.press("ArrowLeft")
    assert page.url.endswith(f"#task={tasks[-2]}")
    page.locator("#search").fill(tasks[0])
    page.evaluate(f"location.hash = 'task={tasks[4]}'")
    page.locator(f'#task[data-task="{tasks[4]}"]').wait_for()
    assert listed(page) == tasks  # a link wins over the filters
    page.evaluate("location.hash = 'task=nobody'")
    page.locator("#count", has_text="no task nobody on this page").wait_for()
    page.locator('nav a[href="#provenance"]').click()
    assert current(page) == tasks[4]


def test_grids_show_their_colours_and_wrong_cells(
    open_page: "Callable[..., Page]", evaluation: Path
) -> None:
    data = json.loads(
        (evaluation / "report.html")
        .read_text(encoding="utf-8")
        .partition('type="application/json">')[2]
        .partition("</script>")[0]
    )
    number, task = next(
        (i, t) for i, t in enumerate(data["tasks"]) if t["test"][0]["rank"] == 1 and i > 0
    )
    page = open_page(f"#task={task['id']}")
    assert current(page) == data["tasks"][number]["id"]
    first, *others = page.locator(".candidates figure").all()
    assert first.locator(".mark.solved").count() == 1
    assert "right" in first.locator("figcaption").inner_text()
    assert others[0].locator(".mark.wrong").count() == 1
    rows = task["test"][0]["output"].split("/")
    canvas = first.locator("canvas")
    assert canvas.get_attribute("aria-label") == f"Candidate 1, {len(rows)} \u00d7 {len(rows[0])}"
    colors, num_bright = canvas.evaluate(PIXELS, [len(rows), len(rows[0])])
    assert colors == [[data["palette"][int(color)] for color in row] for row in rows]
    assert num_bright == 0  # no colour of the palette is near white: only outlines are
    _, num_bright = others[0].locator("canvas").evaluate(PIXELS, [0, 1])
    assert num_bright > 0
    page.keyboard.press("d")
    assert page.locator("#digits").is_checked()


def test_both_themes(open_page: "Callable[..., Page]") -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = open_page(), open_page(color_scheme="dark")
    assert light.evaluate(ground) == "rgb(255, 255, 255)"
    assert dark.evaluate(ground) == "rgb(15, 20, 26)"
    dark.locator("#theme").click()
    assert dark.evaluate(ground) == "rgb(255, 255, 255)"
    dark.reload()
    assert dark.evaluate(ground) == "rgb(255, 255, 255)"  # the choice is kept
    light.emulate_media(color_scheme="dark")
    light.locator('html[data-theme="dark"]').wait_for()


def test_a_phone_needs_no_sideways_scrolling(open_page: "Callable[..., Page]") -> None:
    page = open_page(
        viewport={"width": 360, "height": 740},
        is_mobile=True,
        has_touch=True,
        device_scale_factor=3,
    )
    for state in ("all", "solved", "none"):
        page.locator(f'#states [data-state="{state}"]').tap()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.locator("#next").tap()
    sizes = page.evaluate(
        "[...document.querySelectorAll('button, #list a')].map((e) => e.clientHeight)"
    )
    assert min(sizes) >= 30  # a finger hits them


def test_every_control_has_a_name_and_takes_the_focus(open_page: "Callable[..., Page]") -> None:
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    nameless = page.evaluate(
        """[...document.querySelectorAll("button, input, select, a")].filter((e) =>
          !(e.textContent.trim() || e.getAttribute("aria-label") || e.closest("label"))).length"""
    )
    assert nameless == 0
    assert page.locator("canvas:not([aria-label]):not([aria-hidden])").count() == 0
