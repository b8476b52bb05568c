"""MQTT against a real broker: verdicts, state and last will, triggers; the broker is stopped and started meanwhile."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="the extra station is not installed")
pytest.importorskip("aiomqtt", reason="the extra station is not installed")

from broker_helpers import Broker, Listener, program
from outbox_helpers import QUICK, Filled, free_port, until

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import SinkConfig, SourceConfig
from dinosaur_ad.station.outbox import Outbox
from dinosaur_ad.station.sinks.mqtt_connection import checked_topic
from dinosaur_ad.station.sinks.mqtt_trigger import MqttTrigger, triggers_by_topic

TOPIC = "plant/line-3"
Started = Callable[..., tuple[Filled, Outbox]]


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def broker(tmp_path: Path, ends: ExitStack) -> Broker:
    broker = Broker(tmp_path / "broker")
    broker.start()
    ends.callback(broker.stop)
    return broker


@pytest.fixture
def started(tmp_path: Path, ends: ExitStack) -> Started:
    def start(port: int, scheme: str = "mqtt", **values: Any) -> tuple[Filled, Outbox]:
        sink = SinkConfig("plc", "mqtt", f"{scheme}://localhost:{port}", topic=TOPIC, **values)
        filled = Filled(tmp_path / "station", [sink])
        outbox = Outbox(filled, [sink], filled.bus, backoff=QUICK)
        outbox.start()
        ends.callback(outbox.stop)
        return filled, outbox

    return start


def listen(ends: ExitStack, port: int, **values: Any) -> Listener:
    listener = Listener(port, **values)
    ends.callback(listener.stop)
    return listener


def test_verdicts_arrive_and_the_state_is_kept_for_who_comes_later(
    broker: Broker, ends: ExitStack, started: Started
) -> None:
    early = listen(ends, broker.port)
    filled, outbox = started(broker.port)
    filled.add(1, "anomalous", "screw M4/8 +1")
    filled.add(2, "unknown", None)
    filled.history.queue_message(
        "warning", "7", {"id": 7, "kind": "all", "sentence": "The light changed."}, filled.sinks
    )
    filled.bus.publish("warning", {"id": 7})
    until(lambda: early.of(f"{TOPIC}/warning"))
    assert early.keys() == ["cam:1", "cam:2"]
    document = json.loads(early.of(f"{TOPIC}/part")[0])
    assert (document["message_key"], document["verdict"], document["score"]) == ("plc:part:cam:1", "anomalous", 1.25)
    warning = json.loads(early.of(f"{TOPIC}/warning")[0])
    assert (warning["message_kind"], warning["kind"], warning["sentence"]) == ("warning", "all", "The light changed.")
    until(lambda: outbox.state()[0]["waiting"] == 0)
    assert outbox.state()[0]["state"] == "running"
    early.stop()
    late = listen(ends, broker.port, change=lambda client: setattr(client, "_client_id", b"late"))
    until(lambda: len(late.messages) >= 2)
    retained = {topic: payload for topic, payload, kept in late.messages if kept}
    assert retained[f"{TOPIC}/state"] == b"online"
    assert json.loads(retained[f"{TOPIC}/product/screw M4%2F8 %2B1/last"])["key"] == "cam:1"
    assert len(retained) == 2  # parts themselves are not retained
    outbox.stop()
    until(lambda: late.of(f"{TOPIC}/state") == [b"online", b"offline"])


def test_a_connection_that_breaks_is_said_by_the_last_will_and_made_again(
    broker: Broker, ends: ExitStack, started: Started
) -> None:
    listener = listen(ends, broker.port)
    filled, outbox = started(broker.port)
    until(lambda: listener.of(f"{TOPIC}/state") == [b"online"])
    connection = outbox._workers["plc"]._sink._connection  # type: ignore[attr-defined]
    client = until(lambda: connection._client)  # the broker may have heard of it before the sink goes on
    client._client.socket().shutdown(socket.SHUT_RDWR)  # as if a cable was pulled: no farewell
    until(lambda: listener.of(f"{TOPIC}/state") == [b"online", b"offline", b"online"])
    filled.add(1)
    until(lambda: listener.keys() == ["cam:1"])


def test_a_broker_that_stops_and_starts_again_gets_everything_in_order(
    broker: Broker, ends: ExitStack, started: Started
) -> None:
    listener = listen(ends, broker.port)
    filled, outbox = started(broker.port)
    for number in range(20):
        filled.add(number)
    until(lambda: len(listener.keys()) >= 5)
    broker.stop()  # while messages are queued
    for number in range(20, 40):
        filled.add(number)
    until(lambda: "broker" in outbox.state()[0]["reason"])
    assert outbox.state()[0]["state"] == "waiting"
    assert "mqtt://localhost" in outbox.state()[0]["reason"]
    until(lambda: outbox.state()[0]["waiting"] >= 20)
    broker.start()
    until(lambda: listener.keys()[-1:] == ["cam:39"])
    first_seen = list(dict.fromkeys(listener.keys()))
    assert first_seen == [f"cam:{number}" for number in range(40)]
    until(lambda: outbox.state()[0]["waiting"] == 0)
    until(lambda: listener.of(f"{TOPIC}/state")[-1] == b"online")


def test_a_broker_that_is_not_there_at_the_start_is_waited_for(
    tmp_path: Path, ends: ExitStack, started: Started
) -> None:
    broker = Broker(tmp_path / "broker")
    filled, outbox = started(broker.port)
    filled.add(1)
    until(lambda: "cannot be reached" in outbox.state()[0]["reason"])
    broker.start()
    ends.callback(broker.stop)
    until(lambda: outbox.state()[0]["state"] == "running" and outbox.state()[0]["delivered"] == 1)


def test_messages_trigger_the_camera(broker: Broker, ends: ExitStack) -> None:
    sources = [
        SourceConfig("left", "camera", trigger="mqtt", topic="line/present"),
        SourceConfig("right", "camera", trigger="mqtt", topic="line/present"),
        SourceConfig("other", "camera", trigger="mqtt", topic="line/other"),
        SourceConfig("free", "camera"),
    ]
    sink = SinkConfig("plc", "mqtt", f"mqtt://localhost:{broker.port}")
    called: list[tuple[str, str]] = []

    def trigger(source: str, part: str) -> None:
        called.append((source, part))
        if source == "other":
            raise InputError("The camera is away.")

    listener = listen(ends, broker.port)
    listener.client.publish("line/present", b"old", qos=1, retain=True).wait_for_publish(10)
    found = triggers_by_topic(sources, [sink], trigger)
    assert found is not None
    triggers = MqttTrigger(*found, backoff=QUICK)
    triggers.start()
    ends.callback(triggers.stop)
    until(lambda: not triggers.obstacle())
    for topic, payload in (("line/other", b"x"), ("line/present", b"SN-7"), ("line/present", b"\xff\x00")):
        listener.client.publish(topic, payload, qos=1).wait_for_publish(10)
    until(lambda: len(called) == 5)
    assert called[0] == ("other", "x")  # its failure does not keep the next from coming
    assert sorted(called[1:3]) == [("left", "SN-7"), ("right", "SN-7")]
    assert sorted(called[3:]) == [("left", ""), ("right", "")]
    assert triggers.count == 3  # without the retained one
    broker.stop()
    until(triggers.obstacle)
    broker.start()
    until(lambda: not triggers.obstacle())
    until(listener.client.is_connected)
    listener.client.publish("line/other", b"again", qos=1)
    until(lambda: called[-1] == ("other", "again"))


def test_a_trigger_without_a_broker_is_refused_in_a_sentence() -> None:
    source = SourceConfig("left", "camera", trigger="mqtt", topic="line/present")
    with pytest.raises(InputError, match="add a \\[\\[sink\\]\\]"):
        triggers_by_topic([source], [], lambda *_: None)
    assert triggers_by_topic([SourceConfig("free", "camera")], [], lambda *_: None) is None


def test_the_password_is_taken_from_its_file_and_the_certificate_is_verified(
    tmp_path: Path, ends: ExitStack, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    certificate, key = certified(files)
    subprocess.run([program("mosquitto_passwd"), "-b", "-c", files / "people", "dino", "s3cret"], check=True)
    settings = ("allow_anonymous false", f"password_file {files / 'people'}")
    broker = Broker(tmp_path / "broker", *settings, f"certfile {certificate}", f"keyfile {key}")
    broker.start()
    ends.callback(broker.stop)
    password = files / "password"
    password.write_text("wrong\n")
    password.chmod(0o600)
    filled, outbox = started(broker.port, "mqtts", username="dino", password_file=password)
    filled.add(1)
    until(lambda: "certificate" in outbox.state()[0]["reason"].lower())  # nobody vouches for it yet
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    until(lambda: "not auth" in outbox.state()[0]["reason"].lower())
    assert "wrong" not in outbox.state()[0]["reason"]
    password.write_text("s3cret\n")
    until(lambda: outbox.state()[0]["delivered"] == 1)

    def known(client: Any) -> None:
        client.tls_set_context(ssl.create_default_context(cafile=str(certificate)))
        client.username_pw_set("dino", "s3cret")

    listener = listen(ends, broker.port, change=known)
    until(lambda: listener.of(f"{TOPIC}/product/screw/last"))


def certified(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost that vouches for itself, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = [program("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"url": "mqtt://dino:hunter2@host"}, "password_file"),
        ({"url": "mqtt://host:notaport"}, "no address"),
        ({"topic": "plant/#"}, "cannot begin a topic"),
        ({"topic": "/plant"}, "cannot begin a topic"),
    ],
)
def test_settings_that_cannot_work_are_said(values: dict[str, str], words: str, tmp_path: Path) -> None:
    sink = SinkConfig("plc", "mqtt", **{"url": f"mqtt://localhost:{free_port()}", **values})
    filled = Filled(tmp_path, [sink])
    outbox = Outbox(filled, [sink], filled.bus, backoff=QUICK)
    outbox.start()
    try:
        until(lambda: outbox.state()[0]["state"] == "failed")
        assert words in outbox.state()[0]["reason"]
        assert "hunter2" not in outbox.state()[0]["reason"]
    finally:
        outbox.stop()
    assert checked_topic("plant/line-3", "plc") == "plant/line-3"
