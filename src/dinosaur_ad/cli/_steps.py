"""What a long command is doing now: one line with a clock on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from contextlib import AbstractContextManager

from dinosaur_ad.cli._console import say, show_status

SECONDS_BETWEEN_UPDATES = 1.0


class Steps(AbstractContextManager["Steps"]):
    """Call it with the name of each step.

    On a terminal the current step and its seconds are shown on stderr, from the second second on, and removed at the
    end. Where stderr is a file or a pipe, every step is a line, for a log; ``quiet`` leaves those lines out.
    """

    def __init__(self, first: str = "", *, quiet: bool = False) -> None:
        self._on_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._quiet = quiet
        self._text, self._began = first, time.monotonic()
        self._shown = False
        self._ended = threading.Event()
        self._clock = threading.Thread(target=self._update, name="steps", daemon=True)
        if self._on_terminal:
            self._clock.start()
        elif first:
            self(first)

    def __call__(self, text: str) -> None:
        """Begin the next step."""
        self._text, self._began = text, time.monotonic()
        if not self._on_terminal and not self._quiet:
            say(text)

    def _update(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_UPDATES):
            if self._text:
                seconds = int(time.monotonic() - self._began)
                line = f"{self._text}  {seconds // 60}:{seconds % 60:02d}"
                show_status(line, max(20, shutil.get_terminal_size().columns - 1))
                self._shown = True

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._clock.is_alive():
            self._clock.join()
        if self._shown:
            show_status("", 0)
