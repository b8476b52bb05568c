"""An OPC UA server that shows what the station sees, and takes triggers.

Below ``Objects`` is one object ``Dinosaur``; its nodes have names for ids (``ns=2;s=Dinosaur.LastVerdict``), so they
stay the same. All variables are read-only.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.bank.verdict import ANOMALOUS, NORMAL, NOT_READY, UNKNOWN
from dinosaur_ad.errors import DinosaurError, InputError, install_advice
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.sinks.loop_thread import LoopThread, wait_until
from dinosaur_ad.station.sinks.secret_file import read_secret, readable_by_others, shown_address, split_address
from dinosaur_ad.station.sinks.sink import Backoff, Outgoing, Sink, Told, UndeliveredError

NAMESPACE = "urn:dinosaur:station"
OBJECT = "Dinosaur"
COUNTERS = {NORMAL: "Normal", ANOMALOUS: "Anomalous", UNKNOWN: "Unknown", NOT_READY: "NotReady"}
"""The counter of each verdict."""
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
WRITES_WITHIN = 10.0
DEFAULT_PORT = 4840

log = logging.getLogger(__name__)

# LastKey is written last: a client that waits for its change finds the other values of the same part.
_TYPES = {
    "StationState": "String",
    "Normal": "UInt64",
    "Anomalous": "UInt64",
    "Unknown": "UInt64",
    "NotReady": "UInt64",
    "LastWarning": "String",
    "LastVerdict": "String",
    "LastProduct": "String",
    "LastScore": "Double",
    "LastThreshold": "Double",
    "LastReason": "String",
    "LastTaken": "DateTime",
    "LastKey": "String",
}


class OpcUaServer(Sink):
    """Shows the newest part and the counters, and calls ``trigger`` with the name of a source.

    It is fed by the outbox: after a restart the parts that it was not told yet come first, so no count is left out.
    """

    def __init__(
        self, config: SinkConfig, trigger: Callable[[str], object] | None = None, backoff: Backoff | None = None
    ) -> None:
        super().__init__(config)
        self._trigger = trigger
        self._backoff = backoff or Backoff()
        self._values: dict[str, Any] = {name: _empty(kind) for name, kind in _TYPES.items()}
        self._nodes: dict[str, Any] = {}
        self._obstacle = "The OPC UA server has not started yet."
        self._ready: Callable[[], None] = lambda: None
        self._thread: LoopThread | None = None

    def open(self, ready: Callable[[], None]) -> None:
        """Begin to listen."""
        try:
            import asyncua  # noqa: F401
        except ImportError:
            advice = install_advice("opcua")
            raise InputError(
                f"The OPC UA server needs the package asyncua, which is not installed; {advice}."
            ) from None
        split_address(self.config.url, self.config.name)
        logging.getLogger("asyncua").setLevel(logging.ERROR)  # it reports each connection and missing certificates
        self._ready = ready
        self._thread = LoopThread(f"opcua {self.config.name}", self._main)
        self._thread.start()

    def resume(self, told: Told) -> None:
        """Begin with the counts of the history and the last part."""
        for verdict, counter in COUNTERS.items():
            if not self.config.verdicts or verdict in self.config.verdicts:
                self._values[counter] = told.counts.get(verdict, 0)
        if told.last is not None:
            self._values |= _shown(told.last)
        if not self._obstacle:
            self._write(_TYPES)

    def obstacle(self) -> str:
        """Why the server does not listen."""
        return self._obstacle

    def note(self) -> str:
        """Whether others can read the password."""
        return readable_by_others(self.config.password_file)

    def deliver(self, message: Outgoing) -> None:
        """Show a message; what is not shown (changes) is delivered by that."""
        if message.kind == "part":
            values = _shown(message.payload)
            counter = COUNTERS.get(str(message.payload.get("verdict")))
            if counter:
                values[counter] = self._values[counter] + 1
        elif message.kind == "warning":
            values = {"LastWarning": str(message.payload.get("sentence", ""))}
        else:
            return
        before = {name: self._values[name] for name in values}
        self._values |= values
        try:
            self._write(values)
        except UndeliveredError:
            self._values |= before  # it is delivered again, and must not count twice
            raise

    def close(self) -> None:
        """Say "stopped" and end the server."""
        if self._thread:
            self._thread.stop()

    def _write(self, names: Mapping[str, Any]) -> None:
        if self._thread is None or self._obstacle:
            raise UndeliveredError(self._obstacle)
        try:
            self._thread.call(self._write_values([name for name in _TYPES if name in names]), WRITES_WITHIN)
        except TimeoutError:
            raise UndeliveredError("The OPC UA server did not take a value in time.") from None

    async def _main(self, stopping: asyncio.Event) -> None:
        place = shown_address(split_address(self.config.url, self.config.name))
        while not stopping.is_set():
            try:
                await self._serve(stopping)
            except OSError as error:
                self._obstacle = f"The OPC UA server cannot listen at {place}: {first_line(error)}."
            except DinosaurError as error:
                self._obstacle = str(error)
            except Exception as error:  # it must come back after whatever the library raises
                log.exception("The OPC UA server at %s failed.", place)
                self._obstacle = f"The OPC UA server failed: {type(error).__name__}: {first_line(error)}."
            await wait_until(stopping, self._backoff.next())

    async def _serve(self, stopping: asyncio.Event) -> None:
        from asyncua import Server

        self._check_port()  # building the server's nodes takes a second or more; not for a port that is taken
        server = Server(user_manager=self._people())
        await server.init()
        await self._build(server)
        self._values["StationState"] = "running"
        try:
            await server.start()
            self._obstacle = ""  # first: from here on `resume` writes by itself
            await self._write_values(list(_TYPES))
            self._backoff.reset()
            self._ready()
            await stopping.wait()
            self._values["StationState"] = "stopped"
            await self._write_values(["StationState"])
        finally:
            self._obstacle = "The OPC UA server was stopped."
            await server.stop()

    def _check_port(self) -> None:
        address = split_address(self.config.url, self.config.name)
        host = address.hostname or ""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, address.port or DEFAULT_PORT), family=family).close()

    async def _build(self, server: Any) -> None:
        from asyncua import ua

        address = split_address(self.config.url, self.config.name)
        host = f"[{address.hostname}]" if ":" in (address.hostname or "") else address.hostname
        server.set_endpoint(f"opc.tcp://{host}:{address.port or DEFAULT_PORT}{address.path or '/dinosaur'}")
        server.set_server_name("DINOSaur station")
        server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
        server.set_identity_tokens([ua.UserNameIdentityToken if self.config.username else ua.AnonymousIdentityToken])
        space = await server.register_namespace(NAMESPACE)
        node = await server.nodes.objects.add_object(ua.NodeId(OBJECT, space), ua.QualifiedName(OBJECT, space))

        def names(name: str) -> tuple[Any, Any]:
            return ua.NodeId(f"{OBJECT}.{name}", space), ua.QualifiedName(name, space)

        self._nodes = {
            name: await node.add_variable(*names(name), self._values[name], ua.VariantType[kind])
            for name, kind in _TYPES.items()
        }
        texts, answer = ua.VariantType.String, ua.VariantType.Boolean
        await node.add_method(*names("Trigger"), self._on_trigger, [texts], [answer, texts])

    async def _write_values(self, names: list[str]) -> None:
        from asyncua import ua

        for name in names:
            await self._nodes[name].write_value(self._values[name], ua.VariantType[_TYPES[name]])

    async def _on_trigger(self, _parent: Any, source: Any) -> list[Any]:
        """The method: whether the source was triggered, and a sentence if not."""
        from asyncua import ua

        done, sentence = await asyncio.to_thread(self._called, str(source.Value))
        return [ua.Variant(done, ua.VariantType.Boolean), ua.Variant(sentence, ua.VariantType.String)]

    def _called(self, source: str) -> tuple[bool, str]:
        if self._trigger is None:
            return False, "This station takes no triggers."
        try:
            self._trigger(source)
        except (DinosaurError, LookupError) as error:
            sentence = (
                f"There is no source '{printable(source, 60)}'." if isinstance(error, LookupError) else str(error)
            )
            return False, sentence
        except Exception as error:  # a client gets a sentence and no traceback
            log.exception("The trigger of '%s' failed.", printable(source, 60))
            return False, f"The trigger failed: {type(error).__name__}."
        return True, ""

    def _people(self) -> Any:
        """Who may connect: anybody, or whoever has the user name and the password of the settings."""
        from asyncua.crypto.permission_rules import User, UserRole

        config = self.config
        password = read_secret(config.password_file, "password") if config.password_file else ""
        if config.username and not password:
            raise InputError(f"[[sink]] '{printable(config.name)}' has a username and needs password_file = ... too.")

        class People:
            """Asked by the server for each session."""

            def get_user(self, _server: Any, username: str | None = None, password: str | None = None, **_: Any) -> Any:
                """The user, None to refuse."""
                return User(role=UserRole.User) if not config.username or known(username, password) else None

        def known(name: str | None, given: str | None) -> bool:
            same = hmac.compare_digest((name or "").encode(), config.username.encode())
            return hmac.compare_digest((given or "").encode(), password.encode()) and same

        return People()


def _shown(part: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the variables for a part."""
    return {
        "LastVerdict": str(part.get("verdict") or ""),
        "LastProduct": str(part.get("task") or ""),
        "LastScore": _number(part.get("score")),
        "LastThreshold": _number(part.get("threshold")),
        "LastReason": str(part.get("reason") or ""),
        "LastTaken": _moment(part.get("taken")),
        "LastKey": str(part.get("key") or ""),
    }


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _moment(text: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return NEVER
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _empty(kind: str) -> Any:
    return {"String": "", "UInt64": 0, "Double": float("nan"), "DateTime": NEVER}[kind]
