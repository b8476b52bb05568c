"""A station of which only what the page and the API touch is real: history, accounts, bus, spool, an upload source."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
from fastapi import FastAPI
from fastapi.routing import APIRoute
from PIL import Image
from starlette.routing import BaseRoute, Mount
from starlette.testclient import TestClient

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.accounts import Accounts
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import ProposalsConfig, ServerConfig, SourceConfig, StationConfig
from dinosaur_ad.station.history.history import History
from dinosaur_ad.station.part import JudgedPart, Picture, View
from dinosaur_ad.station.sources.uploads import Uploads
from dinosaur_ad.station.spool import Spool
from dinosaur_ad.station.web.app import create_app, make_server

HERE = "http://127.0.0.1:8765"
PASSWORD = "seven quiet pelicans"
ROLE_NAMES = {"viewer": "Vera", "operator": "Otto", "engineer": "Erna", "admin": "Anna"}


class FakePipeline:
    """Judges nothing: every picture that it is offered becomes a recorded part that is not ready."""

    def __init__(self, history: History, bus: Bus) -> None:
        self.history, self.bus, self.offered = history, bus, []
        self.answer = "accepted"

    def offer(self, picture: Picture, *_: Any, **__: Any) -> str:
        """Take a picture."""
        if self.answer != "accepted":
            return self.answer
        self.offered.append(picture.key)
        part = JudgedPart(picture.part_key, picture.taken, (View(picture, None, "Nothing is judged here."),))
        self.history.record_part(part)
        self.bus.publish("part", part.to_json() | {"id": None})
        if picture.release:
            picture.release()
        return "accepted"


class NoProducts:
    """A detector that has learned nothing."""

    def tasks(self) -> list[Any]:
        """None."""
        return []

    def damaged(self) -> dict[str, str]:
        """None."""
        return {}


class NoProposals:
    """Nothing was proposed."""

    waiting = 0
    config = ProposalsConfig()

    def all(self) -> list[Any]:
        """None."""
        return []

    def state(self) -> dict[str, Any]:
        """Nothing was gathered."""
        return {"waiting": 0, "on": True, "reason": "", "gathered": 0, "failed": 0}

    def one(self, number: int) -> Any:
        """There is none."""
        raise InputError(f"There is no proposal {number}.")

    def picture(self, *_: int) -> None:
        """There is none."""

    def refused(self, number: int, *_: str) -> Any:
        """There is nothing to decide."""
        raise InputError(f"There is no proposal {number}.")

    accept = dismiss = ask_again = undo = refused


@cache
def _empty_database() -> bytes:
    """A database with all tables; making them takes longer than most tests."""
    with TemporaryDirectory() as folder:
        history = History("", folder)
        history.open()
        history.close()
        return next(Path(folder).glob("*.sqlite*")).read_bytes()


def opened_history(folder: Path) -> History:
    """An empty history in a folder."""
    history = History("", folder)
    Path(history._engine.url.database).write_bytes(_empty_database())
    history.open()
    return history


def fake_station(folder: Path, **server: Any) -> SimpleNamespace:
    """A station in a folder; call ``close`` when it is no longer needed."""
    settings = {"requests_a_second": 10_000.0} | server
    config = StationConfig(folder / "store", folder, server=ServerConfig(**settings))
    history, bus = opened_history(folder), Bus()
    spool, pipeline = Spool(folder / "spool"), FakePipeline(history, bus)
    source = Uploads(SourceConfig("upload", "upload"), pipeline.offer, spool, bus)
    source.start()

    def close() -> None:
        source.stop()
        history.close()

    return SimpleNamespace(
        config=config,
        bus=bus,
        history=history,
        accounts=Accounts(history),
        spool=spool,
        pipeline=pipeline,
        sources={"upload": source},
        detector=NoProducts(),
        teaching=None,
        proposals=NoProposals(),
        ready=lambda: "",
        state=lambda: {"version": "1", "products": [], "sources": [source.state()]},
        close=close,
    )


def add_people(accounts: Accounts) -> dict[str, Any]:
    """One account for each role; hashing is made cheap, because it is not what is tested."""
    from argon2 import PasswordHasher

    accounts._passwords._hasher = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    roles = sorted(ROLE_NAMES, key=lambda role: role != "admin")  # the first has to be an admin
    return {role: accounts.create(ROLE_NAMES[role], PASSWORD, role, by="test") for role in roles}


def browser(app: FastAPI, address: str = "10.0.0.9", base: str = HERE, **options: Any) -> TestClient:
    """A client at an address that follows no redirects."""
    return TestClient(app, base_url=base, client=(address, 50_000), follow_redirects=False, **options)


def logged_in(app: FastAPI, account: Any, **options: Any) -> TestClient:
    """A browser with a session, whose ``csrf`` is in its headers."""
    from dinosaur_ad.station.accounts import csrf_of

    secret = app.state.station.accounts.log_in(account)
    client = browser(app, **options)
    client.cookies.set("dinosaur-8765", secret)
    client.headers["X-CSRF-Token"] = csrf_of(secret)
    return client


def with_token(app: FastAPI, scopes: Iterable[str], name: str, **options: Any) -> TestClient:
    """A program with an API token."""
    secret = app.state.station.accounts.make_token(name, scopes, by="test", **options)
    return browser(app, headers={"Authorization": f"Bearer {secret}"})


def new_app(station: Any) -> FastAPI:
    """The app of a station."""
    return create_app(station)


def picture(kind: str = "PNG", size: tuple[int, int] = (64, 48)) -> bytes:
    """The bytes of a picture."""
    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def all_routes(app: FastAPI) -> Iterator[tuple[str, str, Any]]:
    """Every method and path that the app answers, with the route; also of routers inside routers."""
    for path, route in _flat(app.routes, ""):
        if isinstance(route, Mount):
            yield "GET", path, route
        for method in sorted(getattr(route, "methods", None) or ()):
            if method != "HEAD":
                yield method, path, route


def _flat(routes: Iterable[BaseRoute], prefix: str) -> Iterator[tuple[str, Any]]:
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:  # newer versions of FastAPI keep routers that were included
            context: Any = route
            yield from _flat(inner.routes, prefix + context.include_context.prefix)
        else:
            yield prefix + str(getattr(route, "path", "")), route


def needed(route: Any) -> tuple[str, str] | None:
    """The role and the scope that a route says it needs; None for one that is open to all."""
    if not isinstance(route, APIRoute):
        return None
    waiting, found = list(route.dependant.dependencies), []
    while waiting:
        dependant = waiting.pop()
        waiting.extend(dependant.dependencies)
        if wanted := getattr(dependant.call, "needs", None):
            found.append(wanted)
    assert len(found) <= 1, f"{route.path} asks twice who may use it"
    return found[0] if found else None


def with_server(station: Any, **changes: Any) -> Any:
    """The same station with other settings of its server."""
    station.config = replace(station.config, server=replace(station.config.server, **changes))
    return station


@contextmanager
def served(app: FastAPI, server: ServerConfig | None = None) -> Iterator[str]:
    """The app on a real server at a free port; its address."""
    config = server or replace(app.state.station.config.server, port=0)
    running = make_server(app, config)
    thread = threading.Thread(target=running.run, name="test-server", daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not running.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < deadline, "the server takes too long to start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server does not end"
