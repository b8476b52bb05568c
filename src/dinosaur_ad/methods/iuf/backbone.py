"""The frozen features that the published IUF reconstructs: maps of several resolutions side by side on one grid.

The original's are EfficientNet-B4's. Any registered backbone can stand in: stages 2 and 3 of a ResNet, or blocks of a
token encoder, each token brought to a root mean square of one so that no block outweighs another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dinosaur_ad.encoders import Encoder, EncoderSpec, ResNetFeatures, get_spec, list_specs, load_encoder, load_resnet
from dinosaur_ad.encoders.base import check_layers, check_size
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.methods.iuf.efficientnet import ARCHITECTURES, EfficientNetMaps, channels_and_parameters
from dinosaur_ad.methods.shared.torch_tools import to_images

ORIGINAL = "efficientnet-b4"
STRIDE = 16  # pixels a cell of the grid, for convolutional networks


class AlignedFeatures:
    """Prepared images (N, S, S, 3) uint8 in, features (N, H * W, C) out, row by row; loaded with the first image.

    ``blocks`` are those of a token encoder; a convolutional network has none.
    """

    def __init__(self, backbone: str, *, weights: str, blocks: Sequence[int], size: int, device: torch.device) -> None:
        self.backbone, self._weights, self._blocks, self._size = backbone, weights, tuple(blocks), size
        self._device = device
        if backbone in ARCHITECTURES:
            self._check_stride()
            self.side, (self.channels, self.parameters) = size // STRIDE, channels_and_parameters(backbone)
            return
        if backbone not in list_specs():
            known = ", ".join((*ARCHITECTURES, *list_specs()))
            raise EncoderError(f"There is no backbone '{backbone}' for IUF; choose one of: {known}.")
        spec = get_spec(backbone)
        self.parameters = spec.parameters
        if isinstance(spec, EncoderSpec):
            check_size(size, spec)
            self._blocks = tuple(int(block) for block in check_layers(blocks, spec.depth))
            self.side, self.channels = size // spec.patch, len(self._blocks) * spec.width
        else:
            self._check_stride()
            self.side, self.channels = size // STRIDE, sum(spec.channels[1:])  # type: ignore[attr-defined]

    def _check_stride(self) -> None:
        if self._size <= 0 or self._size % STRIDE:
            raise InputError(f"IUF's size must be a multiple of {STRIDE} with {self.backbone}, got {self._size}.")

    def __call__(self, pixels: NDArray[np.uint8]) -> torch.Tensor:
        """The features of a batch."""
        grid = (self.side, self.side)
        aligned = [
            each
            if each.shape[-2:] == grid
            # As the original resizes: corners on corners, and no smoothing before.
            else torch.nn.functional.interpolate(each, size=grid, mode="bilinear", align_corners=True)
            for each in self._maps(pixels)
        ]
        return torch.cat(aligned, dim=1).flatten(2).transpose(1, 2).contiguous()

    def _maps(self, pixels: NDArray[np.uint8]) -> Sequence[torch.Tensor]:
        """Maps (N, C, H, W), the finest first."""
        network = self._network
        if isinstance(network, EfficientNetMaps):
            return [*network(to_images(pixels, self._device))]
        if isinstance(network, ResNetFeatures):
            return [each.clone() for each in network(pixels)]  # a clone may be learned from, inference's own may not
        patches_NHWC = torch.from_numpy(network.encode_prepared(pixels).patches).to(self._device)
        blocks = patches_NHWC.permute(0, 3, 1, 2).chunk(len(self._blocks), dim=1)
        return [torch.nn.functional.normalize(each, dim=1) * each.shape[1] ** 0.5 for each in blocks]

    def info(self) -> dict[str, Any]:
        """What the network says of itself, and whether it is the one of the original."""
        stands_in = "" if self.backbone == ORIGINAL else f"{self.backbone} stands in for EfficientNet-B4"
        return dict(self._network.info()) | {"substitute": stands_in, "channels": self.channels}

    @cached_property
    def _network(self) -> EfficientNetMaps | ResNetFeatures | Encoder:
        if self.backbone in ARCHITECTURES:
            return EfficientNetMaps(self.backbone, self._weights, self._device)
        spec = get_spec(self.backbone)
        if not isinstance(spec, EncoderSpec):
            return load_resnet(self.backbone, device=str(self._device), weights=self._weights or None)
        return load_encoder(
            self.backbone,
            layers=self._blocks,
            size=self._size,
            provider="torch" if self._device.type == "cuda" else None,
            device=str(self._device),
            weights=self._weights or None,
        )
