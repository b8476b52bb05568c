"""The views of one part brought together: a part is complete when all came, or when it was waited for long enough."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from dinosaur_ad.station.config import PartConfig
from dinosaur_ad.station.part import JudgedPart, Picture, View


@dataclass(eq=False)
class _OpenPart:
    """A part of which some views came; ``pictures`` by view, ``views`` are those that are judged already."""

    name: str
    deadline: float
    pictures: dict[str, Picture] = field(default_factory=dict)
    views: list[View] = field(default_factory=list)


class PartAssembly:
    """Collects views until their part is complete.

    Pictures with the same ``part`` belong together. Cameras that give none are joined in the order in which their
    pictures come: each joins the oldest open part that has no picture of its view. A view counts as there once it came,
    even if it is judged later. One that comes after its part was closed makes a part of its own, with the others
    missing, so that it is recorded too.

    The times are those of any one clock that does not go back.
    """

    def __init__(self, config: PartConfig) -> None:
        self._config = config
        self._open: list[_OpenPart] = []
        self._of_key: dict[str, _OpenPart] = {}

    def __len__(self) -> int:
        return len(self._open)

    def expect(self, picture: Picture, now: float) -> None:
        """Take note of a picture that came and will be judged."""
        if picture.view not in self._config.views:  # without a view, a picture is a part
            return
        part = next((each for each in self._open if self._lacks(each, picture, now)), None)
        if part is None:
            part = _OpenPart(picture.part, now + self._config.wait_seconds)
            self._open.append(part)
        part.pictures[picture.view] = picture
        self._of_key[picture.key] = part

    def _lacks(self, part: _OpenPart, picture: Picture, now: float) -> bool:
        return part.name == picture.part and picture.view not in part.pictures and now <= part.deadline

    def add(self, view: View) -> JudgedPart | None:
        """Add a judged view; the part, if this was its last one."""
        part = self._of_key.pop(view.picture.key, None)
        if part is None:
            return JudgedPart(view.picture.key, view.picture.taken, (view,))
        part.views.append(view)
        return self._closed(part) if len(part.views) == len(self._config.views) else None

    def due(self, now: float) -> list[JudgedPart]:
        """The parts whose time is over and whose views are all judged."""
        over = [each for each in self._open if now > each.deadline and len(each.views) == len(each.pictures)]
        return [self._closed(each) for each in over]

    def rest(self) -> list[JudgedPart]:
        """All that have a judged view, complete or not; for the end."""
        parts = [self._closed(each) for each in list(self._open) if each.views]
        self._open.clear()
        self._of_key.clear()
        return parts

    def next_deadline(self) -> float | None:
        """When :meth:`due` may have something; None if nothing is open."""
        return min((each.deadline for each in self._open if len(each.views) == len(each.pictures)), default=None)

    def _closed(self, part: _OpenPart) -> JudgedPart:
        self._open.remove(part)
        order = self._config.views
        views = tuple(sorted(part.views, key=lambda view: order.index(view.picture.view)))
        missing = tuple(name for name in order if name not in {view.picture.view for view in views})
        return JudgedPart(_part_key(part, views), min(view.picture.taken for view in views), views, missing)


def _part_key(part: _OpenPart, views: tuple[View, ...]) -> str:
    """The same for the same pictures, also after a restart; another when a name comes again with other pictures."""
    keys = "\n".join(view.picture.key for view in views)
    digest = hashlib.sha256(keys.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{(part.name or views[0].picture.key)[:300]}:{digest}"
