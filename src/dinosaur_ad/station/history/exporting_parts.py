"""Parts as a table for other programs: CSV and Parquet, read from the database a few hundred at a time."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from sqlalchemy import select
from sqlalchemy.orm import defer, selectinload

from dinosaur_ad._atomic import make_folder, temporary_name
from dinosaur_ad._text import escaped, first_line, printable
from dinosaur_ad.errors import InputError, install_advice
from dinosaur_ad.station.history.retention import Sessions
from dinosaur_ad.station.history.searching import PartQuery, conditions
from dinosaur_ad.station.tables import PartRow, ViewRow

AT_ONCE = 500
NUMBERS = ("score", "threshold", "p_value", "total_ms")
COLUMNS = (
    "id", "key", "taken", "recorded", "source", "task", "verdict", "reason", *NUMBERS,
    "answer", "answered_by", "note", "missing", "pictures",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(sessions: Sessions, query: PartQuery, stream: IO[str]) -> int:
    """A header and a row for each part; how many parts. Text that a spreadsheet takes for a formula gets a quote."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for rows in _tables(sessions, query):
        writer.writerows([_cell(row[column]) for column in COLUMNS] for row in rows)
        count += len(rows)
    return count


def write_parquet(sessions: Sessions, query: PartQuery, path: Path) -> int:
    """The same as a Parquet file, whole or not at all.

    :raises InputError: pyarrow is not installed, or the file cannot be written.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            f"Parquet needs the package pyarrow, which is not installed; {install_advice('parquet')}; or export CSV."
        ) from error
    kinds = {"id": pyarrow.int64()} | dict.fromkeys(NUMBERS, pyarrow.float64())
    schema = pyarrow.schema([(column, kinds.get(column, pyarrow.string())) for column in COLUMNS])
    temporary = temporary_name(path.parent)
    count = 0
    try:
        make_folder(path.parent)
        with pyarrow.parquet.ParquetWriter(temporary, schema) as writer:
            for rows in _tables(sessions, query):
                writer.write_table(pyarrow.Table.from_pylist(rows, schema))
                count += len(rows)
        temporary.replace(path)
    except OSError as error:
        sentence = f"'{printable(path)}' cannot be written: {first_line(error)}; choose another place."
        raise InputError(sentence) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return count


def _tables(sessions: Sessions, query: PartQuery) -> Iterator[list[dict[str, Any]]]:
    """Parts as rows, the newest first, some at a time; no transaction stays open between them."""
    before = query.before_id
    while True:
        some = replace(query, before_id=before)
        statement = select(PartRow).where(*conditions(some)).order_by(PartRow.id.desc()).limit(AT_ONCE)
        views = selectinload(PartRow.views).options(defer(ViewRow.inspection))
        with sessions() as session:
            parts = list(session.scalars(statement.options(views, selectinload(PartRow.feedback))))
        if not parts:
            return
        yield [_row(part) for part in parts]
        before = parts[-1].id


def _row(part: PartRow) -> dict[str, Any]:
    said = part.feedback[-1] if part.feedback else None
    columns = {column: getattr(part, column) for column in COLUMNS if column in PartRow.__mapper__.columns}
    return columns | {
        "missing": "; ".join(part.missing),
        "answered_by": said.by if said else None,
        "note": said.note if said else None,
        "pictures": "; ".join(view.picture for view in part.views if view.picture),
    }


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    return escaped(f"'{text}" if text.startswith(_FORMULA) else text)
