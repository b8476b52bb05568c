"""EfficientAD's pretraining penalty: images of anything, on which the student's output should be 0.

The original draws one ImageNet image a step and adds the mean square of the student's first half on it to the loss, so
that the student does not learn to imitate the teacher on what it has never seen. Any folder of images will do here.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad.images.loading import find_images, read_image
from dinosaur_ad.methods.shared.pixel_cache import PixelCache
from dinosaur_ad.methods.shared.torch_tools import import_torch

if TYPE_CHECKING:
    import torch

GREY_SHARE = 0.3
THREADS = 4
# Resized images kept in memory: all of a folder of 5000 at 256 pixels.
KEEP_BYTES = 2**30


class PenaltyImages:
    """The images below a folder, resized to twice ``size`` and cut to their middle ``size`` x ``size``."""

    def __init__(self, folder: str, size: int) -> None:
        self.paths = find_images([Path(folder).expanduser()], strict=True)
        self.size = size
        self._cache = PixelCache(KEEP_BYTES)

    @cached_property
    def sha256(self) -> str:
        """A hash of the files' names and sizes; hashing millions of images would take longer than training."""
        lines = (f"{path.name}\0{path.stat().st_size}" for path in self.paths)
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()

    def draw(self, count: int, generator: torch.Generator) -> NDArray[np.uint8]:
        """``count`` images ``(N, size, size, 3)`` drawn with repetition, about three in ten of them grey."""
        torch = import_torch()
        chosen = torch.randint(len(self.paths), (count,), generator=generator).tolist()
        is_grey = (torch.rand(count, generator=generator) < GREY_SHARE).tolist()
        with ThreadPoolExecutor(min(count, THREADS), thread_name_prefix="penalty-image") as pool:
            return np.stack(list(pool.map(self._read, chosen, is_grey)))

    def _read(self, index: int, is_grey: bool) -> NDArray[np.uint8]:
        pixels = self._cache.get(index)
        if pixels is None:
            image = Image.fromarray(read_image(self.paths[index]))
            image = image.resize((2 * self.size, 2 * self.size), Image.Resampling.BILINEAR)
            start = self.size // 2
            pixels = np.asarray(image.crop((start, start, start + self.size, start + self.size)))
            self._cache.add(index, pixels)
        return np.asarray(Image.fromarray(pixels).convert("L").convert("RGB")) if is_grey else pixels
