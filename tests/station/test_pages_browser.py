"""The pages in a real browser: what moves, what the keys do, and what axe-core says."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the pages need the extra 'station'")
pytest.importorskip("playwright", reason="the browser is driven by playwright")

from fake_station import FakeStation
from PIL import Image
from playwright import sync_api

from detector_helpers import product
from dinosaur_ad.station.web.app import create_app, make_server

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
WAIT = 20_000
"""Milliseconds until something that should happen is given up."""


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeStation]:
    made = FakeStation(tmp_path_factory.mktemp("browser"))
    made.record(ago=600)
    made.flagged = made.record("anomalous", ago=300)  # type: ignore[attr-defined]
    made.record(ago=60)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def place(station: FakeStation) -> Iterator[str]:
    station.config = replace(station.config, server=replace(station.config.server, port=0))
    server = make_server(create_app(station), station.config.server)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    waited = threading.Event()
    for _ in range(400):
        if server.started:
            break
        waited.wait(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(15)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM:
        pytest.skip("there is no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, "--disable-sync"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, has_touch=False)
    context.set_default_timeout(WAIT)
    opened = context.new_page()
    opened.problems = []
    opened.on("pageerror", lambda error: opened.problems.append(str(error)))
    opened.on("console", lambda said: opened.problems.append(said.text) if "Security Policy" in said.text else None)
    yield opened
    assert opened.problems == []
    context.close()


def test_the_live_page_shows_a_part_without_loading_again(page: Any, place: str, station: FakeStation) -> None:
    page.goto(place)
    page.evaluate("window.sameDocument = true")
    band = page.locator("[data-panel]")
    sync_api.expect(band).to_have_attribute("data-verdict", "normal")
    before = int(page.locator('[data-count="anomalous"]').inner_text())
    sync_api.expect(page.locator("[data-connection]")).to_be_hidden()
    wait_for_listener(page, station)
    part = station.judged("anomalous")
    station.bus.publish("part", part.to_json() | {"id": None})
    sync_api.expect(band).to_have_attribute("data-verdict", "anomalous")
    sync_api.expect(band.locator("[data-word]")).to_have_text("Anomalous")
    number = station.history.record_part(part)
    station.bus.publish("recorded", {"id": number, "key": part.key})
    sync_api.expect(band.locator("[data-stage] img")).to_have_attribute("src", f"/parts/{number}/pictures/0/shown")
    assert band.locator("polygon.line").count() == 1
    assert int(page.locator('[data-count="anomalous"]').inner_text()) == before + 1
    sync_api.expect(page.locator(".strip li").first.locator("a")).to_have_attribute("href", f"/parts/{number}")
    station.history.add_warning("task", "gear", "The lamp gets darker.", {}, [number])
    station.bus.publish("warning", {"sentence": "The lamp gets darker."})
    sync_api.expect(page.locator(".warning")).to_contain_text("The lamp gets darker.")
    assert page.evaluate("window.sameDocument")


def wait_for_listener(page: Any, station: FakeStation) -> None:
    for _ in range(200):
        if len(station.bus):
            return
        page.wait_for_timeout(50)
    raise AssertionError("the page does not listen")


def test_an_old_verdict_does_not_look_current_without_connection(page: Any, place: str) -> None:
    page.route("**/events", lambda route: route.abort())
    page.goto(place)
    page.locator("[data-connection]").wait_for()
    assert "offline" in page.locator("body").get_attribute("class")


def test_a_part_is_answered_by_key_and_looked_at_closely(page: Any, place: str, station: Any) -> None:
    page.goto(f"{place}/parts/{station.flagged}")
    viewer = page.locator("[data-viewer]")
    page.click('[data-zoom="in"]')
    assert float(viewer.get_attribute("data-zoom")) == 1.5
    box = viewer.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -400)
    sync_api.expect(viewer).to_have_attribute("data-zoom", re.compile(r"^(2\.\d*[1-9]|[3-9]|\d{2})"))
    page.click('[data-layer="heat"]')
    sync_api.expect(page.locator("img.heat")).to_be_visible()
    page.click('[data-layer="outlines"]')
    sync_api.expect(page.locator(".viewer svg.outlines")).to_be_hidden()
    page.click('[data-zoom="fit"]')
    page.locator("h1").click()
    page.keyboard.press("1")
    sync_api.expect(page.locator('[data-hotkey="1"]')).to_have_attribute("aria-pressed", "true")
    assert station.history.part(station.flagged).answer == "fine"
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(f"{place}/parts/{station.flagged - 1}")


def test_a_zone_is_drawn_on_the_picture_and_taken_back(page: Any, place: str, station: Any) -> None:
    page.goto(f"{place}/products/gear")
    canvas = page.locator("[data-zone-canvas]")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    for x, y in ((0.02, 0.02), (0.98, 0.02), (0.98, 0.4), (0.02, 0.4), (0.02, 0.02)):  # the last closes it
        page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])
    sync_api.expect(page.locator("[data-zone-list] li")).to_have_count(1)
    page.click("[data-zone-save]")
    sync_api.expect(page.locator(".now-ignored rect").first).to_be_attached()
    assert station.detector.settings("gear").inspected < 0.8
    page.click("form[action$='/undo'] button")
    page.wait_for_load_state()
    sync_api.expect(page.locator(".now-ignored")).to_have_count(0)
    assert station.detector.settings("gear").inspected == 1


def test_the_slider_says_what_it_would_have_done(page: Any, place: str, station: Any) -> None:
    page.goto(f"{place}/products/gear")
    page.locator("[data-place]").first.wait_for()
    page.locator("#slider").fill("9")
    sync_api.expect(page.locator('[data-place="9"]')).to_have_class("chosen")
    sync_api.expect(page.locator("[data-slider-says]")).to_contain_text("9: asks for")
    page.click("[data-slider-save]")
    sync_api.expect(page.locator("#slider")).to_have_value("9")


def test_a_product_is_taught_from_the_page(page: Any, place: str, station: Any, tmp_path: Path) -> None:
    files = []
    for number, pixels in enumerate(product(3, 14, seed=5)):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        files.append(tmp_path / f"{number}.png")
    page.goto(f"{place}/teach")
    page.fill("input[name=name]", "washer")
    page.click("main button.primary")
    page.wait_for_url("**/teach/*")
    page.set_input_files("input[type=file]", files)
    sync_api.expect(page.locator("#pictures .thumbs li")).to_have_count(14)
    page.locator("#pictures .thumbs input").first.check()
    page.click("#pictures form[action$='/remove'] button")
    sync_api.expect(page.locator("#pictures .thumbs li")).to_have_count(13)
    page.click("#pictures form[action$='/learn'] button")
    card = page.locator("[data-job][data-ended=yes]")
    card.wait_for()
    if "refused" in card.get_attribute("class"):  # random features: the guard may ask to look again
        page.check("input[name=force]")
        page.click("form.force button")
        page.locator(".job.done").wait_for()
    sync_api.expect(page.locator(".promise")).to_be_visible()
    assert "washer" in station.detector
    page.click(".job a.primary")
    page.wait_for_url("**/products/washer")


def test_pictures_are_taken_from_a_camera(page: Any, place: str, station: Any) -> None:
    page.goto(f"{place}/teach")
    page.fill("input[name=name]", "nut")
    page.click("main button.primary")
    page.wait_for_url("**/teach/*")
    page.fill("input[name=count]", "2")
    page.click("button[value=last]")
    sync_api.expect(page.locator("#pictures .thumbs li")).to_have_count(2)
    page.click("button[value=next]")
    sync_api.expect(page.locator("#pictures .notice.good")).to_be_visible()
    wait_for_listener(page, station)
    for _ in range(2):
        part = station.judged()
        station.bus.publish("recorded", {"id": station.history.record_part(part), "key": part.key})
        page.wait_for_timeout(800)
    sync_api.expect(page.locator("#pictures .thumbs li")).to_have_count(4)
    sync_api.expect(page.locator("#pictures .notice.good")).to_have_count(0)


def test_light_and_dark_can_be_chosen(page: Any, place: str) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(f"{place}/parts")
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.click("[data-theme-toggle]")
    assert page.evaluate(colour) != light
    page.reload()
    assert page.evaluate(colour) != light


@pytest.mark.parametrize("width", [390, 820, 1920])
def test_nothing_is_wider_than_the_screen(page: Any, place: str, station: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    paths = (
        "/",
        "/parts",
        f"/parts/{station.flagged}",
        "/products/gear",
        "/proposals",
        "/trends",
        "/system",
        "/people",
    )
    for path in paths:
        page.goto(place + path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, place: str, station: Any, scheme: str) -> None:
    file = os.environ.get("DINOSAUR_AXE")
    if not file:
        pytest.skip("DINOSAUR_AXE names no axe.min.js (npm pack axe-core)")
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    paths = ["/", "/parts", f"/parts/{station.flagged}", "/teach", "/products", "/products/gear", "/proposals"]
    found = []
    for path in [*paths, "/trends", "/system", "/people", "/setup"]:
        page.goto(place + path)
        page.wait_for_load_state("load")
        page.evaluate(Path(file).read_text("utf-8"))
        violations = page.evaluate("async () => (await axe.run()).violations.map((each) => [each.impact, each.id])")
        found += [(path, *each) for each in violations if each[0] in ("serious", "critical")]
    context.close()
    assert found == []
