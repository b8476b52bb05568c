"""The images for the parity check and for the calibration of int8: the user's own where there are any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.datasets.folder import folder_task
from dinosaur_ad.datasets.synthetic.scenario import SyntheticSample
from dinosaur_ad.encoders import prepare
from dinosaur_ad.errors import InputError
from dinosaur_ad.export.gate import GateImages
from dinosaur_ad.images.loading import find_images
from dinosaur_ad.images.prefetching import read_many
from dinosaur_ad.store import TaskStore

Pixels = NDArray[np.uint8]
_Item = TypeVar("_Item")

MOST_NORMALS, MOST_TAUGHT, MOST_TESTS = 64, 128, 400
"""More images would not move the figures noticeably."""
FEWEST = 4
DRAWN = 12


def find_normals(given: Sequence[str | Path] | None, store: TaskStore | None, task: str | None) -> list[Path]:
    """The files of normal images: those given, else those that the store's tasks were taught from, where still there.

    An empty list when there are none; a store keeps the names of its images, never the images.
    """
    if given:
        return find_images(given)
    if store is None:
        return []
    names = [task] if task else store.names()
    labels = [label for name in names for label in store.record(name).manifest["images"]]
    return [path for path in map(Path, labels) if path.is_file()]


def gate_images(normals: Sequence[Path], labelled: Path | None, size: int, *, has_bank: bool = False) -> GateImages:
    """Images to teach a bank and to test: the labelled ones, or else normals and what a pasted patch makes of them.

    Without any images, drawn ones: enough to see that an export computes what it should, not how well it will do on a
    product. ``has_bank``: a store has a bank already, and none needs to be taught.
    """
    if not normals and labelled is None:
        drawn = np.stack([SyntheticSample("gear", index=index, size=max(64, size)).image() for index in range(DRAWN)])
        return _halved(prepare(drawn, size), "drawn, not photographs")
    taught = read_some(normals, MOST_NORMALS if labelled is None else MOST_TAUGHT, size) if normals else None
    if labelled is None:
        assert taught is not None
        return _halved(taught, "normal ones, and copies of them with a patch in a wrong place")
    samples = spread(folder_task(labelled, test=labelled).test, MOST_TESTS)
    tests = prepare([sample.image() for sample in samples], size)
    labels = np.asarray([sample.label for sample in samples])
    if taught is None and not has_bank:
        raise InputError(
            "Labelled images alone cannot be scored: a bank of normals is needed; give some with --images, or a store "
            "and one of its tasks (--store, --task)."
        )
    return GateImages(tests[:0] if taught is None else taught, tests, labels, "labelled ones")


def read_some(paths: Sequence[Path], most: int, size: int) -> Pixels:
    """At most ``most`` readable images of them, evenly spread, prepared (N, size, size, 3)."""
    # Each is resized as it comes: the originals of all would not fit into memory.
    read = (image for _, image in read_many(spread(paths, most)) if not isinstance(image, InputError))
    images = [prepare([image], size) for image in read]
    if not images:
        raise InputError(f"None of the {len(paths)} images could be read; give readable images of normal products.")
    return np.concatenate(images)


def spread(items: Sequence[_Item], most: int) -> list[_Item]:
    """At most ``most`` of the items, evenly spread over all.

    >>> spread("abcdefg", 3)
    ['a', 'd', 'g']
    """
    if len(items) <= most:
        return list(items)
    return [items[round(index)] for index in np.linspace(0, len(items) - 1, most)]


def _halved(pixels: Pixels, source: str) -> GateImages:
    """One half teaches; the other is tested as it is, and with a patch of each image pasted elsewhere in it."""
    if len(pixels) < FEWEST:
        raise InputError(
            f"The export is compared with float32 on normal images, at least {FEWEST} of them, but there are "
            f"{len(pixels)}; give more with --images."
        )
    normals, tests = pixels[::2], pixels[1::2]
    return GateImages(normals, np.concatenate([tests, pasted(tests)]), None, source)


def pasted(pixels: Pixels) -> Pixels:
    """Copies of images (N, S, S, 3) in each of which a rectangle lies in a wrong place: scores spread as real ones do.

    >>> pasted(np.arange(2 * 32 * 32 * 3, dtype=np.uint8).reshape(2, 32, 32, 3)).shape
    (2, 32, 32, 3)
    """
    rng, side = np.random.default_rng(0), pixels.shape[1]
    copies = pixels.copy()
    for copy in copies:
        height, width = rng.integers(max(2, side // 16), max(3, side // 3), 2)
        (top, to_top), (left, to_left) = rng.integers(0, side - height, 2), rng.integers(0, side - width, 2)
        copy[to_top : to_top + height, to_left : to_left + width] = copy[top : top + height, left : left + width][
            ::-1
        ].copy()
    return copies
