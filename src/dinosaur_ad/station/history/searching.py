"""Finding parts: what can be asked of the history, and the statements for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session, selectinload

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.history.moments import stamp_of
from dinosaur_ad.station.history.storable import NAME_LENGTH, storable_key, storable_text
from dinosaur_ad.station.part import WORST_FIRST
from dinosaur_ad.station.tables import PartRow

MOST = 1000
"""Parts on one page."""
ANSWERS = ("fine", "defect", "not sure", "other product")
NO_ANSWER = "none"
ANY_ANSWER = "any"


@dataclass(frozen=True)
class PartQuery:
    """Which parts: those that all given fields fit, the newest first.

    ``answer`` is one of :data:`ANSWERS`, "any" or "none". ``since`` is included and ``until`` is not; a day alone as
    ``until`` includes the day. ``text`` is looked for in the key, the product and the reason. ``before_id`` continues a
    page: parts recorded before that one. Exports take all parts, whatever ``limit`` says.
    """

    task: str | None = None
    verdict: str | None = None
    source: str | None = None
    answer: str | None = None
    since: str | None = None
    until: str | None = None
    text: str | None = None
    before_id: int | None = None
    limit: int = 50


@dataclass(frozen=True)
class PartPage:
    """Some of the parts; ``next_before`` is the ``before_id`` of the next page, None on the last."""

    parts: list[PartRow]
    next_before: int | None


@dataclass(frozen=True)
class ScorePoint:
    """A part in a chart."""

    id: int
    taken: str
    score: float | None
    threshold: float | None
    p_value: float | None
    verdict: str
    answer: str | None


def find_parts(session: Session, query: PartQuery) -> PartPage:
    """One page of parts with their views and feedback.

    :raises InputError: the question makes no sense.
    """
    limit = max(1, min(query.limit, MOST))
    statement = select(PartRow).where(*conditions(query)).order_by(PartRow.id.desc()).limit(limit + 1)
    rows = list(session.scalars(with_all(statement)))
    return PartPage(rows[:limit], rows[limit - 1].id if len(rows) > limit else None)


def with_all(statement: Select[PartRow]) -> Select[PartRow]:
    """The statement, loading views and feedback too, so that the rows can be used without a session."""
    return statement.options(selectinload(PartRow.views), selectinload(PartRow.feedback))


def conditions(query: PartQuery) -> list[ColumnElement[bool]]:
    """What a part has to fulfil.

    :raises InputError: the question makes no sense.
    """
    found: list[ColumnElement[bool]] = []
    if query.verdict is not None:
        _one_of("verdict", query.verdict, WORST_FIRST)
        found.append(PartRow.verdict == query.verdict)
    if query.task is not None:
        found.append(PartRow.task == storable_key(query.task, NAME_LENGTH))
    if query.source is not None:
        found.append(PartRow.source == storable_key(query.source, NAME_LENGTH))
    if query.answer is not None:
        found.append(_answer(query.answer))
    if query.since:
        found.append(PartRow.taken >= stamp_of(query.since))
    if query.until:
        found.append(PartRow.taken < stamp_of(query.until, end=True))
    if query.text:
        columns = (PartRow.key, PartRow.task, PartRow.reason)
        text = storable_text(query.text)
        found.append(or_(*(column.icontains(text, autoescape=True) for column in columns)))
    if query.before_id is not None and query.before_id < 2**31:
        found.append(PartRow.id < max(0, query.before_id))
    return found


def count_verdicts(session: Session, since: str | None) -> dict[str | None, dict[str, int]]:
    """How many parts of each verdict each product has; the product None has those without."""
    statement = select(PartRow.task, PartRow.verdict, func.count()).group_by(PartRow.task, PartRow.verdict)
    if since:
        statement = statement.where(PartRow.taken >= stamp_of(since))
    counts: dict[str | None, dict[str, int]] = {}
    for task, verdict, count in session.execute(statement):
        counts.setdefault(task, dict.fromkeys(WORST_FIRST, 0))[verdict] = count
    return counts


def score_points(session: Session, task: str | None, since: str | None, limit: int) -> list[ScorePoint]:
    """The newest parts of a product (None: of all) for a chart, the oldest of them first."""
    columns: tuple[Any, ...] = tuple(getattr(PartRow, name) for name in ScorePoint.__dataclass_fields__)
    statement = select(*columns).where(*conditions(PartQuery(task=task, since=since)))
    rows = session.execute(statement.order_by(PartRow.taken.desc(), PartRow.id.desc()).limit(max(1, limit)))
    return [ScorePoint(*row) for row in rows][::-1]


def _answer(answer: str) -> ColumnElement[bool]:
    if answer == NO_ANSWER:
        return PartRow.answer.is_(None)
    if answer == ANY_ANSWER:
        return PartRow.answer.is_not(None)
    _one_of("answer", answer, (*ANSWERS, ANY_ANSWER, NO_ANSWER))
    return PartRow.answer == answer


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"The {name} is one of {', '.join(sorted(known))}, got '{printable(value, 60)}'.")
