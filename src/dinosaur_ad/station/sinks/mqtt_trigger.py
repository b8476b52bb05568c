"""Messages of an MQTT broker that trigger cameras."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import aiomqtt

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.sinks.mqtt_connection import MqttConnection
from dinosaur_ad.station.sinks.sink import Backoff

log = logging.getLogger(__name__)


class MqttTrigger:
    """Calls the trigger of a source for each message on its topic.

    ``broker`` is the ``[[sink]]`` of kind mqtt whose broker sends them. ``triggers`` has the topics and what is called,
    as a rule ``source.trigger``; several sources can share a topic, hence lists. Retained messages trigger nothing:
    brokers repeat them at each connection. Messages of the time without a connection are lost: the part has gone by.

    >>> trigger = MqttTrigger(sink, {"line-3/present": [camera.trigger]})  # doctest: +SKIP
    >>> trigger.start()  # doctest: +SKIP
    """

    def __init__(
        self,
        broker: SinkConfig,
        triggers: Mapping[str, list[Callable[[], object]]],
        backoff: Backoff | None = None,
    ) -> None:
        self._triggers = triggers
        self.count = 0
        """Messages that triggered since the start."""
        self._connection = MqttConnection(broker, "trigger", topics=tuple(triggers), heard=self._heard, backoff=backoff)

    def start(self) -> None:
        """Begin to connect and to listen."""
        self._connection.start()

    def stop(self) -> None:
        """Disconnect."""
        self._connection.stop()

    def obstacle(self) -> str:
        """Why no trigger can come now, as a sentence; empty while the broker is connected."""
        return self._connection.obstacle

    async def _heard(self, message: aiomqtt.Message) -> None:
        if message.retain:
            return
        for topic, called in self._triggers.items():
            if not message.topic.matches(topic):
                continue
            self.count += 1
            for trigger in called:
                try:
                    await asyncio.to_thread(trigger)  # a camera may take its time; the connection is kept alive
                except Exception as error:  # a camera that fails says so itself; the others are triggered all the same
                    log.warning("A trigger by %s failed: %s.", printable(topic), first_line(error))
