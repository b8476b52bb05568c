"""The web application of a station, put together: what each request goes through, and what there is.

request -> Shield (headers, failures) -> Doors (name, rate) -> Identify (who) -> BodyLimit -> route
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dinosaur_ad import __version__
from dinosaur_ad.station.config import ServerConfig
from dinosaur_ad.station.priority import LOWEST, step_back
from dinosaur_ad.station.web import api, event_stream, pages, sessions
from dinosaur_ad.station.web.access import Identify
from dinosaur_ad.station.web.api_errors import UNEXPECTED, add_error_handlers, error_response
from dinosaur_ad.station.web.connections import WatchedConnection
from dinosaur_ad.station.web.event_stream import EventStreams
from dinosaur_ad.station.web.limits import BodyLimit, Doors, LoginBackoff
from dinosaur_ad.station.web.picture_shelf import PictureShelf

log = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
CONTENT_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # not "no-referrer": browsers would then send "Origin: null" with the station's own forms
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}

# FastAPI can report requests to a collector that an environment variable names.
NO_TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)


def create_app(station: Any) -> FastAPI:
    """The page and the API of a :class:`~dinosaur_ad.station.service.Station`."""
    server: ServerConfig = station.config.server
    app = FastAPI(
        title="DINOSaur station",
        version=__version__,
        docs_url=None,  # the usual documentation page loads scripts from elsewhere
        redoc_url=None,
        openapi_url=None,  # given by a route of the API, which asks who wants it
        middleware=[
            Middleware(Shield),
            Middleware(Doors, server=server),
            Middleware(Identify, accounts=station.accounts, server=server),
            Middleware(BodyLimit, server=server),
        ],
        lifespan=_closing_streams,
        telemetry=NO_TELEMETRY,
    )
    app.state.station = station
    app.state.streams = EventStreams(station.bus)
    app.state.pictures = PictureShelf()
    app.state.backoff = LoginBackoff()
    add_error_handlers(app)
    for part in (pages, event_stream, sessions, api):
        app.include_router(part.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


@asynccontextmanager
async def _closing_streams(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.streams.close()


class Shield:
    """Middleware that adds the security headers to every answer, and answers what failed unexpectedly."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                _add_headers(MutableHeaders(scope=message), str(scope["path"]))
            await send(message)

        try:
            await self._app(scope, receive, with_headers)
        except Exception:
            log.exception("A request to %r failed", scope["path"])
            if begun:
                raise
            await error_response(str(scope["path"]), 500, UNEXPECTED)(scope, receive, with_headers)


def _add_headers(headers: MutableHeaders, path: str) -> None:
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
    # Files of the page are asked for again but not sent again; everything else may be secret.
    headers.setdefault("Cache-Control", "no-cache" if path.startswith("/static/") else "no-store")


class StationServer(uvicorn.Server):
    """A server that steps back behind the judging, and ends the event streams before it waits for the open connections
    to end."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer requests until ``should_exit`` is set."""
        step_back(LOWEST)
        await super().serve(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; open requests have a few seconds."""
        app: Any = self.config.app
        app.state.streams.close()
        await super().shutdown(sockets)


def make_server(app: FastAPI, server: ServerConfig) -> StationServer:
    """The server of an app, not running yet: ``run()`` it, and stop it with ``should_exit = True``."""
    return StationServer(
        uvicorn.Config(
            app,
            host=server.host,
            port=server.port,
            ssl_certfile=server.tls_certificate,
            ssl_keyfile=server.tls_key,
            http=WatchedConnection,
            proxy_headers=False,  # Identify does it, and knows when it may
            server_header=False,
            access_log=False,
            log_config=None,
            limit_concurrency=300,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=32 * 1024,
            ws="none",
        )
    )
