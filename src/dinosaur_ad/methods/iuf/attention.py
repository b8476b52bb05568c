"""Attention as both networks of IUF use it: the query may be multiplied by what the discriminator sees."""

from __future__ import annotations

import torch
from torch import nn


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


class Block(nn.Module):  # type: ignore[misc]
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
