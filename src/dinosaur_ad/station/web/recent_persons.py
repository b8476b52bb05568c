"""Who asked a moment ago: a page asks for many things at once, and the database is asked once who that is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

KEPT_SECONDS = 1.0
"""Changes by this process count at once, those by another, such as ``--add-admin``, after so long."""
MOST = 1000

Found = TypeVar("Found")


@dataclass(frozen=True)
class _Answer(Generic[Found]):
    """What was found, or is being looked up; as it was after so many changes of the accounts."""

    found: asyncio.Future[Found | None]
    changes: int
    ends: float


class RecentPersons(Generic[Found]):
    """Remembers whom secrets belong to, until ``changes`` counts another change of the accounts; used in the event loop
    alone. Secrets that belong to nobody are not remembered."""

    def __init__(self, changes: Callable[[], int]) -> None:
        self._changes = changes
        self._answers: dict[tuple[str, str], _Answer[Found]] = {}

    async def person(self, kind: str, secret: str, look_up: Callable[[], Found | None]) -> Found | None:
        """Whoever has a secret of a kind; ``look_up`` runs in a thread where that has to be asked, once for all who ask
        at the same time."""
        key, changes = (kind, secret), self._changes()  # what changes while it is asked makes the answer an old one
        known = self._answers.get(key)
        if known is None or known.changes != changes or time.monotonic() > known.ends:
            if len(self._answers) >= MOST:
                self._answers.clear()
            found = asyncio.ensure_future(run_in_threadpool(look_up))
            known = self._answers[key] = _Answer(found, changes, time.monotonic() + KEPT_SECONDS)
            found.add_done_callback(partial(self._forget_nobody, key))
        return await asyncio.shield(known.found)  # who leaves does not take it from the others

    def _forget_nobody(self, key: tuple[str, str], done: asyncio.Future[Found | None]) -> None:
        nobody = done.cancelled() or done.exception() is not None or done.result() is None
        known = self._answers.get(key)
        if nobody and known is not None and known.found is done:
            del self._answers[key]
