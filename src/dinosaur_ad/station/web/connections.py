"""Connections that send nothing: closed after a while, and no more of them than there is room for.

Each connection takes a file handle of the process that also reads pictures and writes the history.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from dinosaur_ad.station.web.limits import network

REQUEST_SECONDS = 15.0
"""So long the line and the headers of a request may take, from the first byte or from the connection on."""
MOST_CONNECTIONS, MOST_OF_ONE = 400, 120
"""In all, and of one address."""


class WatchedConnection(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with a limit on the time that a request may take to arrive."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Someone connected; refused without a word where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS or self._of_one() > MOST_OF_ONE:
            transport.abort()
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Bytes came: of a request that is not complete yet, of its body, or of the next one."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()  # the request is there; how long its body may take is limited elsewhere
        elif self._waiting is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _of_one(self) -> int:
        own = network(self.client[0]) if self.client else ""
        peers = (getattr(each, "client", None) for each in self.connections)
        return sum(network(peer[0]) == own for peer in peers if peer)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
