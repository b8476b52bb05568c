"""The outbox on PostgreSQL: the same queries, and a server that stops and starts while messages wait."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the extra station is not installed")
pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from history_helpers import PostgresServer
from outbox_helpers import QUICK, Filled, MemorySink, part, until

from dinosaur_ad.station import outbox as outbox_module
from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.history.history import History
from dinosaur_ad.station.outbox import Outbox
from dinosaur_ad.station.sinks.outbox_rows import told_before
from dinosaur_ad.station.tables import PartRow

SINK = SinkConfig("plc", "webhook", "http://127.0.0.1:1/")


@pytest.mark.slow
def test_a_database_server_that_stops_and_starts_costs_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = PostgresServer()
    try:
        server.start()
        _check(server, tmp_path, monkeypatch)
    finally:
        server.remove()


def _check(server: PostgresServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = Filled(folder, [SINK])
    filled.history.close()
    filled.history = History(server.url, folder)
    filled.history.open()
    sink = MemorySink(SINK)
    monkeypatch.setattr(outbox_module, "make_sink", lambda *_: sink)
    for number, verdict in enumerate(("normal", "anomalous")):
        with filled.session() as session:
            taken = part(number)["taken"]
            row = PartRow(key=f"cam:{number}", taken=taken, recorded=taken, source="cam", verdict=verdict, missing=[])
            session.add(row)
    filled.add(1, "anomalous")
    with filled.session() as session:
        assert told_before(session, "plc").counts == {"normal": 1, "anomalous": 0}
    outbox = Outbox(filled, [SINK], filled.bus, backoff=QUICK)
    outbox.start()
    try:
        until(lambda: outbox.state()[0]["waiting"] == 0 and sink.got == ["cam:1"])
        with filled.session() as session:
            told = told_before(session, "plc")
        assert (told.counts, told.last and told.last["key"]) == ({"normal": 1, "anomalous": 1}, "cam:1")
        server.stop()
        outbox.wake()
        until(lambda: outbox.state()[0]["state"] == "waiting")
        assert outbox.state()[0]["reason"].startswith("The outbox cannot be read or written")
        server.start()
        filled.add(2)
        until(lambda: sink.got == ["cam:1", "cam:2"])
        until(lambda: outbox.state()[0]["waiting"] == 0)
    finally:
        outbox.stop()
        filled.history.close()
