"""Pictures that are sent to the station: on disk before they are acknowledged, then judged one after the other."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.station.part import Picture
from dinosaur_ad.station.sources.source import Source, SourceLostError

MOST = 1000
"""Uploads that may wait; more are refused, so that a sender cannot fill the disk."""


class Uploads(Source):
    """Takes uploads into the spool and gives them to be judged; those left of an earlier run first.

    An upload that was acknowledged is never dropped: it waits on disk while judging is slower.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._waiting: deque[Picture] = deque()
        self._some = threading.Condition()

    def take(self, data: bytes, name: str = "", *, key: str = "", part: str = "", task: str | None = None) -> Picture:
        """Keep a picture; when this returns it will be judged, whatever happens.

        :raises InputError: it is empty, or too many wait already.
        :raises StoreError: it cannot be written.
        """
        if self._spool is None:
            raise StoreError(f"The source '{printable(self.name)}' has no folder for uploads.")
        with self._some:
            if len(self._waiting) >= MOST:
                raise InputError(f"{MOST} uploads wait to be judged already; send the picture again later.")
        picture = self._spool.put(
            data, name, source=self.name, key=key, part=part, view=self.config.view, task=task or self.config.task
        )
        with self._some:
            self._waiting.append(picture)
            self._some.notify()
        return picture

    def _run(self) -> None:
        if self._spool is None:
            raise StoreError(f"The source '{printable(self.name)}' has no folder for uploads.")
        self._spool.prepare()
        left = self._spool.waiting()
        with self._some:
            queued = {picture.key for picture in self._waiting}
            self._waiting.extendleft(reversed([picture for picture in left if picture.key not in queued]))
        self._works()
        while (picture := self._next()) is not None:
            try:
                self._give(picture, when_full="wait")
            except SourceLostError:
                with self._some:
                    self._waiting.appendleft(picture)
                raise

    def _next(self) -> Picture | None:
        with self._some:
            self._some.wait_for(lambda: bool(self._waiting) or self._stopping.is_set())
            return None if self._stopping.is_set() else self._waiting.popleft()

    def _wake(self) -> None:
        with self._some:
            self._some.notify_all()

    def state(self) -> dict[str, Any]:
        """The same, and how many uploads wait."""
        return super().state() | {"waiting": len(self._waiting)}
