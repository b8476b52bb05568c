"""An event loop in a thread of its own, for libraries that are asynchronous alone."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")
ENDS_WITHIN = 10.0


class LoopThread:
    """Runs ``main`` in an event loop of its own thread until it returns.

    ``main`` gets an event that :meth:`stop` sets. Other threads run coroutines in the loop with :meth:`call`.
    """

    def __init__(self, name: str, main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
        self._main = main
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; returns when its loop runs."""
        self._thread.start()
        self._begun.wait()

    def call(self, coroutine: Coroutine[Any, Any, _Result], timeout: float) -> _Result:
        """Run a coroutine in the loop and wait for its result.

        :raises TimeoutError: it took longer, and was cancelled, or the loop has ended.
        """
        if self._loop is None or self._loop.is_closed():
            coroutine.close()
            raise TimeoutError
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout)
        except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
            future.cancel()
            raise TimeoutError from None

    def stop(self) -> None:
        """Ask ``main`` to return, and wait for it."""
        if self._loop is None or self._stopping is None or not self._thread.is_alive():
            return
        try:
            self._loop.call_soon_threadsafe(self._stopping.set)
        except RuntimeError:  # the loop has just been closed
            return
        self._thread.join(ENDS_WITHIN)

    def _run(self) -> None:
        # A selector loop on every system: the MQTT client watches its socket itself.
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._begin())
        finally:
            self._begun.set()

    async def _begin(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._begun.set()
        await self._main(self._stopping)


async def wait_until(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set within so many seconds."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True
