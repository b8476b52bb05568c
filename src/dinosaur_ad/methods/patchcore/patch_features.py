"""PatchCore's features: two maps of a frozen network as one projected vector per cell of the grid.

Each map is averaged over a square (3x3 as published; stride 1, zeros around it), coarser maps are resized bilinearly to
the grid of the first, and all are concatenated and projected at random.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.methods.contract import Workbench
from dinosaur_ad.methods.shared.backbone_maps import BackboneMaps
from dinosaur_ad.methods.shared.torch_tools import import_torch

if TYPE_CHECKING:
    import torch

    from dinosaur_ad.methods.patchcore.patchcore_method import PatchCoreConfig


class PatchFeatures:
    """Resized images (N, S, S, 3) uint8 in, projected features (N * H * W, dim) out, row by row of the grid."""

    def __init__(self, config: PatchCoreConfig, workbench: Workbench) -> None:
        self.maps = BackboneMaps(
            config.backbone,
            weights=config.weights,
            layers=config.layers,
            size=config.size,
            device=workbench.device,
        )
        self._config, self._seed, self._device = config, workbench.seed, workbench.device

    def __call__(self, pixels: NDArray[np.uint8]) -> torch.Tensor:
        """The features of a batch."""
        torch, side = import_torch(), self._config.average
        functional = torch.nn.functional
        pooled = [functional.avg_pool2d(each, side, stride=1, padding=side // 2) for each in self.maps(pixels)]
        grid = pooled[0].shape[-2:]
        aligned = [
            each if each.shape[-2:] == grid else functional.interpolate(each, size=grid, mode="bilinear")
            for each in pooled
        ]
        stacked_PC = torch.cat(aligned, dim=1).permute(0, 2, 3, 1).flatten(0, 2)
        weight, bias = self.projection
        return torch.addmm(bias, stacked_PC, weight.T)

    @cached_property
    def projection(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight (dim, C) and bias (dim,), drawn from the seed as ``nn.Linear`` would; the same on every device."""
        torch, channels = import_torch(), self.maps.channels
        generator, bound = np.random.default_rng(self._seed), channels**-0.5
        weight, bias = (
            torch.from_numpy(generator.uniform(-bound, bound, shape).astype(np.float32)).to(self._device)
            for shape in ((self._config.dim, channels), (self._config.dim,))
        )
        return weight, bias
