"""Video files, network cameras and the device path of USB cameras: frames by trigger, and back after a loss."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av", reason="videos and cameras need the extra 'video'")
pytest.importorskip("sqlalchemy", reason="the station needs the extra 'station'")

import av
from source_helpers import LONG, Taker, until, until_state

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import SourceConfig
from dinosaur_ad.station.sources import video
from dinosaur_ad.station.sources.source import Source, make_source

Start = Callable[..., Any]
FRAMES = 20


@pytest.fixture
def taker() -> Taker:
    return Taker()


@pytest.fixture
def start(taker: Taker) -> Iterator[Start]:
    sources: list[Source] = []

    def started(kind: str, **options: Any) -> Source:
        source = make_source(SourceConfig("cam", kind, **options), taker)
        source.backoff.first = 0.05
        source.backoff.most = 0.5
        source.start()
        sources.append(source)
        return source

    yield started
    for source in sources:
        assert source.stop()


@pytest.fixture(scope="session")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds at 10 a second, each frame a little brighter."""
    path: Path = tmp_path_factory.mktemp("film") / "line.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(FRAMES):
            pixels = np.full((48, 64, 3), 10 * number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))
    return path


def brightness(picture: Any) -> int:
    return round(float(picture.pixels.mean()) / 10)


def test_all_frames_of_a_file_in_order_with_lasting_keys(film: Path, taker: Taker, start: Start) -> None:
    source = start("video", path=film, task="screw")
    pictures = [taker.next() for _ in range(FRAMES)]
    assert [brightness(picture) for picture in pictures] == list(range(FRAMES))
    assert pictures[0].pixels is not None
    assert (pictures[0].pixels.shape, pictures[0].task) == ((48, 64, 3), "screw")
    assert until_state(source, "stopped")["reason"] == "The video is over."
    source.start()  # as after a restart
    until(lambda: source.state()["known"] == FRAMES)


def test_a_timer_takes_some_frames_of_a_file(film: Path, taker: Taker, start: Start) -> None:
    source = start("video", path=film, trigger="timer", rate=2.5)
    until_state(source, "stopped")
    assert [brightness(taker.next()) for _ in range(5)] == [0, 4, 8, 12, 16]
    assert taker.pictures.empty()


def test_a_file_repeats_with_new_keys(film: Path, taker: Taker, start: Start) -> None:
    start("video", path=film, repeat=True)
    pictures = [taker.next() for _ in range(3 * FRAMES)]
    assert [brightness(picture) for picture in pictures] == 3 * list(range(FRAMES))


def test_a_file_that_is_not_there_or_no_video_is_waited_for(
    film: Path, taker: Taker, start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "line.mp4"
    source = start("video", path=path)
    assert "is not there" in until_state(source, "waiting")["reason"]
    path.write_bytes(b"no video at all")
    until(lambda: "cannot be opened" in source.state()["reason"])
    shutil.copy(film, path)
    assert brightness(taker.next()) == 0


def test_asked_from_outside_it_gives_one_picture_for_each_trigger(film: Path, taker: Taker, start: Start) -> None:
    source = start("video", path=film, trigger="http", repeat=True)
    until_state(source, "running")
    source.trigger("part-7")
    source.trigger()
    assert [taker.next().part for _ in range(2)] == ["part-7", ""]
    frames = source.state()["frames"]
    until(lambda: source.state()["frames"] > frames + 2)
    assert taker.pictures.empty()


def test_triggers_are_refused_where_they_make_no_sense(film: Path, taker: Taker, start: Start, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has the trigger 'every'"):
        start("video", path=film).trigger()
    missing = start("video", path=tmp_path / "no.mp4", trigger="http")
    until_state(missing, "waiting")
    with pytest.raises(InputError, match=r"gives no pictures now: The video .* is not there"):
        missing.trigger()


def test_a_missing_pyav_is_a_sentence(film: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    assert "pip install '.[video]'" in until_state(start("video", path=film), "failed")["reason"]


# --- a camera of this machine: the same code, with FFmpeg's test picture for the device ---


@pytest.fixture
def test_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(self: Any) -> Any:
        return video._Input("testsrc=rate=200:size=64x48", "lavfi")

    try:
        av.open("testsrc=rate=10:size=64x48", format="lavfi").close()
    except (av.FFmpegError, ValueError):
        pytest.skip("this FFmpeg has no lavfi")
    monkeypatch.setattr(video.UsbCamera, "_input", made)


def test_a_camera_is_not_held_up_by_slow_judging(test_device: None, start: Start, taker: Taker) -> None:
    judging = threading.Event()
    quick = taker.__call__

    class Slow(Taker):
        def __call__(self, *arguments: Any, **named: Any) -> str:
            judging.wait(LONG)
            return quick(*arguments, **named)

    source = make_source(SourceConfig("cam", "camera"), Slow())
    source.start()
    until(lambda: source.state()["skipped"] > 20)
    assert source.state()["accepted"] == 0
    judging.set()
    taker.next()
    assert source.stop()
    state = source.state()
    assert state["frames"] >= state["accepted"] + state["skipped"] > 20


def test_a_camera_that_is_not_there_is_waited_for(start: Start) -> None:
    source = start("camera", device="/dev/video-none")
    assert "/dev/video-none cannot be opened" in until_state(source, "waiting")["reason"]
    until(lambda: source.state()["reconnects"] >= 2)


# --- RTSP ---

SYSTEM_PYTHON = "/usr/bin/python3"


class RtspServer:
    """A real server that can be stopped and started at the same address."""

    def __init__(self) -> None:
        self.port, self._process = "0", None
        self.start()

    def start(self) -> None:
        script = Path(__file__).parent / "rtsp_server.py"
        command = [SYSTEM_PYTHON, str(script), self.port]
        self._process: Any = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = self._process.stdout.readline().strip() or self.port

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture
def rtsp() -> Iterator[RtspServer]:
    probe = "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer"
    if not Path(SYSTEM_PYTHON).exists() or subprocess.run([SYSTEM_PYTHON, "-c", probe], capture_output=True).returncode:
        pytest.skip("the system's Python has no GStreamer RTSP server (gir1.2-gst-rtsp-server-1.0)")
    server = RtspServer()
    if server.port == "0":
        pytest.skip("the RTSP server does not start")
    yield server
    server.stop()


@pytest.mark.slow
def test_a_network_camera_comes_back_after_it_was_lost(rtsp: RtspServer, taker: Taker, start: Start) -> None:
    source = start("rtsp", url=f"rtsp://admin:secret@127.0.0.1:{rtsp.port}/line", trigger="timer", rate=5.0)
    first = [taker.next() for _ in range(3)]
    assert first[0].pixels is not None
    assert first[0].pixels.shape == (120, 160, 3)
    assert source.state()["state"] == "running"
    rtsp.stop()
    reason = until_state(source, "waiting")["reason"]
    assert "secret" not in reason
    until(lambda: source.state()["reconnects"] >= 2)
    assert f"rtsp://127.0.0.1:{rtsp.port}/line" in source.state()["reason"]
    while not taker.pictures.empty():
        taker.next()
    rtsp.start()
    again = [taker.next() for _ in range(3)]
    assert not {picture.key for picture in again} & {picture.key for picture in first}
    assert source.state()["state"] == "running"


def test_addresses_are_shown_without_passwords() -> None:
    assert video.without_secret("error rtsp://a:b@h:554/x?y and rtsp://h/z") == "error rtsp://h:554/x?y and rtsp://h/z"
