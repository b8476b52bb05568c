"""What the outbox reads and writes in its table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import CursorResult, delete, func, select, union_all, update
from sqlalchemy.orm import Session

from dinosaur_ad.station.history.moments import stamp
from dinosaur_ad.station.sinks.sink import Told
from dinosaur_ad.station.tables import OutboxRow, PartRow

DELIVERED_KEPT = timedelta(days=1)
REFUSED_KEPT = timedelta(days=30)


class HasSessions(Protocol):
    """What the outbox needs of the history."""

    def session(self) -> AbstractContextManager[Session]:
        """A session that commits at the end of the block, or changes nothing if the block raises."""
        ...


def waiting_rows(session: Session, sink: str, but: Sequence[int], limit: int) -> list[OutboxRow]:
    """The oldest undelivered messages of a sink, in order, without those of the ids ``but``; detached."""
    query = select(OutboxRow).where(OutboxRow.sink == sink, OutboxRow.delivered.is_(None), OutboxRow.refused.is_(None))
    if but:
        query = query.where(OutboxRow.id.not_in(but))
    rows = list(session.scalars(query.order_by(OutboxRow.id).limit(limit)))
    session.expunge_all()
    return rows


def mark_delivered(session: Session, delivered: dict[int, str]) -> None:
    """Note when messages (by id) were delivered."""
    for moment in set(delivered.values()):
        ids = [id for id, when in delivered.items() if when == moment]
        session.execute(
            update(OutboxRow).where(OutboxRow.id.in_(ids)).values(delivered=moment, attempts=OutboxRow.attempts + 1)
        )


def mark_failed(session: Session, id: int, error: str, pause: float, *, aside: bool) -> None:
    """Note that a try failed; with ``aside`` the message is not tried again by itself."""
    now = datetime.now(UTC)
    values: dict[str, Any] = {
        "attempts": OutboxRow.attempts + 1,
        "error": error,
        "next_try": stamp(now + timedelta(seconds=pause)),
        "refused": stamp(now) if aside else None,
    }
    session.execute(update(OutboxRow).where(OutboxRow.id == id).values(**values))


def take_back(session: Session, sink: str) -> int:
    """Let the messages that were set aside be tried again; how many there were."""
    changed = session.execute(
        update(OutboxRow).where(OutboxRow.sink == sink, OutboxRow.refused.is_not(None)).values(refused=None)
    )
    return _count(changed)


def remove_old(session: Session, sink: str, now: datetime) -> int:
    """Remove what was delivered long ago, and return how many messages were removed without having been delivered."""
    session.execute(delete(OutboxRow).where(OutboxRow.sink == sink, OutboxRow.delivered < stamp(now - DELIVERED_KEPT)))
    refused = session.execute(
        delete(OutboxRow).where(OutboxRow.sink == sink, OutboxRow.refused < stamp(now - REFUSED_KEPT))
    )
    return _count(refused)


def counted(session: Session) -> tuple[dict[str, int], dict[str, int]]:
    """How many messages wait, and how many are set aside, by sink."""
    query = (
        select(OutboxRow.sink, OutboxRow.refused.is_not(None), func.count())
        .where(OutboxRow.delivered.is_(None))
        .group_by(OutboxRow.sink, OutboxRow.refused.is_not(None))
    )
    waiting: dict[str, int] = {}
    refused: dict[str, int] = {}
    for sink, aside, count in session.execute(query):
        (refused if aside else waiting)[sink] = count
    return waiting, refused


def told_before(session: Session, sink: str) -> Told:
    """The parts of the history less those that the sink is still to be told, and the last one it was told."""
    verdict = OutboxRow.payload["verdict"].as_string().label("said")
    is_part = (OutboxRow.sink == sink, OutboxRow.kind == "part")
    recorded = select(PartRow.verdict, func.count()).group_by(PartRow.verdict)
    to_come = select(verdict, -func.count()).where(*is_part, OutboxRow.delivered.is_(None)).group_by("said")
    counts: dict[str, int] = {}
    # One statement: a part that is recorded meanwhile is in both halves or in none.
    for row in session.execute(union_all(recorded, to_come)):
        counts[row[0]] = max(0, counts.get(row[0], 0) + row[1])
    last = select(OutboxRow.payload).where(*is_part, OutboxRow.delivered.is_not(None))
    return Told(counts, session.scalar(last.order_by(OutboxRow.id.desc()).limit(1)))


def _count(result: Any) -> int:
    return result.rowcount if isinstance(result, CursorResult) else 0
