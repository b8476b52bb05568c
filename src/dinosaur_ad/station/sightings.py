"""What the drift watch sees of parts: live from the judging, and again from the history after a restart."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from dinosaur_ad.bank.verdict import ANOMALOUS, NORMAL
from dinosaur_ad.core.exposure import measure_exposure
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.images.loading import Pixels, read_image
from dinosaur_ad.station.history.moments import stamp_of
from dinosaur_ad.station.history.storable import storable_key
from dinosaur_ad.station.part import JudgedPart
from dinosaur_ad.station.product_watch import Sighting
from dinosaur_ad.station.tables import PartRow, ViewRow
from dinosaur_ad.station.what_if import last_new_scale
from dinosaur_ad.store import TaskRecord

if TYPE_CHECKING:
    from dinosaur_ad.station.history.history import History

REMEMBERED = 500
"""Parts of a product that are read again after a restart."""
SIDE = 128
"""The shorter side of a picture whose contrast is measured, in pixels."""
SAME_SCALE = ("defect", "rename")
"""What is done to a task without changing what its scores mean."""


@dataclass(frozen=True)
class ViewNumbers:
    """The numbers of a judged view, and its picture where the contrast has to be measured."""

    key: str
    task: str
    verdict: str
    score: float
    level: float
    gain: float | None
    pixels: Pixels | None = None
    path: Path | None = None


@dataclass(frozen=True)
class PartSightings:
    """A part with what is to be watched of it."""

    key: str
    views: tuple[ViewNumbers, ...]


def reduced(part: JudgedPart) -> PartSightings:
    """What is kept of a part until it is looked at: numbers, and few of the pixels. Unknown pictures show no product of
    ours, and those that could not be judged say nothing."""
    views = []
    for view in part.views:
        found = view.inspection
        if found is None or found.verdict not in (NORMAL, ANOMALOUS):
            continue
        pixels = view.picture.pixels if found.gain is None else None
        small = None if pixels is None else _thinned(pixels).copy()
        numbers = (found.task, found.verdict, found.score, found.level, found.gain)
        views.append(ViewNumbers(view.picture.key, *numbers, small, view.picture.path))
    return PartSightings(part.key, tuple(views))


def sightings_of(part: PartSightings, history: History) -> Iterator[tuple[str, Sighting]]:
    """Each view with its product; the contrast of a picture that is not in memory any more is measured from the file of
    the source, or from that of the history."""
    for view in part.views:
        light = None if view.gain is None else _light_of_gain(view.gain)
        if light is None:
            light = contrast(view.pixels) if view.pixels is not None else _contrast_of_file(view.path)
        if light is None:
            light = _contrast_of_file(_kept_picture(view.key, history))
        yield view.task, Sighting(part.key, view.score, view.level, light, view.verdict)


def contrast(pixels: Pixels) -> float:
    """The logarithm of the spread of the brightness of a picture (H, W, 3), measured on few of its pixels."""
    spread = float(measure_exposure(_thinned(pixels)[None])[0, 1])
    return math.log(max(spread, 1e-3))


@dataclass(frozen=True)
class SeenBefore:
    """The parts of a product since it was last taught, or since a person ``accepted`` that it changed."""

    sightings: tuple[Sighting, ...]
    accepted: bool

    @classmethod
    def of(cls, task: str, record: TaskRecord, history: History) -> SeenBefore:
        """Read them from the history, the oldest first."""
        stored = [str(entry["date"]) for entry in record.history if entry["action"] not in SAME_SCALE]
        moments = [stamp_of(stored[-1])] if stored else []
        moments += [moment] if (moment := last_new_scale(history.changes(task))) else []
        taught = max(moments, default="")
        closed = [
            row.closed
            for row in history.warnings(open_only=False)
            if row.closed and task in row.detail.get("tasks", [row.task])
        ]
        accepted = max(closed, default="")
        since = max(taught, accepted)
        return cls(tuple(_recorded(task, since, history)), accepted > taught)


def part_ids(history: History, keys: Sequence[str], patience: float) -> list[int]:
    """The ids of parts by their keys, in that order; those that are not recorded in time are left out."""
    ends, found = time.monotonic() + patience, dict[str, int]()
    wanted = list(dict.fromkeys(storable_key(key) for key in keys))
    while True:
        with history.session() as session:
            rows = session.execute(select(PartRow.key, PartRow.id).where(PartRow.key.in_(wanted))).all()
        found = {str(row.key): int(row.id) for row in rows}
        if len(found) == len(wanted) or time.monotonic() > ends:
            return [found[key] for key in wanted if key in found]
        time.sleep(0.05)


def _recorded(task: str, since: str, history: History) -> Iterator[Sighting]:
    query = (
        select(PartRow.key, ViewRow)
        .join(ViewRow, ViewRow.part_id == PartRow.id)
        .where(PartRow.taken >= since, ViewRow.verdict.in_((NORMAL, ANOMALOUS)))
        .order_by(PartRow.id.desc())
        .limit(REMEMBERED)
    )
    with history.session() as session:
        rows = session.execute(query.where(PartRow.task == task)).all()
    for key, view in reversed(rows):
        numbers: dict[str, Any] = view.inspection or {}
        if numbers.get("task") != task or "level" not in numbers:
            continue
        gain = numbers.get("gain")
        light = _light_of_gain(gain) if gain is not None else _contrast_of_file(history.picture_path(view.id))
        yield Sighting(key, float(numbers["score"]), float(numbers["level"]), light, view.verdict)


def _light_of_gain(gain: float) -> float:
    """The contrast of a picture, up to a constant, from the factor by which it was stretched."""
    return -math.log(max(gain, 1e-3))


def _contrast_of_file(path: Path | None) -> float | None:
    if path is None:
        return None
    try:
        return contrast(read_image(path))
    except (DinosaurError, OSError):
        return None


def _kept_picture(key: str, history: History) -> Path | None:
    with history.session() as session:
        number = session.scalar(select(ViewRow.id).where(ViewRow.key == storable_key(key)))
    return None if number is None else history.picture_path(number)


def _thinned(pixels: Pixels) -> Pixels:
    step = max(1, min(pixels.shape[:2]) // SIDE)
    return pixels[::step, ::step]
