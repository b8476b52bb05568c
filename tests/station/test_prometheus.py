"""The Prometheus text is read by a strict parser and says what the state says."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from dinosaur_ad.station.prometheus import CONTENT_TYPE, prometheus_text

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
VALUE = r"NaN|[+-]Inf|[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? ({VALUE})")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)')
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> tuple[Samples, dict[str, str]]:
    """The samples and the type of each metric; fails on anything that the format does not allow."""
    assert text.endswith("\n")
    samples: Samples = {}
    types: dict[str, str] = {}
    current, helped = "", set()
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in helped, f"{current} comes twice"
            helped.add(current)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert (name, name in types) == (current, False)
            assert kind in ("counter", "gauge")
            assert name.endswith("_total") == (kind == "counter")
            types[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            assert name == current, f"{name} is not below its own HELP"
            assert name in types
            found = _labels(labels or "")
            assert (name, found) not in samples, line
            samples[name, found] = float(value)
    return samples, types


def _labels(text: str) -> frozenset[tuple[str, str]]:
    pairs, place = [], 0
    while place < len(text):
        match = LABEL.match(text, place)
        assert match, text
        pairs.append((match[1], re.sub(r"\\.", lambda found: UNESCAPED[found[0]], match[2])))
        place = match.end()
    assert len({name for name, _ in pairs}) == len(pairs)
    return frozenset(pairs)


def sample(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"dinosaur_{name}", frozenset(labels.items())]


STATE: dict[str, Any] = {
    "version": "0.9",
    "started": "2026-11-18T17:00:00+00:00",
    "products": ["screw", "gear"],
    "damaged": [],
    "warnings": 1,
    "counts": {"normal": 120, "anomalous": 3, "unknown": 0, "not ready": 1},
    "pipeline": {
        "queue": 4,
        "capacity": 32,
        "judged": 124,
        "dropped": 2,
        "failures": 0,
        "incomplete": 0,
        "total_ms": {"p50": 61.5, "p99": 90.0},
        "encode_ms": {"p50": None, "p99": None},
    },
    "recorder": {"waiting": 7, "recorded": 124, "not_kept": 5, "database_error": "", "since": None},
    "sources": [
        {"name": "camera-1", "kind": "rtsp", "state": "running", "accepted": 100, "dropped": 1, "reconnects": 3},
        {"name": 'odd "name"\\\n', "kind": "folder", "state": "waiting", "reason": "gone"},
    ],
    "sinks": [
        {
            "name": "plc",
            "kind": "mqtt",
            "state": "waiting",
            "waiting": 9,
            "delivered": 115,
            "failed": 0,
            "last_delivery": "1970-01-01T00:01:00.500000+00:00",
        },
        {"name": "mes", "kind": "webhook", "state": "running", "waiting": 0, "delivered": 3, "failed": 2},
    ],
    "history": {"used": 10**12, "limit": 2 * 10**12, "free": 5 * 10**9},
}


def test_every_number_of_the_state_is_there() -> None:
    samples, types = parsed(prometheus_text(STATE))
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")
    assert sample(samples, "parts_total", verdict="normal") == 120
    assert sample(samples, "parts_total", verdict="not ready") == 1
    assert sample(samples, "queue_length") == 4
    assert sample(samples, "dropped_total") == 2
    assert sample(samples, "latency_seconds", quantile="0.5") == pytest.approx(0.0615)
    assert sample(samples, "latency_seconds", quantile="0.99") == pytest.approx(0.09)
    assert sample(samples, "not_kept_total") == 5
    assert sample(samples, "recorder_waiting") == 7
    assert sample(samples, "database_down") == 0
    assert sample(samples, "outbox_waiting", sink="plc", kind="mqtt") == 9
    assert sample(samples, "outbox_refused", sink="mes", kind="webhook") == 2
    assert sample(samples, "outbox_last_delivery_seconds", sink="plc", kind="mqtt") == 60.5
    assert sample(samples, "sink_up", sink="plc", kind="mqtt") == 0
    assert sample(samples, "source_up", source="camera-1", kind="rtsp") == 1
    assert sample(samples, "disk_used_bytes") == 10**12
    assert sample(samples, "warnings_open") == 1
    assert sample(samples, "products") == 2
    assert sample(samples, "info", version="0.9") == 1
    assert types["dinosaur_parts_total"] == "counter"
    assert not any(name == "dinosaur_encoder_seconds" for name, _ in samples)  # not known yet


def test_names_are_escaped() -> None:
    samples, _ = parsed(prometheus_text(STATE))
    assert sample(samples, "source_up", source='odd "name"\\\n', kind="folder") == 0


def test_what_a_piece_cannot_say_is_left_out_and_not_zero() -> None:
    down = {**STATE, "history": {"error": "down"}, "warnings": {"error": "down"}, "counts": {"error": "down"}}
    down["recorder"] = {**STATE["recorder"], "database_error": "connection refused"}
    samples, _ = parsed(prometheus_text(down))
    names = {name for name, _ in samples}
    assert names.isdisjoint({"dinosaur_disk_used_bytes", "dinosaur_warnings_open", "dinosaur_parts_total"})
    assert sample(samples, "database_down") == 1
    assert prometheus_text({}) == ""


def test_numbers_of_every_kind_are_written_as_the_format_wants() -> None:
    history = {"used": math.nan, "limit": math.inf, "free": 1e-7}
    samples, _ = parsed(prometheus_text({"history": history}))
    assert math.isnan(sample(samples, "disk_used_bytes"))
    assert sample(samples, "disk_limit_bytes") == math.inf
    assert sample(samples, "disk_free_bytes") == 1e-7
