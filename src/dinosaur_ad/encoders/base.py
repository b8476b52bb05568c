"""The base class of encoders: uint8 images in, CLS and patch tokens out, the same preprocessing for every backend."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad._text import printable
from dinosaur_ad.core.arrays import Array
from dinosaur_ad.core.exposure import Exposure
from dinosaur_ad.encoders.pair import PairSpec
from dinosaur_ad.encoders.registry import token_encoder
from dinosaur_ad.encoders.specs import EncoderSpec
from dinosaur_ad.encoders.weights.local import Weights
from dinosaur_ad.errors import EncoderError, InputError

Layer = int | Literal["final"]
Images = Sequence[NDArray[np.uint8]] | NDArray[np.uint8]
Floats = NDArray[np.float32]
Reduce = Callable[[Array], Array]
"""What makes features (..., C') of tokens (..., C), wherever they were computed."""

MOST_PIXELS = 4096
"""The longest side of an input; attention over more patches than that fits into no memory."""

IMAGE_MEAN = (0.485, 0.456, 0.406)
IMAGE_STD = (0.229, 0.224, 0.225)
PREPROCESSING = (
    "pillow-bilinear-antialiased, imagenet mean/std, v1"  # part of the fingerprint: change it with the pixels
)


@dataclass(frozen=True)
class Tokens:
    """The tokens of N images: ``cls`` (N, C) and ``patches`` (N, H, W, C), float32."""

    cls: Floats
    patches: Floats

    def __len__(self) -> int:
        return len(self.cls)


def prepare(images: Images, size: int) -> NDArray[np.uint8]:
    """Resize images to what an encoder sees, (N, size, size, 3) uint8.

    ``images`` is a sequence of uint8 arrays (H, W) or (H, W, 3) of any sizes, or one (N, H, W, 3) array. The
    resize is plain (the aspect ratio is not kept), bilinear with antialiasing.

    >>> prepare([np.zeros((480, 640), np.uint8), np.zeros((20, 20, 3), np.uint8)], 224).shape
    (2, 224, 224, 3)
    """
    checked = check_images(images)
    pixels = np.empty((len(checked), size, size, 3), np.uint8)
    for index, image in enumerate(checked):
        if image.shape[:2] != (size, size):
            pixels[index] = prepare_one(Image.fromarray(image), size)
        else:
            pixels[index] = image if image.ndim == 3 else image[:, :, None]
    return pixels


def prepare_one(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """What :func:`prepare` makes of one image in the mode L or RGB: (size, size, 3) uint8."""
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)


def check_images(images: Images) -> Sequence[NDArray[np.uint8]] | NDArray[np.uint8]:
    """Return ``images``; an error names the first one that an encoder cannot read."""
    if isinstance(images, np.ndarray) and images.ndim != 4:
        raise InputError(
            f"Expected a sequence of images or one (N, H, W, 3) array, got an array of shape {images.shape}; "
            "put a single image into a list."
        )
    if len(images) == 0:
        raise InputError("Expected at least one image, got none.")
    for index, image in enumerate(images):
        _check_image(index, image)
    return images


def _check_image(index: int, image: object) -> None:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        found = f"dtype {image.dtype}" if isinstance(image, np.ndarray) else f"a {type(image).__name__}"
        raise InputError(f"Image {index} must be a uint8 NumPy array with values 0-255, got {found}; convert it first.")
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] != 3) or 0 in image.shape:
        raise InputError(
            f"Image {index} must have the shape (H, W) or (H, W, 3) with at least one pixel, got "
            f"{image.shape}; drop an alpha channel and put channels last."
        )


def check_layers(layers: Sequence[Layer], depth: int) -> tuple[Layer, ...]:
    """Return ``layers`` as a tuple when each is a block of the encoder or ``"final"``, without repeats."""
    chosen = tuple(layers)
    valid = [layer == "final" or (type(layer) is int and 0 <= layer < depth) for layer in chosen]
    if not chosen or not all(valid) or len(set(chosen)) != len(chosen):
        raise EncoderError(
            f"Layers must be different blocks from 0 to {depth - 1} or 'final', at least one, got "
            f"{printable(repr(layers))}."
        )
    return chosen


def check_size(size: int, spec: EncoderSpec) -> None:
    """Raise unless ``size`` pixels are a whole number of patches, of a pair those of both parts."""
    if type(size) is not int:
        raise EncoderError(f"The input size must be a whole number of pixels, got {printable(repr(size), 40)}.")
    if size > MOST_PIXELS:
        raise EncoderError(f"The input size can be at most {MOST_PIXELS} pixels, got {printable(str(size), 40)}.")
    if size <= 0 or size % spec.step:
        near = max(1, round(size / spec.step)) * spec.step
        of = "its patch size"
        if isinstance(spec, PairSpec):
            of = f"what the patches of both parts, {spec.patch} and {spec.stride} pixels, divide:"
        raise EncoderError(
            f"The input size of '{spec.name}' must be a positive multiple of {of} {spec.step}, "
            f"got {size}; {near} is the nearest."
        )


def blocks_needed(layers: Sequence[Layer], depth: int) -> int:
    """How many blocks must run so that every layer in ``layers`` exists."""
    return depth if "final" in layers else 1 + max(layer for layer in layers if layer != "final")


class Encoder(ABC):
    """A frozen backbone tapped at ``layers`` for ``size`` x ``size`` pixels.

    A backend implements :meth:`_run`: one batch of prepared pixels to tokens.

    >>> from dinosaur_ad.encoders import load_encoder
    >>> encoder = load_encoder("tiny-dinov2", layers=(0, 2), size=70)
    >>> encoder.encode([np.zeros((100, 80, 3), np.uint8)]).patches.shape
    (1, 5, 5, 32)
    """

    backend: str
    provider: str
    precision: str = "float32"
    threads: int | None = None  # None: all cores
    fallback: str | None = None  # what was requested and why this runs instead; None without a fallback
    matches: Exposure | None = None  # what it matches the brightness of images to by itself, if it does

    def __init__(self, weights: Weights, layers: Sequence[Layer], size: int) -> None:
        spec = token_encoder(weights.spec)
        check_size(size, spec)
        self.spec = spec
        self.name = spec.name
        self.layers = check_layers(layers, spec.depth)
        self.size = size
        self.grid = (size // spec.patch, size // spec.patch)
        self.tail = spec.tail
        self.channels = len(self.layers) * spec.width + self.tail
        self.batch_size = 8
        self.weights_sha256 = weights.sha256
        self.weights_source = weights.source
        self.parts = weights.parts
        self.fingerprint = fingerprint(spec, self.layers, size, weights.sha256)

    @abstractmethod
    def _run(self, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
        """Encode one batch (N, size, size, 3) to CLS (N, C) and patch tokens (N, H, W, C)."""

    def encode(self, images: Images) -> Tokens:
        """Resize and encode images of any sizes; see :func:`prepare` for what is accepted.

        The next batch is resized while the current one is encoded, and memory beyond the result stays that of
        two batches.
        """
        checked = check_images(images)
        tokens = self._empty(len(checked))
        starts = range(0, len(checked), self.batch_size)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="resize") as pool:
            upcoming = pool.submit(prepare, checked[: self.batch_size], self.size)
            for start in starts:
                pixels, following = upcoming.result(), start + self.batch_size
                if following < len(checked):
                    upcoming = pool.submit(prepare, checked[following : following + self.batch_size], self.size)
                self._fill(tokens, start, pixels)
        return tokens

    def encode_prepared(self, pixels: NDArray[np.uint8], reduce: Reduce | None = None) -> Tokens:
        """Encode what :func:`prepare` returned: (N, size, size, 3) uint8.

        ``reduce`` is applied to the tokens of each batch where they were computed: on a GPU less is copied from it, and
        nowhere are the tokens of all blocks of all images held at once.
        """
        wanted = (self.size, self.size, 3)
        if pixels.dtype != np.uint8 or pixels.shape[1:] != wanted or len(pixels) == 0:
            raise InputError(
                f"Expected prepared uint8 pixels of shape (N, {self.size}, {self.size}, 3), got "
                f"{pixels.dtype} {pixels.shape}; call prepare(images, {self.size}) first."
            )
        if len(pixels) <= self.batch_size:
            return Tokens(*self._numbers(pixels, reduce))  # one batch needs no copy
        if reduce is not None:
            starts = range(0, len(pixels), self.batch_size)
            parts = [self._numbers(pixels[start : start + self.batch_size], reduce) for start in starts]
            return Tokens(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        tokens = self._empty(len(pixels))
        for start in range(0, len(pixels), self.batch_size):
            self._fill(tokens, start, pixels[start : start + self.batch_size])
        return tokens

    def info(self) -> dict[str, object]:
        """What made the tokens, as JSON-compatible values; of a pair its ``parts`` too."""
        of_parts = {"parts": [part.info() for part in self.parts]} if self.parts else {}
        return {
            "encoder": self.name,
            "description": self.spec.describe(self.weights_source),
            "backend": self.backend,
            "provider": self.provider,
            "precision": self.precision,
            "threads": self.threads,
            "fallback": self.fallback,
            "layers": list(self.layers),
            "size": self.size,
            "grid": list(self.grid),
            "channels": self.channels,
            "parameters": self.spec.parameters,
            "weights_source": self.weights_source,
            "weights_sha256": self.weights_sha256,
            "fingerprint": self.fingerprint,
            "licence": self.spec.licence,
            **of_parts,
        }

    def _empty(self, count: int) -> Tokens:
        shape = (count, *self.grid, self.channels)
        return Tokens(np.empty((count, self.channels), np.float32), np.empty(shape, np.float32))

    def _fill(self, tokens: Tokens, start: int, pixels: NDArray[np.uint8]) -> None:
        stop = start + len(pixels)
        tokens.cls[start:stop], tokens.patches[start:stop] = self._numbers(pixels)

    def _reduced(self, pixels: NDArray[np.uint8], reduce: Reduce) -> tuple[Floats, Floats]:
        """What ``reduce`` makes of the tokens of :meth:`_run`."""
        cls, patches = self._run(pixels)
        return reduce(cls), reduce(patches)

    def _numbers(self, pixels: NDArray[np.uint8], reduce: Reduce | None = None) -> tuple[Floats, Floats]:
        """The tokens of :meth:`_run`, checked: NaN or infinity would make every distance meaningless."""
        cls, patches = self._run(pixels) if reduce is None else self._reduced(pixels, reduce)
        if not (np.isfinite(cls).all() and np.isfinite(patches).all()):
            raise EncoderError(
                f"The encoder '{self.name}' gives tokens that are no numbers on {self.provider} in {self.precision}; "
                "verify its weights, or choose another provider or precision."
            )
        return cls, patches


def fingerprint(spec: EncoderSpec, layers: Sequence[Layer], size: int, weights_sha256: str) -> str:
    """Short hash of everything that decides the tokens; the same for every backend of one model."""
    architecture = ("family", "patch", "width", "depth", "heads", "registers", "native_size", "eps")
    fields = asdict(spec)
    identity: dict[str, object] = {
        "weights": weights_sha256,
        "architecture": {field: fields[field] for field in architecture},
        "layers": list(layers),
        "size": size,
        "preprocessing": PREPROCESSING,
    }
    if isinstance(spec, PairSpec):
        identity["pair"] = spec.identity()
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
