"""How long pictures and maps are kept: by days and by bytes, defects and parts with feedback longer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, exists, func, literal_column, not_, or_, select, update
from sqlalchemy.orm import Session

from dinosaur_ad.bank.budget import parse_bytes
from dinosaur_ad.bank.verdict import ANOMALOUS, UNKNOWN
from dinosaur_ad.station.config import HistoryConfig
from dinosaur_ad.station.history.moments import stamp
from dinosaur_ad.station.history.picture_files import PictureFolder, thumbnail_name
from dinosaur_ad.station.tables import FeedbackRow, OutboxRow, PartRow, ViewRow

AT_ONCE = 200
"""Views in one transaction: a writer that waits for it is not held up."""
KEEP_DELIVERED = timedelta(days=7)

# As a literal: SQLite uses the index "views_kept" for nothing else.
_HAS_FILES = ViewRow.bytes > literal_column("0")

Sessions = Callable[[], AbstractContextManager[Session]]


@dataclass(frozen=True)
class Removed:
    """How many pictures were removed, and their bytes."""

    count: int = 0
    bytes: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.count + other.count, self.bytes + other.bytes)


def apply(sessions: Sessions, pictures: PictureFolder, config: HistoryConfig, now: datetime) -> Removed:
    """Remove what is too old, then the oldest of what is too much: ordinary parts first, defects and answers last.

    Pictures that wait in the tray are never removed: somebody is still to look at them.
    """
    removed = Removed()
    important = _important()
    for condition, days in ((not_(important), config.keep_days), (important, config.keep_days_defects)):
        old = PartRow.taken < stamp(now - timedelta(days=days))
        removed += _remove(sessions, pictures, and_(condition, old), None)
    excess = used_bytes(sessions) - parse_bytes(config.keep_bytes)
    for condition in (not_(important), important):
        if excess > 0:
            some = _remove(sessions, pictures, condition, excess)
            removed, excess = removed + some, excess - some.bytes
    if removed.count:
        pictures.remove_empty_folders()
    with sessions() as session:
        session.execute(delete(OutboxRow).where(OutboxRow.delivered < stamp(now - KEEP_DELIVERED)))
    return removed


def used_bytes(sessions: Sessions) -> int:
    """Bytes of all pictures, thumbnails and maps."""
    with sessions() as session:
        return int(session.scalar(select(func.sum(ViewRow.bytes)).where(_HAS_FILES)) or 0)


def disk(sessions: Sessions, folder: Path, config: HistoryConfig) -> dict[str, Any]:
    """Bytes used, free and allowed."""
    usage = shutil.disk_usage(folder)
    return {"used": used_bytes(sessions), "limit": parse_bytes(config.keep_bytes), "free": usage.free}


def _important() -> ColumnElement[bool]:
    return or_(PartRow.verdict.in_((ANOMALOUS, UNKNOWN)), PartRow.answer.is_not(None))


def _remove(sessions: Sessions, pictures: PictureFolder, condition: ColumnElement[bool], excess: int | None) -> Removed:
    """Remove the files of the oldest parts that a condition holds for: all, or until ``excess`` bytes are gone."""
    waiting = exists().where(FeedbackRow.part_id == PartRow.id, FeedbackRow.state == "waiting")
    statement = (
        select(ViewRow.id, ViewRow.picture, ViewRow.map, ViewRow.bytes)
        .join(PartRow)
        .where(_HAS_FILES, condition, not_(waiting))
        .order_by(ViewRow.id)
        .limit(AT_ONCE)
    )
    removed = Removed()
    last = 0
    while excess is None or removed.bytes < excess:
        with sessions() as session:
            rows = list(session.execute(statement.where(ViewRow.id > last)))
        taken = _enough(rows, None if excess is None else excess - removed.bytes)
        if not taken:
            break
        # The files first: on a full disk they make the space that changing the rows needs. A row whose file is gone
        # already reads like one whose picture was removed.
        for _, picture, patch_map, _ in taken:
            pictures.remove((picture, thumbnail_name(picture) if picture else "", patch_map))
        with sessions() as session:
            ids = [row[0] for row in taken]
            session.execute(update(ViewRow).where(ViewRow.id.in_(ids)).values(picture="", map="", bytes=0))
        removed += Removed(len(taken), sum(row[3] for row in taken))
        last = taken[-1][0]
    return removed


def _enough(rows: Sequence[Any], excess: int | None) -> list[Any]:
    """The first rows that together have ``excess`` bytes."""
    if excess is None:
        return list(rows)
    taken: list[Any] = []
    for row in rows:
        if excess <= 0:
            break
        taken.append(row)
        excess -= row[3]
    return taken
