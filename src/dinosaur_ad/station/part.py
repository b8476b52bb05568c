"""What goes through the station: a picture of a camera or a file, the views of one part, the part as it was judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.verdict import ANOMALOUS, NORMAL, NOT_READY, UNKNOWN
from dinosaur_ad.inspection import Inspection

Pixels = NDArray[np.uint8]

WORST_FIRST = (ANOMALOUS, UNKNOWN, NOT_READY, NORMAL)
"""The verdict of a part is the first of these that one of its views has."""


@dataclass(frozen=True)
class Picture:
    """One picture as a source gives it: a file (``path``) or pixels (RGB uint8), never both.

    ``key`` is its identity: a picture of a key that was recorded before is not recorded again. ``part`` is the same for
    the views of one part, and the ``key`` where each picture is a part. ``release`` is called once the part is on disk,
    for instance to remove the spooled file.
    """

    key: str
    source: str
    taken: datetime
    path: Path | None = None
    pixels: Pixels | None = field(default=None, repr=False, compare=False)
    part: str = ""
    view: str = ""
    task: str | None = None
    release: Callable[[], None] | None = field(default=None, repr=False, compare=False)

    @property
    def part_key(self) -> str:
        """The identity of the part that it shows."""
        return self.part or self.key


@dataclass(frozen=True)
class View:
    """A picture as it was judged; ``inspection`` is None where it could not be read, and ``error`` says why.

    ``picture`` is kept until the part is recorded, so that the file or the pixels can be stored. ``ms`` has the times
    of the steps: "wait" in queues, "read", "encode", "score" and so on, "total" from the frame to the verdict.
    """

    picture: Picture
    inspection: Inspection | None
    error: str = ""
    ms: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The verdict of the inspection; a picture that could not be read is "not ready", never "normal"."""
        return self.inspection.verdict if self.inspection else NOT_READY

    @property
    def reason(self) -> str:
        """Why there is no judgement, if there is none."""
        return self.inspection.reason if self.inspection else self.error


@dataclass(frozen=True)
class JudgedPart:
    """A part with all its views; ``missing`` names the views that did not come in time."""

    key: str
    taken: datetime
    views: tuple[View, ...]
    missing: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst verdict of the views; a part without all its views cannot be normal."""
        verdicts = {view.verdict for view in self.views} | ({NOT_READY} if self.missing or not self.views else set())
        return next(verdict for verdict in WORST_FIRST if verdict in verdicts)

    @property
    def worst(self) -> View | None:
        """The view that decides the verdict: of equal verdicts that with the lowest p-value."""
        if not self.views:
            return None

        def rank(view: View) -> tuple[int, float]:
            return WORST_FIRST.index(view.verdict), view.inspection.p_value if view.inspection else 0.0

        return min(self.views, key=rank)

    @property
    def reason(self) -> str:
        """Why there is no judgement; empty for normal and anomalous parts."""
        if self.verdict == NOT_READY and self.missing:
            return f"The part has no picture of the view {', '.join(self.missing)}."
        return self.worst.reason if self.worst and self.verdict in (UNKNOWN, NOT_READY) else ""

    def to_json(self) -> dict[str, Any]:
        """As the sinks and the event stream send it."""
        worst = self.worst.inspection if self.worst else None
        return {
            "key": self.key,
            "taken": self.taken.isoformat(),
            "verdict": self.verdict,
            "reason": self.reason,
            "task": worst.task if worst else None,
            "score": worst.score if worst else None,
            "threshold": worst.threshold if worst else None,
            "p_value": worst.p_value if worst else None,
            "missing": list(self.missing),
            "views": [
                {
                    "key": view.picture.key,
                    "source": view.picture.source,
                    "view": view.picture.view,
                    "verdict": view.verdict,
                    "error": view.error,
                    "ms": view.ms,
                    "inspection": view.inspection.to_json() if view.inspection else None,
                }
                for view in self.views
            ],
        }
