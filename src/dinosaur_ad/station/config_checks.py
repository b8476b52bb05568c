"""What the types of the settings cannot say: ranges, contradictions, files that are not there."""

from __future__ import annotations

import ssl
from pathlib import Path

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.bank.budget import parse_bytes
from dinosaur_ad.core.outliers import FEWEST_IMAGES
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import (
    LANGUAGES,
    MESSAGES,
    SINK_KINDS,
    SOURCE_KINDS,
    TRIGGERS,
    SinkConfig,
    SourceConfig,
    StationConfig,
)
from dinosaur_ad.station.sinks.secret_file import read_secret, split_address

MOST_DAYS = 36_500


def check_config(config: StationConfig) -> None:
    """Refuse values that contradict each other or lie outside of what a setting can be.

    :raises InputError: one does; the sentence names the setting.
    """
    _one_of("[server] language", config.server.language, LANGUAGES)
    _one_of("[queue] when_full", config.queue.when_full, ("wait", "drop"))
    _one_of("[teaching] policy", config.teaching.policy, ("ask", "auto"))
    _range("[server] port", config.server.port, 0, 65535)
    _range("[queue] capacity", config.queue.capacity, 1, 10_000)
    _range("[teaching] together", config.teaching.together, 1, 1000)
    _range("[part] wait_seconds", config.part.wait_seconds, 0.01, 3600)
    _range("[drift] false_warnings", config.drift.false_warnings, 1e-9, 0.5)
    _range("[drift] minimum_parts", config.drift.minimum_parts, 1, 10_000)
    _range("[proposals] pictures", config.proposals.pictures, FEWEST_IMAGES, 1000)
    _range("[proposals] keep", config.proposals.keep, config.proposals.pictures, 10_000)
    _range("[proposals] most_open", config.proposals.most_open, 1, 1000)
    _range("[proposals] look_seconds", config.proposals.look_seconds, 0, 86_400)
    _range("[server] requests_a_second", config.server.requests_a_second, 0.1, 1e6)
    _range("[history] keep_days", config.history.keep_days, 0.01, MOST_DAYS)
    _range("[history] keep_days_defects", config.history.keep_days_defects, 0.01, MOST_DAYS)
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
    split_address(sink.url, sink.name)
    if sink.kind == "webhook" and sink.secret_file is None:
        raise InputError(f"{name} needs secret_file = ..., the key that its messages are signed with.")
    for message in sink.messages:
        _one_of(f"{name} messages", message, MESSAGES)
    for verdict in sink.verdicts:
        _one_of(f"{name} verdicts", verdict, ("normal", "anomalous", "unknown", "not ready"))


def check_files(config: StationConfig) -> None:
    """Refuse to begin without the files that the settings name: a key that is missing would be noticed much later.

    Folders and video files are left out: a source looks for its own again and again, and says so.

    :raises InputError: one is not there or cannot be used; the sentence names it.
    """
    server = config.server
    if server.tls_certificate and server.tls_key:
        _check_tls(server.tls_certificate, server.tls_key)
    for sink in config.sinks:
        name = f"[[sink]] '{printable(sink.name)}'"
        for setting, file in (("secret_file", sink.secret_file), ("password_file", sink.password_file)):
            if file:
                read_secret(file, f"{setting} of {name}")
    for source in config.sources:
        if source.empty and not source.empty.is_file():
            raise InputError(
                f"[[source]] '{printable(source.name)}': there is no picture {printable(source.empty)} of the empty "
                "scene; take one, or leave empty = ... out."
            )


def _check_tls(certificate: Path, key: Path) -> None:
    for setting, file in (("tls_certificate", certificate), ("tls_key", key)):
        try:
            file.read_bytes()
        except OSError as error:
            raise InputError(f"[server] {setting}: {printable(file)} cannot be read ({error.strerror}).") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise InputError(
            f"[server] tls_certificate and tls_key are no certificate with its key ({first_line(error)}); give both "
            "as PEM, the key without a password."
        ) from None


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name} is one of {', '.join(known)}, got '{printable(value, 60)}'.")


def _range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InputError(f"{name} lies between {least:g} and {most:g}, got {value:g}.")
