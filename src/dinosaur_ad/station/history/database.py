"""The connection to the database: SQLite in the station's folder, or another by URL; opened, checked and migrated."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    InternalError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.errors import StoreError, install_advice
from dinosaur_ad.station.history.migrations import HEAD, VERSION_TABLE, revisions, upgrade
from dinosaur_ad.station.tables import Base

DATABASE = "history.sqlite"
BUSY_SECONDS = 15
"""How long a writer waits for another one of SQLite."""
CONNECT_SECONDS = 5
WAL_BYTES = 64 * 1024 * 1024
"""What SQLite's own log keeps on the disk after a burst."""
MIGRATION_LOCK = 0x44534A524E
"""The number of the lock on PostgreSQL, which stations agree on."""
_AWAY = (OperationalError, InterfaceError, InternalError, PoolTimeoutError)


class HistoryDownError(StoreError, SQLAlchemyError):
    """The database does not answer now; later it may. Nothing was changed.

    Both a :class:`StoreError` (a sentence for people) and an SQLAlchemy error (for loops that try again).
    """


def database_url(url: str, folder: Path) -> URL:
    """The URL of the database: SQLite in ``folder`` if none is given.

    :raises StoreError: it is no URL of a database.
    """
    if not url:
        return URL.create("sqlite", database=str(folder / DATABASE))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(
            "[history] url is no address of a database; write it as postgresql+psycopg://user@host/name, or leave it "
            "out for SQLite."
        ) from None
    if parsed.drivername in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise StoreError(
            f"'{printable(parsed.drivername, 60)}' is no database that the history can use; take SQLite or PostgreSQL."
        )
    return parsed


def make_engine(url: URL) -> Engine:
    """An engine for the URL; connects to nothing yet.

    :raises StoreError: the driver is not installed.
    """
    options: dict[str, Any] = {"pool_size": 10, "max_overflow": 30}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": BUSY_SECONDS, "check_same_thread": False}
    else:
        options |= {"pool_pre_ping": True, "connect_args": {"connect_timeout": CONNECT_SECONDS}}
    try:
        engine = create_engine(url, **options)
    except ImportError as error:
        advice = install_advice("postgres") if url.get_backend_name() == "postgresql" else "install its driver"
        name = printable(error.name or url.drivername)
        raise StoreError(f"The history needs the package {name}, which is not installed; {advice}.") from error
    except NoSuchModuleError as error:
        raise StoreError(
            f"'{printable(url.drivername, 60)}' is no database that the history can use; take SQLite or PostgreSQL."
        ) from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
    return engine


def open_database(engine: Engine) -> None:
    """Connect, check that the tables are ours and not newer than this program, and bring them up to date.

    :raises HistoryDownError: it does not answer.
    :raises StoreError: it cannot be used.
    """
    try:
        with engine.connect() as connection:
            revision = _revision(connection)
        if revision != HEAD:
            with engine.begin() as connection:
                _take_alone(connection)
                if _revision(connection) != HEAD:
                    upgrade(connection)
    except sqlite3.Error as error:  # from setting up a connection, before SQLAlchemy would see it
        raise _cannot_open(engine, error) from error
    except SQLAlchemyError as error:
        raise _cannot_open(engine, error) from error


def is_away(error: BaseException) -> bool:
    """Whether an error means that the database does not answer, so that trying again later can help."""
    return isinstance(error, _AWAY) or (isinstance(error, DBAPIError) and error.connection_invalidated)


def down(engine: Engine, error: BaseException) -> HistoryDownError:
    """The sentence for a database that does not answer."""
    return HistoryDownError(f"The database of the history, {place(engine)}, does not answer: {_cause(error)}.")


def place(engine: Engine) -> str:
    """Where a database is, for people: never with the password."""
    if engine.dialect.name == "sqlite":
        return f"'{printable(engine.url.database or 'in memory')}'"
    return printable(engine.url.render_as_string(hide_password=True))


def _take_alone(connection: Connection) -> None:
    """Keep other stations from migrating at the same time, until the transaction ends."""
    if connection.dialect.name == "sqlite":
        # Said here because Python's driver begins no transaction for a CREATE TABLE: killed half way, some tables would
        # be there and others not.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    elif connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")


def _revision(connection: Connection) -> str | None:
    """The revision of the tables, None for an empty database.

    :raises StoreError: it is newer than this program, or the tables are not those of a station.
    """
    engine = connection.engine
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        revision: str | None = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
        if revision is not None and revision != HEAD and revision not in revisions():
            raise StoreError(
                f"The history in {place(engine)} has the format '{printable(revision, 40)}', which is newer than this "
                "version of DINOSaur reads; update DINOSaur, or give the station another folder."
            )
        return revision
    ours = sorted(tables & set(Base.metadata.tables))
    if ours:
        raise StoreError(
            f"The database {place(engine)} has a table '{ours[0]}' that no station made; give the history a database "
            "of its own."
        )
    return None


def _cannot_open(engine: Engine, error: BaseException) -> StoreError:
    if engine.dialect.name != "sqlite" and is_away(error):
        return down(engine, error)
    cause = _cause(error)
    if "not a database" in cause:
        return StoreError(
            f"The file {place(engine)} is no history of a station: it is not an SQLite database; move it away or give "
            "the station another folder."
        )
    return StoreError(
        f"The history in {place(engine)} cannot be opened: {cause}; check that the folder is there, may be written "
        "and has space."
    )


def _cause(error: BaseException) -> str:
    """The driver's own words, without SQLAlchemy's around them."""
    return first_line(getattr(error, "orig", None) or error)


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    # synchronous=FULL: feedback and accounts are in no journal of ours, so a commit has to survive a power cut.
    for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"journal_size_limit={WAL_BYTES}"):
        connection.execute(f"PRAGMA {setting}")
