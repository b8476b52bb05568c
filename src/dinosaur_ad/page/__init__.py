"""Results for people: self-contained HTML pages and one picture, made by small functions from data to markup.

``html``, ``charts`` and ``photo_cards`` are building blocks. ``sequence_results``, ``examples``, ``sequence_page`` and
``picture`` make the page and picture of the demo, ``image_results`` and ``image_page`` the page of ``dinosaur report``.
"""

from __future__ import annotations

from dinosaur_ad.page.examples import Example, ShownRows, choose
from dinosaur_ad.page.picture import sequence_picture
from dinosaur_ad.page.sequence_page import interval, sequence_page
from dinosaur_ad.page.sequence_results import SequenceRow, SequenceRun, Share, Summary, Taught, last_rows, summarise

__all__ = [
    "Example",
    "SequenceRow",
    "SequenceRun",
    "Share",
    "ShownRows",
    "Summary",
    "Taught",
    "choose",
    "interval",
    "last_rows",
    "sequence_page",
    "sequence_picture",
    "summarise",
]
