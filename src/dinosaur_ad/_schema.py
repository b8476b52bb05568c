"""What a document that was read from a disk may hold: types, lengths, counts, ranges and depth, checked in one pass.

A shape is a function that takes a value and the place where it stands, and raises a :class:`ValueError` that says what
is wrong there. Shapes are put together to tables like :data:`PRESET`.

>>> shape = record({"radius": whole(0, 16)})
>>> shape({"radius": 300}, "")
Traceback (most recent call last):
ValueError: its 'radius' is 300 instead of a whole number from 0 to 16
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn, TypeAlias

Shape: TypeAlias = Callable[[Any, str], None]

_SHOWN = 60  # characters of a value that an error repeats


def whole(low: int, high: int) -> Shape:
    """A whole number within limits."""

    def check(value: Any, place: str) -> None:
        if type(value) is not int or not low <= value <= high:
            _refuse(value, place, f"a whole number from {low} to {high}")

    return check


def number(low: float, high: float) -> Shape:
    """A number within limits, and infinity where that is the limit; never NaN."""

    def check(value: Any, place: str) -> None:
        if type(value) not in (int, float) or not low <= value <= high:
            _refuse(value, place, f"a number from {low:g} to {high:g}")

    return check


def flag(value: Any, place: str) -> None:
    """True or false."""
    if type(value) is not bool:
        _refuse(value, place, "true or false")


def text(longest: int, pattern: str = "") -> Shape:
    """A text of limited length; with a pattern, one that matches it as a whole."""
    wanted = re.compile(pattern) if pattern else None

    def check(value: Any, place: str) -> None:
        if type(value) is not str or len(value) > longest or (wanted and not wanted.fullmatch(value)):
            _refuse(value, place, f"a text of at most {longest} characters" + (" of its kind" if wanted else ""))

    return check


def moment(value: Any, place: str) -> None:
    """A date with its time and zone (ISO 8601), or an empty text where there is none."""
    if value == "":
        return
    try:
        date = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        date = None
    if date is None or date.tzinfo is None or not 1970 <= date.year < 9999:
        _refuse(value, place, "a date")


def one_of(*values: str) -> Shape:
    """One of a few words."""

    def check(value: Any, place: str) -> None:
        if type(value) is not str or value not in values:
            _refuse(value, place, f"one of {', '.join(values)}")

    return check


def maybe(shape: Shape) -> Shape:
    """That, or null."""

    def check(value: Any, place: str) -> None:
        if value is not None:
            shape(value, place)

    return check


def either(one: Shape, other: Shape) -> Shape:
    """Either of two shapes; the error is that of the second."""

    def check(value: Any, place: str) -> None:
        try:
            one(value, place)
        except ValueError:
            other(value, place)

    return check


def items(shape: Shape, most: int, least: int = 0) -> Shape:
    """A list of things of one shape."""

    def check(value: Any, place: str) -> None:
        if type(value) is not list or not least <= len(value) <= most:
            _refuse(value, place, f"a list of {least} to {most} items")
        for index, item in enumerate(value):
            shape(item, f"{place}[{index}]")

    return check


def texts(longest: int, most: int) -> Shape:
    """A list of texts; the same as ``items(text(longest), most)``, at a tenth of the time for long ones."""
    slow = items(text(longest), most)

    def check(value: Any, place: str) -> None:
        fits = type(value) is list and len(value) <= most and all(type(each) is str for each in value)
        if not fits or len(max(value, key=len, default="")) > longest:
            slow(value, place)

    return check


def record(
    required: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None, others: Shape | None = None
) -> Shape:
    """An object with these fields; fields of other names are refused unless they have a shape too."""
    known = {**required, **(optional or {})}

    def check(value: Any, place: str) -> None:
        if type(value) is not dict:
            _refuse(value, place, "an object")
        for key in required:
            if key not in value:
                raise ValueError(f"its {_spell(_inside(place, key))} is missing")
        for key, item in value.items():
            shape = known.get(key, others)
            if shape is None:
                raise ValueError(f"its {_spell(_inside(place, key))} is not known")
            shape(item, _inside(place, key))

    return check


def anything(depth: int) -> Shape:
    """Any JSON value that is nested no deeper than that."""

    def check(value: Any, place: str) -> None:
        if not _is_shallow(value, depth):
            raise ValueError(f"its {_spell(place)} is nested too deeply")

    return check


def _is_shallow(value: Any, depth: int) -> bool:
    if type(value) not in (dict, list):
        return True
    return depth > 0 and all(
        _is_shallow(item, depth - 1) for item in (value.values() if type(value) is dict else value)
    )


def _inside(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _spell(value: Any) -> str:
    """A foreign value, shortened and escaped for a terminal."""
    spelled = ascii(value[:_SHOWN] if isinstance(value, str) else value)
    return spelled if len(spelled) <= _SHOWN else spelled[: _SHOWN - 3] + "..."


def _refuse(value: Any, place: str, expected: str) -> NoReturn:
    shown = _spell(value) if type(value) not in (dict, list) else ("an object" if type(value) is dict else "a list")
    raise ValueError(f"its {_spell(place)} is {shown} instead of {expected}")


PRESET = record(
    {},
    {
        "name": text(200),
        "layers": items(either(whole(0, 1000), one_of("final")), most=100, least=1),
        "size": whole(1, 8192),
        "exposure": flag,
        "normalise": flag,
        "average": flag,
        "ratio": number(0, 1),
        "minimum": whole(1, 1_000_000),
        "reserve": number(0, 1000),
        "precision": one_of("float32", "float16", "int8"),
        "copies": whole(0, 100),
        "budget": maybe(whole(1, 10**12)),
        "readings": items(one_of("point", "located", "coarse"), most=3, least=1),
        "map_softness": number(1, 1000),
        "map_closing": number(0, 1),
        "map_relative": number(0, 1),
        "radius": whole(0, 32),
        "top": number(0, 1),
        "describe_patches": flag,
        "limit": whole(1, 1_000_000),
        "margin": number(0, math.inf),
        "calibration": one_of("unseen", "in-sample"),
        "folds": whole(0, 1000),
        "false_alarms": number(1e-6, 0.999999),
    },
    others=anything(8),  # settings of another version, about which Preset.from_json says what is to be said
)
"""The settings of a store; which of them must be there is for :class:`~dinosaur_ad.presets.Preset` to say."""

SETTINGS = record(
    {},
    {
        "false_alarms": number(1e-6, 0.999999),
        "threshold": number(1e-9, 1e9),
        "zones": items(text(1024, "[01]+"), most=1024, least=1),
        "smallest_area": number(0, 0.5),
    },
)
"""The settings of a task. Others are refused: what a later version was told to leave out would be reported here."""

_SIDE = whole(1, 1_000_000)
TILES = record(
    {
        "columns": whole(1, 64),
        "rows": whole(1, 64),
        "size": whole(1, 8192),
        "side": whole(2, 1024),
        "overlap": whole(1, 1023),
        "height": _SIDE,
        "width": _SIDE,
    }
)
"""How the photos of a task are cut into tiles."""
