"""The settings of a station from a TOML file, checked as a whole before anything starts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from dinosaur_ad._text import did_you_mean, printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import (
    DriftConfig,
    HistoryConfig,
    PartConfig,
    ProposalsConfig,
    QueueConfig,
    ServerConfig,
    SinkConfig,
    SourceConfig,
    StationConfig,
    TeachingConfig,
)
from dinosaur_ad.station.config_checks import check_config

_Section = TypeVar("_Section")

_SECTIONS: dict[str, type[Any]] = {
    "server": ServerConfig,
    "history": HistoryConfig,
    "queue": QueueConfig,
    "part": PartConfig,
    "teaching": TeachingConfig,
    "drift": DriftConfig,
    "proposals": ProposalsConfig,
}


def read_config(
    file: str | Path | None, store: str | Path | None = None, folder: str | Path | None = None
) -> StationConfig:
    """The settings in a TOML file, or the defaults without one; ``store`` and ``folder`` override the file's.

    Relative paths in the file are relative to it.

    :raises InputError: the file cannot be read, or something in it is wrong; the sentence says where.
    """
    base, document = Path(), {}
    if file is not None:
        base = Path(file).parent
        document = _parsed(Path(file))
    where = "" if file is None else f"{printable(file)}: "
    try:
        return _station(document, base, store, folder)
    except InputError as error:
        raise InputError(f"{where}{error}") from None


def _parsed(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"The settings {printable(file)} cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"The settings {printable(file)} are not TOML: {printable(error)}.") from None


def _station(
    document: dict[str, Any], base: Path, store: str | Path | None, folder: str | Path | None
) -> StationConfig:
    known = [*_SECTIONS, "store", "folder", "source", "sink"]
    for key in document:
        if key not in known:
            raise InputError(f"There is no setting '{printable(key)}'{_instead(key, known)}")
    found = store if store is not None else _path(document.get("store"), base)
    if found is None:
        raise InputError('The store is missing; name it with --store, or as store = "..." in the settings.')
    own = folder if folder is not None else _path(document.get("folder"), base)
    sections = {name: _section(kind, name, document.get(name, {}), base) for name, kind in _SECTIONS.items()}
    sources = tuple(_section(SourceConfig, "source", each, base) for each in _list(document, "source"))
    sinks = tuple(_section(SinkConfig, "sink", each, base) for each in _list(document, "sink"))
    config = StationConfig(
        Path(found), Path(own) if own else Path(f"{found}-station"), sources=sources, sinks=sinks, **sections
    )
    check_config(config)
    return config


def _list(document: dict[str, Any], name: str) -> list[Any]:
    value = document.get(name, [])
    if not isinstance(value, list):
        raise InputError(f"Write [[{name}]] with two brackets: there may be several.")
    return value


def _section(kind: type[_Section], name: str, values: Any, base: Path) -> _Section:
    """A section as its dataclass; unknown keys, wrong types and missing ones are errors."""
    if not isinstance(values, dict):
        raise InputError(f"[{name}] is a table of settings, got {printable(values, 60)}.")
    types, known = get_type_hints(kind), [each.name for each in fields(kind)]  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise InputError(f"[{name}] has no setting '{printable(key)}'{_instead(key, known)}")
    for each in fields(kind):  # type: ignore[arg-type]
        if each.default is MISSING and each.default_factory is MISSING and each.name not in values:
            raise InputError(f"[{name}] needs {each.name} = ...")
    return kind(**{key: _value(f"[{name}] {key}", types[key], value, base) for key, value in values.items()})


def _value(name: str, kind: Any, value: Any, base: Path) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        kind = next(each for each in inner if each is not NoneType)
        origin, inner = get_origin(kind), get_args(kind)
    if kind is Path and isinstance(value, str):
        return _path(value, base)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if origin is tuple and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    if origin is Mapping and isinstance(value, dict):
        return {str(key): str(each) for key, each in value.items()}
    if kind in (str, int, bool) and type(value) is kind:
        return value
    wanted = {str: "text", Path: "text", int: "a whole number", float: "a number", bool: "true or false"}
    words = wanted.get(kind, "a list of texts" if origin is tuple else "a table")
    raise InputError(f"{name} is {words}, got {printable(value, 60)}.")


def _path(value: Any, base: Path) -> Path | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise InputError(f"A path is text, got {printable(value, 60)}.")
    return base / value


def _instead(key: str, known: list[str]) -> str:
    return did_you_mean(key, known) or f"; there are {', '.join(known)}."
