"""How the client asks a station: requests and refusals over HTTP, with nothing but the standard library."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.errors import DinosaurError, InputError

Json = dict[str, Any]


class StationError(DinosaurError):
    """The station refused or could not be reached; ``status`` is that of HTTP, 0 where there was no answer."""

    def __init__(self, sentence: str, status: int = 0) -> None:
        super().__init__(sentence)
        self.status = status


class StationTransport:
    """Sends requests to the API at ``url``, with a token."""

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = 90.0, ca_file: str | Path | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"'{printable(url, 100)}' is no address of a station; expected http://host:port.")
        self._base = f"{parts.scheme}://{parts.netloc}/api/v1"
        self._token, self._timeout = token, timeout
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
        # A station is on this machine or in this plant: no proxy, and no redirect that would carry the token elsewhere.
        self._opener: OpenerDirector = build_opener(ProxyHandler({}), _NoRedirect(), HTTPSHandler(context=context))

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        body: Json | None = None,
        data: bytes | None = None,
        kind: str = "application/json",
    ) -> Json:
        sent = json.dumps(body).encode() if body is not None else data
        with self._open(method, path, query, sent, kind) as answer:
            content = whole(answer)
        return _decoded(content) if content else {}

    def _list(self, path: str, query: Mapping[str, Any] | None = None) -> list[Json]:
        found: Any = self._ask("GET", path, query)
        return list(found)

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        data: bytes | None = None,
        kind: str = "application/json",
        timeout: float | None = None,
    ) -> HTTPResponse:
        given = {key: value for key, value in (query or {}).items() if value not in (None, "")}
        address = self._base + path + (f"?{urlencode(given)}" if given else "")
        headers = {"Accept": "application/json"} | ({"Content-Type": kind} if data is not None else {})
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = Request(address, data=data, headers=headers, method=method)
        try:
            answer: HTTPResponse = self._opener.open(request, timeout=timeout or self._timeout)
            return answer
        except HTTPError as error:
            with error:
                raise StationError(_sentence(error), error.code) from None
        except (URLError, OSError, HTTPException) as error:
            reason = first_line(getattr(error, "reason", None) or error) if isinstance(error, URLError) else error
            raise StationError(f"The station at {self._base} does not answer: {printable(reason, 200)}.") from error


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none: the answer is an error then."""


def whole(answer: HTTPResponse) -> bytes:
    """All of an answer, which a station that ends in this moment cuts short."""
    try:
        return answer.read()
    except (OSError, HTTPException) as error:
        raise StationError(
            f"The station's answer broke off ({printable(first_line(error), 200)}); ask again."
        ) from error


def next_line(stream: HTTPResponse) -> bytes:
    """The next line of a stream, empty at its end."""
    try:
        return stream.readline()
    except (OSError, HTTPException) as error:
        raise StationError(f"The event stream broke off: {first_line(error)}.") from error


def _sentence(error: HTTPError) -> str:
    """The station's own sentence; what HTTP says where something else answered."""
    try:
        return str(json.loads(error.read())["error"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return f"The station answered {error.code} ({printable(error.reason, 100)})."


def _decoded(content: bytes) -> Json:
    try:
        found: Json = json.loads(content)
    except ValueError:
        raise StationError("The answer is not JSON; is there a station at this address?") from None
    return found


def form_with_files(files: Sequence[tuple[str, bytes]]) -> tuple[str, bytes]:
    """The type and the body of a form with files."""
    border = token_hex(16)
    parts = []
    for name, data in files:
        shown = quote(name, safe=" ()[]+,=@~!$&';")  # nothing that would end the header
        head = f'--{border}\r\nContent-Disposition: form-data; name="pictures"; filename="{shown}"\r\n'
        parts.append(f"{head}Content-Type: application/octet-stream\r\n\r\n".encode() + data + b"\r\n")
    return f"multipart/form-data; boundary={border}", b"".join(parts) + f"--{border}--\r\n".encode()
