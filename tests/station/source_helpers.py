"""What the tests of sources share: a place that takes pictures, and waiting for what another thread does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Queue
from typing import Any

from dinosaur_ad.station.part import Picture
from dinosaur_ad.station.sources.source import Source

LONG = 20.0


class Taker:
    """Takes pictures as a pipeline does, each key once."""

    def __init__(self) -> None:
        self.pictures: Queue[Picture] = Queue()
        self.keys: set[str] = set()
        self.answer = "accepted"

    def __call__(self, picture: Picture, timeout: Any = None, when_full: Any = None, ask_history: Any = None) -> str:
        if self.answer != "accepted":
            return self.answer
        if picture.key in self.keys:
            return "known"
        self.keys.add(picture.key)
        self.pictures.put(picture)
        return "accepted"

    def next(self) -> Picture:
        return self.pictures.get(timeout=LONG)


def until(condition: Callable[[], Any], what: str = "it did not happen") -> None:
    tick = threading.Event()
    for _ in range(int(LONG / 0.01)):
        if condition():
            return
        tick.wait(0.01)
    raise AssertionError(what)


def until_state(source: Source, state: str) -> dict[str, Any]:
    try:
        until(lambda: source.state()["state"] == state)
    except AssertionError:
        raise AssertionError(f"the source did not become {state}: {source.state()}") from None
    return source.state()
