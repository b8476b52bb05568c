"""The state of the station as Prometheus reads it (text exposition format 0.0.4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "dinosaur_"

Labels = Mapping[str, Any]
Values = Iterable[tuple[Labels, Any]]


def prometheus_text(state: Mapping[str, Any]) -> str:
    """The metrics of ``station.state()``. What a piece does not know at the moment is left out, not shown as 0.

    >>> print(prometheus_text({"warnings": 2}), end="")
    # HELP dinosaur_warnings_open Warnings that are open, proposals among them.
    # TYPE dinosaur_warnings_open gauge
    dinosaur_warnings_open 2
    """
    lines: list[str] = []
    for name, kind, help_text, values in (*_station(state), *_judging(state), *_ends(state)):
        shown = [(labels, number) for labels, value in values if (number := _number(value)) is not None]
        if not shown:
            continue
        lines.append(f"# HELP {PREFIX}{name} {_escaped(help_text, quotes=False)}")
        lines.append(f"# TYPE {PREFIX}{name} {kind}")
        lines += [f"{PREFIX}{name}{_labels(labels)} {number}" for labels, number in shown]
    return "".join(f"{line}\n" for line in lines)


Metric = tuple[str, str, str, Values]


def _station(state: Mapping[str, Any]) -> Iterable[Metric]:
    version = state.get("version")
    disk, teaching = _table(state, "history"), _table(state, "teaching")
    yield "info", "gauge", "The version of the station.", [({"version": version}, 1)] if version else []
    yield "start_time_seconds", "gauge", "When the station started, in seconds since 1970.", _time(state.get("started"))
    yield "products", "gauge", "Products that are taught.", _length(state.get("products"))
    yield "products_damaged", "gauge", "Products whose files are damaged.", _length(state.get("damaged"))
    yield "warnings_open", "gauge", "Warnings that are open, proposals among them.", [({}, state.get("warnings"))]
    waiting = _table(state, "proposals").get("waiting")
    yield "proposals_waiting", "gauge", "Proposed products that wait for a person.", [({}, waiting)]
    yield "teaching_waiting", "gauge", "Teaching jobs that wait.", [({}, teaching.get("waiting"))]
    yield "disk_used_bytes", "gauge", "Bytes of pictures and maps in the history.", [({}, disk.get("used"))]
    yield "disk_limit_bytes", "gauge", "Bytes that pictures and maps may take.", [({}, disk.get("limit"))]
    yield "disk_free_bytes", "gauge", "Bytes free on the disk of the history.", [({}, disk.get("free"))]


def _judging(state: Mapping[str, Any]) -> Iterable[Metric]:
    pipeline, recorder = _table(state, "pipeline"), _table(state, "recorder")
    counts = _table(state, "counts")
    yield (
        "parts_total",
        "counter",
        "Parts in the history, by verdict.",
        [({"verdict": verdict}, count) for verdict, count in counts.items()],
    )
    yield "judged_total", "counter", "Pictures that were judged since the start.", [({}, pipeline.get("judged"))]
    yield "dropped_total", "counter", "Pictures dropped because the queue was full.", [({}, pipeline.get("dropped"))]
    yield "failures_total", "counter", "Pictures that could not be judged.", [({}, pipeline.get("failures"))]
    yield "incomplete_total", "counter", "Parts judged without all their views.", [({}, pipeline.get("incomplete"))]
    yield "queue_length", "gauge", "Pictures that wait or are being judged.", [({}, pipeline.get("queue"))]
    yield "queue_capacity", "gauge", "Pictures that the queue holds at most.", [({}, pipeline.get("capacity"))]
    for name, key, what in (
        ("latency_seconds", "total_ms", "From the frame to the verdict, over the last 1000 pictures."),
        ("encoder_seconds", "encode_ms", "Time of the encoder, over the last 1000 pictures."),
    ):
        yield name, "gauge", what, list(_quantiles(_table(pipeline, key)))
    yield "recorded_total", "counter", "Parts recorded since the start.", [({}, recorder.get("recorded"))]
    yield "not_kept_total", "counter", "Parts that were judged but could not be kept.", [({}, recorder.get("not_kept"))]
    yield "recorder_waiting", "gauge", "Parts that wait for the database.", [({}, recorder.get("waiting"))]
    error: Values = [({}, int(bool(recorder["database_error"])))] if "database_error" in recorder else []
    yield "database_down", "gauge", "1 while the database does not answer.", error


def _ends(state: Mapping[str, Any]) -> Iterable[Metric]:
    sources, sinks = state.get("sources") or [], state.get("sinks") or []

    def of(each: Mapping[str, Any], kind: str) -> dict[str, Any]:
        return {kind: each.get("name"), "kind": each.get("kind")}

    def column(rows: Iterable[Mapping[str, Any]], kind: str, key: str) -> Values:
        return [(of(each, kind), each.get(key)) for each in rows]

    def running(rows: Iterable[Mapping[str, Any]], kind: str) -> Values:
        return [(of(each, kind), int(each.get("state") == "running")) for each in rows]

    yield "source_up", "gauge", "1 while the source gives pictures.", running(sources, "source")
    yield "source_accepted_total", "counter", "Pictures taken from the source.", column(sources, "source", "accepted")
    yield "source_dropped_total", "counter", "Pictures of the source dropped.", column(sources, "source", "dropped")
    yield "source_lost_total", "counter", "How often the source was lost.", column(sources, "source", "reconnects")
    yield "sink_up", "gauge", "1 while the sink takes messages.", running(sinks, "sink")
    yield "outbox_waiting", "gauge", "Messages that wait for delivery.", column(sinks, "sink", "waiting")
    yield "outbox_delivered_total", "counter", "Messages delivered since the start.", column(sinks, "sink", "delivered")
    yield "outbox_refused", "gauge", "Messages the receiver refused, set aside.", column(sinks, "sink", "failed")
    last = [(of(each, "sink"), when) for each in sinks for _, when in _time(each.get("last_delivery"))]
    yield "outbox_last_delivery_seconds", "gauge", "When the last message was delivered, in seconds since 1970.", last


def _quantiles(milliseconds: Mapping[str, Any]) -> Iterable[tuple[Labels, float]]:
    for name, quantile in (("p50", "0.5"), ("p99", "0.99")):
        value = milliseconds.get(name)
        if isinstance(value, int | float):
            yield {"quantile": quantile}, value / 1000


def _table(state: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A part of the state; empty where a piece could say nothing but an error."""
    value = state.get(key)
    return value if isinstance(value, Mapping) else {}


def _length(value: Any) -> Values:
    return [({}, len(value))] if isinstance(value, list | tuple | Mapping) else []


def _time(text: Any) -> list[tuple[Labels, float]]:
    try:
        return [({}, datetime.fromisoformat(text).timestamp())]
    except (TypeError, ValueError):
        return []


def _number(value: Any) -> str | None:
    """A number as Prometheus writes it; None if it is none."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, float):
        return None
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("+Inf" if value > 0 else "-Inf")


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(str(value), quotes=True)}"' for name, value in labels.items())
    return f"{{{','.join(pairs)}}}"


def _escaped(text: str, *, quotes: bool) -> str:
    r"""A help text or the value of a label.

    >>> print(_escaped('a"b\n', quotes=True))
    a\"b\n
    """
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped
