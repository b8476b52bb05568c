"""The versions of a task: the pointer ``task.json``, and the record read from ``manifest.json``. Opens no file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

from dinosaur_ad.store.codec import Json, seal
from dinosaur_ad.store.documents import (
    FORMAT_VERSION,
    MANIFEST,
    MANIFEST_1,
    POINTER,
    POINTER_1,
    POINTER_VERSION,
    read_document,
)
from dinosaur_ad.store.names import is_file_name

KEEP = 3
"""Versions of what a task was taught that stay on disk, the current one included; of its settings, :func:`kept`."""

FORGET = "forget"
SETTINGS = frozenset({"set", "defect"})
"""Changes that teach a task nothing. They do not push what it was taught out of reach of undo."""

_HISTORY_LIMIT = 100  # entries; a task updated every hour for years must not grow its pointer for ever


@dataclass(frozen=True)
class State:
    """What a task was at one time; version 0 is a task that is not there."""

    version: int = 0
    action: str = ""
    date: str = ""
    created: str = ""
    ordinal: int = 0
    sha256: str = ""  # of manifest.json, which in turn holds those of the array files
    # Counts the changes of the whole store: dates are for people, whose clocks are sometimes set back. 0: not counted.
    change: int = 0

    def check(self) -> None:
        """Refuse what contradicts itself, with a ValueError: a task does not vanish because of one wrong digit."""
        if self.version and not (self.sha256 and self.action and self.date and self.created):
            raise ValueError("it points to a version without saying what that is")
        if not self.version and (self.sha256 or self.action not in ("", FORGET)):
            raise ValueError("it says that the task is not there, and also what it is")


@dataclass(frozen=True)
class Pointer:
    """The stack of states of one task: the last is current, undo goes back to the one before it.

    ``redo`` holds the states that undo has left, the latest of them last, until another change is made. An empty
    pointer stands for a task that was never learned. ``old`` says that it was read from a file of an earlier format,
    which the next writer replaces.

    >>> state = Pointer().next_state("learn", ordinal=1, change=1)
    >>> learned = Pointer().with_version(replace(state, sha256="0" * 64), {"images": 20})
    >>> learned.exists, learned.dropped().exists, learned.dropped().undone().exists
    (True, False, True)
    >>> learned.undone().exists, learned.undone().redone().exists
    (False, True)
    """

    states: tuple[State, ...] = (State(),)
    next_version: int = 1
    history: tuple[dict[str, Any], ...] = ()
    redo: tuple[State, ...] = ()
    old: bool = field(default=False, compare=False)

    @property
    def current(self) -> State:
        """The state that readers see."""
        return self.states[-1]

    @property
    def exists(self) -> bool:
        """Whether the task is there now."""
        return self.current.version > 0

    @property
    def versions(self) -> set[int]:
        """The versions that are current or that undo and redo can go to."""
        return {state.version for state in (*self.states, *self.redo) if state.version}

    def next_state(self, action: str, *, ordinal: int, change: int) -> State:
        """Return the state of a new version, without its hash; ``ordinal`` is for a task that is not there yet."""
        date = now()
        before = self.current if self.exists else State(created=date, ordinal=ordinal)
        return replace(before, version=self.next_version, action=action, date=date, sha256="", change=change)

    def with_version(self, state: State, note: Mapping[str, Json]) -> Pointer:
        """Return the pointer after a new version."""
        return self._pushed(state, note)

    def dropped(self) -> Pointer:
        """Return the pointer after the task was forgotten."""
        return self._pushed(State(action=FORGET, date=now()), {})

    def undone(self, steps: int = 1) -> Pointer:
        """Return the pointer without its last changes, which :meth:`redone` brings back."""
        before = self.states[-1 - steps]
        entry = {"action": f"undo {self.current.action}", "date": now(), "version": before.version}
        undone = self.states[: -1 - steps : -1]
        return replace(self, states=self.states[:-steps], redo=(*self.redo, *undone), history=self._logged(entry))

    def redone(self, steps: int = 1) -> Pointer:
        """Return the pointer with the last undone changes made again."""
        states = (*self.states, *self.redo[: -1 - steps : -1])
        entry = {"action": f"redo {states[-1].action}", "date": now(), "version": states[-1].version}
        return replace(self, states=states, redo=self.redo[:-steps], history=self._logged(entry))

    def _pushed(self, state: State, note: Mapping[str, Json]) -> Pointer:
        entry = {**note, "action": state.action, "date": state.date, "version": state.version}
        return Pointer(kept((*self.states, state)), max(self.next_version, state.version + 1), self._logged(entry))

    def _logged(self, entry: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        return (*self.history, entry)[-_HISTORY_LIMIT:]

    def encode(self) -> bytes:
        """Return the content of ``task.json``."""
        document = asdict(self)
        del document["old"]
        if not self.redo:
            del document["redo"]
        return seal({"format": POINTER_VERSION if self.redo else FORMAT_VERSION, **document})

    @classmethod
    def decode(cls, data: bytes) -> Pointer:
        """Read and check ``task.json``; a ValueError says what is wrong with it."""
        document, old = read_document(data, POINTER, POINTER_1, newest=POINTER_VERSION)
        states, redo = (tuple(State(**state) for state in document.get(key, ())) for key in ("states", "redo"))
        for state in (*states, *redo):
            state.check()
        versions = [state.version for state in (*states, *redo) if state.version]
        if len(set(versions)) < len(versions) or max(versions, default=0) >= document["next_version"]:
            raise ValueError("it points to a version that cannot exist")
        return cls(states, document["next_version"], tuple(document["history"]), redo, old)


def kept(states: Sequence[State]) -> tuple[State, ...]:
    """Return the states that stay within reach of undo, with the last one.

    These are the last three that taught something and all changes of settings since. Of settings that were changed
    again, without any teaching in between, only the last two stay: from the earliest of them undo goes back to what
    was taught. Those that teaching went on from always stay, so that its undo brings them back.

    >>> def actions(*names):
    ...     return [state.action for state in kept([State(n, name) for n, name in enumerate(names, start=1)])]
    >>> actions("learn", "set", "set", "set", "set", "set")
    ['learn', 'set', 'set', 'set']
    >>> actions("learn", "set", "update", "set", "set", "set", "update")
    ['learn', 'set', 'update', 'set', 'set', 'set', 'update']
    >>> actions("learn", "set", "update", "update", "update")
    ['update', 'update', 'update']
    """
    taught = [n for n, state in enumerate(states) if state.version and state.action not in SETTINGS]
    reached = states[taught[-KEEP] :] if len(taught) > KEEP else states
    again = [n for n, pair in enumerate(pairwise(reached)) if all(state.action in SETTINGS for state in pair)]
    return tuple(state for n, state in enumerate(reached) if n not in again[: max(len(again) + 1 - KEEP, 0)])


class StoredFile(NamedTuple):
    """Size and hash of one array file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class TaskRecord:
    """One committed version of a task, without its arrays; shared between callers, so do not change it.

    ``id`` stands for the content of this version: a key for caches. ``created`` is when the task was learned,
    ``date`` when this version was written (ISO 8601, UTC). ``history`` lists what was done to the task,
    oldest first: ``{"action", "date", "version", ...}``. ``change`` counts the changes of the whole store: of two
    records the one with the larger number was written later, whatever the clock said; 0 for those of before it counted.
    """

    name: str
    id: str
    version: int
    action: str
    created: str
    date: str
    files: dict[str, StoredFile]
    manifest: dict[str, Any]
    history: tuple[dict[str, Any], ...]
    change: int = 0


def file_info(content: bytes) -> StoredFile:
    """Return size and hash of a file with this content."""
    return StoredFile(len(content), hashlib.sha256(content).hexdigest())


def encode_manifest(state: State, blobs: Mapping[str, bytes], manifest: Mapping[str, Json]) -> bytes:
    """Return the content of ``manifest.json`` for array files with these contents."""
    files: dict[str, Json] = {file: file_info(blob)._asdict() for file, blob in blobs.items()}
    about: dict[str, Json] = {key: value for key, value in asdict(state).items() if key != "sha256"}
    data = seal({"format": FORMAT_VERSION, **about, "files": files, "manifest": manifest})
    read_document(data, MANIFEST, MANIFEST_1)  # what could not be read back is not written
    return data


def decode_record(name: str, pointer: Pointer, data: bytes) -> TaskRecord:
    """Return the current version of a task from its ``manifest.json``; a ValueError says what is wrong with it."""
    state = pointer.current
    if file_info(data).sha256 != state.sha256:
        raise ValueError("its sha256 is not the recorded one")
    document, _ = read_document(data, MANIFEST, MANIFEST_1)
    # A name becomes part of a path, so one that leads elsewhere must not get through.
    if not all(is_file_name(file) for file in document["files"]):
        raise ValueError("it does not describe its files")
    return TaskRecord(
        name=name,
        id=state.sha256,
        version=state.version,
        action=state.action,
        created=state.created,
        date=state.date,
        files={file: StoredFile(**info) for file, info in document["files"].items()},
        manifest=document["manifest"],
        history=pointer.history,
        change=state.change,
    )


def decode_state(version: int, data: bytes) -> tuple[State, bool]:
    """Return the state that a manifest was written with, and whether the manifest proves itself by its own hash."""
    document, old = read_document(data, MANIFEST, MANIFEST_1)
    document["created"] = document.get("created", document["date"])
    document["version"] = document.get("version", version)
    if document["version"] != version:
        raise ValueError("it is of another version")
    known: dict[str, Any] = {"action": "learn", "ordinal": 0, "change": 0} | document
    fields = {key: known[key] for key in ("version", "action", "date", "created", "ordinal", "change")}
    return State(sha256=file_info(data).sha256, **fields), not old


def now() -> str:
    """Return the time as it is written to the store (ISO 8601, UTC)."""
    return datetime.now(UTC).isoformat()
