"""A whole station with an encoder of random parameters, a drawn line before its camera, and a page in a browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from access_helpers import new_app, served
from numpy.typing import NDArray
from PIL import Image

from detector_helpers import TINY, tiny
from dinosaur_ad.datasets.synthetic.product import GOOD
from dinosaur_ad.datasets.synthetic.scenario import SyntheticSample
from dinosaur_ad.station.config import ServerConfig, SourceConfig, StationConfig
from dinosaur_ad.station.service import Station

SIZE = 140
LEARNED_FROM = 20
CAMERA = "camera-1"
BROWSER_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def drawn(product: str, index: int, light: float = 1.0) -> NDArray[np.uint8]:
    """A normal part of the drawn line."""
    return (SyntheticSample(product, GOOD, index, size=SIZE).image() * np.float32(light)).astype(np.uint8)


def smeared(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The part with a defect that random features see too: a square of another material."""
    spoiled = pixels.copy()
    spoiled[45:80, 70:105] = (250, 10, 240)
    return spoiled


def saved_pictures(folder: Path, product: str) -> list[Path]:
    """Files of normal parts to learn from."""
    folder.mkdir(parents=True)
    files = [folder / f"{product}-{index}.png" for index in range(LEARNED_FROM)]
    for index, file in enumerate(files):
        Image.fromarray(drawn(product, index)).save(file)
    return files


@dataclass
class StoryLine:
    """A running station, its address, and the folder that its camera writes to."""

    station: Station
    url: str
    camera: Path

    def show(self, name: str, pixels: NDArray[np.uint8]) -> None:
        """Have the camera take a picture."""
        draft = self.camera / f".{name}.part"
        Image.fromarray(pixels).save(draft, "PNG")
        draft.rename(self.camera / f"{name}.png")


@contextmanager
def story_line(folder: Path) -> Iterator[StoryLine]:
    """A station that knows gears and blister packs."""
    camera = folder / "camera"
    camera.mkdir(parents=True)
    taught = tiny(folder / "store")
    for product in ("gear", "blister"):
        taught.learn(product, saved_pictures(folder / "learned" / product, product))
    config = StationConfig(
        folder / "store",
        folder / "own",
        ServerConfig(requests_a_second=1000.0),
        sources=(SourceConfig(CAMERA, "folder", path=camera),),
    )
    station = Station(config, encoder="tiny-dinov2", preset=TINY)
    station.start()
    try:
        with served(new_app(station)) as url:
            yield StoryLine(station, url, camera)
    finally:
        station.stop()


@dataclass
class Album:
    """A page of a browser; what went wrong in it is collected, and what it showed is photographed."""

    page: Any
    url: str
    folder: Path
    problems: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    """Pieces of console errors that belong to the story."""
    _taken: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", self._heard)
        self.page.on("request", self._asked)

    def _heard(self, message: Any) -> None:
        if message.type == "error" and not any(piece in message.text for piece in self.expected):
            self.problems.append(f"console: {message.text} ({message.location.get('url')})")

    def _asked(self, request: Any) -> None:
        place = urlsplit(request.url)
        if place.scheme not in ("data", "blob") and place.netloc != urlsplit(self.url).netloc:
            self.problems.append(f"asked another host: {request.url}")

    def go(self, path: str) -> None:
        """Open a page."""
        self.page.goto(self.url + path)

    def listen(self) -> None:
        """Wait until events of the station reach the page."""
        self.page.locator("body[data-connected=yes]").wait_for(state="attached")

    def photograph(self, name: str) -> None:
        """Keep how the whole page looks now."""
        self._taken += 1
        self.page.screenshot(path=str(self.folder / f"{self._taken:02d}-{name}.png"), full_page=True)


def shots_folder(otherwise: Path) -> Path:
    """Where the photographs go: ``DINOSAUR_SHOTS``, or a folder of the test."""
    return Path(os.environ.get("DINOSAUR_SHOTS") or otherwise)
