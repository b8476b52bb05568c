"""Messages to sinks, as rows that are committed together with what they tell of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from dinosaur_ad.station.config import SinkConfig
from dinosaur_ad.station.history.moments import now_stamp
from dinosaur_ad.station.history.storable import storable, storable_key
from dinosaur_ad.station.tables import OutboxRow

OUTBOX_KEY_LENGTH = 440


def queue_rows(
    session: Session, kind: str, key: str, payload: dict[str, Any], sinks: Sequence[SinkConfig], verdict: str = ""
) -> int:
    """Add a message for each sink that wants it and has not got it yet; how many were added.

    ``verdict`` is that of a part: a sink can ask for some verdicts only.
    """
    wanting = [sink for sink in sinks if kind in sink.messages and _wants(sink, verdict)]
    keys = {storable_key(f"{sink.name}:{kind}:{key}", OUTBOX_KEY_LENGTH): sink for sink in wanting}
    if not keys:
        return 0
    known = set(session.scalars(select(OutboxRow.key).where(OutboxRow.key.in_(keys))))
    now = now_stamp()
    clean = storable(payload)
    for each, sink in keys.items():
        if each not in known:
            session.add(OutboxRow(sink=sink.name, kind=kind, key=each, payload=clean, queued=now, next_try=now))
    return len(keys.keys() - known)


def _wants(sink: SinkConfig, verdict: str) -> bool:
    return not verdict or not sink.verdicts or verdict in sink.verdicts
