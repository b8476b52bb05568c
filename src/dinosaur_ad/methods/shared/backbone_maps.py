"""Feature maps of the frozen backbones of :mod:`dinosaur_ad.encoders`, whatever their architecture."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders import Encoder, ResNetFeatures, ResNetSpec, get_spec, load_encoder, load_resnet
from dinosaur_ad.encoders.pair import one_network
from dinosaur_ad.methods.shared.torch_tools import import_torch

if TYPE_CHECKING:
    import torch


class BackboneMaps:
    """Resized images (N, S, S, 3) uint8 in, maps (N, C, H, W) out, the finest first.

    The maps are stages 2 and 3 of a ResNet or the blocks ``layers`` of a token encoder, whose tokens are divided by
    their length so that no block outweighs another. The network is loaded with the first image.
    """

    def __init__(self, name: str, *, weights: str, layers: Sequence[int], size: int, device: str) -> None:
        self.spec = one_network(get_spec(name))
        self.channels = (
            sum(self.spec.channels[1:]) if isinstance(self.spec, ResNetSpec) else len(layers) * self.spec.width
        )
        self._weights, self._layers, self._size, self._device = weights or None, layers, size, device

    def __call__(self, pixels: NDArray[np.uint8]) -> Sequence[torch.Tensor]:
        """The maps of a batch."""
        if isinstance(self.network, ResNetFeatures):
            return self.network(pixels)
        torch = import_torch()
        patches_NHWC = torch.from_numpy(self.network.encode_prepared(pixels).patches).to(self._device)
        blocks = patches_NHWC.permute(0, 3, 1, 2).chunk(len(self._layers), dim=1)
        return [torch.nn.functional.normalize(each, dim=1) for each in blocks]

    @cached_property
    def network(self) -> ResNetFeatures | Encoder:
        """The frozen network."""
        if isinstance(self.spec, ResNetSpec):
            return load_resnet(self.spec.name, device=self._device, weights=self._weights)
        return load_encoder(
            self.spec.name,
            layers=self._layers,
            size=self._size,
            provider="torch" if self._device.startswith("cuda") else None,
            device=self._device,
            weights=self._weights,
        )
