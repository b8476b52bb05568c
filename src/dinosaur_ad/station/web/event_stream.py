"""What happens in the station as server-sent events, for the page (``/events``) and for programs
(``/api/v1/events``).

Each event has the kind of the bus message as its name and the body as JSON. Someone who reads too slowly loses the
oldest messages and is told how many by an event "dropped"; what happened before the stream began is in the history.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dinosaur_ad.station.bus import Bus, Message, Subscription
from dinosaur_ad.station.config import LANGUAGES
from dinosaur_ad.station.web.access import Person, Viewer
from dinosaur_ad.station.web.api_errors import error_response
from dinosaur_ad.station.web.api_json import plain
from dinosaur_ad.station.web.catalogue import Catalogue
from dinosaur_ad.station.web.pages_frame import words

log = logging.getLogger(__name__)

MOST_OPEN = 50
HEARTBEAT_SECONDS = 15.0
RECONNECT_MS = 2000
REMEMBERED = 64
"""Messages whose bytes are kept in each language, for streams that send them a moment later."""
SAID = ("reason", "sentence")
"""What of a message the page shows as the station said it."""


class EventStreams:
    """All open streams; :meth:`close` ends them, so that the server can stop."""

    def __init__(self, bus: Bus, most: int = MOST_OPEN, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self._bus, self._most, self._heartbeat = bus, most, heartbeat
        self._wakers: set[asyncio.Event] = set()
        self._sent: OrderedDict[tuple[int, str], tuple[Message, bytes]] = OrderedDict()
        self._closed = False

    def __len__(self) -> int:
        """How many are open."""
        return len(self._wakers)

    def close(self) -> None:
        """End all streams, and those that are asked for from now on; call it in the event loop."""
        self._closed = True
        for waker in self._wakers:
            waker.set()

    def enter(self, waker: asyncio.Event) -> str:
        """Take a place; returns why there is none, if so."""
        if self._closed:
            return "The station is being stopped."
        if len(self._wakers) >= self._most:
            return f"There are {self._most} event streams open, and more are not given; close another page."
        self._wakers.add(waker)
        return ""

    def leave(self, waker: asyncio.Event) -> None:
        """Give the place back."""
        self._wakers.discard(waker)

    async def lines(
        self, waker: asyncio.Event, still_allowed: Callable[[], bool], text: Catalogue | None = None
    ) -> AsyncIterator[bytes]:
        """The stream as bytes; it ends when the station stops or the session of the reader has ended.

        With the words of a page, sentences are said in its language.
        """
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop may have been closed in the meantime
                loop.call_soon_threadsafe(waker.set)

        with self._bus.subscribed() as messages:
            messages.on_message(wake)
            yield f"retry: {RECONNECT_MS}\n: open\n\n".encode()
            told = 0
            while not self._closed:
                waiting, told = self.waiting(messages, told, text)
                if waiting:
                    yield waiting
                    continue
                try:
                    await asyncio.wait_for(waker.wait(), self._heartbeat)
                except TimeoutError:
                    if not await run_in_threadpool(still_allowed):
                        return
                    yield b": heartbeat\n\n"
                waker.clear()

    def waiting(self, messages: Subscription, told: int, text: Catalogue | None = None) -> tuple[bytes, int]:
        """All messages that wait, and how many dropped ones have been told of by now."""
        found = []
        while message := messages.take():
            found.append(self._as_event(message, text))
        if messages.dropped > told:
            found.insert(0, event("dropped", {"count": messages.dropped - told}))
            told = messages.dropped
        return b"".join(found), told

    def _as_event(self, message: Message, text: Catalogue | None) -> bytes:
        """A message as it is sent, made once for all streams of a language."""
        key = id(message), text.language if text else ""
        known = self._sent.get(key)
        if known is None:
            body = said_in(message.body, text) if text else message.body
            known = self._sent[key] = message, event(message.kind, body)
            if len(self._sent) > REMEMBERED * (len(LANGUAGES) + 1):
                self._sent.popitem(last=False)
        return known[1]


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
        self._streams, self._waker = streams, asyncio.Event()
        super().__init__(
            streams.lines(self._waker, still_allowed, text),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},  # a proxy must not collect events
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until someone ends it."""
        if sentence := self._streams.enter(self._waker):
            await error_response(str(scope["path"]), 503, sentence, {"Retry-After": "5"})(scope, receive, send)
            return
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave(self._waker)


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
