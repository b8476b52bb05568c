"""What a watch reports: one event for each picture, and one for each decision about products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dinosaur_ad.inspection import Inspection, Learned, Suspect

INSPECTED, UNKNOWN, LEFT_OUT, PROPOSED, ADOPTED, REFUSED, UPDATED, RECALIBRATED = (
    "inspected",
    "unknown",
    "left out",
    "proposed",
    "adopted",
    "refused",
    "updated",
    "recalibrated",
)
MERGE_PROPOSED, MERGED, SPLIT_PROPOSED = "merge proposed", "merged", "split proposed"


@dataclass(frozen=True)
class WatchEvent:
    """One thing that a watch did, and why, in plain words.

    ``kind`` is "inspected" (a picture of a known product, with its ``inspection``), "unknown" (kept in the tray, or
    shows what a proposal shows), "left out" (blank, unreadable, or pushed out of a full tray), "proposed" (enough
    pictures agree), "adopted" (a proposal was learned as ``task``), "updated" (clearly normal pictures were added to
    ``task``; undo takes it back), "recalibrated" (its threshold was taken anew; so too), "merge proposed" (``tasks``
    look the same now), "merged" (``tasks`` became ``task``), "split proposed" (the pictures of ``task`` fall into two
    ``groups``) or "refused" (the guard did not allow it). ``suspects`` of a proposal are pictures that are not
    learned; ``promised_rate`` is that of :class:`~dinosaur_ad.Learned`; ``learned`` is all that learning an adopted
    or merged one gave, None where that was done before a kill.
    """

    kind: str
    reason: str
    path: str = ""
    task: str = ""
    proposal: int | None = None
    pictures: tuple[str, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    promised_rate: float | None = None
    inspection: Inspection | None = None
    tasks: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    learned: Learned | None = None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "event": self.kind,
            "reason": self.reason,
            "path": self.path,
            "task": self.task,
            "proposal": self.proposal,
            "pictures": list(self.pictures),
            "suspects": [{"path": each.path, "reason": each.reason, "score": each.score} for each in self.suspects],
            "promised_rate": self.promised_rate,
            "tasks": list(self.tasks),
            "groups": [list(each) for each in self.groups],
            "inspection": self.inspection.to_json() if self.inspection else None,
        }
