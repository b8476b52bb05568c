"""What cameras and videos share: frames come, a trigger chooses some, and those are offered without holding it up."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.part import Picture
from dinosaur_ad.station.sources.source import FROM_OUTSIDE, RUNNING, Source, SourceLostError
from dinosaur_ad.station.sources.triggers import (
    AskedTrigger,
    CameraFrame,
    Chosen,
    EveryFrame,
    FrameTrigger,
    PresenceTrigger,
    make_trigger,
)

MOST_WAITING = 8
"""Chosen frames that wait for the queue; of every frame of a camera only the newest does."""


class FrameSource(Source):
    """A source of frames. A subclass implements :meth:`_frames`, and says whether they come by themselves.

    A live camera cannot be held up: its frames are always taken from it, and those that were chosen while the queue is
    full are counted as skipped. A file is held up instead.
    """

    live = True

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._run_id = f"{time.time_ns():x}"
        self._number = 0
        self._trigger: FrameTrigger = EveryFrame()
        self._chosen: deque[tuple[Chosen, datetime]] = deque()
        self._some = threading.Condition()
        self._giver: threading.Thread | None = None
        self._unjudged = False

    def start(self) -> None:
        """Begin; an empty scene that cannot be read shows in the state."""
        self._run_id = f"{time.time_ns():x}"
        super().start()

    def trigger(self, part: str = "") -> None:
        """Take the next frame; see :meth:`Source.trigger`."""
        name, state = printable(self.name), self.state()
        if self.config.trigger not in FROM_OUTSIDE:
            raise InputError(f"The camera '{name}' has the trigger '{self.config.trigger}'; set it to http to ask it.")
        if state["state"] != RUNNING or not isinstance(self._trigger, AskedTrigger):
            raise InputError(f"The camera '{name}' gives no pictures now: {state['reason'] or state['state']}")
        self._trigger.ask(part)

    def take_empty(self) -> None:
        """Take what the camera sees now as the empty scene, for the trigger present.

        :raises InputError: it has another trigger.
        """
        if not isinstance(self._trigger, PresenceTrigger):
            raise InputError(f"The camera '{printable(self.name)}' has not the trigger present.")
        self._trigger.take_empty()

    def _frames(self) -> Generator[CameraFrame, None, None]:
        """The frames, from opening the camera on; closed when it is enough."""
        raise NotImplementedError

    def _key(self, chosen: Chosen) -> str:
        """The identity of a frame: no other ever has it."""
        self._number += 1
        return f"{self.name}:{self._run_id}:{self._number}"

    def _run(self) -> None:
        self._trigger = self._fresh_trigger()
        self._unjudged = False
        if self.live:
            self._start_giver()
        try:
            with closing(self._frames()) as frames:
                for frame in frames:
                    if self._stopping.is_set():
                        return
                    self._take(frame)
        finally:
            self._stop_giver()
        if not self._stopping.is_set():
            self._over()

    def _fresh_trigger(self) -> FrameTrigger:
        """The trigger for a camera that was just opened. The empty scene stays; what was asked for before the camera
        was lost is over, because another part may lie there now."""
        if isinstance(self._trigger, PresenceTrigger):
            return self._trigger
        if isinstance(self._trigger, AskedTrigger):
            self._count("skipped", len(self._trigger))
        return make_trigger(self.config.trigger, self.config.rate, self.config.empty)

    def _over(self) -> None:
        """The frames ended by themselves; a live camera is tried again."""
        if self.live:
            raise SourceLostError("The camera ended the stream; it is opened again.")

    def _take(self, frame: CameraFrame) -> None:
        if self._unjudged:
            raise SourceLostError("Nothing is judged now, because the station is stopping.")
        self._count("frames")
        chosen = self._trigger.choose(frame)
        self._works(self._trigger.note)
        if chosen is None:
            return
        if not self.live:
            self._give(self._picture(chosen, datetime.now(UTC)), ask_history=True)
            return
        with self._some:
            if len(self._chosen) >= (1 if self.config.trigger == "every" else MOST_WAITING):
                self._chosen.popleft()
                self._count("skipped")
            self._chosen.append((chosen, datetime.now(UTC)))
            self._some.notify()

    def _picture(self, chosen: Chosen, taken: datetime) -> Picture:
        return Picture(
            key=self._key(chosen),
            source=self.name,
            taken=taken,
            pixels=chosen.frame.pixels(),
            part=chosen.part,
            view=self.config.view,
            task=self.config.task,
        )

    # --- giving, in a thread of its own, because the queue may hold it up ---

    def _start_giver(self) -> None:
        self._chosen.clear()
        self._giver = threading.Thread(target=self._give_all, name=f"source-{self.name}-giver", daemon=True)
        self._giver.start()

    def _stop_giver(self) -> None:
        giver, self._giver = self._giver, None
        if giver:
            with self._some:
                self._some.notify_all()
            giver.join(10.0)

    def _give_all(self) -> None:
        """Offer what was chosen, until the camera is lost or the source stops; what was chosen before is given."""
        while True:
            with self._some:
                self._some.wait_for(lambda: bool(self._chosen) or self._giver is not threading.current_thread())
                if not self._chosen:
                    return
                chosen, taken = self._chosen.popleft()
            try:
                self._give(self._picture(chosen, taken))
            except SourceLostError:
                self._unjudged = True
                return
            except InputError as error:  # a frame in a form that cannot be converted
                self._count("damaged")
                self._set_state(RUNNING, str(error))

    def _wake(self) -> None:
        with self._some:
            self._some.notify_all()
