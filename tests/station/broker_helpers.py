"""A real mosquitto on a free port, and a client that listens to it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from outbox_helpers import free_port, until
from paho.mqtt.enums import CallbackAPIVersion


def program(name: str) -> str:
    """The path of a program; the test is skipped without it."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


class Broker:
    """mosquitto, which can be stopped and started again on the same port with what it kept."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self._program, self.port = program("mosquitto"), free_port()
        folder.mkdir()
        self._file = folder / "mosquitto.conf"
        lines = [f"listener {self.port} 127.0.0.1", *(settings or ("allow_anonymous true",))]
        lines += ["persistence true", f"persistence_location {folder}/", "user root", "set_tcp_nodelay true"]
        self._file.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([self._program, "-c", str(self._file)], **quiet)
        until(self._listens, "mosquitto listens")

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "mosquitto ended"
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait(10)
            self._process = None


class Listener:
    """Gets everything that is published, also what came while it was not connected."""

    def __init__(self, port: int, topic: str = "#", change: Callable[[paho.Client], Any] = lambda client: None) -> None:
        self.messages: list[tuple[str, bytes, bool]] = []
        self._subscribed = False
        self.client = paho.Client(CallbackAPIVersion.VERSION2, "listener", clean_session=False)
        self.client.on_connect = lambda client, *_: client.subscribe(topic, qos=1)
        self.client.on_subscribe = lambda *_: setattr(self, "_subscribed", True)
        self.client.on_message = self._take
        self.client.reconnect_delay_set(0.05, 0.05)  # type: ignore[arg-type]
        change(self.client)
        self.client.connect("localhost", port)
        self.client.loop_start()
        until(lambda: self._subscribed, "the listener is subscribed")

    def _take(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        self.messages.append((message.topic, message.payload, bool(message.retain)))

    def of(self, topic: str) -> list[bytes]:
        """The payloads on a topic, in order."""
        return [payload for name, payload, _ in list(self.messages) if name == topic]

    def keys(self, topic: str = "plant/line-3/part") -> list[str]:
        """The keys of the parts on a topic."""
        return [json.loads(payload)["key"] for payload in self.of(topic)]

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()
