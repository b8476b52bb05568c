"""A connection to an MQTT broker that comes back by itself, in a thread of its own."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence

import aiomqtt

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.errors import DinosaurError, InputError
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.sinks.loop_thread import LoopThread, wait_until
from dinosaur_ad.station.sinks.secret_file import read_secret, shown_address, split_address
from dinosaur_ad.station.sinks.sink import Backoff, UndeliveredError, percent_encoded

ONLINE, OFFLINE = "online", "offline"
KEEPALIVE = 20
"""Seconds; a broker sends the last will when it has not heard of the station for one and a half times as long."""
ANSWERS_WITHIN = 10.0
SETTLED = 10.0
"""A connection that lasted so many seconds was a good one: the next pause is the shortest again."""
AT_LEAST_ONCE = 1
_DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}

log = logging.getLogger(__name__)
_library = logging.getLogger(f"{__name__}.library")
_library.setLevel(logging.ERROR)  # what the library warns of is in the state of the sink


class MqttConnection:
    """Keeps one connection; :meth:`publish` sends through it, ``heard`` gets the messages of ``topics``.

    With ``state_topic`` the broker holds there whether the station is "online" or "offline", the latter also by its
    last will. ``up`` is called, in the thread of the connection, each time the connection is made.
    """

    def __init__(
        self,
        config: SinkConfig,
        purpose: str,
        *,
        state_topic: str = "",
        topics: Sequence[str] = (),
        heard: Callable[[aiomqtt.Message], Awaitable[None]] | None = None,
        up: Callable[[], None] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._config = config
        self._address = split_address(config.url, config.name)
        self._identifier = _identifier(config, purpose)
        self._state_topic, self._topics, self._heard, self._up = state_topic, topics, heard, up
        self._backoff = backoff or Backoff()
        self._client: aiomqtt.Client | None = None
        self._gone: asyncio.Event | None = None
        self.obstacle = f"The broker {self.place} is not connected yet."
        """Why there is no connection, as a sentence; empty while there is one."""
        self._thread = LoopThread(f"mqtt {purpose} {config.name}", self._main)

    @property
    def place(self) -> str:
        """The broker, for sentences."""
        return shown_address(self._address)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def stop(self) -> None:
        """Say "offline" and disconnect."""
        self._thread.stop()

    def publish(self, topic: str, payload: bytes | str, *, retain: bool = False) -> None:
        """Return once the broker has confirmed the message (QoS 1).

        :raises UndeliveredError: it has not.
        """
        try:
            self._thread.call(self._publish(topic, payload, retain), 2 * ANSWERS_WITHIN)
        except TimeoutError:
            raise UndeliveredError(f"The broker {self.place} did not confirm a message in time.") from None

    async def _publish(self, topic: str, payload: bytes | str, retain: bool) -> None:
        client, gone = self._client, self._gone
        if client is None or gone is None:
            raise UndeliveredError(self.obstacle or f"The broker {self.place} is not connected.")
        sending = asyncio.ensure_future(client.publish(topic, payload, AT_LEAST_ONCE, retain))
        leaving = asyncio.ensure_future(gone.wait())
        try:
            # The library would wait for a confirmation until its timeout, also after the connection broke.
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise UndeliveredError(f"The connection to the broker {self.place} broke.")
            sending.result()
        except aiomqtt.MqttError as error:
            raise UndeliveredError(f"The broker {self.place} did not take a message: {first_line(error)}.") from None
        finally:
            sending.cancel()
            leaving.cancel()

    async def _main(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            begun = time.monotonic()
            try:
                async with self._new_client() as client:
                    await self._hold(client, stopping)
            except (aiomqtt.MqttError, OSError, ValueError) as error:
                # Name what the user can act on; the library says "Operation timed out" and the like.
                self.obstacle = f"The broker {self.place} cannot be reached: {first_line(error)}."
            except DinosaurError as error:
                self.obstacle = str(error)
            except Exception as error:  # the connection must come back after whatever a library raises
                log.exception("The connection to the broker %s failed.", self.place)
                self.obstacle = f"The connection to the broker {self.place} failed: {type(error).__name__}."
            if time.monotonic() - begun > SETTLED:
                self._backoff.reset()
            await wait_until(stopping, self._backoff.next())
        self.obstacle = f"The connection to the broker {self.place} was closed."

    async def _hold(self, client: aiomqtt.Client, stopping: asyncio.Event) -> None:
        """Greet, then listen until the connection breaks (an error) or the station stops."""
        for topic in self._topics:
            await client.subscribe(topic, qos=AT_LEAST_ONCE)
        if self._state_topic:
            await client.publish(self._state_topic, ONLINE, AT_LEAST_ONCE, retain=True)
        self._client, self._gone, self.obstacle = client, asyncio.Event(), ""
        listening = asyncio.ensure_future(self._listen(client))
        leaving = asyncio.ensure_future(stopping.wait())
        try:
            if self._up:
                self._up()
            await asyncio.wait((listening, leaving), return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                listening.result()
            elif self._state_topic:
                await client.publish(self._state_topic, OFFLINE, AT_LEAST_ONCE, retain=True)
        finally:
            self.obstacle = self.obstacle or f"The connection to the broker {self.place} broke."
            self._gone.set()
            self._client = self._gone = None
            listening.cancel()
            leaving.cancel()

    async def _listen(self, client: aiomqtt.Client) -> None:
        async for message in client.messages:  # raises MqttError when the connection breaks
            if self._heard:
                await self._heard(message)

    def _new_client(self) -> aiomqtt.Client:
        """A new one for each connection: the order of messages is the outbox's, nothing is queued in the library."""
        config, scheme = self._config, self._address.scheme
        password = read_secret(config.password_file, "password of the broker") if config.password_file else None
        will = aiomqtt.Will(self._state_topic, OFFLINE, AT_LEAST_ONCE, retain=True) if self._state_topic else None
        return aiomqtt.Client(
            self._address.hostname or "",
            self._address.port or _DEFAULT_PORTS[scheme],
            username=config.username or None,
            password=password,
            identifier=self._identifier,
            will=will,
            clean_session=True,
            timeout=ANSWERS_WITHIN,
            keepalive=KEEPALIVE,
            tls_context=ssl.create_default_context() if scheme == "mqtts" else None,
            logger=_library,
        )


def _identifier(config: SinkConfig, purpose: str) -> str:
    """The same after a restart, so that the broker ends the old session, and sends its will, before the new one.

    23 letters and digits, which every broker takes.
    """
    words = "\n".join((socket.gethostname(), config.name, config.topic, purpose))
    return f"dinosaur{hashlib.sha256(words.encode()).hexdigest()[:15]}"


def topic_level(name: str) -> str:
    """A name as one level of a topic: what has a meaning in topics is written as %XX.

    >>> topic_level("screw M4/8 +1"), topic_level("$x")
    ('screw M4%2F8 %2B1', '%24x')
    """
    return percent_encoded(name, "/+#$")


def checked_topic(topic: str, name: str) -> str:
    """The beginning of topics that a person chose.

    :raises InputError: it cannot be one.
    """
    if not topic or topic != topic.strip("/") or not topic.isprintable() or set("+#") & set(topic):
        raise InputError(
            f"[[sink]] '{printable(name)}': '{printable(topic, 60)}' cannot begin a topic; write it as plant/line-3, "
            "without +, # and without / at its ends."
        )
    return topic
