"""A pair on torch: both networks through ``transformers``, the reference for the graph of a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from dinosaur_ad.encoders.backends.setup import Setup
from dinosaur_ad.encoders.backends.torch_backend import OnTorch, TorchEncoder
from dinosaur_ad.encoders.pair import PairSpec, kept_channels, onto_grid, reduction
from dinosaur_ad.encoders.resnet import ResNetFeatures
from dinosaur_ad.encoders.specs import EncoderSpec


class TorchPair(OnTorch):
    """Both networks of a pair on one device; the second's maps become the tail as in the graph."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.weights, setup.layers, setup.size)
        first, second = setup.weights.parts
        self._first = TorchEncoder(replace(setup, weights=first))
        self.provider, self.precision = setup.device, setup.precision
        self._second: TorchEncoder | ResNetFeatures
        if isinstance(second.spec, EncoderSpec):
            self._second = TorchEncoder(replace(setup, weights=second))
        else:
            self._second = ResNetFeatures(second, setup.device)

    def _tokens(self, pixels: NDArray[np.uint8]) -> tuple[torch.Tensor, torch.Tensor]:
        """CLS (N, C) and patch tokens (N, H, W, C), still on the device."""
        cls, patches = self._first._tokens(pixels)
        with torch.inference_mode():
            tail = self._tail(pixels)
            return torch.cat([cls, tail.mean(dim=(1, 2))], dim=-1), torch.cat([patches, tail], dim=-1)

    def _tail(self, pixels: NDArray[np.uint8]) -> torch.Tensor:
        spec, maps = cast(PairSpec, self.spec), self._maps(pixels)
        length = spec.weight / np.sqrt(len(maps))
        parts = []
        for value_NCHW in maps:
            channels, cells = value_NCHW.shape[1], value_NCHW.shape[-1]
            signs = reduction(channels, kept_channels(channels, spec.width, len(maps)))
            if signs is not None:
                value_NCHW = torch.einsum("kc,nchw->nkhw", torch.from_numpy(signs).to(value_NCHW.device), value_NCHW)
            resize = torch.from_numpy(onto_grid(cells, self.grid[0])).to(value_NCHW.device)
            value_NHWC = torch.einsum("yh,xw,nchw->nyxc", resize, resize, value_NCHW)
            parts.append(length * torch.nn.functional.normalize(value_NHWC, dim=-1))
        return torch.cat(parts, dim=-1)

    def _maps(self, pixels: NDArray[np.uint8]) -> Sequence[torch.Tensor]:
        """The second network's maps (N, C, h, h)."""
        if isinstance(self._second, ResNetFeatures):
            return self._second(pixels)
        _, patches = self._second._tokens(pixels)
        blocks = patches.unflatten(-1, (len(self.layers), -1))
        return [torch.nn.functional.normalize(blocks, dim=-1).mean(dim=3).permute(0, 3, 1, 2)]
