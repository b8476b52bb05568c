"""Limits, so that strangers and mistakes cannot disturb the judging: requests a second, bytes, guessed passwords."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dinosaur_ad.bank.budget import parse_bytes
from dinosaur_ad.station.config import ServerConfig
from dinosaur_ad.station.web.addresses import client_address, is_loopback_address, is_loopback_name
from dinosaur_ad.station.web.api_errors import error_response

BURST_SECONDS = 4.0
"""An address may save up the requests of so many seconds: a page with its pictures is many requests at once."""
STRANGER_BYTES = 64 * 1024
"""The longest body of a request by someone who is not known: a login form is far smaller."""
FORM_BYTES = 4_000_000
"""Of JSON and of forms without files; the largest set of zones fits."""
EXTRA_BYTES = 64 * 1024
"""For what a form with a file has besides the file."""
STALLED_SECONDS = 30.0
"""So long the next piece of a body may take."""
MOST_ADDRESSES = 10_000
REFUSED_SECONDS = 0.5
"""Seconds before a request over the limit is refused: refusing costs nearly as much time as answering."""
FREE_TRIES, LONGEST_WAIT = 5, 300.0
"""Wrong passwords before one has to wait, and for how long at most."""
FREE_TRIES_ADDRESS = 20
"""For one address that tries several accounts."""
_FORGET_AFTER = 3600.0
_UPLOADS = ("multipart/form-data", "application/octet-stream", "image/")

Clock = Callable[[], float]


class AddressRates:
    """How many requests each address may still send: a bucket that fills at ``rate`` tokens a second.

    >>> rates = AddressRates(1.0, clock=lambda: 0.0)
    >>> [rates.wait("10.0.0.1") for _ in range(5)]
    [0.0, 0.0, 0.0, 0.0, 1.0]
    """

    def __init__(self, rate: float, clock: Clock = time.monotonic) -> None:
        self._rate, self._most, self._clock = rate, max(1.0, rate * BURST_SECONDS), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """0 if a request of that address may pass now, which is then counted; otherwise the seconds until one may."""
        now, key = self._clock(), network(address)
        tokens, since = self._buckets.pop(key, (self._most, now))
        tokens = min(self._most, tokens + (now - since) * self._rate)
        passes = tokens >= 1.0
        self._buckets[key] = (tokens - passes, now)
        while len(self._buckets) > MOST_ADDRESSES:
            self._buckets.popitem(last=False)
        return 0.0 if passes else (1.0 - tokens) / self._rate


@dataclass
class _Failures:
    count: int
    last: float
    until: float


class LoginBackoff:
    """Makes guessing passwords slow: after a few wrong ones an account and an address wait, each time twice as long.

    A try is counted before the password is compared and taken back if it was right, so that many tries at the same
    time are not one.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def begin(self, name: str, address: str) -> float:
        """0 if a password may be tried now, which is then counted as wrong; otherwise the seconds to wait."""
        now = self._clock()
        with self._lock:
            waits = [self._failures[key].until - now for key, _ in _keys(name, address) if key in self._failures]
            if (longest := max(waits, default=0.0)) > 0:
                return longest
            for key, free in _keys(name, address):
                self._count(key, free, now)
        return 0.0

    def succeeded(self, name: str, address: str) -> None:
        """The password was right: the account starts anew, and the try of the address does not count."""
        with self._lock:
            self._failures.pop(("account", name.casefold()), None)
            if found := self._failures.get(("address", network(address))):
                found.count = max(0, found.count - 1)
                found.until = self._clock()

    def _count(self, key: tuple[str, str], free: int, now: float) -> None:
        found = self._failures.pop(key, None)
        if found is None or now - found.last > _FORGET_AFTER:
            found = _Failures(0, now, now)
        found.count, found.last = found.count + 1, now
        if found.count >= free:
            found.until = now + min(LONGEST_WAIT, 2.0 ** min(found.count - free + 1, 20))
        self._failures[key] = found
        while len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)


def _keys(name: str, address: str) -> tuple[tuple[tuple[str, str], int], ...]:
    account, place = ("account", name.casefold()[:200]), ("address", network(address))
    return (account, FREE_TRIES), (place, FREE_TRIES_ADDRESS)


def network(address: str) -> str:
    """What is counted as one sender: an IPv4 address, or the /64 network of an IPv6 one, of which anyone has all.

    >>> network("10.0.0.7"), network("2001:db8::1:2")
    ('10.0.0.7', '2001:db8::')
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False).network_address)
    return str(found)


class Doors:
    """Middleware that refuses requests with a name of another machine and those of an address that sends too many."""

    def __init__(self, app: ASGIApp, server: ServerConfig) -> None:
        self._app, self._server = app, server
        self._rates = AddressRates(server.requests_a_second)
        self._own_names_only = is_loopback_address(server.host) and not server.behind_proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, host = str(scope["path"]), Headers(scope=scope).get("host", "")
        if self._own_names_only and not is_loopback_name(host):
            # A site can give its own name the address 127.0.0.1 (DNS rebinding); the browser still sends the name.
            sentence = "This station answers to the names localhost and 127.0.0.1 only."
            await error_response(path, 421, sentence)(scope, receive, send)
        elif wait := self._rates.wait(client_address(scope, self._server)):
            sentence = f"This address sends more than {self._server.requests_a_second:g} requests a second; wait a bit."
            headers = {"Retry-After": str(math.ceil(wait)), "Connection": "close"}
            await asyncio.sleep(REFUSED_SECONDS)
            await error_response(path, 429, sentence, headers)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class BodyLimit:
    """Middleware that stops reading a body as soon as it is longer than allowed, or when it stalls.

    It stands behind :class:`~dinosaur_ad.station.web.access.Identify`: someone who is not known may send little.
    """

    def __init__(self, app: ASGIApp, server: ServerConfig) -> None:
        self._app = app
        self._upload = parse_bytes(server.upload_limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; one that says itself that it is too long is refused at once."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, limit = Headers(scope=scope), self._limit(scope)
        announced = headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced[:20]) > limit:
            error = _too_long(limit)
            response = error_response(str(scope["path"]), error.status_code, error.detail, error.headers)
            await response(scope, receive, send)
            return
        await self._app(scope, _counted(receive, limit), send)

    def _limit(self, scope: Scope) -> int:
        if scope["state"]["person"] is None:
            return STRANGER_BYTES
        kind = Headers(scope=scope).get("content-type", "").lower()
        return self._upload + EXTRA_BYTES if not kind or kind.startswith(_UPLOADS) else FORM_BYTES


def _counted(receive: Receive, limit: int) -> Receive:
    """``receive`` that raises once more than ``limit`` bytes came."""
    taken, ended = 0, False

    async def counted() -> Message:
        nonlocal taken, ended
        if ended:
            return await receive()  # waits for the end of the connection, as long as that takes
        try:
            message = await asyncio.wait_for(receive(), STALLED_SECONDS)
        except TimeoutError:
            raise HTTPException(408, "The request did not arrive whole in time.", {"Connection": "close"}) from None
        taken += len(message.get("body", b""))
        ended = not message.get("more_body", False)
        if taken > limit:
            raise _too_long(limit)
        return message

    return counted


def _too_long(limit: int) -> HTTPException:
    shown = f"{limit / 1e6:.0f} MB" if limit >= 1_000_000 else f"{limit // 1024} KB"
    sentence = f"The request is longer than {shown}, more than is taken here; see upload_limit in the settings."
    return HTTPException(413, sentence, {"Connection": "close"})
