"""What a teacher is made from: the recipe, the images, and the features of the large network that it is to give."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dinosaur_ad.encoders import ResNetSpec, get_spec, load_encoder, load_resnet, prepare
from dinosaur_ad.encoders.pair import one_network
from dinosaur_ad.encoders.registry import token_encoder
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import Pixels, read_image
from dinosaur_ad.methods.efficientad.pdn import CHANNELS, PDN_WIDTHS
from dinosaur_ad.methods.shared.pixel_cache import PixelCache
from dinosaur_ad.methods.shared.torch_tools import LUMA, import_torch

if TYPE_CHECKING:
    import torch

THREADS = 8
# Bytes of prepared images kept in memory: a GPU learns a batch faster than it is read. ImageNet does not fit.
HELD_BYTES = 4 * 10**9


@dataclass(frozen=True)
class Recipe:
    """How a teacher is taught. ``layer`` is the block of a token encoder, two thirds up when None; a ResNet has none.

    ``shared_grey``: whether both networks see the same images as grey, or each has its own.
    """

    iterations: int = 60_000
    batch: int = 16
    rate: float = 1e-3
    decay: float = 1e-4
    grey: float = 0.1
    shared_grey: bool = False
    smooth: bool = False
    measured: int = 10_000
    size: int = 256
    channels: int = CHANNELS
    widths: tuple[int, int] = PDN_WIDTHS
    layer: int | None = None

    def __post_init__(self) -> None:
        for name in ("iterations", "batch", "measured", "channels"):
            if getattr(self, name) < 1:
                raise InputError(f"A teacher's {name} must be at least 1, got {getattr(self, name)}.")
        if self.size < 64 or self.size % 32:
            raise InputError(f"A teacher's image size must be a multiple of 32 and at least 64, got {self.size}.")


RECIPES = {"paper": Recipe(), "original": Recipe(rate=1e-4, decay=1e-5, shared_grey=True, smooth=True)}


class TeacherImages:
    """The images of a folder in a random order that never ends; files are read by several threads."""

    def __init__(self, paths: list[Path], seed: int, recipe: Recipe) -> None:
        self.paths = paths
        self.unreadable: set[Path] = set()
        self._seed, self._recipe = seed, recipe
        self._order = lru_cache(maxsize=2)(self._permutation)
        self._held = PixelCache(HELD_BYTES)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="teacher-image")

    def sha256(self) -> str:
        """A hash of the names: which images these are, as far as can be said without reading them all."""
        return hashlib.sha256("\n".join(path.name for path in self.paths).encode()).hexdigest()

    def batch(self, iteration: int, large: int) -> tuple[Pixels, Pixels]:
        """The images of an iteration: (B, S, S, 3) for the small network, (B, large, large, 3) for the large one."""
        recipe = self._recipe
        chance = np.random.default_rng([self._seed, 1, iteration])
        grey_small = chance.random(recipe.batch) < recipe.grey
        grey_large = grey_small if recipe.shared_grey else chance.random(recipe.batch) < recipe.grey
        places = range(iteration * recipe.batch, (iteration + 1) * recipe.batch)

        def both(place: int, small_is_grey: bool, large_is_grey: bool) -> tuple[Pixels, Pixels]:
            small, wide = self._prepared(place, (recipe.size, large))
            return to_grey(small) if small_is_grey else small, to_grey(wide) if large_is_grey else wide

        pairs = list(self._pool.map(both, places, grey_small.tolist(), grey_large.tolist()))
        return np.stack([small for small, _ in pairs]), np.stack([wide for _, wide in pairs])

    def plain(self, start: int, count: int, size: int) -> Pixels:
        """``count`` images from ``start`` on, (N, size, size, 3), all in colour."""
        places = range(start, start + count)
        return np.concatenate(list(self._pool.map(lambda place: self._prepared(place, (size,))[0][None], places)))

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _permutation(self, epoch: int) -> list[int]:
        order: list[int] = np.random.default_rng([self._seed, 0, epoch]).permutation(len(self.paths)).tolist()
        return order

    def _prepared(self, place: int, sizes: tuple[int, ...]) -> list[Pixels]:
        """The image at a place of the endless order in each of the sizes, (S, S, 3).

        One that cannot be read is passed over for the next. The first ones that fit into memory stay there.
        """
        for each in range(place, place + len(self.paths)):
            epoch, index = divmod(each, len(self.paths))
            path = self.paths[self._order(epoch)[index]]
            held = [self._held.get((path, size)) for size in sizes]
            known = [pixels for pixels in held if pixels is not None]
            if len(known) == len(sizes):
                return known
            try:
                picture = read_image(path)
            except InputError:  # one damaged file of a million must not end a run of hours; they are counted
                self.unreadable.add(path)
                continue
            made = [prepare([picture], size)[0] for size in sizes]
            for size, pixels in zip(sizes, made, strict=True):
                self._held.add((path, size), pixels)
            return made
        raise InputError(f"None of the {len(self.paths)} images can be read; '{self.paths[0]}' is the first of them.")


def to_grey(pixels_HWC: Pixels) -> Pixels:
    """The same image (H, W, 3) without colour."""
    grey = np.rint(pixels_HWC @ np.asarray(LUMA)).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


class Target:
    """The large network's features on the small network's grid: (N, channels, S/4, S/4)."""

    def __init__(self, encoder: str, recipe: Recipe, weights: str | None, device: str) -> None:
        from dinosaur_ad.encoders.backends.torch_backend import check_device

        check_device(device)
        self._recipe, self._device = recipe, device
        self.size = 2 * recipe.size
        spec = one_network(get_spec(encoder))
        self._network: Any
        if isinstance(spec, ResNetSpec):
            self._network, self._maps = load_resnet(encoder, device=device, weights=weights), self._stages
        else:
            patch, depth = token_encoder(spec).patch, token_encoder(spec).depth
            self.size = round(self.size / patch) * patch
            layer = 2 * depth // 3 if recipe.layer is None else recipe.layer
            self._network = load_encoder(
                encoder, layers=(layer,), size=self.size, provider="torch", device=device, weights=weights
            )
            self._maps = self._tokens
        info = self._network.info()
        self.description, self.sha256 = str(info["description"]), str(info["weights_sha256"])

    def __call__(self, pixels: Pixels) -> torch.Tensor:
        """The features of prepared images (N, size, size, 3)."""
        functional = import_torch().nn.functional
        maps = self._maps(pixels)
        if self._recipe.smooth:
            maps = [functional.avg_pool2d(each, 3, stride=1, padding=1) for each in maps]
        grid = (self._recipe.size // 4,) * 2
        aligned = [functional.interpolate(each, size=grid, mode="bilinear") for each in maps]
        stacked_NCHW = import_torch().cat(aligned, dim=1)
        if stacked_NCHW.shape[1] == self._recipe.channels:
            return stacked_NCHW
        points_NPC = stacked_NCHW.flatten(2).transpose(1, 2)
        pooled_NPC = functional.adaptive_avg_pool1d(points_NPC, self._recipe.channels)
        return pooled_NPC.transpose(1, 2).unflatten(2, grid)

    def _stages(self, pixels: Pixels) -> list[torch.Tensor]:
        return [each.clone() for each in self._network(pixels)]

    def _tokens(self, pixels: Pixels) -> list[torch.Tensor]:
        patches_NHWC = import_torch().from_numpy(self._network.encode_prepared(pixels).patches)
        return [patches_NHWC.to(self._device).permute(0, 3, 1, 2)]
