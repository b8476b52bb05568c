"""Webhooks: signed, in order, at least once, with receivers that fail, hang, refuse and come back."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="the extra station is not installed")

from outbox_helpers import QUICK, Filled, free_port, part, until

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.outbox import Outbox
from dinosaur_ad.station.sinks import webhook_signature
from dinosaur_ad.station.sinks.sink import Outgoing, RefusedMessageError, UndeliveredError
from dinosaur_ad.station.sinks.webhook_signature import sign, verify
from dinosaur_ad.station.sinks.webhook_sink import WebhookSink

SECRET = "a long key of the plant"


class Receiver(ThreadingHTTPServer):
    """Keeps what it gets; ``answers`` has the next ones: a status, or "hang"."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.paths: list[str] = []
        self.answers: list[Any] = []
        self.headers: dict[str, str] = {}
        self.released = threading.Event()
        super().__init__(("127.0.0.1", port), _Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def end(self) -> None:
        self.released.set()
        self.shutdown()
        self.server_close()

    def parts(self) -> list[str]:
        return [json.loads(body)["key"] for _, body in self.got]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.paths.append(self.path)
        answer = self.server.answers.pop(0) if self.server.answers else 200
        if answer == "hang":
            self.server.released.wait(30)
            return
        if answer == 200:
            self.server.got.append((dict(self.headers), body))
        self.send_response(answer)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    yield server
    server.end()


def config(port: int, secret: Path, **values: Any) -> SinkConfig:
    return SinkConfig("mes", "webhook", f"http://127.0.0.1:{port}/hook?line=3", secret_file=secret, **values)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[SinkConfig], tuple[Filled, Outbox]]]:
    with ExitStack() as running:

        def start(sink: SinkConfig) -> tuple[Filled, Outbox]:
            filled = Filled(tmp_path / "station", [sink])
            outbox = Outbox(filled, [sink], filled.bus, backoff=QUICK)
            outbox.start()
            running.callback(outbox.stop)
            return filled, outbox

        yield start


Started = Callable[[SinkConfig], tuple[Filled, Outbox]]


def test_a_message_is_signed_and_can_be_checked(receiver: Receiver, secret: Path, started: Started) -> None:
    filled, _ = started(config(receiver.server_port, secret))
    filled.add(1, "anomalous", "Gehäuse")
    until(lambda: receiver.got)
    headers, body = receiver.got[0]
    assert receiver.paths == ["/hook?line=3"]
    assert verify(SECRET, headers, body)
    assert not verify("another key", headers, body)
    assert not verify(SECRET, headers, body + b" ")
    assert not verify(SECRET, headers, body, now=time.time() + 400)
    assert not verify(SECRET, {**headers, "X-Dinosaur-Timestamp": str(int(time.time()) + 1)}, body)
    assert not verify(SECRET, {}, body)
    assert headers["X-Dinosaur-Key"] == "mes:part:cam:1"
    assert headers["Content-Type"].startswith("application/json")
    document = json.loads(body)
    assert (document["message_key"], document["message_kind"]) == ("mes:part:cam:1", "part")
    assert (document["verdict"], document["task"], document["score"]) == ("anomalous", "Gehäuse", 1.25)


def test_a_receiver_that_fails_hangs_and_recovers_gets_everything_in_order(
    receiver: Receiver, secret: Path, monkeypatch: pytest.MonkeyPatch, started: Started
) -> None:
    monkeypatch.setattr("dinosaur_ad.station.sinks.webhook_sink.ANSWERS_WITHIN", 0.3)
    monkeypatch.setattr(WebhookSink.__init__, "__defaults__", (0.3,))
    receiver.answers = [500, 503, "hang", 429, 408, 302, 200, 502]
    filled, outbox = started(config(receiver.server_port, secret))
    with filled.bus.subscribed() as messages:
        for number in range(4):
            filled.add(number)
        until(lambda: len(receiver.got) == 4)
        reasons = []
        while message := messages.take():
            reasons.append(str(message.body.get("reason")))
    assert receiver.parts() == ["cam:0", "cam:1", "cam:2", "cam:3"]
    assert any("no answer within 0.3 s" in each for each in reasons)
    assert any("503" in each for each in reasons)
    assert any("302" in each and "set url" in each for each in reasons)
    assert not any("hook" in each or "line=3" in each for each in reasons)  # a path can be a secret
    until(lambda: outbox.state()[0]["waiting"] == 0)
    assert outbox.state()[0]["failed"] == 0


def test_a_receiver_that_was_down_gets_what_waited(secret: Path, started: Started) -> None:
    port = free_port()
    filled, outbox = started(config(port, secret))
    for number in range(3):
        filled.add(number)
    until(lambda: "cannot be reached" in outbox.state()[0]["reason"])
    until(lambda: outbox.state()[0]["waiting"] == 3)
    receiver = Receiver(port)
    try:
        until(lambda: len(receiver.got) == 3)
        assert receiver.parts() == ["cam:0", "cam:1", "cam:2"]
    finally:
        receiver.end()


def test_a_message_refused_for_good_is_set_aside_and_the_next_goes_out(
    receiver: Receiver, secret: Path, started: Started
) -> None:
    receiver.answers = [422] * 5
    filled, outbox = started(config(receiver.server_port, secret))
    filled.add(1)
    filled.add(2)
    until(lambda: receiver.parts() == ["cam:2"])
    until(lambda: outbox.state()[0]["failed"] == 1)
    assert outbox.retry("mes") == 1
    until(lambda: receiver.parts() == ["cam:2", "cam:1"])


def sent(status: int, receiver: Receiver, secret: Path) -> None:
    receiver.answers = [status]
    WebhookSink(config(receiver.server_port, secret)).deliver(Outgoing("mes:part:1", "part", part(1)))


@pytest.mark.parametrize("status", [400, 401, 404, 410, 413])
def test_answers_that_refuse(status: int, receiver: Receiver, secret: Path) -> None:
    with pytest.raises(RefusedMessageError, match=str(status)):
        sent(status, receiver, secret)


@pytest.mark.parametrize("status", [301, 307, 408, 429, 500, 503])
def test_answers_that_are_tried_again_and_never_followed(status: int, receiver: Receiver, secret: Path) -> None:
    receiver.headers = {"Location": f"http://127.0.0.1:{receiver.server_port}/elsewhere", "Retry-After": "7"}
    with pytest.raises(UndeliveredError) as caught:
        sent(status, receiver, secret)
    assert receiver.paths == ["/hook?line=3"]
    assert caught.value.after == (0 if status < 400 else 7)


def test_an_answer_that_comes_byte_by_byte_is_given_up(secret: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not ended.wait(0.05):
                    try:
                        connection.sendall(b"X-A: b\r\n")
                    except OSError:
                        return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        sink = WebhookSink(config(server.getsockname()[1], secret), timeout=0.4)
        with pytest.raises(UndeliveredError, match=r"no answer within 0\.4 s"):
            sink.deliver(Outgoing("mes:part:1", "part", part(1)))
        ended.set()
        thread.join(5)


def test_stopping_breaks_off_a_request(receiver: Receiver, secret: Path, started: Started) -> None:
    receiver.answers = ["hang"]
    filled, outbox = started(config(receiver.server_port, secret))
    filled.add(1)
    until(lambda: receiver.paths)
    begun = time.monotonic()
    outbox.stop()
    assert time.monotonic() - begun < 5
    assert filled.rows()[0].delivered is None


def test_tls_is_verified(receiver: Receiver, secret: Path) -> None:
    encrypted = SinkConfig("mes", "webhook", f"https://127.0.0.1:{receiver.server_port}/", secret_file=secret)
    with pytest.raises(UndeliveredError, match="cannot be reached"):
        WebhookSink(encrypted).deliver(Outgoing("k", "part", part(1)))
    assert receiver.got == []


def test_a_key_that_others_can_read_is_said_and_a_missing_one_too(receiver: Receiver, secret: Path) -> None:
    sink = WebhookSink(config(receiver.server_port, secret))
    assert sink.note() == ""
    secret.chmod(0o644)
    assert "chmod 600" in sink.note()
    sink.deliver(Outgoing("k", "part", part(1)))
    assert len(receiver.got) == 1
    secret.write_text("\n")
    with pytest.raises(InputError, match="empty"):
        sink.deliver(Outgoing("k", "part", part(1)))
    secret.unlink()
    with pytest.raises(InputError, match="No such file"):
        sink.deliver(Outgoing("k", "part", part(1)))


def test_a_user_and_a_password_are_sent_and_never_taken_from_the_address(
    receiver: Receiver, secret: Path, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("pass")
    WebhookSink(config(receiver.server_port, secret, username="dino", password_file=password)).deliver(
        Outgoing("k", "part", part(1))
    )
    assert receiver.got[0][0]["Authorization"] == "Basic ZGlubzpwYXNz"
    address = SinkConfig("mes", "webhook", "http://dino:hunter2@127.0.0.1/", secret_file=secret)
    with pytest.raises(InputError, match="password_file") as caught:
        WebhookSink(address).deliver(Outgoing("k", "part", part(1)))
    assert "hunter2" not in str(caught.value)


def test_numbers_that_json_has_not_and_broken_names_are_sent_all_the_same(receiver: Receiver, secret: Path) -> None:
    payload = {**part(1), "score": float("nan"), "key": "bad\udcff"}
    WebhookSink(config(receiver.server_port, secret)).deliver(Outgoing("mes:part:bad\udcff\n", "part", payload))
    headers, body = receiver.got[0]
    assert json.loads(body)["score"] is None
    assert verify(SECRET, headers, body)
    assert headers["X-Dinosaur-Key"].isascii()


def test_the_signature_does_not_change() -> None:
    """Receivers have it in their own code."""
    wanted = "sha256=9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae"
    assert sign("key", "1700000000", b"{}") == wanted


def test_the_receiver_of_the_documentation_works(secret: Path, tmp_path: Path, started: Started) -> None:
    page = (Path(__file__).parents[2] / "docs/station/plant.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    assert "8000" in code
    port = free_port()
    (tmp_path / "receiver.py").write_text(code.replace("8000", str(port)))
    (tmp_path / "webhook_key").write_text(secret.read_text())
    shutil.copy(webhook_signature.__file__, tmp_path / "webhook_signature.py")
    with subprocess.Popen(
        [sys.executable, "-I", "-c", "import sys; sys.path.insert(0, '.'); import receiver"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            filled, outbox = started(config(port, secret))
            filled.add(1, "anomalous")
            until(lambda: outbox.state()[0]["delivered"] == 1)
            secret.write_text("another key")
            filled.add(2)
            until(lambda: "403" in outbox.state()[0]["reason"])
        finally:
            process.terminate()
        assert process.stdout is not None
        assert process.stdout.read() == "anomalous\n"
