"""How many bytes a bank takes, and the largest bank within a budget: members, channels, precision.

What is given up first was measured (docs/banks.md): int8 costs nothing that can be measured, dropping the least
important three quarters of the channels next to nothing, and dropping members costs the most.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dinosaur_ad.errors import InputError

PRECISIONS = ("float32", "float16", "int8")
# The share of the encoder's channels that int8 banks keep at the least, and the step in which they give way.
LEAST_CHANNELS, CHANNEL_STEP = 0.25, 8
# Names, shapes and offsets at the head of a task's files.
HEADERS = 2048

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


@dataclass(frozen=True)
class Form:
    """What is kept of a task: so many members a location, by so many channels each, in a precision.

    ``rotated`` forms lie along a basis that is stored with them, even when they keep all its directions.
    """

    members: int
    channels: int
    precision: str
    rotated: bool = False


@dataclass(frozen=True)
class Frame:
    """What the size of a task's files depends on besides the form of its bank.

    ``width`` is the encoder's channels, ``images`` how many were learned and ``scores`` how many calibrate it, of each
    of which distances of ``maps`` bytes are kept. ``beside`` is how many numbers are kept once beside the prototype:
    a thumbnail, and what is usual for each reading.
    """

    places: int
    width: int
    images: int
    scores: int
    prototype: int
    maps: int = 0
    beside: int = 0

    def bytes(self, form: Form) -> int:
        """The files that inspecting reads; there is no reserve within a budget."""
        members = self.places * form.members
        size = HEADERS + members * (form.channels * np.dtype(form.precision).itemsize + self.source_type.itemsize)
        size += 4 * self.places if form.precision == "int8" else 0
        size += 2 * self.width * form.channels if form.rotated else 0
        # Each score comes with a level and the image it belongs to.
        return size + (12 + self.maps) * self.scores + 4 * (self.prototype + self.beside)

    @property
    def source_type(self) -> np.dtype[Any]:
        """The smallest whole numbers that can name all images."""
        return np.dtype(np.uint16 if self.images <= 2**16 else np.int32)


def parse_bytes(text: str | int) -> int:
    """A number of bytes from what a person writes; MB are millions, MiB are 2**20.

    >>> parse_bytes("2MB"), parse_bytes("1.5 MiB"), parse_bytes(300)
    (2000000, 1572864, 300)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(text))
    if not found or found[2].upper() not in _UNITS or float(found[1]) == 0:
        raise InputError(f"'{text}' is no number of bytes; write one like 2MB, 500kB or 1.5MiB.")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def say_bytes(count: float) -> str:
    """Bytes as people read them.

    >>> say_bytes(1_999_000), say_bytes(20_500)
    ('2.00 MB', '20.5 kB')
    """
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def choose(frame: Frame, whole: Form, budget: int) -> Form:
    """The largest form of a bank within a budget; ``whole`` is what would be kept if there were room.

    Rotated forms give up channels, the least important first, and then members; others give up members.

    >>> frame = Frame(places=256, width=384, images=443, scores=200, prototype=768)
    >>> choose(frame, Form(88, 384, "int8", rotated=True), 4_000_000)
    Form(members=88, channels=168, precision='int8', rotated=True)
    >>> choose(frame, Form(88, 384, "int8", rotated=True), 2_000_000)
    Form(members=76, channels=96, precision='int8', rotated=True)
    """
    form = whole
    if whole.rotated:
        least = min(whole.channels, math.ceil(LEAST_CHANNELS * frame.width / CHANNEL_STEP) * CHANNEL_STEP)
        fewer = range(whole.channels // CHANNEL_STEP * CHANNEL_STEP, least - 1, -CHANNEL_STEP)
        fitting = (each for each in (whole.channels, *fewer) if frame.bytes(replace(whole, channels=each)) <= budget)
        form = replace(whole, channels=next(fitting, least))
    return fewer_members(frame, form, budget)


def fewer_members(frame: Frame, form: Form, budget: int) -> Form:
    """The same form with as many members as fit a budget; refused if that is none."""
    one, two = (frame.bytes(replace(form, members=members)) for members in (1, 2))
    if one > budget:
        raise InputError(
            f"A budget of {say_bytes(budget)} is too small for this task: its smallest bank, of one member a location, "
            f"takes {say_bytes(one)}; give more."
        )
    return replace(form, members=min(form.members, 1 + (budget - one) // (two - one)))


def describe(manifest: Mapping[str, Any]) -> str:
    """What was chosen for a task, for people; nothing for a task that is kept whole.

    >>> bank = {"precision": "int8", "channels": 96, "width": 384, "whole": 88, "budget": 2_000_000}
    >>> describe({"members": 76, "bank": bank})
    ' (of 88), 96 of 384 channels, int8, within 2.00 MB'
    """
    bank = manifest.get("bank", {})
    if not bank or (bank["budget"] is None and bank["precision"] != "int8"):
        return ""
    words = f" (of {bank['whole']})" if bank["whole"] > manifest["members"] else ""
    words += f", {bank['channels']} of {bank['width']} channels" if bank["channels"] < bank["width"] else ""
    words += f", {bank['precision']}"
    return words + (f", within {say_bytes(bank['budget'])}" if bank["budget"] else "")


def check_precision(precision: str | None) -> str | None:
    """The precision of a bank, or a sentence that lists those there are."""
    if precision not in (None, *PRECISIONS):
        raise InputError(f"A bank cannot be kept as '{precision}'; choose one of: {', '.join(PRECISIONS)}.")
    return precision
