"""What happens in the station as server-sent events, for the page (``/events``) and for programs
(``/api/v1/events``).

Each event has the kind of the bus message as its name and the body as JSON. Someone who reads too slowly loses the
oldest messages and is told how many by an event "dropped"; what happened before the stream began is in the history.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dinosaur_ad.station.bus import Bus, Message, Subscription
from dinosaur_ad.station.web.access import Person, Viewer
from dinosaur_ad.station.web.api_errors import error_response
from dinosaur_ad.station.web.api_json import plain
from dinosaur_ad.station.web.catalogue import Catalogue
from dinosaur_ad.station.web.pages_frame import words

log = logging.getLogger(__name__)

MOST_OPEN = 50
HEARTBEAT_SECONDS = 15.0
RECONNECT_MS = 2000
TOGETHER_SECONDS = 0.05
"""What happens within so long is sent at once: a part is usually recorded by then."""
APART_SECONDS = 0.25
"""On average, readers are given something no more often: nobody sees more, and each time costs what judging needs."""
WAITING = 256
"""Messages that may wait for one reader; then the oldest are dropped and counted."""
OF_THE_STATION = 4096
"""Messages that may wait until they are given to the readers."""
SAID = ("reason", "sentence")
"""What of a message the page shows as the station said it."""


class Said:
    """A message as it is sent, made once for all readers of a language."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._events: dict[str, bytes] = {}

    def event(self, text: Catalogue | None) -> bytes:
        """Its bytes, with the words of a page in its language."""
        language = text.language if text else ""
        if language not in self._events:
            body = said_in(self._message.body, text) if text else self._message.body
            self._events[language] = event(self._message.kind, body)
        return self._events[language]


class EventReader:
    """One open stream: what waits to be sent, and how much was dropped; used in the event loop alone."""

    def __init__(self, capacity: int = WAITING) -> None:
        self._waiting: deque[Said] = deque(maxlen=capacity)
        self._dropped = 0
        self.woken = asyncio.Event()

    def put(self, said: Said) -> None:
        """Add a message."""
        self.drop(len(self._waiting) == self._waiting.maxlen)
        self._waiting.append(said)
        self.woken.set()

    def drop(self, count: int) -> None:
        """Note that messages did not reach this reader."""
        self._dropped += count

    def take(self, text: Catalogue | None = None) -> bytes:
        """All that waits, as it is sent; an event "dropped" comes first where some is missing."""
        missing = [event("dropped", {"count": self._dropped})] if self._dropped else []
        waiting = [said.event(text) for said in self._waiting]
        self._waiting.clear()
        self._dropped = 0
        return b"".join(missing + waiting)


class EventStreams:
    """All open streams; :meth:`close` ends them, so that the server can stop.

    However many there are, they share one subscription to the station, so that more of them do not slow the judging.
    """

    def __init__(self, bus: Bus, most: int = MOST_OPEN, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self._bus, self._most, self._heartbeat = bus, most, heartbeat
        self._readers: set[EventReader] = set()
        self._listening = ExitStack()
        self._messages: Subscription | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dropped = 0
        self._ahead = -math.inf
        self._due = self._closed = False

    def __len__(self) -> int:
        """How many are open."""
        return len(self._readers)

    def close(self) -> None:
        """End all streams, and those that are asked for from now on; call it in the event loop."""
        self._closed = True
        for reader in self._readers:
            reader.woken.set()

    def enter(self, reader: EventReader) -> str:
        """Take a place; returns why there is none, if so."""
        if self._closed:
            return "The station is being stopped."
        if len(self._readers) >= self._most:
            return f"There are {self._most} event streams open, and more are not given; close another page."
        if not self._readers:
            self._listen()
        self._readers.add(reader)
        return ""

    def leave(self, reader: EventReader) -> None:
        """Give the place back."""
        self._readers.discard(reader)
        if not self._readers:
            self._listening.close()

    async def lines(
        self, reader: EventReader, still_allowed: Callable[[], bool], text: Catalogue | None = None
    ) -> AsyncIterator[bytes]:
        """The stream as bytes; it ends when the station stops or the session of the reader has ended.

        With the words of a page, sentences are said in its language.
        """
        yield f"retry: {RECONNECT_MS}\n: open\n\n".encode()
        while not self._closed:
            if waiting := reader.take(text):
                yield waiting
                continue
            try:
                await asyncio.wait_for(reader.woken.wait(), self._heartbeat)
            except TimeoutError:
                if not await run_in_threadpool(still_allowed):
                    return
                yield b": heartbeat\n\n"
            reader.woken.clear()

    def _listen(self) -> None:
        self._loop, self._dropped, self._due = asyncio.get_running_loop(), 0, False
        self._messages = self._listening.enter_context(self._bus.subscribed(OF_THE_STATION))
        self._messages.on_message(self._heard)

    def _heard(self) -> None:
        """Called by the threads that publish, such as the judging: schedules the event loop once for several events."""
        if not self._due and self._loop is not None:
            self._due = True
            with suppress(RuntimeError):  # the loop may have been closed in the meantime
                self._loop.call_soon_threadsafe(self._hand_out_soon)

    def _hand_out_soon(self) -> None:
        """A part that comes alone is told at once, and again as soon as it is recorded: one time may be taken ahead.
        Where many come, all that came meanwhile is told."""
        assert self._loop is not None
        due = self._ahead - APART_SECONDS
        self._loop.call_at(max(self._loop.time() + TOGETHER_SECONDS, due), self.hand_out)

    def hand_out(self) -> None:
        """Send the new events to all readers."""
        self._due = False  # before the messages are taken, so that none that comes now is left
        if self._messages is None or self._loop is None:
            return
        self._ahead = max(self._ahead, self._loop.time()) + APART_SECONDS
        said = []
        while message := self._messages.take():
            said.append(Said(message))
        missed, self._dropped = self._messages.dropped - self._dropped, self._messages.dropped
        for reader in self._readers:
            reader.drop(missed)
            for each in said:
                reader.put(each)


def said_in(body: dict[str, Any], text: Catalogue) -> dict[str, Any]:
    """A message with its sentences, and those of its views, in the language of a page."""
    said: dict[str, Any] = {key: text.said(body[key]) for key in SAID if isinstance(body.get(key), str)}
    if body.get("views"):
        said["views"] = [said_in(view, text) for view in body["views"]]
    if body.get("inspection"):
        said["inspection"] = said_in(body["inspection"], text)
    return body | said


def event(kind: str, body: dict[str, Any]) -> bytes:
    r"""One event as it is sent.

    >>> event("part", {"id": 1})
    b'event: part\ndata: {"id": 1}\n\n'
    """
    return f"event: {kind}\ndata: {json.dumps(plain(body))}\n\n".encode()


class EventStreamResponse(StreamingResponse):
    """An answer that goes on until the reader leaves; refused where too many are open."""

    def __init__(self, streams: EventStreams, still_allowed: Callable[[], bool], text: Catalogue | None = None) -> None:
        self._streams, self._reader = streams, EventReader()
        super().__init__(
            streams.lines(self._reader, still_allowed, text),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},  # a proxy must not collect events
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until someone ends it."""
        if sentence := self._streams.enter(self._reader):
            await error_response(str(scope["path"]), 503, sentence, {"Retry-After": "5"})(scope, receive, send)
            return
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave(self._reader)


router = APIRouter()


@router.get("/events", include_in_schema=False)
async def page_events(request: Request, person: Viewer) -> EventStreamResponse:
    """The events for the page."""
    return stream_for(request, person, words(request, person))


def stream_for(request: Request, person: Person, text: Catalogue | None = None) -> EventStreamResponse:
    """The stream of someone who may read, with ``text`` in the language of a page; a session that ends, ends it too."""
    accounts = request.app.state.station.accounts
    bearer = request.headers.get("authorization", "").partition(" ")[2].strip()

    def still_allowed() -> bool:
        try:
            if person.token:
                return accounts.token(bearer) is not None
            return not accounts.any() if person.local else accounts.logged_in(person.secret) is not None
        except Exception as error:  # the database is away: the reader was allowed a moment ago
            log.warning("Whether an event stream may go on cannot be looked up: %s", error)
            return True

    return EventStreamResponse(request.app.state.streams, still_allowed, text)
