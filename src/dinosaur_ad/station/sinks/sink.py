"""What the outbox asks of a sink, the messages it gives to it, and how long it waits between two tries."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.station.config import SinkConfig


class UndeliveredError(DinosaurError):
    """A message could not be delivered now; it is tried again. ``after``: not sooner than in so many seconds."""

    def __init__(self, sentence: str, after: float = 0.0) -> None:
        super().__init__(sentence)
        self.after = after


class RefusedMessageError(DinosaurError):
    """The receiver got a message and does not want it; after some tries it is set aside."""


@dataclass(frozen=True)
class Outgoing:
    """A message of the outbox. ``key`` is the same each time it is sent, so that receivers can tell repeats."""

    key: str
    kind: str
    payload: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """As receivers get it: the payload with the key and the kind of the message.

        >>> Outgoing("plc:part:7", "part", {"verdict": "normal"}).document()
        {'message_key': 'plc:part:7', 'message_kind': 'part', 'verdict': 'normal'}
        """
        return {"message_key": self.key, "message_kind": self.kind, **self.payload}

    def body(self) -> bytes:
        """The document as JSON; what is not a number (NaN, infinity) is null, as JSON has no such numbers."""
        text = json.dumps(finite(self.document()), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")  # bytes of a broken file name become an escape of JSON


@dataclass(frozen=True)
class Told:
    """What a sink was told before this start: parts by verdict, and the last part."""

    counts: Mapping[str, int] = field(default_factory=dict)
    last: Mapping[str, Any] | None = None


class Sink:
    """One receiver. The outbox opens it, gives it one message after the other from one thread, and closes it."""

    def __init__(self, config: SinkConfig) -> None:
        self.config = config

    def open(self, ready: Callable[[], None]) -> None:
        """Begin, without waiting for the receiver. ``ready`` is to be called when it can be reached again.

        :raises DinosaurError: the settings do not allow it; a person has to change something.
        """

    def resume(self, told: Told) -> None:
        """What was delivered before, for sinks that show a state; called once, before the first message."""

    def obstacle(self) -> str:
        """Why it is known that nothing can be delivered now, as a sentence; empty if it is worth a try."""
        return ""

    def note(self) -> str:
        """Something a person should change although messages are delivered; empty if there is nothing."""
        return ""

    def deliver(self, message: Outgoing) -> None:
        """Return once the receiver has the message.

        :raises UndeliveredError: it has not got it; try again.
        :raises RefusedMessageError: it does not want it.
        """
        raise NotImplementedError

    def close(self) -> None:
        """End; a delivery under way is broken off. Closing twice does nothing."""


@dataclass
class Backoff:
    """Pauses that double from ``first`` to ``most`` seconds, each shortened by a random part of up to a quarter.

    The random part keeps many stations that lost the same receiver from coming back in the same instant.
    """

    first: float = 1.0
    most: float = 60.0
    tries: int = 0

    def next(self) -> float:
        """The pause before the next try."""
        pause = min(self.most, self.first * 2.0 ** min(self.tries, 30))
        self.tries += 1
        return pause * (1.0 - random.random() / 4)

    def reset(self) -> None:
        """Begin with the shortest pause again: it worked."""
        self.tries = 0

    def copy(self) -> Backoff:
        """Another one with the same limits."""
        return Backoff(self.first, self.most)


def finite(value: Any) -> Any:
    """A JSON value with None in place of NaN and infinities.

    >>> finite({"score": float("nan"), "views": [1.5, float("inf")]})
    {'score': None, 'views': [1.5, None]}
    """
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return value


def percent_encoded(text: str, special: str, *, ascii_only: bool = False) -> str:
    """``text`` with the letters of ``special``, ``%`` and what is not printable written as %XX.

    >>> percent_encoded("M4/8", "/"), percent_encoded("für", "", ascii_only=True)
    ('M4%2F8', 'f%C3%BCr')
    """

    def plain(letter: str) -> bool:
        return letter.isprintable() and letter not in special and letter != "%" and not (ascii_only and letter > "~")

    def written(letter: str) -> str:
        return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))

    return "".join(letter if plain(letter) else written(letter) for letter in text)
