"""Programs that a station answers while it judges: open live pages, or a stranger who asks without an end.

    python -m benchmarks.station_visitors pages URL COUNT
    python -m benchmarks.station_visitors strangers URL REQUESTS_A_SECOND

They say "open" once each of them has had an answer, run until their input ends, and then print what they saw as JSON.
They are not part of the station, so they step back behind it (nice 19) where both share the processors.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from urllib.parse import urlsplit

WAYS = ("/", "/parts", "/api/v1/parts", "/api/v1/state", "/metrics", "/people", "/parts/1/pictures/0/full", "/nowhere")
"""What a stranger asks for."""
CONNECTIONS = 20
TOGETHER = 0.02
"""Seconds that the page waits for more parts that are told of at once."""


class Visitors:
    """Everything that one run asks for and sees."""

    def __init__(self, url: str, count: int) -> None:
        place = urlsplit(url)
        self._to_come = count
        self.host, self.port = str(place.hostname), int(place.port or 80)
        self.seen: Counter[str] = Counter()

    def _came(self) -> None:
        """One more has had its first answer."""
        self._to_come -= 1
        if not self._to_come:
            print("open", flush=True)

    async def page(self) -> None:
        """What a browser with the page Live does: it listens, and fetches the picture of the newest recorded part."""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=2**22)
        writer.write(self._request("/events"))
        await _head(reader)
        self.seen["pages"] += 1
        self._came()
        recorded: list[int] = []
        some = asyncio.Event()
        fetching = asyncio.create_task(self._fetch(recorded, some))
        kind = ""
        try:
            while line := await reader.readline():
                if line.startswith(b"event: "):
                    kind = line[7:].strip().decode()
                    self.seen[f"events {kind}"] += 1
                elif line.startswith(b"data: ") and kind == "recorded":
                    recorded.append(json.loads(line[6:])["id"])
                    some.set()
        finally:
            fetching.cancel()

    async def _fetch(self, recorded: list[int], some: asyncio.Event) -> None:
        """Of the parts that were told of at once, the picture of the newest."""
        pictures = Answers(self)
        while True:
            await some.wait()
            await asyncio.sleep(TOGETHER)
            some.clear()
            part = recorded[-1]
            recorded.clear()
            self.seen[f"pictures {await pictures.ask(f'/parts/{part}/pictures/0/shown')}"] += 1

    async def stranger(self, rate: float, first: int) -> None:
        """Ask for pages that need an account, from the ``first`` on, at a rate, whatever the answer is."""
        answers, asked = Answers(self), 0
        began = time.monotonic()
        while True:
            asked += 1
            self.seen[f"answers {await answers.ask(WAYS[(first + asked) % len(WAYS)])}"] += 1
            if asked == 1:
                self._came()
            await asyncio.sleep(max(0.0, began + asked / rate - time.monotonic()))

    def _request(self, path: str) -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAccept: */*\r\n\r\n".encode()


class Answers:
    """One connection that is kept open, and opened again where the station closes it."""

    def __init__(self, visitors: Visitors) -> None:
        self._visitors = visitors
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str) -> int:
        """The status of an answer, after all of it has come; 0 where the connection broke."""
        visitors = self._visitors
        try:
            if self._open is None:
                self._open = await asyncio.open_connection(visitors.host, visitors.port)
            reader, writer = self._open
            writer.write(visitors._request(path))
            status, headers = await _head(reader)
            await reader.readexactly(int(headers.get("content-length", "0")))
        except (OSError, EOFError, ValueError):
            self._close()
            return 0
        if headers.get("connection", "").lower() == "close":
            self._close()
        return status

    def _close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """The status and the headers of an answer."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers


async def _run(kind: str, url: str, count: float) -> Counter[str]:
    visitors = Visitors(url, int(count) if kind == "pages" else CONNECTIONS)
    if kind == "pages":
        works = [visitors.page() for _ in range(int(count))]
    else:
        works = [visitors.stranger(count / CONNECTIONS, number) for number in range(CONNECTIONS)]
    tasks = [asyncio.create_task(work) for work in works]
    began = time.monotonic()
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
    visitors.seen["seconds"] = round(time.monotonic() - began)
    return visitors.seen


def main() -> None:
    kind, url, count = sys.argv[1:]
    os.nice(19)
    print(json.dumps(asyncio.run(_run(kind, url, float(count)))))


if __name__ == "__main__":
    main()
