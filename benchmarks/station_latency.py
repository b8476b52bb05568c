"""How soon a verdict is there, and what open pages and strangers cost; see :mod:`benchmarks.station_soak`.

All that is compared is measured in turns of a few seconds: what else runs on the machine then meets all of it.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.station_kills import DIFFERENT
from benchmarks.station_line import LINE_ENCODERS, Visit, encoder_alone, judge_all, running_station

PAGES, REQUESTS_A_SECOND = 20, 500.0
PERIODS = (4.0, 4.3)
"""Between two pictures of each of the two cameras, as so many times what the encoder takes."""
ALONE = 15
"""Pictures of a round that the encoder alone takes."""
PASSWORD = "a long enough passphrase"


def latency_run(folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Two cameras; in turns the encoder alone, the station as it is, and with open pages."""
    return _in_turns(folder, rounds, seconds, "pages", PAGES)


def strangers_run(folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Two cameras; in turns the encoder alone, the station as it is, and with a stranger who may see nothing."""
    return _in_turns(folder, rounds, seconds, "strangers", REQUESTS_A_SECOND)


def _in_turns(folder: Path, rounds: int, seconds: float, visitors: str, count: float) -> dict[str, Any]:
    encoder = LINE_ENCODERS["fast"]
    pictures = encoder.pictures(1000, DIFFERENT)
    found: dict[str, list[Any]] = {"alone": [], "quiet": [], visitors: []}
    visits = []
    with running_station(folder, encoder) as (station, url):
        if visitors == "strangers":
            station.accounts.create("somebody", PASSWORD, "admin", by="benchmark")
        usual = float(np.median(encoder_alone(station, pictures, 2 * ALONE)[ALONE:])) / 1e3
        cameras = {f"camera-{number}": usual * times for number, times in enumerate(PERIODS)}
        for number in range(rounds):
            print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
            found["alone"].append([round(each, 2) for each in encoder_alone(station, pictures, ALONE)])
            found["quiet"].append(_times(judge_all(station, pictures, cameras, seconds)))
            with Visit(visitors, url, count) as visit:
                found[visitors].append(_times(judge_all(station, pictures, cameras, seconds)))
            visits.append(visit.seen)
        info = station.detector.info()
    periods = [round(period * 1e3, 1) for period in cameras.values()]
    return {"info": info, "periods_ms": periods, "seconds": seconds, "rounds": found, "visits": visits}


def _times(views: list[dict[str, float]]) -> list[list[float]]:
    """Of each picture: the whole, the encoder in it, and the waiting for the picture before it; in milliseconds."""
    return [[round(each.get(name, 0.0), 2) for name in ("total", "encode", "wait")] for each in views]


WATCH = """() => {
  globalThis.shown = {verdict: {}, picture: {}};
  document.body.addEventListener("station-part", (event) => {
    const key = event.detail.key;
    requestAnimationFrame(() => requestAnimationFrame(() => { shown.verdict[key] = Date.now(); }));
  });
  for (const stage of document.querySelectorAll("[data-stage]")) {
    new MutationObserver((changes) => {
      if (!changes.some((change) => [...change.addedNodes].some((node) => node.tagName === "IMG"))) return;
      const key = stage.closest("[data-panel]").dataset.key;
      requestAnimationFrame(() => { shown.picture[key] = Date.now(); });
    }).observe(stage, {childList: true});
  }
}"""


def shown_run(folder: Path, parts: int, period: float, browser_path: str) -> dict[str, Any]:
    """How long after its verdict a part stands on the page Live of a real browser: the verdict, and the picture."""
    from playwright.sync_api import sync_playwright

    encoder = LINE_ENCODERS["fast"]
    pictures = encoder.pictures(1000, DIFFERENT)
    said: dict[str, float] = {}
    with running_station(folder, encoder) as (station, url), sync_playwright() as playwright:
        judge_all(station, pictures, {"camera-0": period}, 3 * period)  # so that the page has a panel of the camera
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(url)
        page.wait_for_selector("body[data-connected=yes]")
        page.evaluate(WATCH)
        ended = threading.Event()
        noting = threading.Thread(target=_note_verdicts, args=(station, said, ended), daemon=True)
        noting.start()
        judge_all(station, pictures, {"camera-0": period}, parts * period)
        page.wait_for_timeout(2000)
        ended.set()
        noting.join()
        shown = page.evaluate("() => globalThis.shown")
        browser.close()
    after = {kind: [round(shown[kind][key] - said[key], 1) for key in said if key in shown[kind]] for kind in shown}
    return {"parts": len(said), "period_ms": period * 1e3, "after_verdict_ms": after}


def _note_verdicts(station: Any, said: dict[str, float], ended: threading.Event) -> None:
    """The moment of each verdict, by the clock that the browser has too."""
    with station.bus.subscribed(capacity=10_000) as messages:
        while not ended.is_set():
            message = messages.take(timeout=0.2)
            if message and message.kind == "part":
                said[message.body["key"]] = time.time() * 1e3
