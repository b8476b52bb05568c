"""The newest pictures as they are sent: many pages show the same part at the same moment, and all ask for it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from starlette.concurrency import run_in_threadpool

Key = tuple[int, int, str]
"""The part, the number of the view, and which picture of it."""

SHELF_BYTES = 4 * 1024 * 1024
LARGEST = 4 * 1024 * 1024
"""A larger picture is read from its file for each page."""


@dataclass(frozen=True)
class SentPicture:
    """A picture file, its media type, and its bytes if it is small enough to be kept in memory."""

    path: Path
    media_type: str
    content: bytes | None = field(default=None, repr=False)


class PictureShelf:
    """Finds each picture once for all who ask for it, and keeps the newest; used in the event loop alone."""

    def __init__(self, most_bytes: int = SHELF_BYTES) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[Key, SentPicture] = OrderedDict()
        self._coming: dict[Key, asyncio.Future[SentPicture]] = {}

    async def picture(self, key: Key, find: Callable[[], SentPicture]) -> SentPicture:
        """The picture of a key; ``find`` runs in a thread, and what it raises is raised for all who wait."""
        kept = self._kept.get(key)
        if kept is not None and kept.path.is_file():  # retention may have removed it
            return kept
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = asyncio.ensure_future(run_in_threadpool(find))
            coming.add_done_callback(partial(self._came, key))
        return await asyncio.shield(coming)  # who leaves does not take it from the others

    def _came(self, key: Key, done: asyncio.Future[SentPicture]) -> None:
        del self._coming[key]
        self._remove(key)
        if done.cancelled() or done.exception() is not None or done.result().content is None:
            return
        self._kept[key] = done.result()
        self._bytes += len(done.result().content or b"")
        while self._bytes > self._most:
            self._remove(next(iter(self._kept)))

    def _remove(self, key: Key) -> None:
        old = self._kept.pop(key, None)
        if old is not None:
            self._bytes -= len(old.content or b"")
