"""Which images the page of a sequence shows, by fixed rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from dinosaur_ad.images.loading import Mask, Pixels
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.page.sequence_results import SequenceRow


@dataclass(frozen=True)
class Example:
    """A row with what is needed to show it; ``mask`` is None where the defect is not marked."""

    row: SequenceRow
    pixels: Pixels
    mask: Mask | None
    inspection: Inspection


@dataclass(frozen=True)
class ShownRows:
    """The rows a report shows: per product a typical normal and a typical defect, and examples of every outcome."""

    showcase: tuple[tuple[SequenceRow, SequenceRow], ...]
    hits: tuple[SequenceRow, ...]
    misses: tuple[SequenceRow, ...]
    false_alarms: tuple[SequenceRow, ...]

    def rows(self) -> set[SequenceRow]:
        """Every row that is shown."""
        return {*chain.from_iterable(self.showcase), *self.hits, *self.misses, *self.false_alarms}


def choose(rows: Sequence[SequenceRow], limit: int = 10) -> ShownRows:
    """Choose from the rows of one evaluation: medians for the showcase, then at most ``limit`` of every outcome.

    Hits are the first tested of every defect kind; misses and false alarms begin with the worst. All go through the
    products in turn.
    """
    products = dict.fromkeys(row.product for row in rows)
    hits = [row for row in rows if row.label and row.alarm]
    misses = sorted((row for row in rows if row.label and not row.alarm), key=lambda row: row.relative)
    alarms = sorted((row for row in rows if not row.label and row.alarm), key=lambda row: -row.relative)
    return ShownRows(
        showcase=tuple(_showcase([row for row in rows if row.product == product]) for product in products),
        hits=_round_robin(_first_of_every_kind(hits), limit),
        misses=_round_robin(misses, limit),
        false_alarms=_round_robin(alarms, limit),
    )


def _showcase(rows: Sequence[SequenceRow]) -> tuple[SequenceRow, SequenceRow]:
    """The normal image and the defect with the median score; the defect among the hits, if there are any."""
    defects = [row for row in rows if row.label]
    return _median([row for row in rows if not row.label]), _median([row for row in defects if row.alarm] or defects)


def _median(rows: Sequence[SequenceRow]) -> SequenceRow:
    return sorted(rows, key=lambda row: row.relative)[len(rows) // 2]


def _first_of_every_kind(rows: Sequence[SequenceRow]) -> list[SequenceRow]:
    first: dict[tuple[str, str], SequenceRow] = {}
    for row in rows:
        first.setdefault((row.product, row.kind), row)
    return list(first.values())


def _round_robin(rows: Iterable[SequenceRow], limit: int) -> tuple[SequenceRow, ...]:
    """The first of every product, then the second of every product, and so on."""
    by_product: dict[str, list[SequenceRow]] = {}
    for row in rows:
        by_product.setdefault(row.product, []).append(row)
    turns = chain.from_iterable(zip_longest(*by_product.values()))
    return tuple(row for row in turns if row is not None)[:limit]
