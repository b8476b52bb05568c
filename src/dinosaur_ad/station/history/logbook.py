"""What happened beside the parts: changes of products, warnings, the audit, messages to sinks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.history.moments import now_stamp
from dinosaur_ad.station.history.outgoing import queue_rows
from dinosaur_ad.station.history.storable import NAME_LENGTH, is_id, storable, storable_key, storable_text
from dinosaur_ad.station.tables import AuditRow, ChangeRow, WarningRow

_Row = TypeVar("_Row", ChangeRow, WarningRow, AuditRow)


class Logbook:
    """The part of a history that notes what people and the station did."""

    def session(self) -> AbstractContextManager[Session]:
        """A session that commits at the end of the block."""
        raise NotImplementedError

    def add_change(
        self, by: str, task: str, action: str, sentence: str = "", detail: dict[str, Any] | None = None
    ) -> int:
        """Note who changed what of a product; the id."""
        row = ChangeRow(made=now_stamp(), by=_name(by), task=_name(task), action=storable_key(action, 80)[:40])
        row.sentence, row.detail = storable_text(sentence), storable(detail or {})
        return self._add(row)

    def changes(self, task: str | None = None, limit: int = 100) -> list[ChangeRow]:
        """The changes of a product (None: of all), the newest first."""
        statement = select(ChangeRow).order_by(ChangeRow.id.desc()).limit(limit)
        return self._rows(statement if task is None else statement.where(ChangeRow.task == task))

    def add_warning(
        self,
        kind: str,
        task: str | None,
        sentence: str,
        detail: dict[str, Any] | None = None,
        parts: Sequence[int] = (),
        sinks: Sequence[SinkConfig] = (),
    ) -> int:
        """Note a warning, with the ids of the parts that show it, and in the same change the messages to ``sinks``; the
        id."""
        row = WarningRow(raised=now_stamp(), kind=kind[:40], task=None if task is None else _name(task))
        row.sentence, row.detail, row.parts = storable_text(sentence), storable(detail or {}), list(map(int, parts))
        with self.session() as session:
            session.add(row)
            session.flush()
            queue_rows(session, "warning", str(row.id), warning_message(row), sinks)
            return row.id

    def warnings(self, open_only: bool = True, limit: int = 100, kind: str | None = None) -> list[WarningRow]:
        """Warnings (of a kind alone), the newest first."""
        statement = select(WarningRow).order_by(WarningRow.id.desc()).limit(limit)
        statement = statement if kind is None else statement.where(WarningRow.kind == kind)
        return self._rows(statement.where(WarningRow.closed.is_(None)) if open_only else statement)

    def close_warning(self, warning_id: int, by: str) -> None:
        """Say that a warning was dealt with; who did so first stays.

        :raises InputError: there is no such warning.
        """
        with self.session() as session:
            row = session.get(WarningRow, warning_id) if is_id(warning_id) else None
            if row is None:
                raise InputError(f"The history has no warning {warning_id}.")
            if row.closed is None:
                row.closed, row.closed_by = now_stamp(), _name(by)

    def audit(self, by: str, action: str, detail: str = "", address: str = "") -> None:
        """Note who did what."""
        row = AuditRow(at=now_stamp(), by=_name(by), action=storable_text(action)[:60])
        row.address, row.detail = storable_text(address)[:64], storable_text(detail)
        self._add(row)

    def audit_rows(self, limit: int = 100) -> list[AuditRow]:
        """Who did what, the newest first."""
        return self._rows(select(AuditRow).order_by(AuditRow.id.desc()).limit(limit))

    def queue_message(self, kind: str, key: str, payload: dict[str, Any], sinks: Sequence[SinkConfig]) -> int:
        """Queue a message for the sinks that want its kind, once for each key; how many were added."""
        with self.session() as session:
            return queue_rows(session, kind, key, payload, sinks, str(payload.get("verdict") or ""))

    def _add(self, row: ChangeRow | WarningRow | AuditRow) -> int:
        with self.session() as session:
            session.add(row)
            session.flush()
            return row.id

    def _rows(self, statement: Select[_Row]) -> list[_Row]:
        with self.session() as session:
            return list(session.scalars(statement))


def warning_message(row: WarningRow) -> dict[str, Any]:
    """A warning as the sinks and the event stream send it."""
    return {name: getattr(row, name) for name in ("id", "kind", "task", "sentence", "parts", "detail")}


def _name(text: str) -> str:
    return storable_key(text, NAME_LENGTH)
