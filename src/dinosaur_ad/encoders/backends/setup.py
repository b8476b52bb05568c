"""What every backend makes an encoder from."""

from __future__ import annotations

from dataclasses import dataclass

from dinosaur_ad.encoders.base import Layer
from dinosaur_ad.encoders.weights.local import Weights


@dataclass(frozen=True)
class Setup:
    """Which network, tapped at which ``layers``, for images of ``size`` pixels, and how it runs.

    ``threads`` None is one for each core; ``provider`` is that of ONNX Runtime, ``device`` that of torch.
    """

    weights: Weights
    layers: tuple[Layer, ...]
    size: int
    provider: str
    precision: str
    threads: int | None = None
    device: str = "cpu"
