"""What a training is made of: its schedule, its batches in their order, and the circumstances of a step.

The loop itself is :mod:`dinosaur_ad.methods.training.training`. torch is imported by the functions that need it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.contract import Photo, Workbench
from dinosaur_ad.methods.parts import lazy
from dinosaur_ad.methods.parts.held import Held

if TYPE_CHECKING:
    import torch

Pixels = NDArray[np.uint8]

# Prepared images that a training keeps in memory, so that they are read once and not in every epoch.
KEEP_BYTES = 2**30


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train; the defaults are what the paper demands of every method that trains.

    ``course`` is the learning rate over time: constant, half a cosine from ``rate`` to 0 (one value an epoch), or a
    tenth for the last 5 % of the steps. ``clip`` limits the norm of the gradient. ``mixed`` computes in bfloat16 where
    torch holds that safe, on a GPU only; ``tf32`` lets a GPU round what it multiplies to ten bits, which needs no
    conversions and is several times faster than float32. ``decay`` is L2 for Adam and SGD (which has no momentum),
    decoupled for AdamW.
    """

    epochs: int = 300
    batch: int = 12
    rate: float = 7.5e-4
    decay: float = 1e-4
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"
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

    def rate_at(self, epoch: int, done: float) -> float:
        """The learning rate in ``epoch`` (from 0) when the share ``done`` of all steps is behind.

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

    ``generator`` (on the CPU) is for augmentation: it knows seed, task, epoch and step. torch's global generators are
    seeded by the same before every step, so dropout needs nothing.
    """

    images: torch.Tensor
    pixels: Pixels
    photos: list[Photo]
    epoch: int
    index: int
    generator: torch.Generator


@dataclass(frozen=True)
class EpochLog:
    """What an epoch was like. ``loss``: mean over the images of the steps that counted, NaN when none did.

    ``nan``: steps skipped because the loss or the gradient was not finite. ``extra``: what ``after_epoch`` found.
    """

    epoch: int
    loss: float
    nan: int
    extra: dict[str, float]
    seconds: float


@dataclass
class Position:
    """The next step to be done, what its epoch gave so far, and the epochs before."""

    epoch: int = 0
    index: int = 0
    loss: float = 0.0
    images: int = 0
    nan: int = 0
    seconds: float = 0.0
    logs: list[EpochLog] = field(default_factory=list)

    @classmethod
    def read(cls, notes: dict[str, Any]) -> Position:
        """From what ``asdict`` made of one."""
        return cls(**(notes | {"logs": [EpochLog(**log) for log in notes["logs"]]}))

    @property
    def mean(self) -> float:
        """The loss of this epoch so far."""
        return self.loss / self.images if self.images else math.nan


class Feed:
    """The batches of a task in their order, the next one being read while the last one is learned."""

    def __init__(self, photos: Sequence[Photo], schedule: Schedule, size: int, workbench: Workbench, task: int) -> None:
        self.steps = -(-len(photos) // schedule.batch)
        self.task, self.workbench = task, workbench
        self._photos, self._schedule, self._size = photos, schedule, size
        self._order: tuple[int, NDArray[np.int64]] | None = None
        self._ahead: tuple[tuple[int, int], Future[Pixels]] | None = None
        self._held = Held(KEEP_BYTES)

    def __enter__(self) -> Feed:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="feed")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def take(self, epoch: int, index: int) -> Step:
        """The batch of that step, on the device of the workbench; seeds all of torch for it."""
        torch, device = import_torch(), self.workbench.device
        pixels = self._read(epoch, index)
        own, everyones = self._seeds(epoch, index)
        torch.manual_seed(everyones)
        # Channels first in memory too: convolutions choose their way of computing by the layout.
        raw = torch.from_numpy(pixels).to(device).float().permute(0, 3, 1, 2).contiguous()
        mean, std = (torch.tensor(each, device=device)[:, None, None] for each in (IMAGE_MEAN, IMAGE_STD))
        images = (raw / 255 - mean) / std
        return Step(images, pixels, self._batch_photos(epoch, index), epoch, index, torch.Generator().manual_seed(own))

    def seed(self, epoch: int, index: int) -> None:
        """Seed all of torch for that step."""
        import_torch().manual_seed(self._seeds(epoch, index)[1])

    def _seeds(self, epoch: int, index: int) -> tuple[int, int]:
        """Two numbers for that step: of the step's own generator and of the global ones."""
        sequence = np.random.SeedSequence([self.workbench.seed, self.task, epoch, index])
        own, everyones = (int(word) >> 1 for word in sequence.generate_state(2, np.uint64))
        return own, everyones

    def _read(self, epoch: int, index: int) -> Pixels:
        """The prepared pixels of that step (B, S, S, 3); begins to read those of the next."""
        if self._ahead is not None and self._ahead[0] == (epoch, index):
            pixels = self._ahead[1].result()
        else:
            pixels = self._prepare(epoch, index).result()
        following = (epoch, index + 1) if index + 1 < self.steps else (epoch + 1, 0)
        if following[0] < self._schedule.epochs:
            self._ahead = (following, self._prepare(*following))
        return pixels

    def _prepare(self, epoch: int, index: int) -> Future[Pixels]:
        return self._pool.submit(self._pixels, self._batch_photos(epoch, index))

    def _pixels(self, photos: Sequence[Photo]) -> Pixels:
        """The prepared pixels of some photos; only ever called in the one thread of the pool."""
        found = [self._held.get(photo.key) for photo in photos]
        missing = [index for index, pixels in enumerate(found) if pixels is None]
        if missing:
            fresh = self.workbench.cache.prepared([photos[index] for index in missing], self._size)
            for index, pixels in zip(missing, fresh, strict=True):
                found[index] = pixels
                self._held.offer(photos[index].key, pixels)
        return np.stack([pixels for pixels in found if pixels is not None])

    def _batch_photos(self, epoch: int, index: int) -> list[Photo]:
        if self._order is None or self._order[0] != epoch:
            generator = np.random.default_rng([self.workbench.seed, self.task, epoch])
            self._order = (epoch, generator.permutation(len(self._photos)))
        chosen = self._order[1][index * self._schedule.batch :][: self._schedule.batch]
        return [self._photos[n] for n in chosen]


def build_optimiser(parameters: Sequence[torch.nn.Parameter], schedule: Schedule) -> Any:
    """A fresh optimiser."""
    torch = import_torch()
    if schedule.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr=schedule.rate, weight_decay=schedule.decay)
    kind = torch.optim.AdamW if schedule.optimiser == "adamw" else torch.optim.Adam
    # One pass over weights, gradients and moments instead of a dozen: what a network of 631 million waits for on a GPU.
    fused = all(parameter.is_cuda for parameter in parameters)
    return kind(parameters, lr=schedule.rate, weight_decay=schedule.decay, eps=schedule.eps, fused=fused)


def autocast(schedule: Schedule, device: str) -> AbstractContextManager[object]:
    """bfloat16 where it is safe, when asked for and on a GPU; else plain float32."""
    if not (schedule.mixed and device.startswith("cuda")):
        return nullcontext()
    context: AbstractContextManager[object] = import_torch().autocast("cuda", dtype=import_torch().bfloat16)
    return context


class _Precise(Protocol):
    """Settings that say how exactly to compute."""

    @property
    def mixed(self) -> bool: ...

    @property
    def tf32(self) -> bool: ...


def precision_words(config: _Precise, device: str) -> str:
    """How a method with these settings computes in training.

    >>> precision_words(Schedule(mixed=True, tf32=True), "cuda"), precision_words(Schedule(mixed=True), "cpu")
    ('bfloat16 where safe, else tf32, in training', 'float32')
    """
    if not device.startswith("cuda") or not (config.mixed or config.tf32):
        return "float32"
    exact = "tf32" if config.tf32 else "float32"
    return f"bfloat16 where safe, else {exact}, in training" if config.mixed else "tf32 in training"


def rounds(config: _Precise, device: str) -> bool:
    """Whether a network with these settings rounds products to TF32 on this device, which only GPUs do."""
    return config.tf32 and device.startswith("cuda")


def scoring_words(config: _Precise, device: str) -> str:
    """How the networks of a method with these settings compute in scoring, where nothing is in bfloat16.

    >>> scoring_words(Schedule(mixed=True, tf32=True), "cuda:0"), scoring_words(Schedule(tf32=True), "cpu")
    ('tf32 on cuda:0', 'float32 on cpu')
    """
    return f"{'tf32' if rounds(config, device) else 'float32'} on {device}"


def reproducible(device: str, *, tf32: bool = False) -> list[AbstractContextManager[object]]:
    """Contexts in which a step can be repeated, and after which torch's generators are as they were."""
    torch = import_torch()
    if not device.startswith("cuda"):
        return [torch.random.fork_rng(devices=[])]
    return [torch.random.fork_rng(devices=[torch.device(device)]), repeatable(tf32=tf32)]


@contextmanager
def repeatable(*, tf32: bool = False) -> Iterator[None]:
    """What a GPU computes inside, it computes the same way again: no algorithm of cuDNN is chosen by its speed.

    With ``tf32`` products and convolutions are rounded to ten bits before they are added up in float32, the same way
    every time; without it they are not.
    """
    torch = import_torch()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def import_torch() -> Any:
    """The torch module, or what to install to train."""
    return lazy.import_torch("Training")
