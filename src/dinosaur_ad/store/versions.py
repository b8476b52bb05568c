"""What a change to a task is: a step from one pointer to the next. Nothing here touches a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from dinosaur_ad.store.codec import Json, decode_json, encode_json

KEEP = 3
"""Versions of a task that stay on disk, the current one included."""

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

    @classmethod
    def parse(cls, document: Any) -> State:
        """Return the state that a pointer describes; a ValueError says what is wrong with it."""
        expected = asdict(cls())
        if not isinstance(document, dict) or document.keys() != expected.keys():
            raise ValueError("a state has missing or unknown fields")
        if any(type(value) is not type(expected[key]) for key, value in document.items()):
            raise ValueError("a state has a field of the wrong type")
        return cls(**document)


@dataclass(frozen=True)
class Pointer:
    """The stack of states of one task: the last is current, undo goes back to the one before it.

    An empty pointer stands for a task that was never learned.

    >>> learned = Pointer().with_version("learn", now(), sha256="", ordinal=1, note={"images": 20})
    >>> learned.exists, learned.dropped().exists, learned.dropped().undone().exists
    (True, False, True)
    """

    states: tuple[State, ...] = (State(),)
    next_version: int = 1
    history: tuple[dict[str, Any], ...] = ()

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
        """The versions that are current or that undo can go back to."""
        return {state.version for state in self.states if state.version}

    def with_version(self, action: str, date: str, *, sha256: str, ordinal: int, note: Mapping[str, Json]) -> Pointer:
        """Return the pointer after a new version; ``ordinal`` is the place of a task that is not there yet."""
        before = self.current if self.exists else State(created=date, ordinal=ordinal)
        return self._pushed(replace(before, version=self.next_version, action=action, date=date, sha256=sha256), note)

    def dropped(self) -> Pointer:
        """Return the pointer after the task was forgotten."""
        return self._pushed(State(action="forget", date=now()), {})

    def undone(self) -> Pointer:
        """Return the pointer without its last change, of which only the history knows."""
        before = self.states[-2]
        entry = {"action": f"undo {self.current.action}", "date": now(), "version": before.version}
        return replace(self, states=self.states[:-1], history=self._logged(entry))

    def _pushed(self, state: State, note: Mapping[str, Json]) -> Pointer:
        states = (*self.states, state)
        while sum(state.version > 0 for state in states) > KEEP:
            states = states[1:]
        entry = {**note, "action": state.action, "date": state.date, "version": state.version}
        return Pointer(states, max(self.next_version, state.version + 1), self._logged(entry))

    def _logged(self, entry: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        return (*self.history, entry)[-_HISTORY_LIMIT:]

    def encode(self) -> bytes:
        """Return the content of ``task.json``."""
        return encode_json(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Pointer:
        """Read ``task.json`` with suspicion: a ValueError says what is wrong with it."""
        document = decode_json(data)
        states, following, history = (document.get(key) for key in ("states", "next_version", "history"))
        if not isinstance(states, list) or not states or type(following) is not int:
            raise ValueError("it does not point to a version")
        if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
            raise ValueError("its history is not a list of entries")
        parsed = tuple(State.parse(state) for state in states)
        if not all(0 <= state.version < following for state in parsed):
            raise ValueError("it points to a version that cannot exist")
        return cls(parsed, following, tuple(history))


def now() -> str:
    """Return the time as it is written to the store (ISO 8601, UTC)."""
    return datetime.now(UTC).isoformat()
