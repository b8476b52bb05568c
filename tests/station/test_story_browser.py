"""The whole story in one browser on one station: seen, corrected, taught, set, warned, logged in.

The chapters use the same station and follow each other, as they do for the people at the line. ``DINOSAUR_SHOTS`` names
a folder for the photographs.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra station")
pytest.importorskip("sqlalchemy", reason="needs the extra station")
pytest.importorskip("playwright.sync_api", reason="needs playwright")

from access_helpers import PASSWORD
from playwright import sync_api
from source_helpers import until
from story_helpers import (
    BROWSER_ARGUMENTS,
    LEARNED_FROM,
    Album,
    StoryLine,
    drawn,
    saved_pictures,
    shots_folder,
    smeared,
    story_line,
)

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium")
expect = sync_api.expect
WAIT = 30_000
"""Milliseconds until something that should happen is given up."""


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoryLine]:
    with story_line(tmp_path_factory.mktemp("story")) as running:
        yield running


@pytest.fixture(scope="module")
def opened(line: StoryLine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Album]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(BROWSER_ARGUMENTS))
        context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", color_scheme="light")
        context.set_default_timeout(WAIT)
        expect.set_options(timeout=WAIT)
        yield Album(context.new_page(), line.url, shots_folder(tmp_path_factory.mktemp("shots")))
        browser.close()


@pytest.fixture
def album(opened: Album) -> Iterator[Album]:
    yield opened
    assert opened.problems == []


def seen_live(album: Album, line: StoryLine, name: str, pixels: Any, verdict: str) -> int:
    """Show a part to the camera and follow it on the live page, without loading that again; the number of the part."""
    album.go("/")
    album.listen()
    album.page.evaluate("window.sameDocument = true")
    line.show(name, pixels)
    panel = album.page.locator("[data-panel]").first
    expect(panel).to_have_attribute("data-verdict", verdict)
    expect(panel).to_have_attribute("data-key", re.compile(re.escape(name)))
    picture = panel.locator("[data-stage] img")
    expect(picture).to_have_attribute("src", re.compile(r"^/parts/\d+/pictures/0/shown$"))
    expect(panel.locator("[data-stage].stale")).to_have_count(0)
    assert album.page.evaluate("window.sameDocument")
    return int(picture.get_attribute("src").split("/")[2])


def product_fact(album: Album, name: str) -> str:
    """A fact in the list of the product page."""
    return str(album.page.locator("dl.facts dt", has_text=name).locator("xpath=following-sibling::dd[1]").inner_text())


def images_of(line: StoryLine, product: str) -> int:
    """How many pictures a product was taught with."""
    return len(line.station.detector.store.record(product).manifest["images"])


def test_parts_are_seen_live(album: Album, line: StoryLine) -> None:
    seen_live(album, line, "good-1", drawn("gear", 1000), "normal")
    expect(album.page.locator("[data-panel] [data-word]").first).to_have_text("Normal")
    expect(album.page.locator("[data-panel] [data-task]").first).to_have_text("gear")
    album.photograph("live-normal")
    seen_live(album, line, "blister-1", drawn("blister", 1001), "normal")
    expect(album.page.locator("[data-panel] [data-task]").first).to_have_text("blister")
    seen_live(album, line, "board-1", drawn("board", 1002), "unknown")
    album.photograph("live-unknown")


def test_fine_is_taught_and_taken_back(album: Album, line: StoryLine) -> None:
    page = album.page
    number = seen_live(album, line, "dirty", smeared(drawn("gear", 2000)), "anomalous")
    assert page.locator("[data-panel] polygon.line").count() > 0
    album.photograph("live-anomalous")
    page.locator("[data-panel] [data-stage]").first.click()
    page.wait_for_url(f"**/parts/{number}")
    expect(page.locator(".viewer svg.outlines polygon.line").first).to_be_visible()
    page.click('[data-layer="heat"]')
    expect(page.locator("img.heat")).to_be_visible()
    expect(page.locator("figure img").nth(1)).to_be_visible()  # the nearest patch of a picture that was learned
    album.photograph("part-anomalous")
    page.click("button.answer.fine")
    expect(page.locator("button.answer.fine")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".said-list li").first).to_contain_text("Fine")
    album.photograph("part-fine")

    images = images_of(line, "gear")
    album.go("/products")
    expect(page.locator(".tile .said")).to_have_count(1)
    page.locator("a.tile", has_text="gear").click()
    page.wait_for_url("**/products/gear")
    expect(page.locator(f"#tray a[href='/parts/{number}']")).to_be_visible()
    album.photograph("product-tray")
    page.click("#tray button[value=approve]")
    expect(page.locator("#changes tbody tr").first).to_contain_text("Updated 'gear'")
    expect(page.locator("#tray .empty")).to_be_visible()
    assert images_of(line, "gear") == images + 1
    album.photograph("product-taught")
    page.click("form[action$='/undo'] button")
    expect(page.locator("#changes tbody tr").first).to_contain_text("Took back")
    assert images_of(line, "gear") == images


def test_a_defect_is_kept_in_the_gallery(album: Album, line: StoryLine) -> None:
    page = album.page
    number = seen_live(album, line, "broken", smeared(drawn("gear", 2002)), "anomalous")
    album.go(f"/parts/{number}")
    page.click("button.answer.defect")
    expect(page.locator("button.answer.defect")).to_have_attribute("aria-pressed", "true")
    until(lambda: line.station.detector.defects("gear"), "the defect did not reach the gallery")
    until(lambda: line.station.teaching.jobs()[0].state == "done", "the defect was not kept")  # the page shows it anew
    album.go("/products/gear")
    picture = page.locator("#gallery .thumbs img")
    expect(picture).to_have_count(1)
    picture.scroll_into_view_if_needed()
    until(lambda: picture.evaluate("image => image.naturalWidth > 0"), "the picture of the defect is not shown")
    album.photograph("product-gallery")


def test_a_product_is_taught_from_files(album: Album, line: StoryLine, tmp_path: Path) -> None:
    page, files = album.page, saved_pictures(tmp_path / "board", "board")
    album.go("/teach")
    page.fill("input[name=name]", "board")
    album.photograph("teach-begin")
    page.click("main button.primary")
    page.wait_for_url("**/teach/*")
    album.listen()
    page.set_input_files("input[type=file]", files)
    expect(page.locator("#pictures .thumbs li")).to_have_count(LEARNED_FROM)
    album.photograph("teach-pictures")
    gate = threading.Event()  # another job first, so that the page has something to wait for
    line.station.teaching.queue.add("update", "another", "test", lambda job: waited_for(gate))
    try:
        page.click("#pictures form[action$='/learn'] button")
        expect(page.locator("[data-job-progress]")).to_be_visible()
        album.photograph("teach-progress")
        album.listen()
    finally:
        gate.set()
    expect(page.locator(".job.done")).to_be_visible()
    expect(page.locator(".promise")).to_contain_text(re.compile(r"\d+(\.\d+)?\s?%"))
    album.photograph("teach-promise")
    page.click(".job a.primary")
    page.wait_for_url("**/products/board")
    seen_live(album, line, "board-2", drawn("board", 1003), "normal")


def waited_for(gate: threading.Event) -> Any:
    from dinosaur_ad.station.jobs import Outcome

    assert gate.wait(WAIT / 1000)
    return Outcome("Waited.", {})


def test_zones_are_drawn_with_the_mouse(album: Album, line: StoryLine) -> None:
    page = album.page
    album.go("/products/gear")
    draw_zone(page, ((0.02, 0.02), (0.98, 0.02), (0.98, 0.3), (0.02, 0.3)))
    expect(page.locator("[data-zone-list] li")).to_have_count(1)
    album.photograph("product-zone-drawn")
    page.click("[data-zone-save]")
    expect(page.locator(".now-ignored rect").first).to_be_attached()
    once = line.station.detector.settings("gear").inspected
    assert once < 0.85
    assert product_fact(album, "Inspected").split() == [f"{once * 100:.0f}", "%"]
    expect(page.locator("[data-zone-list] li")).to_have_count(1)  # to be gone on with
    draw_zone(page, ((0.02, 0.7), (0.98, 0.7), (0.98, 0.98), (0.02, 0.98)))
    expect(page.locator("[data-zone-list] li")).to_have_count(2)
    page.click("[data-zone-save]")
    expect(page.locator("#changes tbody tr").nth(1)).to_contain_text("zones", ignore_case=True)
    assert line.station.detector.settings("gear").inspected < once - 0.1
    album.photograph("product-zones-saved")
    page.click("form[action$='/undo'] button")
    expect(page.locator("#changes tbody tr").first).to_contain_text("Took back")
    assert line.station.detector.settings("gear").inspected == once
    expect(page.locator("[data-zone-list] li")).to_have_count(1)
    page.click("#zones form button.quiet")
    expect(page.locator(".now-ignored")).to_have_count(0)
    expect(page.locator("[data-zone-list] li")).to_have_count(0)
    assert line.station.detector.settings("gear").inspected == 1


def draw_zone(page: Any, corners: tuple[tuple[float, float], ...]) -> None:
    """Click the corners on the picture, and the first once more."""
    canvas = page.locator("[data-zone-canvas]")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    for x, y in (*corners, corners[0]):
        page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])


def test_the_slider_sets_the_threshold(album: Album, line: StoryLine) -> None:
    page, before = album.page, line.station.detector.threshold("gear")
    album.go("/products/gear")
    page.locator("[data-place]").first.wait_for()
    page.locator("#slider").focus()
    page.keyboard.press("End")
    expect(page.locator("[data-slider-says]")).to_contain_text("10: ")
    album.photograph("product-slider")
    page.click("[data-slider-save]")
    expect(page.locator("#changes tbody tr").first).to_contain_text("ensitivity")
    expect(page.locator("#slider")).to_have_value("10")
    after = line.station.detector.threshold("gear")
    assert after < before
    assert product_fact(album, "Threshold").startswith(f"{after:.3f}")
    page.click("form[action$='/undo'] button")
    expect(page.locator("#changes tbody tr").first).to_contain_text("Took back")
    assert line.station.detector.threshold("gear") == before


def test_a_failing_lamp_is_warned_of_and_accepted(album: Album, line: StoryLine) -> None:
    page = album.page
    album.go("/")
    album.listen()
    for index in range(75):
        line.show(f"lamp-{index:03d}", drawn("gear", 5000 + index))
    for index in range(75, 105):
        line.show(f"lamp-{index:03d}", drawn("gear", 5000 + index, light=0.6))
    warning = page.locator(".warning").first
    expect(warning).to_contain_text("gear")
    expect(warning).to_contain_text("contrast")
    assert warning.locator(".links a").count() > 0
    expect(page.locator("[data-panel]").first).to_have_attribute("data-key", re.compile("lamp-104"))
    album.photograph("live-warning")
    album.go("/trends?period=hour")
    expect(page.locator(".chart-box svg").first).to_be_visible()
    today = page.locator(".chart-box .bar").last
    expect(today).to_be_in_viewport()  # also where the chart is wider than its place
    album.photograph("trends")
    album.go("/")
    warning.locator("a.primary").click()
    page.wait_for_url("**/products/gear#recalibrate")
    expect(page.locator("#recalibrate .thumbs li").first).to_be_visible()
    album.photograph("product-recalibrate")
    page.click("#recalibrate form[action$='/recalibrate'] button")
    expect(page.locator("#changes tbody tr").first).to_contain_text("Recalibrated")
    album.go("/")
    expect(page.locator(".warning")).to_have_count(0)
    seen_live(album, line, "still-dark", drawn("gear", 5500, light=0.6), "normal")


def test_other_pages_are_photographed(album: Album) -> None:
    for path, heading in (("/parts", "Parts"), ("/system", "System"), ("/people", "People"), ("/products", "Products")):
        album.go(path)
        expect(album.page.locator("h1")).to_have_text(heading)
        album.photograph(path.strip("/"))


def test_an_account_is_made_and_logged_into(album: Album, line: StoryLine) -> None:
    page = album.page
    album.go("/setup")
    page.fill("input[name=name]", "Anna")
    page.fill("input[name=password]", PASSWORD)
    album.photograph("setup")
    page.click("main button.primary")
    expect(page.locator("button.person")).to_contain_text("Anna")
    page.click("button.person")
    page.wait_for_url("**/login")
    album.go("/products/gear")
    page.wait_for_url("**/login**")
    page.fill("input[name=name]", "Anna")
    page.fill("input[name=password]", "seven loud pelicans")
    page.click("main button.primary")
    expect(page.locator(".notice.bad")).to_have_text("The name or the password is wrong.")
    album.photograph("login-refused")
    page.fill("input[name=name]", "Anna")
    page.fill("input[name=password]", PASSWORD)
    page.click("main button.primary")
    page.wait_for_url("**/products/gear")
    expect(page.locator("button.person")).to_contain_text("Anna")


def test_the_page_speaks_german(album: Album) -> None:
    page = album.page
    album.go("/products")
    page.click("form[action='/language'] button")
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(page.locator("h1")).to_have_text("Produkte")
    album.go("/")
    expect(page.locator("[data-panel] [data-word]").first).to_have_text("Normal")
    album.photograph("live-german")
    album.go("/products/gear")
    album.photograph("product-german")
