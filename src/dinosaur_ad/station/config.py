"""The settings of a station: a TOML file, checked as a whole before anything starts.

Every section is a dataclass below; its fields are the keys of the file. ``docs/station/config.md`` explains them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from dinosaur_ad._text import did_you_mean, printable
from dinosaur_ad.bank.budget import parse_bytes
from dinosaur_ad.core.outliers import FEWEST_IMAGES
from dinosaur_ad.errors import InputError

SOURCE_KINDS = ("folder", "upload", "camera", "rtsp", "video", "genicam", "replay")
TRIGGERS = ("every", "timer", "present", "http", "mqtt", "opcua")
SINK_KINDS = ("mqtt", "webhook", "opcua")
MESSAGES = ("part", "warning", "change")
LANGUAGES = ("en", "de")

_Section = TypeVar("_Section")


@dataclass(frozen=True)
class ServerConfig:
    """``[server]``: where the page is. Other hosts than loopback are refused until there is an account."""

    host: str = "127.0.0.1"
    port: int = 8765
    language: str = "en"
    upload_limit: str = "64MB"
    requests_a_second: float = 50.0
    """For each address; more are refused with 429."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    """Whether addresses and the scheme are taken from the headers of a proxy on this machine."""


@dataclass(frozen=True)
class HistoryConfig:
    """``[history]``: where parts are recorded, and how long pictures are kept."""

    url: str = ""
    """An SQLAlchemy URL such as ``postgresql+psycopg://...``; empty for SQLite in the station's folder."""
    keep_days: float = 30.0
    keep_days_defects: float = 365.0
    """Of anomalous and unknown parts and those with feedback."""
    keep_bytes: str = "20GB"
    """Of all pictures; normal parts without feedback are removed first."""


@dataclass(frozen=True)
class QueueConfig:
    """``[queue]``: between sources and the judging."""

    capacity: int = 32
    when_full: str = "wait"
    """wait: sources are held up; drop: the picture is dropped and counted."""


@dataclass(frozen=True)
class PartConfig:
    """``[part]``: which views make one part. Without ``views`` every picture is a part."""

    views: tuple[str, ...] = ()
    wait_seconds: float = 2.0
    """After the first view; a part whose views have not all come then is judged without, and is not normal."""


@dataclass(frozen=True)
class SourceConfig:
    """``[[source]]``: one camera or folder."""

    name: str
    kind: str
    path: Path | None = None
    """folder, replay: the folder; video: the file."""
    url: str = ""
    """rtsp: its address."""
    device: str = ""
    """camera: ``/dev/video0``; genicam: the name that Aravis lists, or empty for the first."""
    rate: float = 1.0
    """replay: pictures a second. timer: triggers a second."""
    repeat: bool = False
    """replay: begin again at the end."""
    trigger: str = "every"
    topic: str = ""
    """mqtt: the topic whose messages trigger."""
    empty: Path | None = None
    """present: a picture of the empty scene; without it the first frames show it."""
    view: str = ""
    task: str | None = None
    """The product, if this source sees one alone; otherwise it is found out."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """genicam: features to set, such as ``ExposureTime = "5000"``."""


@dataclass(frozen=True)
class SinkConfig:
    """``[[sink]]``: who is told."""

    name: str
    kind: str
    url: str = ""
    """mqtt: ``mqtt://host:1883``; webhook: the address; opcua: ``opc.tcp://0.0.0.0:4840``."""
    topic: str = "dinosaur"
    """mqtt: the beginning of all topics."""
    username: str = ""
    password_file: Path | None = None
    secret_file: Path | None = None
    """webhook: the key of the HMAC signature."""
    messages: tuple[str, ...] = MESSAGES
    verdicts: tuple[str, ...] = ()
    """Parts of these verdicts alone; empty for all."""


@dataclass(frozen=True)
class TeachingConfig:
    """``[teaching]``: what happens to parts that people call fine."""

    policy: str = "ask"
    """ask: an engineer approves; auto: taught once ``together`` of a product wait. The guard applies to both."""
    together: int = 5


@dataclass(frozen=True)
class DriftConfig:
    """``[drift]``: when a change is said."""

    false_warnings: float = 0.0001
    """The most warnings without a change, as a share of the parts of all products: 0.0001 is one in 10,000 parts."""
    minimum_parts: int = 10


@dataclass(frozen=True)
class ProposalsConfig:
    """``[proposals]``: whether unknown parts are gathered, so that a product that nobody taught is proposed."""

    enabled: bool = True
    pictures: int = 20
    """So many unknown pictures that agree are proposed as a product."""
    keep: int = 200
    """Unknown pictures of no proposal that are kept; then the oldest leaves."""
    most_open: int = 20
    """So many proposals may wait for a person until no more are made."""
    look_seconds: float = 10.0
    """One picture that passed is looked at in so many seconds, to notice products that have become one."""


@dataclass(frozen=True)
class StationConfig:
    """All settings of a station."""

    store: Path
    folder: Path
    """Where the station keeps its own things: database, pictures, journal."""
    server: ServerConfig = field(default_factory=ServerConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    queue: QueueConfig = field(default_factory=QueueConfig)
    part: PartConfig = field(default_factory=PartConfig)
    teaching: TeachingConfig = field(default_factory=TeachingConfig)
    drift: DriftConfig = field(default_factory=DriftConfig)
    proposals: ProposalsConfig = field(default_factory=ProposalsConfig)
    sources: tuple[SourceConfig, ...] = ()
    sinks: tuple[SinkConfig, ...] = ()


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
    _check(config)
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


def _check(config: StationConfig) -> None:
    """What types cannot say."""
    _one_of("[server] language", config.server.language, LANGUAGES)
    _one_of("[queue] when_full", config.queue.when_full, ("wait", "drop"))
    _one_of("[teaching] policy", config.teaching.policy, ("ask", "auto"))
    _range("[server] port", config.server.port, 0, 65535)
    _range("[queue] capacity", config.queue.capacity, 1, 10_000)
    _range("[teaching] together", config.teaching.together, 1, 1000)
    _range("[part] wait_seconds", config.part.wait_seconds, 0.01, 3600)
    _range("[drift] false_warnings", config.drift.false_warnings, 1e-9, 0.5)
    _range("[proposals] pictures", config.proposals.pictures, FEWEST_IMAGES, 1000)
    _range("[proposals] keep", config.proposals.keep, config.proposals.pictures, 10_000)
    _range("[proposals] most_open", config.proposals.most_open, 1, 1000)
    _range("[proposals] look_seconds", config.proposals.look_seconds, 0, 86_400)
    for limit in (config.server.upload_limit, config.history.keep_bytes):
        parse_bytes(limit)
    if (config.server.tls_certificate is None) != (config.server.tls_key is None):
        raise InputError("[server] tls_certificate and tls_key belong together; give both or none.")
    if len(set(config.part.views)) != len(config.part.views):
        raise InputError("[part] views names a view twice.")
    for kind, sections in (("source", config.sources), ("sink", config.sinks)):
        names = [each.name for each in sections]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"Two sections [[{kind}]] have the name '{printable(name)}'; names differ.")
            if not name or not name.isprintable() or len(name) > 100 or "/" in name or ":" in name:
                raise InputError(f"'{printable(name)}' is no name for a {kind}; take letters, digits and dashes.")
    for source in config.sources:
        _check_source(source, config.part.views)
    for sink in config.sinks:
        _check_sink(sink)


def _check_source(source: SourceConfig, views: tuple[str, ...]) -> None:
    name = f"[[source]] '{printable(source.name)}'"
    _one_of(f"{name} kind", source.kind, SOURCE_KINDS)
    _one_of(f"{name} trigger", source.trigger, TRIGGERS)
    _range(f"{name} rate", source.rate, 1e-4, 1000)
    if source.kind in ("folder", "replay", "video") and source.path is None:
        raise InputError(f"{name} of kind {source.kind} needs path = ...")
    if source.kind == "rtsp" and not source.url.startswith(("rtsp://", "rtsps://")):
        raise InputError(f'{name} of kind rtsp needs url = "rtsp://..."')
    if source.trigger == "mqtt" and not source.topic:
        raise InputError(f"{name} with the trigger mqtt needs topic = ...")
    if source.kind in ("folder", "upload", "replay") and source.trigger != "every":
        raise InputError(f"{name}: files of a {source.kind} need no trigger; leave it out.")
    if views and source.view not in views:
        raise InputError(f"{name} needs view = one of {', '.join(views)}, as [part] views says.")


def _check_sink(sink: SinkConfig) -> None:
    name = f"[[sink]] '{printable(sink.name)}'"
    _one_of(f"{name} kind", sink.kind, SINK_KINDS)
    schemes = {"mqtt": ("mqtt://", "mqtts://"), "webhook": ("http://", "https://"), "opcua": ("opc.tcp://",)}[sink.kind]
    if not sink.url.startswith(schemes):
        raise InputError(f'{name} of kind {sink.kind} needs url = "{schemes[0]}..."')
    if sink.kind == "webhook" and sink.secret_file is None:
        raise InputError(f"{name} needs secret_file = ..., the key that its messages are signed with.")
    for message in sink.messages:
        _one_of(f"{name} messages", message, MESSAGES)
    for verdict in sink.verdicts:
        _one_of(f"{name} verdicts", verdict, ("normal", "anomalous", "unknown", "not ready"))


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name} is one of {', '.join(known)}, got '{printable(value, 60)}'.")


def _range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InputError(f"{name} lies between {least:g} and {most:g}, got {value:g}.")
