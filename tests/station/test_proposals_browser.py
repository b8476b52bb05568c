"""In a real browser: unknown parts become a proposal, a person accepts it, and the next part is judged as that product.

``DINOSAUR_SHOTS`` names a folder for the photographs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")
pytest.importorskip("sqlalchemy", reason="needs the extra station")
pytest.importorskip("playwright.sync_api", reason="needs playwright")

from playwright import sync_api
from source_helpers import until
from story_helpers import BROWSER_ARGUMENTS, Album, StoryLine, drawn, shots_folder, story_line

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium")
expect = sync_api.expect
WAIT = 60_000
"""Milliseconds until something that should happen is given up."""
UNKNOWN_PRODUCT, ENOUGH = "board", 20
SCREENS = {"phone": (390, 844), "tablet": (820, 1180), "monitor": (1920, 1080)}


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoryLine]:
    with story_line(tmp_path_factory.mktemp("proposals")) as running:
        yield running


@pytest.fixture(scope="module")
def album(line: StoryLine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Album]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(BROWSER_ARGUMENTS))
        context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", color_scheme="light")
        context.set_default_timeout(WAIT)
        expect.set_options(timeout=WAIT)
        opened = Album(context.new_page(), line.url, shots_folder(tmp_path_factory.mktemp("shots")))
        opened.expected = ["422"]  # a name that is taken is refused
        yield opened
        browser.close()
        assert opened.problems == []


def photograph(album: Album, name: str) -> None:
    """Keep how the page looks on each screen, light and dark; nothing may be wider than the screen."""
    for screen, (width, height) in SCREENS.items():
        album.page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            if "DINOSAUR_SHOTS" in os.environ:
                album.page.emulate_media(color_scheme=scheme)
                album.photograph(f"{name}-{screen}-{scheme}")
        assert album.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), screen
    album.page.set_viewport_size({"width": 1280, "height": 900})
    album.page.emulate_media(color_scheme="light")


def test_unknown_parts_are_proposed_on_the_live_page(album: Album, line: StoryLine) -> None:
    album.go("/")
    album.listen()
    album.page.evaluate("window.sameDocument = true")
    for number in range(ENOUGH):
        line.show(f"board-{number:02d}", drawn(UNKNOWN_PRODUCT, number))
    panel = album.page.locator("[data-panel]").first
    expect(panel).to_have_attribute("data-verdict", "unknown")
    expect(album.page.locator(".proposed")).to_contain_text("1 proposed product waits for a decision.")
    assert album.page.evaluate("window.sameDocument")
    photograph(album, "live-proposed")
    album.page.locator(".proposed a").click()
    album.page.wait_for_url("**/proposals")
    expect(album.page.locator(".proposal h2")).to_contain_text("may be a new product")
    assert album.page.locator(".proposal .thumbs img").count() >= ENOUGH
    until(
        lambda: album.page.locator(".proposal .thumbs img").last.evaluate("image => image.naturalWidth > 0"),
        "the pictures of the proposal are not shown",
    )
    photograph(album, "proposal-open")


def test_it_is_accepted_by_keyboard_and_the_next_part_is_that_product(album: Album, line: StoryLine) -> None:
    page = album.page
    album.go("/proposals")
    album.listen()
    name = page.locator(".proposal-name input[name=name]")
    name.fill("gear")
    name.press("Enter")
    expect(page.locator("#notices .notice")).to_contain_text("There is a task 'gear' already")
    expect(name).to_have_value("gear")  # nothing that was typed is lost
    name.fill(UNKNOWN_PRODUCT)
    name.press("Enter")
    row = page.locator("[data-decided]")
    expect(row).to_contain_text("was learned as")
    expect(page.locator(".proposal")).to_have_count(0)
    photograph(album, "proposal-decided")
    album.go("/")
    album.listen()
    line.show("board-next", drawn(UNKNOWN_PRODUCT, 1000))
    panel = page.locator("[data-panel]").first
    expect(panel.locator("[data-task]")).to_have_text(UNKNOWN_PRODUCT)
    expect(panel).to_have_attribute("data-verdict", "normal")
    expect(page.locator(".proposed")).to_have_count(0)


def test_german(album: Album, line: StoryLine) -> None:
    album.go("/proposals")
    album.page.locator("button[name=language]").click()
    album.page.wait_for_url("**/proposals")
    expect(album.page.locator("h1")).to_have_text("Vorschläge")
    photograph(album, "deutsch")
    seen: Any = album.page.locator("[data-decided]")
    expect(seen).to_contain_text("wurde gelernt als")
