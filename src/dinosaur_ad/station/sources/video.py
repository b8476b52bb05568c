"""Video files, network cameras (RTSP) and USB cameras (v4l2), read with PyAV."""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dinosaur_ad._text import first_line, printable
from dinosaur_ad.errors import InputError, install_advice
from dinosaur_ad.images.loading import Pixels
from dinosaur_ad.station.sources.folder_files import FileVersion
from dinosaur_ad.station.sources.frames import FrameSource
from dinosaur_ad.station.sources.part_present import SMALL, Grey
from dinosaur_ad.station.sources.source import FROM_OUTSIDE, SourceLostError
from dinosaur_ad.station.sources.triggers import CameraFrame, Chosen

TIMEOUT = 8.0
"""Seconds without data after which a network camera is lost."""
MOST_DAMAGED = 200
"""Packets in turn that cannot be decoded before the camera is opened again."""

_SECRET = re.compile(r"(?<=://)[^/@\s]*@")


@dataclass(frozen=True)
class AvFrame:
    """A frame of PyAV; ``number`` counts from 0 in this stream."""

    frame: Any
    seconds: float
    number: int

    def pixels(self) -> Pixels:
        """RGB."""
        return np.ascontiguousarray(self.frame.to_ndarray(format="rgb24"), np.uint8)

    def small(self) -> Grey:
        """For the trigger present."""
        height, width = SMALL
        small = self.frame.reformat(width=width, height=height, format="gray8", interpolation="AREA")
        return small.to_ndarray().astype(np.float32) / np.float32(255)  # type: ignore[no-any-return]


class _Input(NamedTuple):
    """What PyAV opens."""

    file: str
    format: str | None = None
    options: dict[str, str] = {}  # noqa: RUF012


class AvSource(FrameSource):
    """Frames of anything that PyAV opens. A subclass implements :meth:`_input`."""

    def _input(self) -> _Input:
        raise NotImplementedError

    def _frames(self) -> Generator[CameraFrame, None, None]:
        av = _pyav()
        what = self._input()
        try:
            timeout = TIMEOUT if self.live else None
            container = av.open(what.file, format=what.format, options=dict(what.options), timeout=timeout)
        except (av.FFmpegError, OSError, ValueError) as error:
            raise SourceLostError(self._sentence("cannot be opened", error)) from None
        with closing(container):
            if not container.streams.video:
                raise SourceLostError(f"{self._shown()} has no picture in it.")
            stream = container.streams.video[0]
            if not self.live:
                stream.thread_type = "AUTO"  # of a camera it would hold frames back
            try:
                yield from self._decoded(av, container, stream)
            except (av.FFmpegError, OSError) as error:
                raise SourceLostError(self._sentence("was lost", error)) from None

    def _decoded(self, av: Any, container: Any, stream: Any) -> Iterator[CameraFrame]:
        number = damaged = 0
        for packet in container.demux(stream):
            if self._stopping.is_set():
                return
            try:
                frames = packet.decode()
            except av.FFmpegError as error:
                damaged += 1
                self._count("damaged")
                if damaged > MOST_DAMAGED:
                    raise SourceLostError(self._sentence("sends nothing that can be decoded", error)) from None
                continue
            for frame in frames:
                if getattr(frame, "is_corrupt", False):
                    self._count("damaged")
                    continue
                damaged = 0
                seconds = time.monotonic() if self.live or frame.time is None else float(frame.time)
                yield AvFrame(frame, seconds, number)
                number += 1

    def _shown(self) -> str:
        return printable(without_secret(self._input().file))

    def _sentence(self, what: str, error: Exception) -> str:
        reason = getattr(error, "strerror", None) or first_line(error)
        return f"{self._shown()} {what} ({printable(without_secret(str(reason)), 200)}); it is tried again."


class NetworkCamera(AvSource):
    """A camera that is reached by RTSP, over TCP, because lost packets would be damaged pictures."""

    def _input(self) -> _Input:
        options = {"rtsp_transport": "tcp", "fflags": "nobuffer", "flags": "low_delay"}
        return _Input(self.config.url, None, options | dict(self.config.settings))


class UsbCamera(AvSource):
    """A camera of this machine; ``settings`` are options of v4l2 such as video_size, framerate, input_format."""

    def _input(self) -> _Input:
        return _Input(self.config.device or "/dev/video0", "v4l2", dict(self.config.settings))


class VideoFile(AvSource):
    """A file, read as fast as it is judged, and at its own speed if it is triggered from outside.

    A frame has the same key each time, so that after a restart those that are recorded are passed over.
    """

    live = False
    _prefix = ""
    _turn = 0

    def _input(self) -> _Input:
        return _Input(str(self.config.path))

    def _frames(self) -> Generator[CameraFrame, None, None]:
        path = self.config.path
        assert path is not None
        version = FileVersion.of(path, path.parent)
        if version is None:
            raise SourceLostError(f"The video {printable(path)} is not there; it is waited for.")
        self._prefix = version.key(self.name)
        self._turn = 0
        while True:
            run = f":{self._run_id}:{self._turn}" if self.config.repeat else ""
            self._prefix = version.key(self.name) + run
            yield from self._paced(super()._frames())
            if not self.config.repeat or self._stopping.is_set():
                return
            self._turn += 1

    def _paced(self, frames: Iterator[CameraFrame]) -> Iterator[CameraFrame]:
        """At the video's own speed where pictures are asked for from outside."""
        started: float | None = None
        for frame in frames:
            if self.config.trigger in FROM_OUTSIDE:
                started = time.monotonic() - frame.seconds if started is None else started
                if self._stopping.wait(max(0.0, started + frame.seconds - time.monotonic())):
                    return
            yield frame

    def _key(self, chosen: Chosen) -> str:
        assert isinstance(chosen.frame, AvFrame)
        return f"{self._prefix}:{chosen.frame.number}"

    def _ended(self) -> str:
        return "The video is over."


def without_secret(address: str) -> str:
    """An address without the name and password in it.

    >>> without_secret("rtsp://admin:secret@10.0.0.7/stream")
    'rtsp://10.0.0.7/stream'
    """
    return _SECRET.sub("", address)


def _pyav() -> Any:
    try:
        import av
    except ImportError:
        raise InputError(
            f"Cameras and videos are read with PyAV, which is missing; {install_advice('video')}."
        ) from None
    # Its log stays off, as it is by default: with it, FFmpeg's threads and Python's can wait for each other forever.
    return av
