"""GenICam: the pixel formats, and a fake GigE Vision camera of Aravis that is stopped and started again."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("sqlalchemy", reason="the station needs the extra 'station'")

from source_helpers import Taker, until, until_state

from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import SourceConfig
from dinosaur_ad.station.sources import genicam
from dinosaur_ad.station.sources.genicam_pixels import demosaiced, rgb_of
from dinosaur_ad.station.sources.source import Source, make_source

Start = Callable[..., Any]
FAKE = shutil.which("arv-fake-gv-camera-0.8")
SERIAL = "DINOSAUR1"


@pytest.fixture
def taker() -> Taker:
    return Taker()


@pytest.fixture
def start(taker: Taker) -> Iterator[Start]:
    sources: list[Source] = []

    def started(**options: Any) -> Source:
        source = make_source(SourceConfig("cam", "genicam", **options), taker)
        source.backoff.first = 0.1
        source.backoff.most = 0.5
        source.start()
        sources.append(source)
        return source

    yield started
    for source in sources:
        assert source.stop()


class FakeCamera:
    """The fake camera of Aravis, as a process."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        assert FAKE
        command = [FAKE, "-i", "127.0.0.1", "-s", SERIAL]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def camera() -> Iterator[FakeCamera]:
    if FAKE is None:
        pytest.skip("Aravis' fake camera is not installed (aravis-tools)")
    probe = "import gi; gi.require_version('Aravis', '0.8'); from gi.repository import Aravis"
    if subprocess.run([genicam.python_with_aravis(), "-c", probe], capture_output=True).returncode:
        pytest.skip("the system's Python has no Aravis (gir1.2-aravis-0.8)")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe_socket:
        try:
            probe_socket.bind(("127.0.0.1", 3956))
        except OSError:
            pytest.skip("another camera uses the port of GigE Vision")
    fake = FakeCamera()
    yield fake
    fake.stop()


@pytest.mark.slow
def test_a_camera_gives_frames_and_comes_back_after_it_was_lost(camera: FakeCamera, taker: Taker, start: Start) -> None:
    settings = {"Width": "128", "Height": "96", "ExposureTimeAbs": "5000"}
    source = start(device=f"Aravis-Fake-{SERIAL}", settings=settings, trigger="timer", rate=10.0)
    first = [taker.next() for _ in range(3)]
    assert first[0].pixels is not None
    assert (first[0].pixels.shape, first[0].pixels.dtype) == ((96, 128, 3), np.uint8)
    assert first[0].pixels.std() > 5
    assert source.state()["state"] == "running"
    camera.stop()
    assert f"Aravis-Fake-{SERIAL}" in until_state(source, "waiting")["reason"]
    while not taker.pictures.empty():
        taker.next()
    camera.start()
    again = [taker.next() for _ in range(3)]
    assert not {picture.key for picture in again} & {picture.key for picture in first}
    assert source.state()["state"] == "running"


@pytest.mark.slow
def test_it_is_triggered_from_outside_and_a_wrong_setting_is_a_sentence(
    camera: FakeCamera, taker: Taker, start: Start
) -> None:
    source = start(device=f"Aravis-Fake-{SERIAL}", trigger="http")
    until_state(source, "running")
    source.trigger("part-1")
    assert taker.next().part == "part-1"
    assert taker.pictures.empty()
    assert source.stop()
    wrong = start(device=f"Aravis-Fake-{SERIAL}", settings={"Sharpnes": "1"})
    reason = until_state(wrong, "failed")["reason"]
    assert "Sharpnes cannot be set to 1" in reason


def test_a_missing_aravis_is_a_sentence(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    without = tmp_path / "python3"
    without.write_text('#!/bin/sh\necho \'{"code": 3, "sentence": "No module named gi"}\' >&2\nexit 3\n')
    without.chmod(0o755)
    monkeypatch.setattr(genicam, "python_with_aravis", lambda: str(without))
    reason = until_state(start(), "failed")["reason"]
    assert "apt install gir1.2-aravis-0.8 python3-gi" in reason
    assert "--system-site-packages" in reason


def test_a_program_that_writes_rubbish_or_dies_is_started_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    strange = tmp_path / "python3"
    strange.write_text("#!/bin/sh\nhead -c 100 /dev/zero\n")
    strange.chmod(0o755)
    monkeypatch.setattr(genicam, "python_with_aravis", lambda: str(strange))
    source = start()
    assert "something else than frames" in until_state(source, "waiting")["reason"]
    strange.write_text("#!/bin/sh\nexit 1\n")
    until(lambda: "is not there (exit code 1)" in source.state()["reason"])


# --- pixel formats ---


def scene() -> NDArray[np.uint8]:
    """A smooth colour picture, which survives a Bayer pattern."""
    rows, columns = np.mgrid[0:24, 0:32]
    return np.stack([4 * rows + 50, 3 * columns + 60, 200 - 2 * rows - columns], 2).astype(np.uint8)


def mosaic(rgb: NDArray[np.uint8], first: str) -> NDArray[np.uint8]:
    second = {"GR": "BG", "RG": "GB", "GB": "RG", "BG": "GR"}[first]
    values = np.empty(rgb.shape[:2], np.uint8)
    for row, colours in enumerate((first, second)):
        for column, colour in enumerate(colours):
            values[row::2, column::2] = rgb[row::2, column::2, "RGB".index(colour)]
    return values


@pytest.mark.parametrize("first", ["GR", "RG", "GB", "BG"])
def test_bayer_pictures_come_out_in_colour(first: str) -> None:
    rgb = scene()
    found = demosaiced(mosaic(rgb, first), first)
    assert np.abs(found.astype(int) - rgb)[1:-1, 1:-1].max() <= 1
    number = 0x01080008 + ["GR", "RG", "GB", "BG"].index(first)
    assert (rgb_of(mosaic(rgb, first).tobytes(), 32, 24, number) == found).all()


def test_grey_of_any_depth_keeps_its_upper_bits() -> None:
    grey = scene()[..., 0]
    deep = grey.astype("<u2")
    twelve = deep.ravel() << 4
    low, high = twelve[::2], twelve[1::2]
    packed = np.stack([low >> 4, (high & 15) << 4 | low & 15, high >> 4], 1).astype(np.uint8)
    lsb = np.stack([low & 255, (high & 15) << 4 | low >> 8, high >> 4], 1).astype(np.uint8)
    formats = {
        0x01080001: grey,
        0x01100003: deep << 2,
        0x01100005: deep << 4,
        0x01100007: deep << 8,
        0x010C0006: packed,
        0x010C0047: lsb,
    }
    for number, data in formats.items():
        found = rgb_of(data.tobytes(), 32, 24, number)
        assert (found == grey[..., None]).all(), hex(number)


def test_colour_formats_and_those_that_are_not_read() -> None:
    rgb = scene()
    assert (rgb_of(rgb.tobytes(), 32, 24, 0x02180014) == rgb).all()
    assert (rgb_of(rgb[..., ::-1].tobytes(), 32, 24, 0x02180015) == rgb).all()
    assert (rgb_of(bytes([128, 90] * 32 * 24), 32, 24, 0x0210001F) == 90).all()
    assert (rgb_of(bytes([90, 128] * 32 * 24), 32, 24, 0x02100032) == 90).all()
    with pytest.raises(InputError, match="0x12345678 is not read"):
        rgb_of(b"", 32, 24, 0x12345678)
    with pytest.raises(InputError, match="only 3 bytes"):
        rgb_of(b"abc", 32, 24, 0x01080001)
