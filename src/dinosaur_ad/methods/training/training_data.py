"""The data of a training: its schedule, its batches in a seeded order, and the log of each epoch."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.contract import Config, Photo, Workbench
from dinosaur_ad.methods.shared.pixel_cache import PixelCache
from dinosaur_ad.methods.shared.torch_tools import import_torch

if TYPE_CHECKING:
    import torch

CACHE_BYTES = 2**30
"""Resized images that a training keeps in memory, so that they are read once and not in every epoch."""


@dataclass(frozen=True)
class Schedule:
    """Optimizer, learning rate and length of a training; the defaults are the paper's for every method that trains.

    ``course`` is the learning rate over time: constant, half a cosine from ``rate`` to 0 (one value an epoch), or a
    tenth for the last 5 % of the steps. ``clip`` limits the norm of the gradient. ``mixed`` trains in bfloat16 where
    torch holds that safe, on a GPU only; ``tf32`` lets a GPU round products to ten bits. ``decay`` is the weight decay:
    L2 for Adam and SGD (without momentum), decoupled for AdamW.
    """

    epochs: int = 300
    batch: int = 12
    rate: float = 7.5e-4
    decay: float = 1e-4
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    clip: float | None = None
    eps: float = 1e-8
    mixed: bool = False
    tf32: bool = False
    course: Literal["constant", "cosine", "drop"] = "constant"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "rate", "eps"):
            if not getattr(self, name) > 0:
                raise InputError(f"A training's {name} must be above 0, got {getattr(self, name)}.")
        if not self.decay >= 0:
            raise InputError(f"A training's decay must not be negative, got {self.decay}.")
        if self.clip is not None and not self.clip > 0:
            raise InputError(f"A training's clip must be above 0 or none, got {self.clip}.")

    @classmethod
    def of(cls, config: Config, **changes: Any) -> Schedule:
        """The schedule in a method's settings: all fields that are named as here, and ``changes``."""
        own = {entry.name: getattr(config, entry.name) for entry in fields(cls) if hasattr(config, entry.name)}
        return cls(**(own | changes))

    def rate_at(self, epoch: int, done: float) -> float:
        """The learning rate in ``epoch`` (from 0) after the share ``done`` of all steps.

        >>> drop = Schedule(epochs=100, rate=1.0, course="drop")
        >>> drop.rate_at(94, 0.9475), drop.rate_at(95, 0.95)
        (1.0, 0.1)
        """
        if self.course == "cosine":
            return self.rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        return self.rate / 10 if self.course == "drop" and done >= 0.95 else self.rate


@dataclass(frozen=True)
class Step:
    """One batch: ``images`` (B, 3, S, S) float32, normalised as for ImageNet, on the device; ``pixels`` (B, S, S, 3).

    ``generator`` (on the CPU) is for augmentation, seeded by seed, task, epoch and step. torch's global generators are
    seeded before every step too, so dropout can be repeated.
    """

    images: torch.Tensor
    pixels: NDArray[np.uint8]
    photos: list[Photo]
    epoch: int
    index: int
    generator: torch.Generator


@dataclass(frozen=True)
class EpochLog:
    """One epoch in numbers. ``loss``: mean over the images of all steps that were not skipped, NaN if none is left.

    ``skipped``: steps whose loss or gradient was not finite. ``extra``: what ``after_epoch`` returned.
    """

    epoch: int
    loss: float
    skipped: int
    extra: dict[str, float]
    seconds: float


def finite_or_none(value: float) -> float | None:
    """The number, or None where it is not finite, because JSON has neither NaN nor infinity.

    >>> finite_or_none(0.5), finite_or_none(math.nan)
    (0.5, None)
    """
    return value if math.isfinite(value) else None


def loss_record(logs: Sequence[EpochLog]) -> dict[str, Any]:
    """The loss of the first and the last epoch and the number of skipped steps, for ``Method.info``.

    >>> loss_record([EpochLog(epoch=0, loss=2.5, skipped=1, extra={}, seconds=0.0)])
    {'epochs': 1, 'first_loss': 2.5, 'last_loss': 2.5, 'losses_not_finite': 1}
    """
    return {
        "epochs": len(logs),
        "first_loss": finite_or_none(logs[0].loss),
        "last_loss": finite_or_none(logs[-1].loss),
        "losses_not_finite": sum(log.skipped for log in logs),
    }


class BatchLoader:
    """All batches of a training in their seeded order; the next one is prepared in a thread of its own."""

    def __init__(self, photos: Sequence[Photo], schedule: Schedule, size: int, workbench: Workbench, task: int) -> None:
        self.steps_per_epoch = -(-len(photos) // schedule.batch)
        self._photos, self._schedule, self._size, self._workbench, self._task = photos, schedule, size, workbench, task
        self._cache = PixelCache(CACHE_BYTES)

    def steps(self, first_epoch: int) -> Generator[Step, None, None]:
        """The steps of all epochs from ``first_epoch`` on; torch is seeded for each just before it is yielded."""
        ahead: deque[tuple[int, int, list[Photo], Future[NDArray[np.uint8]]]] = deque()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="batch-loader") as pool:
            for epoch, index, photos in self._batches(first_epoch):
                ahead.append((epoch, index, photos, pool.submit(self._pixels, photos)))
                if len(ahead) > 1:
                    yield self._step(*ahead.popleft())
            yield from (self._step(*last) for last in ahead)

    def seed(self, epoch: int, index: int) -> int:
        """Seed torch's global generators for a step; returns the seed of the step's own generator."""
        sequence = np.random.SeedSequence([self._workbench.seed, self._task, epoch, index])
        own, everyones = (int(word) >> 1 for word in sequence.generate_state(2, np.uint64))
        import_torch().manual_seed(everyones)
        return own

    def _batches(self, first_epoch: int) -> Iterator[tuple[int, int, list[Photo]]]:
        batch = self._schedule.batch
        for epoch in range(first_epoch, self._schedule.epochs):
            order = np.random.default_rng([self._workbench.seed, self._task, epoch]).permutation(len(self._photos))
            for index in range(self.steps_per_epoch):
                yield epoch, index, [self._photos[n] for n in order[index * batch :][:batch]]

    def _pixels(self, photos: Sequence[Photo]) -> NDArray[np.uint8]:
        """The resized images (B, S, S, 3); runs in the loader's thread only."""
        found = [self._cache.get(photo.key) for photo in photos]
        missing = [index for index, pixels in enumerate(found) if pixels is None]
        if missing:
            fresh = self._workbench.cache.prepared([photos[index] for index in missing], self._size)
            for index, pixels in zip(missing, fresh, strict=True):
                found[index] = pixels
                self._cache.add(photos[index].key, pixels)
        return np.stack([pixels for pixels in found if pixels is not None])

    def _step(self, epoch: int, index: int, photos: list[Photo], loading: Future[NDArray[np.uint8]]) -> Step:
        torch, device, pixels = import_torch(), self._workbench.device, loading.result()
        own = self.seed(epoch, index)
        # Contiguous with channels first: convolutions choose their algorithm by the memory layout.
        raw = torch.from_numpy(pixels).to(device).float().permute(0, 3, 1, 2).contiguous()
        mean, std = (torch.tensor(each, device=device)[:, None, None] for each in (IMAGE_MEAN, IMAGE_STD))
        return Step((raw / 255 - mean) / std, pixels, photos, epoch, index, torch.Generator().manual_seed(own))
