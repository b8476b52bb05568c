"""A product in files, and a store that has learned it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_helpers import TINY, make_defect, make_normals

from dinosaur_ad import Dinosaur
from dinosaur_ad.presets import PRESETS


@pytest.fixture(autouse=True)
def _tiny_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DINOSAUR_STORE", raising=False)
    monkeypatch.setitem(PRESETS, "tiny", TINY)


@pytest.fixture(scope="session")
def normals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 24 normal images."""
    return make_normals(tmp_path_factory.mktemp("product") / "normal", 24)


@pytest.fixture(scope="session")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 20 normal images of another product."""
    return make_normals(tmp_path_factory.mktemp("product") / "other", 20, pattern=1)


@pytest.fixture(scope="session")
def defect(normals: Path) -> Path:
    return make_defect(normals / "000.png", normals.parent / "defect.png")


@pytest.fixture(scope="session")
def _taught(tmp_path_factory: pytest.TempPathFactory, normals: Path, others: Path) -> Path:
    folder = tmp_path_factory.mktemp("store")
    detector = Dinosaur(folder, encoder="tiny-dinov2", preset=TINY)
    detector.learn("screw", normals)
    detector.learn("washer", others)
    return folder


@pytest.fixture
def store(tmp_path: Path, _taught: Path) -> Path:
    """A store with the tasks screw and washer."""
    return shutil.copytree(_taught, tmp_path / "store")
