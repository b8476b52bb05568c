"""Recorded parts as the pages show them: addresses of pictures, outlines of regions, the score on a fixed scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dinosaur_ad.station.tables import PartRow, ViewRow

MOST_REGIONS = 100
"""Outlines that are drawn on one picture."""


@dataclass(frozen=True)
class ShownView:
    """One picture of a part; ``regions`` are the corners of the outlines as SVG wants them."""

    number: int
    id: int
    name: str
    source: str
    verdict: str
    error: str
    width: int
    height: int
    regions: tuple[str, ...]
    has_picture: bool
    has_map: bool
    inspection: dict[str, Any] | None
    ms: dict[str, Any]

    @property
    def worst(self) -> dict[str, Any] | None:
        """The worst patch, with the normal patch nearest to it."""
        return (self.inspection or {}).get("worst")

    def picture(self, part_id: int, kind: str = "full") -> str:
        """The address of the picture: "full", "shown" (large enough for a screen), "small", "heat", "worst" or
        "nearest"."""
        return f"/parts/{part_id}/pictures/{self.number}/{kind}"


@dataclass(frozen=True)
class ShownPart:
    """A recorded part. ``worst`` is the number of the view that decides."""

    row: PartRow
    views: tuple[ShownView, ...]
    worst: int

    @property
    def id(self) -> int:
        """Its number in the history."""
        return self.row.id

    @property
    def verdict(self) -> str:
        """Its verdict."""
        return self.row.verdict

    @property
    def view(self) -> ShownView | None:
        """The view that decides the verdict."""
        return self.views[self.worst] if self.views else None

    @property
    def ratio(self) -> float | None:
        """The score in units of the threshold; 1 is the threshold."""
        return score_ratio(self.row.score, self.row.threshold)


def score_ratio(score: float | None, threshold: float | None) -> float | None:
    """A score in units of its threshold, None where that says nothing.

    >>> score_ratio(3.0, 2.0), score_ratio(1.0, float("inf"))
    (1.5, None)
    """
    if score is None or threshold is None or not 0 < threshold < 1e30:
        return None
    return score / threshold


def shown_part(row: PartRow) -> ShownPart:
    """A part with its views loaded, for the pages."""
    views = tuple(_shown_view(number, view) for number, view in enumerate(row.views))
    worst = next((view.number for view in views if view.verdict == row.verdict), 0)
    if row.verdict == "anomalous":
        flagged = [view for view in views if view.verdict == "anomalous"]
        worst = min(flagged, key=_p_value).number if flagged else worst
    return ShownPart(row, views, worst)


def _p_value(view: ShownView) -> float:
    return float((view.inspection or {}).get("p_value") or 0.0)


def _shown_view(number: int, row: ViewRow) -> ShownView:
    found = row.inspection or {}
    height, width = found.get("image_size") or (0, 0)
    return ShownView(
        number=number,
        id=row.id,
        name=row.view,
        source=row.source,
        verdict=row.verdict,
        error=row.error,
        width=int(width),
        height=int(height),
        regions=tuple(corners(region.get("contour", ())) for region in found.get("regions", ())[:MOST_REGIONS]),
        has_picture=bool(row.picture),
        has_map=bool(row.map),
        inspection=row.inspection,
        ms=row.ms or {},
    )


def corners(contour: Any) -> str:
    """The points of an outline as the attribute ``points`` of a polygon.

    >>> corners([[0, 1], [2, 3]])
    '0,1 2,3'
    """
    return " ".join(f"{int(x)},{int(y)}" for x, y in contour)
