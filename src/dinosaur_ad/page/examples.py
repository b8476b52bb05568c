"""Which images a report shows, by rules and not by taste; and how one is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import numpy as np
from PIL import Image

from dinosaur_ad.images.drawing import draw_box, heat_layer, outline
from dinosaur_ad.images.loading import Mask, Pixels
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.page.sequence_results import Row


@dataclass(frozen=True)
class Example:
    """A row with what is needed to show it; ``mask`` is None when nobody marked the defect."""

    row: Row
    pixels: Pixels
    mask: Mask | None
    inspection: Inspection


@dataclass(frozen=True)
class Choice:
    """The rows a report shows: per product a typical normal and a typical defect, and examples of every outcome."""

    showcase: tuple[tuple[Row, Row], ...]
    hits: tuple[Row, ...]
    misses: tuple[Row, ...]
    false_alarms: tuple[Row, ...]

    def rows(self) -> set[Row]:
        """Every row that is shown."""
        return {*chain.from_iterable(self.showcase), *self.hits, *self.misses, *self.false_alarms}


def choose(rows: Sequence[Row], limit: int = 10) -> Choice:
    """Choose from the rows of one evaluation: medians for the showcase, then at most ``limit`` of every outcome.

    Hits are the first tested of every defect kind; misses and false alarms begin with the worst. All go through the
    products in turn.
    """
    products = dict.fromkeys(row.product for row in rows)
    hits = [row for row in rows if row.label and row.alarm]
    misses = sorted((row for row in rows if row.label and not row.alarm), key=lambda row: row.relative)
    alarms = sorted((row for row in rows if not row.label and row.alarm), key=lambda row: -row.relative)
    return Choice(
        showcase=tuple(_showcase([row for row in rows if row.product == product]) for product in products),
        hits=_round_robin(_first_of_every_kind(hits), limit),
        misses=_round_robin(misses, limit),
        false_alarms=_round_robin(alarms, limit),
    )


def marks(example: Example, *, heat: bool = True, truth: bool = True, zoom: float = 1.0) -> Pixels:
    """What is drawn over an example's image, RGBA uint8 ``(H, W, 4)``: heat, boxed worst patch, outlined defect.

    ``zoom`` is the size of the layer in units of the image; lines stay thin at any size.
    """
    height, width = (max(1, round(side * zoom)) for side in example.pixels.shape[:2])
    layer = np.zeros((height, width, 4), np.uint8)
    if heat:
        image = Image.fromarray(heat_layer(example.inspection, height, width))
        if example.row.alarm:
            draw_box(image, example.inspection.worst.box, zoom)
        layer = np.asarray(image)
    if truth and example.mask is not None:
        layer = outline(layer, np.asarray(Image.fromarray(example.mask).resize((width, height))))
    return layer


def _showcase(rows: Sequence[Row]) -> tuple[Row, Row]:
    """The normal image and the defect with the median score; the defect among the hits, if there are any."""
    defects = [row for row in rows if row.label]
    return _median([row for row in rows if not row.label]), _median([row for row in defects if row.alarm] or defects)


def _median(rows: Sequence[Row]) -> Row:
    return sorted(rows, key=lambda row: row.relative)[len(rows) // 2]


def _first_of_every_kind(rows: Sequence[Row]) -> list[Row]:
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        first.setdefault((row.product, row.kind), row)
    return list(first.values())


def _round_robin(rows: Iterable[Row], limit: int) -> tuple[Row, ...]:
    """The first of every product, then the second of every product, and so on."""
    by_product: dict[str, list[Row]] = {}
    for row in rows:
        by_product.setdefault(row.product, []).append(row)
    turns = chain.from_iterable(zip_longest(*by_product.values()))
    return tuple(row for row in turns if row is not None)[:limit]
