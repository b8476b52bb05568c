"""Messages as signed HTTP requests."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import ssl
import threading
import time
from urllib.parse import SplitResult

from dinosaur_ad._text import first_line
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.sinks.secret_file import read_secret, readable_by_others, shown_address, split_address
from dinosaur_ad.station.sinks.sink import Outgoing, RefusedMessageError, Sink, UndeliveredError, percent_encoded
from dinosaur_ad.station.sinks.webhook_signature import KEY, SIGNATURE, TIMESTAMP, sign

ANSWERS_WITHIN = 10.0
LONGEST_PAUSE = 600.0
"""A receiver that asks for a longer pause (Retry-After) is asked again after this one."""
_AGAIN = (408, 425, 429)
"""Answers 4xx that are about the moment and not about the message."""


class WebhookSink(Sink):
    """Posts each message as JSON to one address; see :mod:`.webhook_signature` for its headers.

    Redirects are not followed and proxies of the environment are not used: a message goes where the settings say.
    """

    def __init__(self, config: SinkConfig, timeout: float = ANSWERS_WITHIN) -> None:
        super().__init__(config)
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None
        self._closing = threading.Event()
        self._timed_out = False

    def note(self) -> str:
        """Whether others can read the key or the password."""
        return readable_by_others(self.config.secret_file) or readable_by_others(self.config.password_file)

    def deliver(self, message: Outgoing) -> None:
        """Post a message; an answer 2xx means that it was taken."""
        address = split_address(self.config.url, self.config.name)
        headers = self._headers(message)
        try:
            status, after = self._post(address, message.body(), headers)
        except (OSError, http.client.HTTPException) as error:
            reason = first_line(error)
            if isinstance(error, TimeoutError) or self._timed_out:
                reason = f"no answer within {self._timeout:g} s"
            raise UndeliveredError(f"{shown_address(address)} cannot be reached: {reason}.") from None
        _judge_answer(status, after, shown_address(address))

    def close(self) -> None:
        """Break off a request under way."""
        self._closing.set()
        self._hang_up()

    def _headers(self, message: Outgoing) -> dict[str, str]:
        config = self.config
        if config.secret_file is None:
            raise InputError("A webhook needs secret_file = ..., the key that its messages are signed with.")
        timestamp = str(int(time.time()))
        signature = sign(read_secret(config.secret_file, "key"), timestamp, message.body())
        headers = {TIMESTAMP: timestamp, SIGNATURE: signature, KEY: percent_encoded(message.key, "", ascii_only=True)}
        headers |= {"Content-Type": "application/json; charset=utf-8", "User-Agent": "dinosaur-station"}
        if config.username:
            password = read_secret(config.password_file, "password") if config.password_file else ""
            both = base64.b64encode(f"{config.username}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {both}"
        return headers

    def _post(self, address: SplitResult, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        """The status of the answer and its Retry-After."""
        self._timed_out = False
        self._connection = connection = _connect(address, self._timeout)
        # The socket's timeout is for each piece of an answer; this one is for all of it.
        limit = threading.Timer(self._timeout, self._out_of_time)
        limit.daemon = True
        limit.start()
        try:
            path = f"{address.path or '/'}{f'?{address.query}' if address.query else ''}"
            if self._closing.is_set():
                raise OSError("the station stops")
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            if self._timed_out or self._closing.is_set():  # an answer cut short by ourselves looks like a whole one
                raise TimeoutError
            return answer.status, answer.getheader("Retry-After", "")
        finally:
            limit.cancel()
            connection.close()

    def _out_of_time(self) -> None:
        self._timed_out = True
        self._hang_up()

    def _hang_up(self) -> None:
        sock = self._connection.sock if self._connection else None
        if sock is not None:
            with contextlib.suppress(OSError):  # it is closed already
                sock.shutdown(socket.SHUT_RDWR)


def _connect(address: SplitResult, timeout: float) -> http.client.HTTPConnection:
    host = address.hostname or ""
    if address.scheme == "https":
        return http.client.HTTPSConnection(host, address.port, timeout=timeout, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, address.port, timeout=timeout)


def _judge_answer(status: int, after: str, place: str) -> None:
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise UndeliveredError(f"{place} answers {status}, which sends us elsewhere; set url to the new address.")
    if 400 <= status < 500 and status not in _AGAIN:
        raise RefusedMessageError(f"{place} refuses the message with {status}.")
    seconds = float(after) if after.isascii() and after.isdigit() and len(after) < 8 else 0.0
    raise UndeliveredError(f"{place} answers {status}.", min(seconds, LONGEST_PAUSE))
