"""Times as the tables hold them: UTC, ISO format with microseconds, so that they sort as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError

_DATE = 10
"""Characters of ``2026-11-18``."""


def stamp(moment: datetime) -> str:
    """A moment as text; one without a zone is taken as UTC.

    >>> stamp(datetime(2026, 11, 18, 17, 3, 7))
    '2026-11-18T17:03:07.000000+00:00'
    """
    zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return zoned.isoformat(timespec="microseconds")


def now_stamp() -> str:
    """This moment as text."""
    return stamp(datetime.now(UTC))


def stamp_of(text: str, *, end: bool = False) -> str:
    """A time that a person or a program gave, as the tables hold it; with ``end`` a day alone means the end of it.

    >>> stamp_of("2026-11-18"), stamp_of("2026-11-18", end=True)
    ('2026-11-18T00:00:00.000000+00:00', '2026-11-19T00:00:00.000000+00:00')

    :raises InputError: it is no time in ISO format.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
        if end and len(text.strip()) <= _DATE:
            moment += timedelta(days=1)
        return stamp(moment)
    except (ValueError, OverflowError):
        sentence = f"'{printable(text, 60)}' is no time; write it as 2026-11-18 or 2026-11-18T17:03:07+01:00."
        raise InputError(sentence) from None
