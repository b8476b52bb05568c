"""Whether a part lies before the camera: change against the empty scene, one frame for each part.

Works on small grey pictures (:data:`SMALL` pixels, float32 from 0 to 1), so that it costs next to nothing a frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Grey = NDArray[np.float32]

SMALL = (72, 96)
"""Height and width of the pictures that are compared."""

_Frame = TypeVar("_Frame")


@dataclass(frozen=True)
class PresenceLimits:
    """When a part counts as there. Shares are of the picture's pixels, differences of the range from black to white."""

    different: float = 0.08
    """A pixel that differs by more from the empty scene is covered."""
    appears: float = 0.03
    """A part is there once this share is covered,"""
    leaves: float = 0.015
    """and gone below this one; between the two nothing changes."""
    still: float = 0.01
    """The part lies still if the mean difference from the frame before is less."""
    still_frames: int = 3
    """So many frames in turn, of which the sharpest is taken."""
    passing: float = 0.7
    """A part that never lies still is taken when it covers less than this share of the most that it covered."""
    gone_frames: int = 2
    learning_frames: int = 5
    """Without a picture of the empty scene, so many first frames show it."""
    adapting: float = 0.02
    """How fast the empty scene follows slow changes of the light, for each frame without a part."""


class PartPresence(Generic[_Frame]):
    """Chooses one frame for each part that comes and goes.

    Of a part that comes to rest, the sharpest of the first still frames is chosen, at once; of one that moves past, the
    frame with the most of the part in it and the sharpest of those, when it begins to leave. Parts must be apart: there
    is a moment of empty scene between them.
    """

    def __init__(self, limits: PresenceLimits | None = None, empty: Grey | None = None) -> None:
        self._limits = limits or PresenceLimits()
        self._learned: list[Grey] = []
        self._empty = empty
        self._before: Grey | None = None
        self.present = False
        self.covered = 0.0
        self.frames_since = 0
        """Frames since the part appeared or left."""
        self._given = False
        self._gone = 0
        self._still: list[tuple[float, _Frame]] = []
        self._best: tuple[float, float, _Frame] | None = None

    @property
    def is_learning(self) -> bool:
        """Whether the empty scene is not known yet."""
        return self._empty is None

    def take_empty(self, small: Grey | None = None) -> None:
        """Take a picture as the empty scene, or the next frames without one."""
        self._empty, self._learned, self._before = small, [], None
        self._reset(present=False)

    def see(self, small: Grey, frame: _Frame) -> _Frame | None:
        """Look at the next frame; the frame to take of the part, once it is clear which that is."""
        if self._empty is None:
            self._learn(small)
            return None
        moved = 1.0 if self._before is None else float(np.abs(small - self._before).mean())
        self._before = small
        self.frames_since += 1
        self.covered = self._covered(small, self._empty)
        if not self.present:
            if self.covered > self._limits.appears:
                self._reset(present=True)
            elif self.covered < self._limits.leaves:
                self._empty = self._empty + self._limits.adapting * (small - self._empty)
        return self._part(small, frame, moved) if self.present else None

    def _part(self, small: Grey, frame: _Frame, moved: float) -> _Frame | None:
        """A frame while a part is there."""
        self._gone = self._gone + 1 if self.covered < self._limits.leaves else 0
        if self._gone >= self._limits.gone_frames:
            chosen = None if self._given or self._best is None else self._best[2]
            self._reset(present=False)
            return chosen
        if self._given:
            return None
        sharp = sharpness(small)
        most = max(self.covered, self._best[0] if self._best else 0.0)
        if self._best is None or self._rank(self.covered, sharp, most) > self._rank(self._best[0], self._best[1], most):
            self._best = self.covered, sharp, frame
        if moved < self._limits.still and self.covered > self._limits.appears:
            self._still.append((sharp, frame))
            if len(self._still) >= self._limits.still_frames:
                return self._chosen(max(self._still, key=lambda each: each[0])[1])
        else:
            self._still.clear()
        leaving = self._best is not None and self.covered < self._limits.passing * self._best[0]
        return self._chosen(self._best[2]) if leaving and self._best else None

    def _rank(self, covered: float, sharp: float, most: float) -> tuple[bool, float]:
        """Frames that show nearly all of the part before others, and the sharpest of those."""
        whole = covered > 0.95 * most
        return whole, sharp if whole else covered

    def _chosen(self, frame: _Frame) -> _Frame:
        self._given = True
        self._still.clear()
        return frame

    def _reset(self, present: bool) -> None:
        self.present, self._given, self._gone, self.frames_since = present, False, 0, 0
        self._still, self._best = [], None

    def _learn(self, small: Grey) -> None:
        self._learned.append(small)
        if len(self._learned) >= self._limits.learning_frames:
            self._empty = np.median(np.stack(self._learned), axis=0).astype(np.float32)
            self._learned = []

    def _covered(self, small: Grey, empty: Grey) -> float:
        """The share of pixels that differ, after the brightness of the whole picture was made equal."""
        gain = float(np.median((empty + 0.02) / (small + 0.02)))
        return float((np.abs(small * np.clip(gain, 0.5, 2.0) - empty) > self._limits.different).mean())


def sharpness(small: Grey) -> float:
    """How strong the finest structure is: the variance of the second differences.

    >>> edge = np.zeros((8, 8), np.float32)
    >>> edge[:, 4:] = 1
    >>> sharpness(edge) > sharpness((edge + np.roll(edge, 1, 1)) / 2)
    True
    """
    centre = small[1:-1, 1:-1]
    around = small[:-2, 1:-1] + small[2:, 1:-1] + small[1:-1, :-2] + small[1:-1, 2:]
    return float((4 * centre - around).var())
