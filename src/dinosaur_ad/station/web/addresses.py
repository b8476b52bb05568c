"""Where a request comes from: this machine, behind a proxy, the station's own page or another site."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from dinosaur_ad.station.config import ServerConfig

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


def client_address(scope: Scope, server: ServerConfig) -> str:
    """The address of the sender; behind a proxy on this machine the last one that the proxy has seen."""
    peer = peer_of(scope)
    if server.behind_proxy and is_loopback_address(peer):
        forwarded = Headers(scope=scope).getlist("x-forwarded-for")
        last = ",".join(forwarded).rsplit(",", 1)[-1].strip() if forwarded else ""
        try:
            return str(ipaddress.ip_address(last))
        except ValueError:
            return peer
    return peer


def is_local(scope: Scope, server: ServerConfig) -> bool:
    """Whether a request surely comes from this machine and was meant for it.

    Behind a proxy every request comes from this machine, and a name that leads to loopback only by DNS may be that of
    a site that has the browser send the request.
    """
    headers = Headers(scope=scope)
    if server.behind_proxy or any(name in headers for name in _FORWARDED):
        return False
    return is_loopback_address(peer_of(scope)) and is_loopback_name(headers.get("host", ""))


def is_loopback_name(host: str) -> bool:
    """Whether a Host header names this machine itself.

    >>> is_loopback_name("localhost:8765"), is_loopback_name("[::1]"), is_loopback_name("localhost.evil.com")
    (True, True, False)
    """
    try:
        return urlsplit(f"//{host}").hostname in _LOOPBACK_NAMES
    except ValueError:
        return False


def peer_of(scope: Scope) -> str:
    """The address that the connection comes from; empty where that is not known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def is_loopback_address(address: str) -> bool:
    """Whether an address (or the name localhost) is that of this machine alone.

    >>> is_loopback_address("127.0.0.1"), is_loopback_address("0.0.0.0")
    (True, False)
    """
    if address == "localhost":
        return True
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def is_same_site(headers: Headers, host: str) -> bool:
    """Whether a request that changes something comes from the station's own page, or from no browser at all."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        return _place(urlsplit(origin).netloc) == _place(host) != ("", None)
    except ValueError:
        return False


def _place(netloc: str) -> tuple[str, int | None]:
    parts = urlsplit(f"//{netloc}")
    return (parts.hostname or "", parts.port if parts.port not in (80, 443) else None)
