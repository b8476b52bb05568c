"""The settings of a station: every section of the TOML file is a dataclass below, and its fields are the keys.

:mod:`dinosaur_ad.station.config_file` reads the file; ``docs/station/config.md`` explains the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SOURCE_KINDS = ("folder", "upload", "camera", "rtsp", "video", "genicam", "replay")
TRIGGERS = ("every", "timer", "present", "http", "mqtt", "opcua")
SINK_KINDS = ("mqtt", "webhook", "opcua")
MESSAGES = ("part", "warning", "change")
LANGUAGES = ("en", "de")


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
    """``[[sink]]``: where recorded parts and warnings are sent."""

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
    """``[drift]``: when a change is reported."""

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
