"""What the tests of exports share: a store taught with a tiny encoder, and images on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PIL import Image

from detector_helpers import TINY, TINY_PAPER, product, spoil
from dinosaur_ad import Dinosaur
from dinosaur_ad.presets import Preset

NORMALS = product(0, 20)
UNSEEN = product(0, 6, seed=9)
TESTS = [*UNSEEN, *(spoil(image, 10 + 5 * n, 40) for n, image in enumerate(UNSEEN))]

# What can be kept of a task, on both presets.
PRESETS: dict[str, Preset] = {
    "default": TINY,
    "paper": TINY_PAPER,
    "float32": replace(TINY, precision="float32"),
    "int8": replace(TINY, precision="int8"),
}


def write_images(folder: Path) -> Path:
    """The normals as files, ``folder/train``, and labelled ones, ``folder/test``."""
    for split, images in {"train": NORMALS, "test/good": UNSEEN, "test/spot": TESTS[len(UNSEEN) :]}.items():
        (folder / split).mkdir(parents=True)
        for number, image in enumerate(images):
            Image.fromarray(image).save(folder / split / f"{number:02d}.png")
    return folder


def taught(folder: Path, preset: Preset = TINY, encoder: str = "tiny-dinov2", *, from_files: bool = False) -> Path:
    """A store with the task 'plate'."""
    images = write_images(folder / "images") / "train" if from_files else NORMALS
    size = 70 if encoder == "tiny-dinov2" else 64
    detector = Dinosaur(folder / "store", encoder=encoder, preset=replace(preset, size=size))
    detector.learn("plate", images)
    return folder / "store"
