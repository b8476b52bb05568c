"""GigE Vision and USB3 Vision cameras through Aravis, which runs in a process of its own (:mod:`.aravis_frames`)."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import Pixels
from dinosaur_ad.station.sources import aravis_frames
from dinosaur_ad.station.sources.frames import FrameSource
from dinosaur_ad.station.sources.genicam_pixels import grey_of, rgb_of
from dinosaur_ad.station.sources.part_present import Grey
from dinosaur_ad.station.sources.source import SourceLostError
from dinosaur_ad.station.sources.triggers import CameraFrame, small_of

LARGEST = 2**31
"""Bytes of a frame; more are no frame."""
ADVICE = (
    "install Debian's packages gir1.2-aravis-0.8 and python3-gi (apt install gir1.2-aravis-0.8 python3-gi); an own "
    "Python sees them with python -m venv --system-site-packages"
)


@dataclass(frozen=True)
class GenicamFrame:
    """A frame as the camera sent it."""

    data: bytes
    width: int
    height: int
    pixel_format: int
    seconds: float

    def pixels(self) -> Pixels:
        """RGB."""
        return rgb_of(self.data, self.width, self.height, self.pixel_format)

    def small(self) -> Grey:
        """For the trigger present."""
        grey = grey_of(self.data, self.width, self.height, self.pixel_format)
        return small_of(self.pixels() if grey is None else np.ascontiguousarray(grey))


class GenicamCamera(FrameSource):
    """A camera by the name that Aravis lists (``arv-tool-0.8``), its serial or its address; empty for the first.

    ``settings`` are features of the camera, set in their order before the first frame.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._process: subprocess.Popen[bytes] | None = None
        self._said: deque[str] = deque(maxlen=20)
        self._listener: threading.Thread | None = None

    def _frames(self) -> Generator[CameraFrame, None, None]:
        process = self._started()
        try:
            assert process.stdout
            while (frame := self._read(process.stdout)) is not None:
                if frame.data:
                    yield frame
                else:
                    self._count("damaged")
        finally:
            self._end(process)
        if not self._stopping.is_set():
            raise self._why(process.returncode)

    def _started(self) -> subprocess.Popen[bytes]:
        command = [python_with_aravis(), "-I", str(Path(aravis_frames.__file__)), f"--device={self.config.device}"]
        command += [f"--set={name}={value}" for name, value in self.config.settings.items()]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        try:
            self._process = process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
            )
        except OSError as error:
            raise SourceLostError(f"The program for the camera cannot be started ({error.strerror}).") from None
        self._said.clear()
        name = f"source-{self.name}-said"
        self._listener = threading.Thread(target=self._listen, args=(process.stderr,), name=name, daemon=True)
        self._listener.start()
        if self._stopping.is_set():  # between the check and the start
            _close_input(process)
        return process

    def _listen(self, stream: IO[bytes]) -> None:
        """Keep the last lines that it wrote; a full pipe would hold it up."""
        with stream:
            for line in stream:
                self._said.append(line.decode("utf-8", "replace").strip())

    def _read(self, stream: IO[bytes]) -> GenicamFrame | None:
        """The next frame; None at the end."""
        header = stream.read(aravis_frames.HEADER.size)
        if len(header) < aravis_frames.HEADER.size:
            return None
        mark, width, height, pixel_format, _, size = aravis_frames.HEADER.unpack(header)
        if mark != aravis_frames.MARK or size > LARGEST:
            raise SourceLostError("The program for the camera wrote something else than frames; it is started again.")
        data = stream.read(size)
        return GenicamFrame(data, width, height, pixel_format, time.monotonic()) if len(data) == size else None

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End the program and wait for it: the camera serves one at a time."""
        self._process = None
        _close_input(process)
        try:
            process.wait(3.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
        if self._listener:
            self._listener.join(2.0)

    def _wake(self) -> None:
        super()._wake()
        process = self._process
        if process:
            _close_input(process)

    def _why(self, code: int | None) -> Exception:
        """The error for how the program ended."""
        sentence = ""
        for line in reversed(self._said):
            try:
                sentence = str(json.loads(line)["sentence"])
                break
            except (ValueError, KeyError, TypeError):
                continue
        name = f"The camera '{printable(self.config.device)}'" if self.config.device else "A GenICam camera"
        reason = printable(sentence or (self._said[-1] if self._said else f"exit code {code}"), 200).rstrip(".")
        if code == aravis_frames.MISSING:
            return InputError(f"GenICam cameras need Aravis, which is missing ({reason}); {ADVICE}.")
        if code == aravis_frames.REFUSED:
            return InputError(f"{name} refuses a setting: {reason}; correct the settings of the source.")
        return SourceLostError(f"{name} is not there ({reason}); it is tried again.")


def _close_input(process: subprocess.Popen[bytes]) -> None:
    """Let the program end: it gives the camera back first."""
    with suppress(OSError, ValueError):
        if process.stdin:
            process.stdin.close()


def python_with_aravis() -> str:
    """The Python that may have Aravis: this one if it has PyGObject, else the system's.

    :raises InputError: there is no other.
    """
    if importlib.util.find_spec("gi") and sys.executable:
        return sys.executable
    found = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin")
    if found is None:
        raise InputError(f"GenICam cameras need Aravis, which is missing; {ADVICE}.")
    return found
