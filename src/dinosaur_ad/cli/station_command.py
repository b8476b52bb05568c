"""The verb station: the resident service with its page."""

from __future__ import annotations

import argparse
import getpass
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from dinosaur_ad._text import printable
from dinosaur_ad.cli._console import EXIT_OK, say, show
from dinosaur_ad.cli._extras import require
from dinosaur_ad.cli._parser import Subparsers, add_encoder_options, add_settings, add_verb, encoder_options
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.station.config import StationConfig
    from dinosaur_ad.station.service import Station

DEMO_STORE = Path("runs", "station-demo")
NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "argon2", "jinja2", "watchfiles", "aiomqtt")


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file."""
    parser = add_verb(
        verbs,
        "station",
        station,
        "Inspect what comes from cameras and folders until it is stopped, with a page to watch, correct and teach it.",
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="sources, sinks and more, as TOML")
    parser.add_argument("--store", metavar="DIR", type=Path, help="the store; made if it is not there")
    parser.add_argument("--folder", metavar="DIR", type=Path, help="the station's own data (default: STORE-station)")
    parser.add_argument("--host", metavar="ADDRESS", help="where the page is (default: 127.0.0.1)")
    parser.add_argument("--port", metavar="N", type=int, help="its port (default: 8765; 0: any that is free)")
    parser.add_argument("--demo", action="store_true", help=f"a drawn line to look at, in {DEMO_STORE}")
    parser.add_argument("--add-admin", metavar="NAME", help="make an account that may do everything, and end")
    parser.add_argument("--preset", metavar="NAME", help="settings of a new store (default: default)")
    parser.add_argument("--encoder", metavar="NAME", help="encoder of a new store; see: dinosaur weights list")
    add_encoder_options(parser)
    add_settings(parser, "provider", "precision", "threads")


def station(arguments: argparse.Namespace) -> int:
    """Run the station until it is interrupted or told to end."""
    for package in NEEDED:
        require(package, "The station")
    from dinosaur_ad.encoders.options import EncoderOptions
    from dinosaur_ad.station.config_checks import check_files
    from dinosaur_ad.station.demo_line import demo_config
    from dinosaur_ad.station.service import Station

    config = _config(arguments)
    if arguments.add_admin:
        return _add_admin(config, arguments.add_admin)
    if arguments.demo:
        config = demo_config(config)
    check_files(config)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    with _ending_when_told(), _bound(config.server.host, config.server.port) as listening:
        bound = replace(config.server, port=listening.getsockname()[1])
        running = Station(
            replace(config, server=bound),
            encoder=arguments.encoder,
            preset=arguments.preset or ("fast" if arguments.demo and not config.store.exists() else None),
            options=EncoderOptions(**encoder_options(arguments)),
        )
        if arguments.demo:
            _prepare_demo(running)
        running.start()
        try:
            _serve(running, listening)
        finally:
            say("stopping: what was accepted is judged and recorded first")
            running.stop()
    return EXIT_OK


class _ToldToEnd(BaseException):
    """Ctrl-C, or SIGTERM as systemd and Docker send it: both are the usual end of a station."""


@contextmanager
def _ending_when_told() -> Iterator[None]:
    """End the block, with all that it cleans up, when the process is told to end."""

    def end(number: int, frame: FrameType | None) -> None:
        raise _ToldToEnd

    before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except _ToldToEnd:
        pass
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _config(arguments: argparse.Namespace) -> StationConfig:
    from dinosaur_ad.station.config_file import read_config

    store = arguments.store or os.environ.get("DINOSAUR_STORE")
    if arguments.demo:
        if arguments.config or arguments.store:
            raise InputError(f"The demo has a store of its own, {DEMO_STORE}; leave --store and --config out.")
        store = DEMO_STORE
    config = read_config(arguments.config, store, arguments.folder)
    server = config.server
    if arguments.host is not None:
        server = replace(server, host=arguments.host)
    if arguments.port is not None:
        if not 0 <= arguments.port <= 65535:
            raise InputError(f"A port is a number from 0 to 65535, got {arguments.port}.")
        server = replace(server, port=arguments.port)
    return replace(config, server=server)


def _prepare_demo(running: Station) -> None:
    from dinosaur_ad.station.demo_line import draw_line, teach_known

    folder = running.config.folder / "demo"
    say("drawing the line and learning two products; a minute the first time")
    draw_line(folder / "line")
    teach_known(running.detector, folder / "learned", say)


def _add_admin(config: StationConfig, name: str) -> int:
    from dinosaur_ad.station.accounts import Accounts
    from dinosaur_ad.station.history.history import History

    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = getpass.getpass(f"Password for {printable(name)}: ")
        if getpass.getpass("Once more: ") != password:
            raise InputError("The two passwords differ; nothing was changed.")
    config.folder.mkdir(parents=True, exist_ok=True)
    history = History(config.history.url, config.folder, config.history)
    history.open()
    try:
        Accounts(history).create(name, password, "admin", by="command line")
    finally:
        history.close()
    show(f"made the account '{printable(name)}' with the role admin")
    return EXIT_OK


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens, so that a port in use is refused before anything is loaded."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)  # who comes before the server is ready waits for it
    except OSError as error:
        raise InputError(
            f"The page cannot be served at {printable(host)} port {port} ({error.strerror or error}); choose another "
            "with --host and --port."
        ) from None
    return listening


def _serve(running: Station, listening: socket.socket) -> None:
    from dinosaur_ad.station.web.access import is_loopback_address
    from dinosaur_ad.station.web.app import create_app, make_server

    server = running.config.server
    if not is_loopback_address(server.host) and not running.accounts.any():
        raise InputError(
            f"The page would be open to everybody who reaches {printable(server.host)}; make an account first with: "
            "dinosaur station --add-admin NAME, or leave --host out."
        )
    scheme = "https" if server.tls_certificate else "http"
    if scheme == "http" and not is_loopback_address(server.host) and not server.behind_proxy:
        say("warning: passwords travel in the clear; set tls_certificate and tls_key, or put a proxy with TLS in front")
    host = f"[{server.host}]" if ":" in server.host else server.host
    show(f"station: {scheme}://{host}:{server.port}  store {printable(running.config.store)}  Ctrl-C ends it")
    sys.stdout.flush()
    make_server(create_app(running), server).run(sockets=[listening])
