"""What a watch has seen, kept in a folder of the store: pictures of no known product, proposals, decisions.

``STORE/watch/watch.sqlite`` holds everything but the pictures, which lie beside it as copies. A picture and all that
follows from it is one transaction, so that a watch that is killed goes on after the last picture that it finished.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._atomic import make_folder, write_atomic
from dinosaur_ad.errors import InputError, StoreError

Floats = NDArray[np.float32]

FOLDER, DATABASE, PICTURES = "watch", "watch.sqlite", "pictures"
OPEN, LEARNING, ADOPTED, DISMISSED, RELEASED = "open", "learning", "adopted", "dismissed", "released"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS seen (picture BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kept (id INTEGER PRIMARY KEY, origin TEXT, file TEXT, descriptor BLOB, proposal INTEGER,
    suspect INTEGER NOT NULL DEFAULT 0, task TEXT);
CREATE TABLE IF NOT EXISTS proposals (id INTEGER PRIMARY KEY AUTOINCREMENT, status TEXT NOT NULL, task TEXT,
    details TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS decisions (id INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS added (id INTEGER PRIMARY KEY, task TEXT NOT NULL, file TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS recent (id INTEGER PRIMARY KEY, task TEXT NOT NULL, origin TEXT, descriptor BLOB);
CREATE TABLE IF NOT EXISTS followed (task TEXT PRIMARY KEY, passed INTEGER NOT NULL DEFAULT 0,
    changed INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kept_out (id INTEGER PRIMARY KEY, task TEXT NOT NULL, file TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS judged (id INTEGER PRIMARY KEY, task TEXT NOT NULL, score REAL NOT NULL);
CREATE INDEX IF NOT EXISTS judged_of ON judged (task);
CREATE TABLE IF NOT EXISTS thresholds (task TEXT PRIMARY KEY, judged INTEGER NOT NULL DEFAULT 0,
    outdated INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
"""


class KeptPicture(NamedTuple):
    """A picture that is kept: its number, where it came from, its copy, and its descriptor (C',)."""

    id: int
    origin: str
    file: Path
    descriptor_C: Floats
    suspect: bool


class StoredProposal(NamedTuple):
    """A product that was proposed: its number, what became of it, the task, and what learn promised."""

    id: int
    status: str
    task: str
    details: dict[str, Any]


class RecentPicture(NamedTuple):
    """A picture of a known product that passed: where it came from, and its descriptor (C',)."""

    origin: str
    descriptor_C: Floats


class Tray:
    """The folder ``watch`` of a store.

    :raises StoreError: the folder cannot be written, or its database is damaged.
    """

    def __init__(self, store: Path) -> None:
        self.folder = store / FOLDER
        try:
            make_folder(self.folder / PICTURES)
            self._database = sqlite3.connect(self.folder / DATABASE, isolation_level=None, timeout=10)
            self._database.executescript(_SCHEMA)
            self._database.execute("PRAGMA journal_mode=WAL")  # one write to the disk for each change, not three
        except (OSError, sqlite3.Error) as error:
            raise _damaged(self.folder, error) from error

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    @contextmanager
    def change(self) -> Iterator[None]:
        """Several changes as one: all of them are made, or none."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            raise _damaged(self.folder, error) from error

    def _rows(self, question: str, *values: object) -> list[Any]:
        try:
            with closing(self._database.execute(question, values)) as rows:
                return rows.fetchall()
        except sqlite3.Error as error:
            raise _damaged(self.folder, error) from error

    # --- pictures ---

    def has_seen(self, picture: bytes) -> bool:
        """Whether a picture has been processed."""
        return bool(self._rows("SELECT 1 FROM seen WHERE picture = ?", picture))

    def note_seen(self, picture: bytes) -> None:
        """A picture has been processed."""
        self._rows("INSERT OR IGNORE INTO seen VALUES (?)", picture)

    def keep(
        self,
        path: Path,
        descriptor_C: Floats,
        *,
        proposal: int | None = None,
        task: str | None = None,
        origin: str = "",
        doubtful: bool = False,
    ) -> None:
        """Keep a copy of a picture; ``origin`` says where it came from if that is not ``path``. One that waits for an
        update of a task may be ``doubtful``: it is not learned, but counts for the threshold."""
        file = self._copy(path)
        self._rows(
            "INSERT INTO kept (origin, file, descriptor, proposal, task, suspect) VALUES (?, ?, ?, ?, ?, ?)",
            origin or str(path),
            file,
            np.asarray(descriptor_C, np.float32).tobytes(),
            proposal,
            task,
            doubtful,
        )

    def _copy(self, path: Path) -> str:
        content = path.read_bytes()
        file = hashlib.sha256(content).hexdigest()[:32] + path.suffix.lower()
        if not (self.folder / PICTURES / file).exists():
            write_atomic(self.folder / PICTURES / file, content)
        return file

    def loose(self) -> list[KeptPicture]:
        """The pictures of no proposal and no task, the oldest first."""
        return self._kept("proposal IS NULL AND task IS NULL")

    def newest_loose(self) -> int:
        """The number of the newest picture of no proposal and no task; 0 if there is none."""
        return int(self._rows("SELECT coalesce(max(id), 0) FROM kept WHERE proposal IS NULL AND task IS NULL")[0][0])

    def pictures_of(self, proposal: int) -> list[KeptPicture]:
        """The pictures of a proposal, the oldest first."""
        return self._kept("proposal = ?", proposal)

    def candidates(self, task: str) -> list[KeptPicture]:
        """The pictures that wait for an update of a task, the oldest first."""
        return self._kept("task = ?", task)

    def waiting_tasks(self, least: int) -> list[str]:
        """The tasks for which at least so many pictures wait that are not doubtful."""
        rows = self._rows(
            "SELECT task FROM kept WHERE task IS NOT NULL AND NOT suspect GROUP BY task HAVING count(*) >= ? "
            "ORDER BY task",
            least,
        )
        return [task for (task,) in rows]

    def _kept(self, where: str, *values: object) -> list[KeptPicture]:
        rows = self._rows(f"SELECT id, origin, file, descriptor, suspect FROM kept WHERE {where} ORDER BY id", *values)
        return [
            KeptPicture(
                number,
                origin,
                self.folder / PICTURES / file,
                np.frombuffer(descriptor, np.float32),
                bool(suspect),
            )
            for number, origin, file, descriptor, suspect in rows
        ]

    def drop(self, pictures: Iterable[KeptPicture]) -> None:
        """Keep some pictures no longer; files go once the change is made, by :meth:`tidy`."""
        for each in pictures:
            self._rows("DELETE FROM kept WHERE id = ?", each.id)

    def keep_added(self, task: str, pictures: Iterable[KeptPicture], most: int) -> None:
        """Keep the copies of pictures that an update of a task learned, only the newest ``most`` of them."""
        for each in pictures:
            self._rows("INSERT INTO added (task, file) VALUES (?, ?)", task, each.file.name)
        self._newest("added", task, most)

    def _newest(self, table: str, task: str, most: int) -> None:
        self._rows(
            f"DELETE FROM {table} WHERE task = ? AND id NOT IN "
            f"(SELECT id FROM {table} WHERE task = ? ORDER BY id DESC LIMIT ?)",
            task,
            task,
            most,
        )

    def tidy(self) -> None:
        """Remove copies that nothing needs: neither the tray, nor an open proposal, nor a task that learned them."""
        needed = {
            file
            for (file,) in self._rows(
                "SELECT file FROM kept LEFT JOIN proposals ON kept.proposal = proposals.id "
                "WHERE proposals.status IS NULL OR proposals.status != ? UNION SELECT file FROM added "
                "UNION SELECT file FROM kept_out",
                DISMISSED,
            )
        }
        for path in (self.folder / PICTURES).iterdir():
            if path.name not in needed:
                with suppress(OSError):
                    path.unlink()

    # --- what the thresholds of known products come from ---

    def count_judged(self, task: str) -> None:
        """One more picture of a task was judged."""
        self._rows(
            "INSERT INTO thresholds (task, judged) VALUES (?, 1) ON CONFLICT DO UPDATE SET judged = judged + 1", task
        )

    def judged_count(self, task: str) -> int:
        """How many pictures of a task were judged so far."""
        return sum(count for (count,) in self._rows("SELECT judged FROM thresholds WHERE task = ?", task))

    def keep_out(self, path: Path, task: str, most: int) -> None:
        """Keep a copy of a picture that is not to be learned, and only the newest ``most`` of a task."""
        self._rows("INSERT INTO kept_out (task, file) VALUES (?, ?)", task, self._copy(path))
        self._newest("kept_out", task, most)

    def kept_out(self, task: str) -> list[Path]:
        """The pictures of a task that are not to be learned, the oldest first."""
        rows = self._rows("SELECT file FROM kept_out WHERE task = ? ORDER BY id", task)
        return [self.folder / PICTURES / file for (file,) in rows]

    def note_score(self, task: str, score: float, most: int) -> None:
        """Keep what a picture of a task scored, and only the newest ``most`` since its threshold was taken."""
        self._rows("INSERT INTO judged (task, score) VALUES (?, ?)", task, score)
        self._newest("judged", task, most)

    def judged_scores(self, task: str) -> list[float]:
        """What the pictures of a task scored since its threshold was taken, the oldest first."""
        return [score for (score,) in self._rows("SELECT score FROM judged WHERE task = ? ORDER BY id", task)]

    def mark_outdated(self, task: str) -> None:
        """The threshold of a task is to be taken anew."""
        self._rows("INSERT INTO thresholds (task, outdated) VALUES (?, 1) ON CONFLICT DO UPDATE SET outdated = 1", task)

    def outdated_tasks(self) -> list[str]:
        """The tasks whose threshold is to be taken anew."""
        return [task for (task,) in self._rows("SELECT task FROM thresholds WHERE outdated ORDER BY task")]

    def threshold_taken(self, task: str) -> None:
        """The threshold of a task was taken anew: scores from before say nothing of it."""
        self._rows("UPDATE thresholds SET outdated = 0 WHERE task = ?", task)
        self._rows("DELETE FROM judged WHERE task = ?", task)

    def forget_thresholds(self, task: str) -> None:
        """Nothing of what the threshold of a task came from holds any more."""
        self.threshold_taken(task)
        self._rows("DELETE FROM kept_out WHERE task = ?", task)

    # --- what known products look like now ---

    def count_passed(self, task: str) -> int:
        """One more picture of a task passed; the number of all of them."""
        self._rows(
            "INSERT INTO followed (task, passed) VALUES (?, 1) ON CONFLICT DO UPDATE SET passed = passed + 1", task
        )
        return int(self._rows("SELECT passed FROM followed WHERE task = ?", task)[0][0])

    def keep_recent(self, task: str, origin: str, descriptor_C: Floats, most: int) -> None:
        """Keep the descriptor of a picture that passed, and only the newest ``most`` of them."""
        self._rows(
            "INSERT INTO recent (task, origin, descriptor) VALUES (?, ?, ?)",
            task,
            origin,
            np.asarray(descriptor_C, np.float32).tobytes(),
        )
        self._newest("recent", task, most)

    def recent(self, task: str) -> list[RecentPicture]:
        """What is kept of the pictures of a task that passed, the oldest first."""
        rows = self._rows("SELECT origin, descriptor FROM recent WHERE task = ? ORDER BY id", task)
        return [RecentPicture(origin, np.frombuffer(descriptor, np.float32)) for origin, descriptor in rows]

    def mark_changed(self, task: str, changed: bool = True) -> None:
        """Whether a task is to be compared with the others."""
        self._rows(
            "INSERT INTO followed (task, changed) VALUES (?, ?) ON CONFLICT DO UPDATE SET changed = excluded.changed",
            task,
            changed,
        )

    def changed_tasks(self) -> list[str]:
        """The tasks that are to be compared with the others."""
        return [task for (task,) in self._rows("SELECT task FROM followed WHERE changed ORDER BY task")]

    # --- proposals and decisions ---

    def propose(self, pictures: Iterable[KeptPicture], suspects: Iterable[int], details: dict[str, Any]) -> int:
        """Make a proposal of pictures, of which those with the numbers ``suspects`` are not learned; ``details`` gets
        the time as "since"."""
        details = {"since": datetime.now(UTC).isoformat(timespec="microseconds")} | details
        self._rows("INSERT INTO proposals (status, task, details) VALUES (?, '', ?)", OPEN, json.dumps(details))
        number = int(self._rows("SELECT max(id) FROM proposals")[0][0])
        odd = set(suspects)
        for each in pictures:
            self._rows("UPDATE kept SET proposal = ?, suspect = ? WHERE id = ?", number, each.id in odd, each.id)
        return number

    def proposals(self, *statuses: str) -> list[StoredProposal]:
        """The proposals of some statuses, the oldest first."""
        return self._proposals(f"status IN ({', '.join('?' * len(statuses))})", *statuses)

    def _proposals(self, where: str, *values: object) -> list[StoredProposal]:
        rows = self._rows(f"SELECT id, status, task, details FROM proposals WHERE {where} ORDER BY id", *values)
        return [StoredProposal(number, status, task, json.loads(text)) for number, status, task, text in rows]

    def find(self, number: int) -> StoredProposal | None:
        """A proposal, whatever became of it; None if there never was one of this number."""
        return next(iter(self._proposals("id = ?", number)), None)

    def proposal(self, number: int) -> StoredProposal:
        """One that is still open; an InputError says which there are."""
        open_ones = {each.id: each for each in self.proposals(OPEN, LEARNING)}
        if number not in open_ones:
            known = f"open are: {', '.join(map(str, open_ones))}" if open_ones else "none is open"
            raise InputError(f"There is no open proposal {number}; {known}.")
        return open_ones[number]

    def amend(self, proposal: int, details: dict[str, Any]) -> None:
        """Other details of a proposal."""
        self._rows("UPDATE proposals SET details = ? WHERE id = ?", json.dumps(details), proposal)

    def decide(self, proposal: int, status: str, task: str = "") -> None:
        """What became of a proposal."""
        self._rows("UPDATE proposals SET status = ?, task = ? WHERE id = ?", status, task, proposal)

    def record(self, event: dict[str, Any]) -> None:
        """Keep a decision with its reason."""
        self._rows("INSERT INTO decisions (event) VALUES (?)", json.dumps(event))

    def decisions(self) -> list[dict[str, Any]]:
        """All decisions, the oldest first."""
        return [json.loads(text) for (text,) in self._rows("SELECT event FROM decisions ORDER BY id")]


def picture_key(path: Path) -> bytes:
    """What tells one picture from another: its path, its size and the time of its last change."""
    status = path.stat()
    content = f"{path.absolute()}\0{status.st_size}\0{status.st_mtime_ns}".encode(errors="surrogateescape")
    return hashlib.sha256(content).digest()[:16]


def _damaged(folder: Path, error: Exception) -> StoreError:
    return StoreError(
        f"What the watch keeps in {folder} could not be read or written ({error}); check the disk and its permissions, "
        "or move that folder away to begin anew: the store itself is not affected."
    )
