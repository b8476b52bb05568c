"""The networks of IUF: attention with a multiplied query, one network on pixels, two on features.

Tokens are (N, L, C), row by row of a square grid. The published networks have 7.7 and 1.4 million parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from dinosaur_ad.methods.shared.torch_tools import cell_means

if TYPE_CHECKING:
    from dinosaur_ad.methods.iuf.iuf_config import FeatureIUFConfig, PixelIUFConfig

OBJECT_HEADS = 4


class Attention(nn.Module):  # type: ignore[misc]
    """Attention with several heads over tokens ``(..., L, C)``; ``dropout`` drops weights of it in training."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.dropout = dropout

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, factor: torch.Tensor | None = None
    ) -> torch.Tensor:
        """``factor``, of the shape of ``query``, multiplies the projected query element by element."""
        projected = self.query(query)
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
            for each in (projected if factor is None else projected * factor, self.key(key), self.value(value))
        )
        dropped = self.dropout if self.training else 0.0
        values = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=dropped)
        mixed: torch.Tensor = self.out(values.transpose(-3, -2).flatten(-2))
        return mixed


class TransformerBlock(nn.Module):  # type: ignore[misc]
    """A transformer block, normalised before each of its two parts: attention, and an MLP of ``hidden`` units."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, tokens: torch.Tensor, factor: torch.Tensor | None = None) -> torch.Tensor:
        """Tokens ``(..., L, C)`` to tokens; only tokens of one sequence L see each other."""
        normalised = self.norm1(tokens)
        tokens = tokens + self.attention(normalised, normalised, normalised, factor)
        result: torch.Tensor = tokens + self.mlp(self.norm2(tokens))
        return result


# --- the paper's network ---


class PatchTransformer(nn.Module):  # type: ignore[misc]
    """Patches to tokens (N, L, C), a learned position each, LayerNorm, GELU, blocks; no norm at the end."""

    def __init__(self, config: PixelIUFConfig) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, config.width, config.patch, stride=config.patch)
        self.position = nn.Parameter(torch.randn(1, config.side**2, config.width) * 0.02)
        self.norm = nn.LayerNorm(config.width)
        self.blocks = nn.ModuleList(
            TransformerBlock(config.width, config.heads, 4 * config.width) for _ in range(config.layers)
        )

    def embed(self, images: torch.Tensor) -> torch.Tensor:
        """Images (N, 3, S, S) as tokens (N, L, C)."""
        tokens: torch.Tensor = self.patches(images).flatten(2).transpose(1, 2)
        return tokens

    def forward(self, tokens: torch.Tensor, factors: Sequence[torch.Tensor] = ()) -> list[torch.Tensor]:
        """The output of each block; the queries of the first ``len(factors)`` blocks are multiplied by them."""
        tokens = nn.functional.gelu(self.norm(tokens + self.position))
        outputs = []
        for number, block in enumerate(self.blocks):
            tokens = block(tokens, factors[number] if number < len(factors) else None)
            outputs.append(tokens)
        return outputs


class Reconstruction(NamedTuple):
    """The network's outputs: pixels (N, 3, S, S), latent tokens (N, L, C) and logits (N, T) of the tasks."""

    images: torch.Tensor
    tokens: torch.Tensor
    logits: torch.Tensor | None


class PixelNetwork(nn.Module):  # type: ignore[misc]
    """Encoder, decoder and discriminator."""

    def __init__(self, config: PixelIUFConfig) -> None:
        super().__init__()
        self.side = config.side
        self.encoder, self.decoder, self.discriminator = (PatchTransformer(config) for _ in range(3))
        self.to_pixels = nn.ConvTranspose2d(config.width, 3, config.patch, stride=config.patch)
        flat = config.side**2 * config.width
        hidden = config.head_ratio * flat
        self.head = nn.Sequential(
            nn.LayerNorm(flat), nn.Linear(flat, hidden), nn.GELU(), nn.Linear(hidden, config.max_tasks)
        )

    def forward(self, images: torch.Tensor, *, classify: bool = False) -> Reconstruction:
        """Reconstruct images; ``classify`` adds logits, for training only: their head has 99.9 % of the parameters."""
        seen = self.discriminator(self.discriminator.embed(images))
        logits = self.head(seen[-1].flatten(1)) if classify else None
        factors = [features.detach() for features in seen[:-1]]
        tokens = self.encoder(self.encoder.embed(images), factors)[-1]
        decoded = self.decoder(tokens)[-1].transpose(1, 2).unflatten(2, (self.side, self.side))
        return Reconstruction(self.to_pixels(decoded), tokens, logits)


# --- the published networks ---


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
    """Learned queries attend first to the encoder's output, then to the output of the layer before."""

    def __init__(self, config: FeatureIUFConfig, places: int) -> None:
        super().__init__()
        self.query = nn.Embedding(places, config.width)
        self.ask_encoder, self.ask_before = (Attention(config.width, config.heads, config.dropout) for _ in range(2))
        self.mlp, self.dropout = Feedforward(config), nn.Dropout(config.dropout)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(config.width) for _ in range(3))

    def forward(self, before: torch.Tensor, encoded: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """``before`` is the output of the layer before, ``encoded`` that of the encoder, both (N, L, C)."""
        query = self.query.weight.expand_as(encoded)
        attended = self.ask_encoder(query + position, encoded + position, encoded)
        query = self.norm1(query + self.dropout(attended))
        attended = self.ask_before(query + position, before + position, before)
        query = self.norm2(query + self.dropout(attended))
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
        """The reconstruction, and the outputs of all but the last decoder layer, each normalised (N, L, C)."""
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
    """Classifies the object in an image: a 1x1 convolution, blocks of attention, the mean, an MLP.

    ``config.object_side`` cells a side attend; pixels are averaged to them after the convolution. With
    ``config.object_attention`` "rows" only cells of one row see each other, as in the original.
    """

    def __init__(self, config: FeatureIUFConfig) -> None:
        super().__init__()
        self.cell, self.rows_only = config.size // config.object_side, config.object_attention == "rows"
        self.stem = nn.Sequential(nn.Conv2d(3, config.width, 1, bias=False), nn.BatchNorm2d(config.width), nn.ReLU())
        self.blocks = nn.ModuleList(
            TransformerBlock(config.width, OBJECT_HEADS, config.width // 2) for _ in range(config.layers)
        )
        self.head = nn.Sequential(
            nn.Linear(config.width, config.width), nn.ReLU(), nn.Linear(config.width, config.max_tasks)
        )

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Logits (N, T), and the output of each block, detached (N, C, H, W)."""
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
    """Both networks: features of the object network multiply the queries of the reconstructor."""

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
