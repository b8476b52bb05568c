"""Which frames of a camera become pictures: every one, one a while, one for each part, or one when asked from outside.

All have one method: ``choose(frame)`` returns the frame to take now, which may be an earlier one, with the name of its
part, or None.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image

from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import Pixels, read_image
from dinosaur_ad.station.sources.part_present import SMALL, Grey, PartPresence

MOST_ASKED = 8
"""Triggers that may wait for a frame."""
FOREVER_FRAMES = 1000
"""A part that is there for so many frames is said: the empty scene may have changed."""


class CameraFrame(Protocol):
    """A frame as a camera gives it; converted only when it is needed."""

    @property
    def seconds(self) -> float:
        """When it was taken, on the clock of the camera or the video."""
        ...

    def pixels(self) -> Pixels:
        """RGB uint8 (H, W, 3)."""
        ...

    def small(self) -> Grey:
        """Grey, float32 from 0 to 1, of the size :data:`SMALL`."""
        ...


class Chosen(NamedTuple):
    """A frame to take, and the name of its part, if it has one."""

    frame: CameraFrame
    part: str = ""


class EveryFrame:
    """Takes all frames."""

    note = ""

    def choose(self, frame: CameraFrame) -> Chosen | None:
        """The frame itself."""
        return Chosen(frame)


class TimerTrigger:
    """Takes ``rate`` frames a second."""

    note = ""

    def __init__(self, rate: float) -> None:
        self._every = 1 / rate
        self._next: float | None = None

    def choose(self, frame: CameraFrame) -> Chosen | None:
        """The frame, if it is time; a clock that jumps (a camera that was started anew) begins again."""
        now, almost = frame.seconds, 1e-3 * self._every  # times of frames are rounded
        late = self._every if self._next is None else now - self._next
        if -2 * self._every <= late < -almost:
            return None
        self._next = now + self._every if self._next is None or abs(late) >= self._every else self._next + self._every
        return Chosen(frame)


class PresenceTrigger:
    """Takes one frame of each part that comes before the camera."""

    def __init__(self, empty: Path | None = None) -> None:
        self._presence: PartPresence[CameraFrame] = PartPresence(empty=None if empty is None else small_of_file(empty))
        self._retake = threading.Event()

    @property
    def note(self) -> str:
        """What a person should know of it."""
        if self._presence.is_learning:
            return "The empty scene is being learned; keep parts away."
        if self._presence.present and self._presence.frames_since > FOREVER_FRAMES:
            return "A part has been there for very long; if the scene is empty, let the empty scene be taken anew."
        return ""

    def take_empty(self) -> None:
        """Take the next frames as the empty scene."""
        self._retake.set()

    def choose(self, frame: CameraFrame) -> Chosen | None:
        """The frame that shows the part best, once that is clear."""
        if self._retake.is_set():
            self._retake.clear()
            self._presence.take_empty()
        chosen = self._presence.see(frame.small(), frame)
        return None if chosen is None else Chosen(chosen)


class AskedTrigger:
    """Takes the next frame after each call of :meth:`ask`."""

    note = ""

    def __init__(self) -> None:
        self._asked: deque[str] = deque()
        self._lock = threading.Lock()

    def ask(self, part: str = "") -> None:
        """Ask for a picture; from any thread.

        :raises InputError: many triggers wait for a frame already.
        """
        with self._lock:
            if len(self._asked) >= MOST_ASKED:
                raise InputError(
                    f"{MOST_ASKED} triggers wait for a frame of the camera already; trigger it again later."
                )
            self._asked.append(part)

    def choose(self, frame: CameraFrame) -> Chosen | None:
        """The frame, if it was asked for."""
        with self._lock:
            return Chosen(frame, self._asked.popleft()) if self._asked else None

    def __len__(self) -> int:
        return len(self._asked)


FrameTrigger = EveryFrame | TimerTrigger | PresenceTrigger | AskedTrigger


def make_trigger(kind: str, rate: float = 1.0, empty: Path | None = None) -> FrameTrigger:
    """The trigger of a kind of the settings.

    :raises InputError: the picture of the empty scene cannot be read.
    """
    if kind == "timer":
        return TimerTrigger(rate)
    if kind == "present":
        return PresenceTrigger(empty)
    return EveryFrame() if kind == "every" else AskedTrigger()


def small_of(pixels: Pixels) -> Grey:
    """A picture, grey or RGB, as the part-present trigger compares it.

    >>> float(small_of(np.full((480, 640, 3), 255, np.uint8)).max())
    1.0
    """
    height, width = SMALL
    image = Image.fromarray(pixels).convert("L").resize((width, height), Image.Resampling.BOX)
    return np.asarray(image, np.float32) / np.float32(255)


def small_of_file(path: Path) -> Grey:
    """The same for a file."""
    return small_of(read_image(path))
