"""Messages of an MQTT broker that trigger cameras."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import aiomqtt

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import SinkConfig, SourceConfig
from dinosaur_ad.station.sinks.mqtt_connection import MqttConnection
from dinosaur_ad.station.sinks.sink import Backoff

LONGEST_PART = 200

log = logging.getLogger(__name__)


class MqttTrigger:
    """Calls the triggers of a topic for each message on it, with the text of the message: the name of the part, or "".

    ``broker`` is the ``[[sink]]`` of kind mqtt whose broker sends them; ``triggers`` as a rule are those of
    :func:`triggers_by_topic`. Retained messages trigger nothing: brokers repeat them at each connection. Messages of
    the time without a connection are lost: the part has gone by.

    >>> trigger = MqttTrigger(sink, {"line-3/present": [camera.trigger]})  # doctest: +SKIP
    >>> trigger.start()  # doctest: +SKIP
    """

    def __init__(
        self,
        broker: SinkConfig,
        triggers: Mapping[str, Sequence[Callable[[str], object]]],
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
        part = part_name(message.payload)
        for topic, called in self._triggers.items():
            if not message.topic.matches(topic):
                continue
            self.count += 1
            # Together, so that the views of one part are taken in the same moment.
            await asyncio.gather(*(asyncio.to_thread(_call, trigger, part, topic) for trigger in called))


def triggers_by_topic(
    sources: Sequence[SourceConfig], sinks: Sequence[SinkConfig], trigger: Callable[[str, str], object]
) -> tuple[SinkConfig, dict[str, list[Callable[[str], object]]]] | None:
    """The broker and the topics that the settings name; None if no source is triggered by MQTT.

    ``trigger`` is called with the name of the source and of the part. The broker is that of the first sink of kind
    mqtt.

    :raises InputError: a source is triggered by MQTT, and there is no such sink.
    """
    triggered = [source for source in sources if source.trigger == "mqtt"]
    if not triggered:
        return None
    broker = next((sink for sink in sinks if sink.kind == "mqtt"), None)
    if broker is None:
        raise InputError(
            f"[[source]] '{printable(triggered[0].name)}' has the trigger mqtt, but there is no broker; add a [[sink]] "
            'with kind = "mqtt" and its url.'
        )
    topics: dict[str, list[Callable[[str], object]]] = {}
    for source in triggered:
        topics.setdefault(source.topic, []).append(_trigger_of(source.name, trigger))
    return broker, topics


def part_name(payload: object) -> str:
    """The name of a part in the payload of a trigger; "" where it is empty or no plain text.

    >>> part_name(b"SN-1234"), part_name(b""), part_name(bytes([255, 1]))
    ('SN-1234', '', '')
    """
    if not isinstance(payload, bytes | bytearray) or len(payload) > LONGEST_PART:
        return ""
    try:
        text = payload.decode().strip()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() else ""


def _trigger_of(name: str, trigger: Callable[[str, str], object]) -> Callable[[str], object]:
    return lambda part: trigger(name, part)


def _call(trigger: Callable[[str], object], part: str, topic: str) -> None:
    try:
        trigger(part)
    except Exception as error:  # a camera that fails says so itself; the others are triggered all the same
        log.warning("A trigger by %s failed: %s.", printable(topic), first_line(error))
