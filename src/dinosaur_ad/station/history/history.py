"""The history of a station: every judged part once, what people said of it, what was changed, who did what."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from dinosaur_ad._atomic import make_folder
from dinosaur_ad._text import first_line, printable
from dinosaur_ad.errors import StoreError
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.station.config import HistoryConfig, SinkConfig
from dinosaur_ad.station.history import exporting_parts, feedback_rows, retention, searching
from dinosaur_ad.station.history.database import (
    HistoryDownError,
    database_url,
    down,
    is_away,
    make_engine,
    open_database,
    place,
)
from dinosaur_ad.station.history.logbook import Logbook
from dinosaur_ad.station.history.picture_files import (
    PackedPart,
    PictureFolder,
    pack,
    read_map,
    restored,
    thumbnail_name,
)
from dinosaur_ad.station.history.recording import AT_ONCE, RecordedPart, record_parts
from dinosaur_ad.station.history.retention import Removed
from dinosaur_ad.station.history.searching import PartPage, PartQuery, ScorePoint
from dinosaur_ad.station.history.storable import is_id, storable_key
from dinosaur_ad.station.part import WORST_FIRST, JudgedPart
from dinosaur_ad.station.tables import FeedbackRow, PartRow, ViewRow

__all__ = ["History", "HistoryDownError", "PartPage", "PartQuery", "RecordedPart", "Removed", "ScorePoint"]


class History(Logbook):
    """The database at ``url`` (empty: SQLite in ``folder``) and the pictures below ``folder``.

    Any thread may call it. Rows that it returns belong to no session: they can be read, and changing them changes
    nothing. While the database does not answer, everything raises :class:`HistoryDownError`.
    """

    def __init__(self, url: str, folder: str | Path, config: HistoryConfig | None = None) -> None:
        self.folder = Path(folder)
        self.config = config or HistoryConfig()
        self.pictures = PictureFolder(self.folder)
        self._engine = make_engine(database_url(url, self.folder))
        self._opening = threading.Lock()
        self._opened = False
        self._failed: tuple[float, HistoryDownError] | None = None

    def open(self) -> None:
        """Connect to the database and bring its tables up to date; does nothing if that was done before.

        :raises HistoryDownError: it does not answer; it can be opened later.
        :raises StoreError: it cannot be used: of a newer format, no database, not allowed.
        """
        with self._opening:
            if self._opened:
                return
            if self._failed and time.monotonic() - self._failed[0] < 1.0:
                raise self._failed[1]  # so that many threads do not each wait for the server, one after the other
            try:
                make_folder(self.folder)
            except OSError as error:
                sentence = f"The folder '{printable(self.folder)}' of the history cannot be made: {first_line(error)}."
                raise StoreError(sentence) from error
            try:
                open_database(self._engine)
            except HistoryDownError as error:
                self._failed = time.monotonic(), error
                raise
            self._opened = True

    def close(self) -> None:
        """Close all connections."""
        with self._opening:
            self._opened = False
            self._engine.dispose()

    @property
    def place(self) -> str:
        """Where the database is, without its password."""
        return place(self._engine)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session that commits at the end of the block, or changes nothing if the block raises.

        :raises HistoryDownError: the database does not answer.
        """
        if not self._opened:
            self.open()
        try:
            with Session(self._engine, expire_on_commit=False) as session, session.begin():
                yield session
        except HistoryDownError:
            raise
        except SQLAlchemyError as error:
            if is_away(error):
                raise down(self._engine, error) from error
            raise

    # Parts

    def record(self, packed: Sequence[PackedPart], sinks: Sequence[SinkConfig] = ()) -> list[RecordedPart]:
        """Record parts, each once however often it is given, with the messages to the sinks, in one transaction."""
        with self.session() as session:
            return record_parts(session, self.pictures, packed, sinks)

    def record_part(self, part: JudgedPart, sinks: Sequence[SinkConfig] = ()) -> int:
        """Record one part now; its id. The station records through the journal, see ``Recorder``."""
        return self.record([pack(part)], sinks)[0].id

    def known(self, keys: Iterable[str]) -> set[str]:
        """The keys of pictures, of these, that were recorded before."""
        stored: dict[str, list[str]] = {}
        for key in keys:
            stored.setdefault(storable_key(key), []).append(key)
        wanted = list(stored)
        found: set[str] = set()
        with self.session() as session:
            for begin in range(0, len(wanted), AT_ONCE):
                some = select(ViewRow.key).where(ViewRow.key.in_(wanted[begin : begin + AT_ONCE]))
                found.update(key for each in session.scalars(some) for key in stored[each])
        return found

    def part(self, part_id: int) -> PartRow | None:
        """A part with its views and feedback."""
        if not is_id(part_id):
            return None
        with self.session() as session:
            return session.scalar(searching.with_all(select(PartRow).where(PartRow.id == part_id)))

    def view(self, view_id: int) -> ViewRow | None:
        """One picture of a part."""
        if not is_id(view_id):
            return None
        with self.session() as session:
            return session.get(ViewRow, view_id)

    def view_of_part(self, part_id: int, number: int) -> ViewRow | None:
        """One picture of a part by its number among them, from 0."""
        if not is_id(part_id) or not is_id(number + 1):
            return None
        with self.session() as session:
            of_part = select(ViewRow).where(ViewRow.part_id == part_id).order_by(ViewRow.id)
            return session.scalar(of_part.offset(number).limit(1))

    def search(self, query: PartQuery) -> PartPage:
        """One page of the parts that a query fits, the newest first.

        :raises InputError: the query makes no sense.
        """
        with self.session() as session:
            return searching.find_parts(session, query)

    def latest(self, n: int = 20) -> list[PartRow]:
        """The parts recorded last, the newest first."""
        return self.search(PartQuery(limit=n)).parts

    def counts(self, since: str | None = None) -> dict[str, int]:
        """How many parts have each verdict, of those taken since a moment."""
        totals = dict.fromkeys(WORST_FIRST, 0)
        for of_task in self.counts_by_task(since).values():
            for verdict, count in of_task.items():
                totals[verdict] = totals.get(verdict, 0) + count
        return totals

    def counts_by_task(self, since: str | None = None) -> dict[str | None, dict[str, int]]:
        """The same for each product; None has the parts of no product."""
        with self.session() as session:
            return searching.count_verdicts(session, since)

    def scores(self, task: str | None, since: str | None = None, limit: int = 1000) -> list[ScorePoint]:
        """The newest parts of a product (None: of all) for a chart, the oldest of them first."""
        with self.session() as session:
            return searching.score_points(session, task, since, limit)

    # Files

    def picture_path(self, view_id: int) -> Path | None:
        """The file of a picture; None if it was not kept, or is no longer."""
        row = self.view(view_id)
        return self._file(row.picture) if row else None

    def thumbnail_path(self, view_id: int) -> Path | None:
        """A small JPEG of a picture; the picture's own file where there is none."""
        row = self.view(view_id)
        if row is None or not row.picture:
            return None
        return self._file(thumbnail_name(row.picture)) or self._file(row.picture)

    def map_array(self, view_id: int) -> NDArray[np.float32] | None:
        """The map (H, W) of patch distances; None if it was not kept, or is no longer."""
        row = self.view(view_id)
        found = read_map(self.pictures.path(row.map)) if row and row.map else None
        return found[0] if found else None

    def inspection(self, view_id: int) -> Inspection | None:
        """The inspection as it was, which can draw itself on the picture; None once its map is gone."""
        row = self.view(view_id)
        found = read_map(self.pictures.path(row.map)) if row and row.map and row.inspection else None
        return restored(row.inspection, *found) if row and row.inspection and found else None

    def _file(self, name: str) -> Path | None:
        path = self.pictures.path(name) if name else None
        return path if path is not None and path.is_file() else None

    # Feedback

    def save_feedback(self, part_id: int, by: str, answer: str, product: str | None = None, note: str = "") -> int:
        """What a person says of a part ("fine", "defect", "not sure", "other product"); the id of the feedback.

        "fine" and "defect" wait in the tray, the others are noted.

        :raises InputError: there is no such part or answer.
        """
        with self.session() as session:
            return feedback_rows.add_feedback(session, part_id, by, answer, product, note).id

    def feedback(self, state: str | None = None, limit: int | None = None) -> list[FeedbackRow]:
        """Feedback in a state (None: any) with its parts and their views, the newest first."""
        with self.session() as session:
            return feedback_rows.feedback_rows(session, state, limit)

    def one_feedback(self, feedback_id: int) -> FeedbackRow | None:
        """One feedback with its part."""
        with self.session() as session:
            return feedback_rows.feedback_row(session, feedback_id)

    def decide_feedback(self, feedback_id: int, state: str, by: str, outcome: str = "") -> None:
        """Say what became of feedback.

        :raises InputError: there is no such feedback or state.
        """
        with self.session() as session:
            feedback_rows.set_state(session, feedback_id, state, by, outcome)

    # Space and exports

    def apply_retention(self, now: datetime | None = None) -> Removed:
        """Remove the pictures and maps that are older, or more, than ``[history]`` says; rows stay."""
        return retention.apply(self.session, self.pictures, self.config, now or datetime.now(UTC))

    def disk(self) -> dict[str, Any]:
        """Bytes: "used" by pictures and maps, their "limit", "free" on the disk."""
        return retention.disk(self.session, self.folder, self.config)

    def export_csv(self, query: PartQuery, stream: IO[str]) -> int:
        """Write all parts that a query fits as CSV that is safe to open in a spreadsheet; how many."""
        return exporting_parts.write_csv(self.session, query, stream)

    def export_parquet(self, query: PartQuery, path: str | Path) -> int:
        """Write all parts that a query fits as a Parquet file; how many.

        :raises InputError: pyarrow is not installed, or the file cannot be written.
        """
        return exporting_parts.write_parquet(self.session, query, Path(path))
