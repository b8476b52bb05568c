"""Verdicts, warnings and changes to an MQTT broker.

Below the topic of the settings: ``state`` (online or offline, retained), ``part``, ``warning`` and ``change`` as they
come, ``product/NAME/last`` with the last part of each product (retained). All with QoS 1.
"""

from __future__ import annotations

from collections.abc import Callable

from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.sinks.mqtt_connection import MqttConnection, checked_topic, topic_level
from dinosaur_ad.station.sinks.secret_file import readable_by_others
from dinosaur_ad.station.sinks.sink import Backoff, Outgoing, Sink


class MqttSink(Sink):
    """A broker that is told everything."""

    def __init__(self, config: SinkConfig, backoff: Backoff | None = None) -> None:
        super().__init__(config)
        self._backoff = backoff
        self._connection: MqttConnection | None = None

    def open(self, ready: Callable[[], None]) -> None:
        """Begin to connect."""
        topic = checked_topic(self.config.topic, self.config.name)
        self._connection = MqttConnection(
            self.config, "sink", state_topic=f"{topic}/state", up=ready, backoff=self._backoff
        )
        self._connection.start()

    def obstacle(self) -> str:
        """Why the broker is not connected."""
        return self._connection.obstacle if self._connection else "The broker is not connected yet."

    def note(self) -> str:
        """Whether others can read the password."""
        return readable_by_others(self.config.password_file)

    def deliver(self, message: Outgoing) -> None:
        """Publish a message, and a part as the last one of its product too."""
        assert self._connection is not None, "The outbox opens a sink before it delivers."
        body = message.body()
        self._connection.publish(f"{self.config.topic}/{message.kind}", body)
        product = message.payload.get("task")
        if message.kind == "part" and product:
            self._connection.publish(f"{self.config.topic}/product/{topic_level(product)}/last", body, retain=True)

    def close(self) -> None:
        """Say "offline" and disconnect."""
        if self._connection:
            self._connection.stop()
