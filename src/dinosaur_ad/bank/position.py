"""How the parts of a product lie in their photos: found from the images that are learned, or said by the user.

- ``aligned``: always at the same place, as far as can be seen.
- ``moving``: not always. Moved copies in the memory allow for small movement; where the user says ``moving``, each
  image is registered to a reference before it is encoded.
- ``free``: anywhere and in any direction, so that places do not count: a patch is compared with those of all places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.exposure import Exposure
from dinosaur_ad.core.registration import Movement, Reference, edge_images, make_reference
from dinosaur_ad.errors import InputError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord

AUTO = "auto"
KINDS = ("aligned", "moving", "free")

MEASURED_IMAGES, REFERENCE_IMAGES = 32, 16
"""Images that the movement is measured on, and that the reference is made of; more would change neither noticeably."""
FEWEST_IMAGES = 5
"""From fewer images nothing is concluded about movement."""
CONFIDENT_SHARE = 0.9
"""Of the images, how many must have a confident estimate; otherwise the product has no clear pose."""
STILL_REACH, COPIES_REACH = 0.015, 0.05
"""Three quarters of the images of an aligned product lie within the first of the reference, of one that moved copies
suffice for within the second; shares of the image side. Copies are moved by up to about 0.05. Beyond it, ``learn``
advises to have the images registered; it is not done unasked, because it helped one product of four and hurt another
(docs/start/camera.md)."""
MOVING_COPIES = 3
"""Moved copies of each image for a product that is said to be moving, where the preset has fewer."""


@dataclass(frozen=True)
class Position:
    """How a product lies: one of :data:`KINDS`, whether images are registered, and whether a user has said so.

    ``reach`` is how far three quarters of the images lie from the reference at the most, as a share of the side, and
    ``clear`` the share of images with a confident estimate; None where nothing was measured.
    """

    kind: str
    registered: bool = False
    given: bool = False
    reach: float | None = None
    clear: float | None = None

    @classmethod
    def of(cls, record: TaskRecord) -> Position | None:
        """That of a stored task; None where an older version taught it, or the preset is the paper's."""
        stored: dict[str, Any] | None = record.manifest.get("position")
        return None if stored is None else cls(**stored)

    def to_json(self) -> dict[str, Any]:
        """As the manifest of a task has it."""
        document = {"kind": self.kind, "registered": self.registered, "given": self.given}
        measured = {"reach": self.reach, "clear": self.clear}
        return document | {key: round(value, 4) for key, value in measured.items() if value is not None}

    @property
    def copies(self) -> int:
        """How many moved copies of each image there are at the least."""
        return MOVING_COPIES if self.given and self.kind == "moving" else 0

    def __str__(self) -> str:
        """The kind, for people.

        >>> str(Position("moving", registered=True))
        'moving, registered'
        """
        return f"{self.kind}, registered" if self.registered else self.kind


class Pose(NamedTuple):
    """What is done to an image before it is encoded for a task: matched to an exposure, registered to a reference."""

    exposure: Exposure | None = None
    reference: Reference | None = None


def is_free(position: Position | None) -> bool:
    """Whether places do not count."""
    return position is not None and position.kind == "free"


def check_position(kind: str, preset: Preset) -> str:
    """The kind a user has asked for, if there is one of that name that the preset can have.

    :raises InputError: it cannot.
    """
    if kind != AUTO and kind not in KINDS:
        raise InputError(f"There is no position '{kind}'; choose one of: {', '.join((AUTO, *KINDS))}.")
    if kind != AUTO and preset.calibration == "in-sample":
        raise InputError(
            f"The preset '{preset.name}' is the procedure of the paper, which compares places as they are; leave the "
            "position out, or start a store with another preset."
        )
    return kind


def refuse_another(name: str, asked: str, stored: Position | None) -> None:
    """Refuse to update a task with another position than the one its memory was made for."""
    kind = stored.kind if stored else "aligned"
    if asked not in (AUTO, kind):
        raise InputError(
            f"The task '{name}' was learned as '{kind}', and its memory is made for that; to change it to '{asked}', "
            "learn it anew from all its images (--replace)."
        )


def refuse_in_tiles(asked: str) -> None:
    """Refuse a position that photos in tiles cannot have: they are compared place by place, and never registered."""
    if asked not in (AUTO, "aligned"):
        raise InputError(
            f"Photos in tiles are compared place by place, so their position cannot be '{asked}'; leave out the tiles "
            "or the position."
        )


def find_position(
    asked: str, preset: Preset, pixels: Sequence[NDArray[np.uint8]], size: tuple[int, int] | None
) -> tuple[Position | None, Reference | None]:
    """How a product lies that is learned from these prepared images of photos of that (height, width), and what to
    register images to, if they are to be.

    >>> from dinosaur_ad.presets import DEFAULT
    >>> find_position("auto", DEFAULT, [np.zeros((70, 70, 3), np.uint8)] * 6, (70, 70))
    (Position(kind='aligned', registered=False, given=False, reach=None, clear=0.0), None)
    """
    if preset.calibration == "in-sample":
        return None, None
    given = asked != AUTO
    if asked in ("aligned", "free"):
        return Position(asked, given=True), None
    if len(pixels) < FEWEST_IMAGES:
        return Position(asked if given else "aligned", given=given), None
    reference, found = measured_movements(pixels, size)
    confident = [each for each in found if each.confident]
    clear = len(confident) / len(found)
    if clear < CONFIDENT_SHARE:
        return Position(asked if given else "aligned", given=given, clear=clear), None
    reach = float(np.quantile([each.reach() for each in confident], 0.75))
    kind = "aligned" if reach <= STILL_REACH else "moving"
    if given:
        return Position("moving", registered=True, given=True, reach=reach, clear=clear), reference
    return Position(kind, reach=reach, clear=clear), None


def measured_movements(
    pixels: Sequence[NDArray[np.uint8]], size: tuple[int, int] | None
) -> tuple[Reference, list[Movement]]:
    """A reference of some prepared images, and how each of some of them lies."""
    height, width = size or (1, 1)
    chosen = np.unique(np.linspace(0, len(pixels) - 1, MEASURED_IMAGES).round().astype(int)).tolist()
    edges_Nhw = edge_images(np.stack([pixels[n] for n in chosen]), width / height)
    reference = make_reference(edges_Nhw[np.linspace(0, len(chosen) - 1, REFERENCE_IMAGES).round().astype(int)])
    return reference, reference.find(edges_Nhw)
