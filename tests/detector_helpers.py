"""What several test folders share."""

from __future__ import annotations

import hashlib
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dinosaur_ad import Dinosaur, EncoderOptions
from dinosaur_ad.presets import DEFAULT, FAST, PAPER, Preset

# The presets on an encoder of a few thousand random parameters: everything but the accuracy is the real thing.
TINY: Preset = replace(DEFAULT, name="tiny", layers=(0, 1), size=70)
TINY_FAST: Preset = replace(FAST, name="tiny-fast", layers=(0, 1), size=70)
TINY_PAPER: Preset = replace(PAPER, name="tiny-paper", size=70)


def shared_folder(variable: str) -> Path:
    """The folder an environment variable names; the test is skipped when it names none."""
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} is not set: this test needs the real images or weights that it points to")
    return Path(folder)


def product(kind: int, count: int, seed: int = 0, size: int = 70) -> list[NDArray[np.uint8]]:
    """Normal images of a made-up product: its own pattern, with a little noise and light."""
    pattern = np.random.default_rng(1000 + kind).integers(40, 215, (size // 10, size // 10, 3))
    base = np.kron(pattern, np.ones((10, 10, 1)))
    rng = np.random.default_rng(seed)
    gains = rng.uniform(0.95, 1.05, count)
    return [np.clip(base * gain + rng.normal(0, 4, base.shape), 0, 255).astype(np.uint8) for gain in gains]


def spoil(image: NDArray[np.uint8], row: int = 30, column: int = 40) -> NDArray[np.uint8]:
    """The image with a defect: a small square of another material."""
    spoiled = image.copy()
    spoiled[row : row + 12, column : column + 12] = (250, 10, 240)
    return spoiled


def tiny(store: Path | None = None, preset: Preset = TINY, **options: Any) -> Dinosaur:
    """A detector with the encoder of random parameters; options of the encoder are given like those of the detector."""
    return Dinosaur(store, encoder="tiny-dinov2", preset=preset, **grouped(options))


def grouped(options: dict[str, Any]) -> dict[str, Any]:
    """Options of a detector, with those of its encoder put into one object."""
    of_encoder = {each.name: options.pop(each.name) for each in fields(EncoderOptions) if each.name in options}
    return options | {"options": EncoderOptions(**of_encoder)}


def taught_three_products(preset: Preset = TINY) -> Dinosaur:
    """One that has learned product-0, product-1 and product-2 from 30 images each."""
    detector = tiny(preset=preset)
    for kind in range(3):
        detector.learn(f"product-{kind}", product(kind, 30))
    return detector


def tree_hash(folder: Path) -> str:
    """Of all names and contents below a folder but the lock, which says nothing."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in files)).hexdigest()
