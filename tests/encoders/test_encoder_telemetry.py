"""Nothing leaves the box: a process that learns and inspects opens no connection and leaves no file of others."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from dinosaur_ad import _telemetry
from dinosaur_ad.encoders.providers import available

SOURCES = Path(_telemetry.__file__).resolve().parents[1]
WAIT = 12
"""Seconds that the process stays after its work: ONNX Runtime first sends about ten seconds after its start."""

INSPECT = """
import sys, time
import numpy as np
from dinosaur_ad import Dinosaur, EncoderOptions, PRESETS
from dataclasses import replace

preset = replace(PRESETS["default"], size=28, layers=(0,))
images = list(np.random.default_rng(0).integers(0, 256, (24, 40, 40, 3), dtype=np.uint8))
detector = Dinosaur(sys.argv[2], encoder="tiny-dinov2", preset=preset, options=EncoderOptions(provider=sys.argv[1]))
detector.learn("plate", images)
print(detector.inspect(images[:1])[0].provider)
time.sleep(float(sys.argv[3]))
"""
CONNECTING = re.compile(r"\b(?:socket|connect|sendto|sendmmsg|sendmsg)\((?!AF_UNIX)(?=.*\bAF_(?!UNIX|NETLINK))")


def can_watch() -> bool:
    """Whether strace is here and may watch a process."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-qq", "-e", "trace=none", "true"], capture_output=True).returncode == 0


class Child:
    """A process with an empty home folder, watched where strace is here."""

    def __init__(self, folder: Path, code: str, *arguments: str, **environment: str) -> None:
        self.home, self._calls = folder / "home", folder / "calls"
        self.home.mkdir(parents=True)
        own = {"HOME": str(self.home), "XDG_CACHE_HOME": str(self.home / ".cache"), "PYTHONPATH": str(SOURCES)}
        hidden = {*_telemetry.SWITCHES, "CI", "TF_BUILD", "JENKINS_URL", "DINOSAUR_HOME"}
        kept = {name: value for name, value in os.environ.items() if name not in hidden}
        watch = ["strace", "-f", "-qq", "-e", "trace=network", "-o", str(self._calls)] if can_watch() else []
        self._process = subprocess.Popen(
            [*watch, sys.executable, "-c", code, *arguments],
            env=kept | own | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> str:
        """What it printed, when it has ended well."""
        out, err = self._process.communicate(timeout=300)
        assert self._process.returncode == 0, err
        return out

    def files(self) -> list[str]:
        """What lies in its home folder."""
        return sorted(str(path.relative_to(self.home)) for path in self.home.rglob("*") if path.is_file())

    def connections(self) -> list[str]:
        """The system calls that open or use a socket to anything but this machine's own files."""
        return [line for line in self._calls.read_text().splitlines() if CONNECTING.search(line)]


def foreign(files: list[str]) -> list[str]:
    return [name for name in files if not name.startswith(".cache/dinosaur/")]


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Child]:
    """One inspecting process for each provider that is here; they wait at the same time."""
    folder = tmp_path_factory.mktemp("children")
    started = {
        name: Child(folder / name, INSPECT, name, str(folder / name / "store"), str(WAIT if can_watch() else 0))
        for name in available()
    }
    for name, child in started.items():
        assert child.finish().strip() == ("cpu" if name == "torch" else name)
    return started


@pytest.mark.slow
def test_an_inspection_leaves_no_file_of_others_behind(children: dict[str, Child]) -> None:
    assert "onnx-cpu" in children
    assert {name: foreign(child.files()) for name, child in children.items()} == {name: [] for name in children}


@pytest.mark.slow
@pytest.mark.skipif(not can_watch(), reason="strace is not here or may not watch a process: sockets go unwatched")
def test_an_inspection_opens_no_connection(children: dict[str, Child]) -> None:
    assert {name: child.connections() for name, child in children.items()} == {name: [] for name in children}


@pytest.mark.skipif(not can_watch(), reason="strace is not here or may not watch a process: sockets go unwatched")
def test_the_watch_would_see_a_connection(tmp_path: Path) -> None:
    """Without this the test above could pass because it looks at nothing."""
    asking = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))"
    child = Child(tmp_path, asking)
    child.finish()
    assert len(child.connections()) == 2


def test_what_somebody_switched_on_stays_on(tmp_path: Path) -> None:
    """Also the control of the tests above: ONNX Runtime's files are where they are looked for."""
    child = Child(tmp_path, INSPECT, "onnx-cpu", str(tmp_path / "store"), "0", ORT_DISABLE_TELEMETRY="0")
    child.finish()
    if not foreign(child.files()):
        pytest.skip("the installed ONNX Runtime has no telemetry on this system")
    assert any("onnxruntime" in name for name in foreign(child.files()))


@pytest.mark.parametrize(
    ("given", "becomes"), [(None, "1"), ("", "1"), ("2", "1"), ("true", "1"), ("0", "0"), ("False", "False")]
)
def test_only_a_clear_wish_keeps_telemetry(given: str | None, becomes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    if given is None:
        monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    else:
        monkeypatch.setenv("ORT_DISABLE_TELEMETRY", given)
    monkeypatch.setitem(sys.modules, "onnxruntime", ModuleType("onnxruntime"))
    _telemetry.switch_off()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == becomes


def test_a_run_time_imported_first_is_silenced_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[str] = []
    onnxruntime, openvino = ModuleType("onnxruntime"), ModuleType("openvino.tools.ovc")
    onnxruntime.disable_telemetry_events = lambda: called.append("off")  # type: ignore[attr-defined]
    openvino.telemetry = SimpleNamespace(consent=True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "onnxruntime", onnxruntime)
    monkeypatch.setitem(sys.modules, "openvino", ModuleType("openvino"))
    monkeypatch.setitem(sys.modules, "openvino.tools.ovc", openvino)
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    with caplog.at_level(logging.WARNING):
        _telemetry.switch_off()
    assert called == ["off"]
    assert "onnxruntime and openvino: imported before dinosaur_ad" in caplog.text


def test_every_session_is_silenced_by_the_run_time_itself_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows there are builds that read no variable."""
    import onnxruntime

    from dinosaur_ad.encoders.backends.onnx_backend import session_options

    called: list[str] = []
    monkeypatch.setattr(onnxruntime, "disable_telemetry_events", lambda: called.append("off"))
    session_options(1)
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    session_options(1)
    assert called == ["off"]
