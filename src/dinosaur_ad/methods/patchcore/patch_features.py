"""PatchCore's features: two maps of a frozen network as one projected vector per cell of the grid.

Each map is averaged over a square (3x3 as published; stride 1, zeros around it), coarser maps are resized bilinearly to
the grid of the first, and all are concatenated and projected at random. Or, as PatchCore's authors do, the values of
each square are averaged in equal shares to ``dim`` numbers a map, and those of all maps again to ``dim`` numbers.
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
        torch, pooling = import_torch(), self._config.compress == "pool"
        functional = torch.nn.functional
        pooled = [self._squares(each) if pooling else self._averaged(each) for each in self.maps(pixels)]
        grid = pooled[0].shape[-2:]
        aligned = [
            each if each.shape[-2:] == grid else functional.interpolate(each, size=grid, mode="bilinear")
            for each in pooled
        ]
        stacked_PC = torch.cat(aligned, dim=1).permute(0, 2, 3, 1).flatten(0, 2)
        if pooling:
            return functional.adaptive_avg_pool1d(stacked_PC[:, None], self._config.dim)[:, 0]
        weight, bias = self.projection
        return torch.addmm(bias, stacked_PC, weight.T)

    def _averaged(self, map_NCHW: torch.Tensor) -> torch.Tensor:
        side = self._config.average
        return import_torch().nn.functional.avg_pool2d(map_NCHW, side, stride=1, padding=side // 2)

    def _squares(self, map_NCHW: torch.Tensor) -> torch.Tensor:
        """The values of the square around every place, channel after channel, averaged to ``dim`` numbers."""
        functional, side = import_torch().nn.functional, self._config.average
        count, _, height, width = map_NCHW.shape
        squares_NKP = functional.unfold(map_NCHW, side, padding=side // 2)
        pooled_NPC = functional.adaptive_avg_pool1d(squares_NKP.transpose(1, 2), self._config.dim)
        return pooled_NPC.transpose(1, 2).reshape(count, self._config.dim, height, width)

    def for_coreset(self, points_PC: torch.Tensor) -> torch.Tensor:
        """The vectors in which the coreset is chosen: the features, or a random projection of them that is smaller."""
        if self._config.coreset_dim is None:
            return points_PC
        generator = np.random.default_rng([self._seed, 1])
        matrix_CK = (
            generator.normal(size=(points_PC.shape[1], self._config.coreset_dim)) / self._config.coreset_dim**0.5
        )
        return points_PC @ import_torch().from_numpy(matrix_CK.astype(np.float32)).to(points_PC.device)

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
