"""What learning and inspecting say: the one result object, and what stands beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class WorstPatch:
    """Where an image looks least normal, and the normal patch that came nearest to it.

    ``box`` is the patch in pixels of the inspected image (left, top, right, bottom); ``like_image`` names the
    training image and ``like_row``, ``like_column`` the place on the patch grid of the normal patch it was compared
    with. ``like_digest`` tells whether a file of that name still is that image; empty where the task does not know.
    """

    row: int
    column: int
    box: tuple[int, int, int, int]
    distance: float
    like_image: str
    like_row: int
    like_column: int
    like_digest: str = ""


@dataclass(frozen=True)
class Inspection:
    """What there is to say about one image.

    ``verdict`` is "normal", "anomalous" (the ``score`` is above the ``threshold``), or "not ready" (this task cannot
    judge yet, and ``reason`` says why). ``left_out`` names the damaged tasks that were not asked. ``p_value`` is how
    often a normal image of the task would score as high; with n calibration normals it cannot be below 1 / (n + 1).
    ``map`` (H, W) holds patch distances on the scale of the score, ``normal_level`` their usual value in normal images
    of the task. ``asked`` holds the score under every bank that was asked; the lowest one named the task. ``provider``
    and ``precision`` are what the encoder ran on, and ``fallback`` says what was asked for if that could not be had.
    """

    path: str
    task: str
    score: float
    p_value: float
    verdict: str
    threshold: float
    false_alarms: float
    normal_level: float
    worst: WorstPatch
    asked: dict[str, float]
    encoder: str
    ms: dict[str, float]
    map: NDArray[np.float32] = field(repr=False, compare=False)
    provider: str = ""
    precision: str = ""
    fallback: str | None = None
    reason: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def anomalous(self) -> bool:
        """Whether the verdict is "anomalous"."""
        return self.verdict == "anomalous"

    def to_json(self) -> dict[str, Any]:
        """As a JSON object, with everything but the map."""
        document = asdict(self)
        del document["map"]
        return document


@dataclass(frozen=True)
class Rejected:
    """An image that could not be read, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Learned:
    """What a learn or an update did: images used and rejected, memory, and where the time went.

    ``shrunk`` names the tasks that gave up bytes for it, in a store that has a budget. ``duplicates`` names the images
    that the task knew already, or that came twice: they were not taught again. ``not_ready`` says why the task cannot
    judge yet, and is empty if it can.
    """

    task: str
    images: int
    total_images: int
    members: int
    bytes: int
    rejected: tuple[Rejected, ...]
    seconds: dict[str, float]
    shrunk: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    not_ready: str = ""
