"""A progress bar on a terminal, and one line that says which encoder makes the results."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from dinosaur_ad.cli._console import say

if TYPE_CHECKING:
    from dinosaur_ad.cluster import Fleet
    from dinosaur_ad.detector import Dinosaur

Item = TypeVar("Item")

SHORTLY = 1.0
"""Seconds without a bar, because what is done by then needs none; and between two looks at the clock."""

_USUAL_WIDTH = 80

STARTING = "loading the encoder"
TEACHING = "choosing what to remember, then the threshold"


class Progress(AbstractContextManager["Progress"]):
    """A bar on a terminal, for what takes more than a second; the encoder is named with the first image.

    Not before: a command that is refused should be refused at once, without loading an encoder. The bar names the
    current step and its clock runs while nothing is counted: loading an encoder and choosing a memory can take longer
    than all the images. ``then`` is the step after all images have been encoded.
    """

    def __init__(self, detector: Dinosaur | Fleet, total: int | None = None, *, then: str = "") -> None:
        from tqdm import tqdm

        self._detector = detector
        self._announced = False
        self._then = then
        # disable=None: no bar where stderr is not a terminal.
        self._bar = tqdm(
            desc=STARTING, total=total, unit=" images", delay=SHORTLY, disable=None, leave=False, **_width()
        )
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._tick, name="progress", daemon=True)
        if not self._bar.disable:
            self._clock.start()

    def __call__(self, done: int, total: int | None) -> None:
        """So many images are done, of so many."""
        self._bar.total = total
        self.announce()
        self._bar.set_description_str(self._then if done == total else "", refresh=False)
        self.update(done)

    def update(self, done: int) -> None:
        """So many images are done, and perhaps none of them was encoded."""
        self._bar.update(done - self._bar.n)

    def announce(self) -> None:
        """Print once which encoder makes the results."""
        if not self._announced:
            self._announced = True
            self._bar.set_description_str("", refresh=False)
            with self.writing():
                say(_encoder_line(self._detector.info()))

    def writing(self) -> AbstractContextManager[None]:
        """Move the bar out of the way of a line on stdout or stderr."""
        writing: AbstractContextManager[None] = self._bar.external_write_mode(file=sys.stdout)
        return writing

    def _tick(self) -> None:
        while not self._over.wait(SHORTLY):
            self._bar.refresh()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self._clock.is_alive():
            self._clock.join()
        self._bar.close()


def _width() -> dict[str, Any]:
    """As wide as the terminal; a serial line says that it has no columns, and no bar would fit into them."""
    try:
        known = os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError):
        known = True
    return {"dynamic_ncols": True} if known else {"ncols": _USUAL_WIDTH}


def counted(items: Sequence[Item], unit: str) -> Iterator[Item]:
    """The items one after another, with a bar on a terminal if that takes more than a second."""
    from tqdm import tqdm

    yield from tqdm(items, unit=unit, delay=SHORTLY, disable=None, leave=False, **_width())


def _encoder_line(info: dict[str, Any]) -> str:
    """What makes the results, in one short line; JSON has all of it."""
    return f"{info['encoder']} on {info['provider']}, {info['precision']}, preset {info['preset']}, seed {info['seed']}"
