"""The networks of the published IUF: a transformer that reconstructs features, and one that tells objects apart.

Tokens are (N, L, C), row by row of a square grid. Both are small: 7.7 and 1.4 million parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from dinosaur_ad.methods.iuf.attention import Attention, Block
from dinosaur_ad.methods.shared.torch_tools import cell_means

if TYPE_CHECKING:
    from dinosaur_ad.methods.iuf.config import FeatureIUFConfig

OBJECT_HEADS = 4


class Feedforward(nn.Module):  # type: ignore[misc]
    """Linear, ReLU, linear; ``down`` is the layer whose updates are damped."""

    def __init__(self, config: FeatureIUFConfig) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(config.width, 4 * config.width), nn.Linear(4 * config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens to tokens."""
        result: torch.Tensor = self.down(self.dropout(self.up(tokens).relu()))
        return result


class EncoderLayer(nn.Module):  # type: ignore[misc]
    """Self-attention whose query is multiplied by the features of the object, and an MLP; normalised after each."""

    def __init__(self, config: FeatureIUFConfig) -> None:
        super().__init__()
        self.attention = Attention(config.width, config.heads, config.dropout)
        self.mlp, self.dropout = Feedforward(config), nn.Dropout(config.dropout)
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)

    def forward(self, tokens: torch.Tensor, position: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        """``factor`` has the shape of ``tokens`` and multiplies the query before it is projected."""
        placed = tokens + position
        tokens = self.norm1(tokens + self.dropout(self.attention(placed * factor, placed, tokens)))
        result: torch.Tensor = self.norm2(tokens + self.dropout(self.mlp(tokens)))
        return result


class DecoderLayer(nn.Module):  # type: ignore[misc]
    """A learned query at each place asks first the encoder, then the layer before; it never sees its own input."""

    def __init__(self, config: FeatureIUFConfig, places: int) -> None:
        super().__init__()
        self.query = nn.Embedding(places, config.width)
        self.ask_encoder, self.ask_before = (Attention(config.width, config.heads, config.dropout) for _ in range(2))
        self.mlp, self.dropout = Feedforward(config), nn.Dropout(config.dropout)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(config.width) for _ in range(3))

    def forward(self, before: torch.Tensor, encoded: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """``before`` is what the layer before gave, ``encoded`` what the encoder gave, both (N, L, C)."""
        query = self.query.weight.expand_as(encoded)
        asked = self.ask_encoder(query + position, encoded + position, encoded)
        query = self.norm1(query + self.dropout(asked))
        asked = self.ask_before(query + position, before + position, before)
        query = self.norm2(query + self.dropout(asked))
        result: torch.Tensor = self.norm3(query + self.dropout(self.mlp(query)))
        return result


class Reconstructor(nn.Module):  # type: ignore[misc]
    """Features (N, L, F) to features of the same shape, through tokens of ``width`` channels."""

    def __init__(self, config: FeatureIUFConfig, channels: int, side: int) -> None:
        super().__init__()
        self.side = side
        self.inward, self.outward = nn.Linear(channels, config.width), nn.Linear(config.width, channels)
        self.rows, self.columns = (nn.Parameter(torch.rand(side, config.width // 2)) for _ in range(2))
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(config, side**2) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(
        self, features: torch.Tensor, factors: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The reconstruction, and what the decoder's layers gave but for the last, each normalised (N, L, C)."""
        side = (self.side, self.side, -1)
        position = torch.cat([self.columns[None].expand(side), self.rows[:, None].expand(side)], -1).flatten(0, 1)
        encoded = self.inward(features)
        for layer, factor in zip(self.encoder, factors, strict=True):
            encoded = layer(encoded, position, factor)
        outputs, decoded = [], encoded
        for layer in self.decoder:
            decoded = layer(decoded, encoded, position)
            outputs.append(self.norm(decoded))
        return self.outward(outputs[-1]), outputs[:-1]

    def damped(self) -> dict[str, nn.Linear]:
        """The layers whose updates are damped, by their names in :class:`FeatureNetwork`."""
        return {
            f"reconstructor.{part}.{number}.mlp.down": layer.mlp.down
            for part in ("encoder", "decoder")
            for number, layer in enumerate(getattr(self, part))
        }


class ObjectNetwork(nn.Module):  # type: ignore[misc]
    """Which object an image shows: a convolution of each pixel, blocks of attention, the mean, an MLP.

    ``config.object_side`` cells a side attend; pixels are averaged to them after the convolution. With
    ``config.object_attention`` "rows" only cells of one row see each other, as in the original.
    """

    def __init__(self, config: FeatureIUFConfig) -> None:
        super().__init__()
        self.cell, self.rows_only = config.size // config.object_side, config.object_attention == "rows"
        self.stem = nn.Sequential(nn.Conv2d(3, config.width, 1, bias=False), nn.BatchNorm2d(config.width), nn.ReLU())
        self.blocks = nn.ModuleList(Block(config.width, OBJECT_HEADS, config.width // 2) for _ in range(config.layers))
        self.head = nn.Sequential(
            nn.Linear(config.width, config.width), nn.ReLU(), nn.Linear(config.width, config.max_tasks)
        )

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Logits (N, T), and what each block gave, detached (N, C, H, W)."""
        cells = cell_means(self.stem(images), self.cell)
        grid = cells.shape[-2:]
        tokens = cells.permute(0, 2, 3, 1)
        tokens = tokens if self.rows_only else tokens.flatten(1, 2)
        seen = []
        for block in self.blocks:
            tokens = block(tokens)
            flat = tokens.flatten(1, 2) if self.rows_only else tokens
            seen.append(flat.detach().transpose(1, 2).unflatten(2, grid))
        return self.head(flat.mean(dim=1)), seen


class FeatureNetwork(nn.Module):  # type: ignore[misc]
    """Both networks: what the second sees of the object steers the first."""

    def __init__(self, config: FeatureIUFConfig, channels: int, side: int) -> None:
        super().__init__()
        self.side = side
        self.objects, self.reconstructor = ObjectNetwork(config), Reconstructor(config, channels, side)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.xavier_uniform_(module.weight)

    def forward(
        self, images: torch.Tensor, features: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        """The reconstruction (N, L, F), logits (N, T), and the decoder's middle layers, each (N, L, C)."""
        logits, seen = self.objects(images)
        factors = [nn.functional.adaptive_avg_pool2d(each, self.side).flatten(2).transpose(1, 2) for each in seen]
        made, middle = self.reconstructor(features, factors)
        return made, logits, middle
