"""A browser, and pages that may neither complain nor ask for anything."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Tests may run as root, where chromium has no sandbox.
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_file(browser: "Browser") -> "Iterator[Callable[..., Page]]":
    """Opens a page; afterwards nothing may have been complained about or asked for."""
    complaints: list[str] = []
    contexts = []

    def open_(path: Path, fragment: str = "", **options: Any) -> "Page":
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((path.as_uri(), "data:"))
                else complaints.append(f"asked for {request.url}")
            ),
        )
        page.goto(path.as_uri() + fragment)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
