"""A batch of judged parts into the tables and the picture folder, in one transaction, each part once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import InstrumentedAttribute, Session

from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.history.moments import now_stamp, stamp_of
from dinosaur_ad.station.history.outgoing import queue_rows
from dinosaur_ad.station.history.picture_files import FILES, PackedPart, PictureFolder, thumbnail, thumbnail_name
from dinosaur_ad.station.history.storable import NAME_LENGTH, storable, storable_key, storable_text
from dinosaur_ad.station.part import WORST_FIRST
from dinosaur_ad.station.tables import Base, PartRow, ViewRow

AT_ONCE = 500
"""Keys in one question to the database."""

_Row = TypeVar("_Row", bound=Base)


@dataclass(frozen=True)
class RecordedPart:
    """A part in the database; ``new`` is False if it was there before."""

    id: int
    key: str
    new: bool


def record_parts(
    session: Session, pictures: PictureFolder, packed: Sequence[PackedPart], sinks: Sequence[SinkConfig]
) -> list[RecordedPart]:
    """Add the parts that are not there yet, with their files and the messages about them; the caller commits.

    Files are written before the rows, so that a row never names a file that is still to come. A view that comes after
    its part was recorded is added to the part, whose verdict can only become worse by it.
    """
    documents = [part.document for part in packed]
    parts = found_rows(session, PartRow.key, PartRow, [each["key"] for each in documents])
    views = found_rows(session, ViewRow.key, ViewRow, [view["key"] for each in documents for view in each["views"]])
    begun: list[tuple[PartRow, bool]] = []
    for part in packed:
        begun.append(_record(session, pictures, part, parts, views))
    session.flush()
    recorded = [RecordedPart(row.id, row.key, new) for row, new in begun]
    for part, each in zip(packed, recorded, strict=True):
        if each.new and sinks:
            queue_rows(session, "part", each.key, _message(part.document, each.id), sinks, part.document["verdict"])
    return recorded


def found_rows(
    session: Session, column: InstrumentedAttribute[str], table: type[_Row], keys: Iterable[str]
) -> dict[str, _Row]:
    """The rows of these keys, by the key as the table holds it."""
    wanted = list(dict.fromkeys(map(storable_key, keys)))
    rows: dict[str, _Row] = {}
    for begin in range(0, len(wanted), AT_ONCE):
        for row in session.scalars(select(table).where(column.in_(wanted[begin : begin + AT_ONCE]))):
            rows[getattr(row, column.key)] = row
    return rows


def _record(
    session: Session, pictures: PictureFolder, packed: PackedPart, parts: dict[str, PartRow], views: dict[str, ViewRow]
) -> tuple[PartRow, bool]:
    contents = dict(zip(packed.names(), packed.files, strict=True))
    described = packed.document["views"]
    known = [views[key] for view in described if (key := storable_key(view["key"])) in views]
    fresh = [view for view in described if storable_key(view["key"]) not in views]
    _mend(pictures, known, contents)
    row = parts.get(storable_key(packed.document["key"]))
    if row is None and known and not fresh:  # its pictures are in another part
        return known[0].part, False
    new = row is None
    if row is None:
        row = _part_row(packed.document)
        parts[row.key] = row
        session.add(row)
    elif fresh:
        _merge(row, packed.document, fresh)
    for view in fresh:
        added = _view_row(pictures, view, contents)
        row.views.append(added)
        views[added.key] = added
    return row, new


def _part_row(document: dict[str, Any]) -> PartRow:
    views = document["views"]
    task = document["task"]
    clean = storable({name: document.get(name) for name in ("score", "threshold", "p_value", "total_ms", "missing")})
    return PartRow(
        key=storable_key(document["key"]),
        taken=stamp_of(document["taken"]),
        recorded=now_stamp(),
        source=storable_key(views[0]["source"] if views else "", NAME_LENGTH),
        task=None if task is None else storable_key(task, NAME_LENGTH),
        verdict=document["verdict"],
        reason=storable_text(document["reason"]),
        **clean,
    )


def _merge(row: PartRow, document: dict[str, Any], fresh: list[dict[str, Any]]) -> None:
    """Let views that came late count: the worse verdict stays, and they are no longer missing."""
    came = {view["view"] for view in fresh}
    row.missing = [name for name in row.missing if name not in came]
    if WORST_FIRST.index(document["verdict"]) < WORST_FIRST.index(row.verdict):
        other = _part_row(document)
        for name in ("verdict", "reason", "task", "score", "threshold", "p_value"):
            setattr(row, name, getattr(other, name))


def _view_row(pictures: PictureFolder, view: dict[str, Any], contents: dict[str, bytes]) -> ViewRow:
    return ViewRow(
        key=storable_key(view["key"]),
        source=storable_key(view["source"], NAME_LENGTH),
        view=storable_key(view["view"], NAME_LENGTH),
        verdict=view["verdict"],
        error=storable_text(view["error"]),
        inspection=storable(view["inspection"]),
        ms=storable(view["ms"]),
        picture=view["picture"],
        map=view["map"],
        bytes=_write_files(pictures, view, contents),
    )


def _write_files(pictures: PictureFolder, view: dict[str, Any], contents: dict[str, bytes]) -> int:
    files = {name: contents[name] for kind in FILES if (name := view.get(kind))}
    small = thumbnail_name(view["picture"]) if view["picture"] else ""
    if small and small not in files:
        made = thumbnail(contents[view["picture"]])
        files |= {} if made is None else {small: made}
    for name, content in files.items():
        pictures.write(name, content)
    return sum(map(len, files.values()))


def _mend(pictures: PictureFolder, known: Iterable[ViewRow], contents: dict[str, bytes]) -> None:
    """Files of views that were recorded before: a power cut may have come between the row and the file."""
    for row in known:
        if row.map in contents:
            pictures.mend(row.map, contents[row.map])
        if row.picture in contents:
            pictures.mend(row.picture, contents[row.picture])
            small = thumbnail_name(row.picture)
            made = contents.get(small) or thumbnail(contents[row.picture])
            if made is not None:
                pictures.mend(small, made)


def _message(document: dict[str, Any], part_id: int) -> dict[str, Any]:
    """What sinks are told: the part without the names of its files."""
    views = [{name: value for name, value in view.items() if name not in FILES} for view in document["views"]]
    return document | {"views": views, "id": part_id}
