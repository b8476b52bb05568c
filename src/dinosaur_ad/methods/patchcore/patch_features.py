"""What PatchCore remembers of an image: two feature maps of a frozen network as one projected vector a place.

Each map is averaged over a square (3x3 as published; stride 1, zeros around it), coarser ones are brought to the grid
of the first bilinearly, all are put side by side and projected at random. The maps are stages 2 and 3 of a ResNet, or
blocks of a token encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders import Encoder, ResNetFeatures, ResNetSpec, get_spec, load_encoder, load_resnet
from dinosaur_ad.methods.shared.torch_tools import import_torch

if TYPE_CHECKING:
    import torch


class PatchFeatures:
    """Prepared images (N, S, S, 3) uint8 in, projected features (N * H * W, dim) out, row by row of the grid.

    The network is loaded when the first image comes. ``layers`` are the blocks of a token encoder; a ResNet has none.
    """

    def __init__(
        self,
        backbone: str,
        *,
        weights: str | None,
        layers: Sequence[int],
        size: int,
        dim: int,
        average: int,
        seed: int,
        device: str,
    ) -> None:
        self.spec = get_spec(backbone)
        self.channels = (
            sum(self.spec.channels[1:]) if isinstance(self.spec, ResNetSpec) else len(layers) * self.spec.width
        )
        self._weights, self._layers, self._size = weights, layers, size
        self._dim, self._average, self._seed, self._device = dim, average, seed, device

    def __call__(self, pixels: NDArray[np.uint8]) -> torch.Tensor:
        """The features of a batch."""
        torch = import_torch()
        side = self._average
        pooled = [
            torch.nn.functional.avg_pool2d(each, side, stride=1, padding=side // 2) for each in self._maps(pixels)
        ]
        grid = pooled[0].shape[-2:]
        aligned = [
            each if each.shape[-2:] == grid else torch.nn.functional.interpolate(each, size=grid, mode="bilinear")
            for each in pooled
        ]
        stacked_PC = torch.cat(aligned, dim=1).permute(0, 2, 3, 1).flatten(0, 2)
        weight, bias = self.projection
        return torch.addmm(bias, stacked_PC, weight.T)

    @cached_property
    def projection(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight (dim, C) and bias (dim,), drawn from the seed as ``nn.Linear`` would; the same on every device."""
        torch = import_torch()
        generator, bound = np.random.default_rng(self._seed), self.channels**-0.5
        weight, bias = (
            torch.from_numpy(generator.uniform(-bound, bound, shape).astype(np.float32)).to(self._device)
            for shape in ((self._dim, self.channels), (self._dim,))
        )
        return weight, bias

    def info(self) -> dict[str, object]:
        """What the network says of itself."""
        return self._network.info()

    def _maps(self, pixels: NDArray[np.uint8]) -> Sequence[torch.Tensor]:
        """Maps (N, C, H, W), the finest first."""
        if isinstance(self._network, ResNetFeatures):
            return self._network(pixels)
        torch = import_torch()
        patches_NHWC = torch.from_numpy(self._network.encode_prepared(pixels).patches).to(self._device)
        blocks = patches_NHWC.permute(0, 3, 1, 2).chunk(len(self._layers), dim=1)
        # Length one, as DINOSaur compares tokens, so that neither block outweighs the other.
        return [torch.nn.functional.normalize(each, dim=1) for each in blocks]

    @cached_property
    def _network(self) -> ResNetFeatures | Encoder:
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
