"""What the tests of the command line share: a preset for a tiny encoder, and a look at a folder."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dinosaur_ad.cli import main
from dinosaur_ad.presets import DEFAULT

TINY = replace(DEFAULT, name="tiny", layers=(0, 1), size=70)
NEW_STORE = ("--preset", "tiny", "--encoder", "tiny-dinov2")
# What another process can use, where the preset above is not known.
NEW_STORE_ELSEWHERE = ("--preset", "paper", "--encoder", "tiny-dinov2")


def make_normals(folder: Path, count: int, pattern: int = 0) -> Path:
    """Normal images of a made-up product, as PNG files of 70 x 70 pixels."""
    folder.mkdir(parents=True)
    blocks = np.random.default_rng(pattern).integers(40, 215, (7, 7, 3))
    base = np.kron(blocks, np.ones((10, 10, 1)))
    rng = np.random.default_rng(pattern + 100)
    for index in range(count):
        pixels = np.clip(base + rng.normal(0, 5, base.shape), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{index:03d}.png")
    return folder


def make_defect(normal: Path, path: Path) -> Path:
    """A normal image with a square of another material."""
    pixels = np.array(Image.open(normal))
    pixels[25:45, 25:45] = (250, 10, 240)
    Image.fromarray(pixels).save(path)
    return path


def tree_hash(folder: Path) -> str:
    """Changes with any file or folder below, except the store's lock."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.name not in (".lock", ".writer"):
            digest.update(str(path).encode())
            digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def assert_refused(capsys: pytest.CaptureFixture[str], argv: list[str], sentence: str, store: Path) -> None:
    """The command says ``sentence`` in its one line on stderr, exits with 2 and leaves the store as it was."""
    capsys.readouterr()
    before = tree_hash(store)
    code = main(argv)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("dinosaur: ")
    assert err.count("\n") == 1
    assert sentence in err
    assert tree_hash(store) == before
