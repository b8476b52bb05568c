"""Residual networks on torch through ``transformers``: uint8 images in, the feature maps of stages 2 and 3 out.

They are entries of the same registry as the token encoders, so their weights are fetched, added and verified in the
same way. torch is imported when a network is loaded, not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD
from dinosaur_ad.encoders.providers import require_torch
from dinosaur_ad.encoders.registry import get_spec, residual_network
from dinosaur_ad.encoders.specs import ResNetSpec
from dinosaur_ad.encoders.weights.convert import Floats
from dinosaur_ad.encoders.weights.local import Weights, ensure, from_file
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    import torch

STRIDE = 16  # pixels a cell of stage 3


def load_resnet(name: str = "resnet50", *, device: str = "cpu", weights: str | Path | None = None) -> ResNetFeatures:
    """Return the residual network ``name``, frozen, on ``device``.

    ``weights`` takes the weights from a file or folder instead of the cache: in ``transformers``' or torchvision's
    names, with or without the parts after stage 3, which are not used.
    """
    residual_network(get_spec(name))  # before a download, not after it
    require_torch(name, device)
    return ResNetFeatures(ensure(name) if weights is None else from_file(name, weights), device)


class ResNetFeatures:
    """A frozen residual network, tapped after stages 2 and 3."""

    def __init__(self, weights: Weights, device: str) -> None:
        import torch

        self.spec = residual_network(weights.spec)
        self.channels = self.spec.channels[1:]
        self._weights = weights
        self._device = device
        self._model = _build_model(self.spec, weights.tensors()).to(device)
        self._mean = torch.tensor(IMAGE_MEAN, device=device)
        self._std = torch.tensor(IMAGE_STD, device=device)

    def __call__(self, pixels: NDArray[np.uint8]) -> tuple[torch.Tensor, torch.Tensor]:
        """Stage 2 (N, C2, S/8, S/8) and stage 3 (N, C3, S/16, S/16) of prepared images (N, S, S, 3) uint8."""
        import torch

        if (
            pixels.dtype != np.uint8
            or pixels.ndim != 4
            or pixels.shape[1] % STRIDE
            or pixels.shape[2:]
            != (
                pixels.shape[1],
                3,
            )
        ):
            raise InputError(
                f"Expected prepared uint8 pixels of shape (N, S, S, 3) with S a multiple of {STRIDE}, got "
                f"{pixels.dtype} {pixels.shape}; call prepare(images, S) first."
            )
        # cuDNN would otherwise round to TF32 and pick its algorithms by their speed: neither could be repeated.
        exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        with torch.inference_mode(), exact:
            raw = torch.from_numpy(np.ascontiguousarray(pixels)).to(self._device)
            normalised = (raw.float() / 255 - self._mean) / self._std
            stages = self._model.encoder.stages
            second = stages[1](stages[0](self._model.embedder(normalised.permute(0, 3, 1, 2))))
            return second, stages[2](second)

    def info(self) -> dict[str, object]:
        """What made the maps, as JSON-compatible values."""
        return {
            "encoder": self.spec.name,
            "description": self.spec.describe(self._weights.source),
            "backend": "torch",
            "provider": self._device,
            "precision": "float32",
            "layers": ["stage2", "stage3"],
            "channels": sum(self.channels),
            "parameters": self.spec.parameters,
            "weights_source": self._weights.source,
            "weights_sha256": self._weights.sha256,
            "licence": self.spec.licence,
        }


def _build_model(spec: ResNetSpec, tensors: dict[str, Floats]) -> Any:
    import torch
    import transformers

    config = transformers.ResNetConfig(
        embedding_size=spec.width,
        hidden_sizes=list(spec.channels),
        depths=list(spec.depths),
        layer_type=spec.block,
        downsample_in_bottleneck=spec.strided_first,
    )
    model = transformers.ResNetModel(config)
    for name, value in model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            value.copy_(torch.from_numpy(tensors[name]))
    return model.eval().requires_grad_(False)
