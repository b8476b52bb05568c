"""A folder of pictures given one after the other at a rate, like a line that runs past a camera."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from dinosaur_ad._text import printable
from dinosaur_ad.station.sources.folder_files import FileVersion, images_below
from dinosaur_ad.station.sources.source import Source, SourceLostError


class Replay(Source):
    """Gives the images below a folder in the order of their names, at most ``rate`` a second.

    Each is given once, also across restarts; with ``repeat`` all of them again and again, each time as new pictures.
    """

    def _run(self) -> None:
        folder = self.config.path
        assert folder is not None
        run, turn = f"{time.time_ns():x}", 0
        upcoming = time.monotonic()
        while not self._stopping.is_set():
            for file in self._listed(folder):
                if self._stopping.wait(max(0.0, upcoming - time.monotonic())):
                    return
                key = f"{self.name}:{file.name[-200:]}:{run}:{turn}" if self.config.repeat else ""
                picture = replace(file.picture(self.config, key), taken=datetime.now(UTC))
                if self._give(picture) != "known":  # those of an earlier run are passed over at once
                    upcoming = max(upcoming + 1 / self.config.rate, time.monotonic())
                self._works()
            if not self.config.repeat:
                return
            turn += 1

    def _listed(self, folder: Path) -> list[FileVersion]:
        try:
            files = images_below(folder)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise SourceLostError(f"The folder {printable(folder)} cannot be read ({reason}).") from None
        if not files:
            raise SourceLostError(f"There is no image in the folder {printable(folder)}; put some there.")
        return files

    def _ended(self) -> str:
        return "All pictures were given."
