"""Results for people: one self-contained HTML page and one picture, made of small functions from data to markup.

``results`` holds the rows and what is derived from them, ``examples`` which of them are shown, ``html`` and ``charts``
are building blocks that know nothing about any particular run, ``page`` and ``picture`` tell the story of a sequence.
"""

from __future__ import annotations

from dinosaur_ad.page.examples import Choice, Example, choose
from dinosaur_ad.page.picture import sequence_picture
from dinosaur_ad.page.sequence_page import interval, percent, sequence_page
from dinosaur_ad.page.sequence_results import Row, Run, Share, Summary, Taught, last_rows, summarise

__all__ = [
    "Choice",
    "Example",
    "Row",
    "Run",
    "Share",
    "Summary",
    "Taught",
    "choose",
    "interval",
    "last_rows",
    "percent",
    "sequence_page",
    "sequence_picture",
    "summarise",
]
