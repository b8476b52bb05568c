"""Where the time of an inspection goes, and how fast it could go at best.

The stages have one name each, everywhere: ``decode`` (file to pixels), ``resize``, ``encode`` (with a preset that
matches brightness, measuring and matching it too), ``route``, ``score`` (all readings, and the score and map fused from
them), ``map`` (the map at the size of the image). ``model`` is encode, route and score of a method that does not
separate them, ``rest`` what lies between the stages.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.upsampling import upsample
from dinosaur_ad.encoders.base import Layer, blocks_needed, check_layers, check_size, prepare
from dinosaur_ad.encoders.pair import PairSpec
from dinosaur_ad.encoders.specs import EncoderSpec, ResNetSpec

if TYPE_CHECKING:  # a detector that starts cold has no use for the methods of the benchmark
    from dinosaur_ad.methods.contract import Photo

Floats = NDArray[np.float32]

STAGES = ("decode", "resize", "encode", "route", "score", "model", "map", "rest")


def encoder_flops(spec: EncoderSpec, size: int, layers: Sequence[Layer]) -> int:
    """Floating-point operations of one image: products and sums of all matrix products, and nothing else.

    Only the blocks that ``layers`` need are counted, because only they run.

    >>> from dinosaur_ad.encoders import get_spec
    >>> round(encoder_flops(get_spec("dinov3-small"), 224, ("final",)) / 1e9, 1)
    9.4
    """
    check_size(size, spec)
    if isinstance(spec, PairSpec):
        second = spec.second
        beside = resnet_flops(second, size) if isinstance(second, ResNetSpec) else encoder_flops(second, size, layers)
        return encoder_flops(spec.first, size, layers) + beside
    width, places = spec.width, (size // spec.patch) ** 2
    tokens = spec.prefix + places
    embedding = places * 3 * spec.patch**2 * width
    projections = (4 + 2 * 4) * tokens * width**2  # q, k, v, o; up and down, four times as wide
    attention = 2 * tokens**2 * width  # scores, and the mean of the values they weigh
    return 2 * (embedding + blocks_needed(check_layers(layers, spec.depth), spec.depth) * (projections + attention))


def resnet_flops(spec: ResNetSpec, size: int) -> int:
    """Floating-point operations of one image: products and sums of all convolutions, and nothing else.

    >>> from dinosaur_ad.encoders.registry import get_spec, residual_network
    >>> round(resnet_flops(residual_network(get_spec("resnet50")), 224) / 1e9, 1)
    6.6
    """
    total = 0
    for name, shape in spec.tensor_shapes().items():
        if not name.endswith("convolution.weight"):
            continue
        stage = int(name.split(".")[2]) if ".stages." in name else None
        stride = 2 if stage is None else 4 * 2**stage
        # Before the map is halved, the first convolution of a bottleneck that is not strided sees the larger one.
        halved_later = stage and not spec.strided_first and spec.block == "bottleneck"
        if halved_later and name.endswith(".layers.0.layer.0.convolution.weight"):
            stride //= 2
        total += math.prod(shape) * (size // stride) ** 2
    return 2 * total


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """What is said of many timings of one thing.

    >>> spread([1.0, 2.0, 3.0])["p50"], spread([1.0, 2.0, 3.0])["n"]
    (2.0, 3)
    """
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    return {
        "n": len(values),
        "mean": float(np.mean(values)),
        "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
        "min": float(min(values)),
        "p50": float(p50),
        "p95": float(p95),
        "p99": float(p99),
        "max": float(max(values)),
    }


def upsampled(map_HW: NDArray[Any], height: int, width: int) -> Floats:
    """The map at the size of its image, float32 (height, width), bilinear: as overlays are drawn.

    >>> upsampled(np.zeros((2, 2)), 4, 6).shape
    (4, 6)
    """
    return upsample(map_HW, height, width)


@dataclass
class StageCache:
    """The cache of a :class:`~dinosaur_ad.methods.contract.Workbench` that remembers nothing but how long things took.

    Its methods mark where the stages of a method begin and end: pixels are decoded and resized in :meth:`prepared`,
    features are encoded in :meth:`features`. ``seconds`` adds up until :meth:`taken` empties it.
    """

    seconds: dict[str, float] = field(default_factory=dict)

    def prepared(self, photos: Sequence[Photo], size: int) -> NDArray[np.uint8]:
        """Read and resize, and note how long each took."""
        started = time.perf_counter()
        images = [photo.pixels() for photo in photos]
        decoded = time.perf_counter()
        pixels = prepare(images, size)
        self._add({"decode": decoded - started, "resize": time.perf_counter() - decoded})
        return pixels

    def features(self, recipe: str, photos: Sequence[Photo], compute: Callable[[Sequence[Photo]], Floats]) -> Floats:
        """Compute, and note how long that took without the reading."""
        started, before = time.perf_counter(), sum(self.seconds.values())
        features = compute(photos)
        read = sum(self.seconds.values()) - before
        self._add({"encode": time.perf_counter() - started - read})
        return features

    def taken(self) -> dict[str, float]:
        """The seconds of each stage since the last time."""
        taken, self.seconds = self.seconds, {}
        return taken

    def _add(self, seconds: Mapping[str, float]) -> None:
        for stage, each in seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + each


def with_the_rest(total: float, stages: Mapping[str, float], rest: str = "rest") -> dict[str, float]:
    """The stages, and under the name ``rest`` what is left of ``total``.

    >>> with_the_rest(10.0, {"decode": 1.0, "encode": 7.0})
    {'decode': 1.0, 'encode': 7.0, 'rest': 2.0}
    """
    left = total - sum(stages.values())
    return {**stages, rest: stages.get(rest, 0.0) + left}
