"""TinyViT, the image encoder of MobileSAM: images of 1024 pixels in, embeddings (N, 256, 64, 64) out.

``transformers`` has the rest of Segment Anything, but not this encoder. The names of the layers are those of the
official checkpoint, so that its tensors fit one to one; the classifier at its end (``norm_head``, ``head``) is not used
there either and is left out. Written from the published architecture (Wu et al. 2022; Zhang et al. 2023), for
evaluation only.
"""

from __future__ import annotations

import torch
from torch import nn

WIDTHS, DEPTHS, HEADS, WINDOWS = (64, 128, 160, 320), (2, 2, 6, 2), (2, 4, 5, 10), (7, 7, 14, 7)
OUTPUT = 256


class ConvNorm(nn.Sequential):  # type: ignore[misc]
    """A convolution without bias and its batch norm; ``groups`` as many as channels where it is depthwise."""

    def __init__(self, before: int, after: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.add_module("c", nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False))
        self.add_module("bn", nn.BatchNorm2d(after))


class InvertedBottleneck(nn.Module):  # type: ignore[misc]
    """A block of the first stage: to four times the channels, depthwise, and back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = ConvNorm(width, 4 * width)
        self.conv2 = ConvNorm(4 * width, 4 * width, 3, groups=4 * width)
        self.conv3 = ConvNorm(4 * width, width)

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        gelu = nn.functional.gelu
        out: torch.Tensor = gelu(x_NCHW + self.conv3(gelu(self.conv2(gelu(self.conv1(x_NCHW))))))
        return out


class Merging(nn.Module):  # type: ignore[misc]
    """From one stage to the next: other channels, and half the side except before the last stage."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = ConvNorm(before, after)
        self.conv2 = ConvNorm(after, after, 3, stride, groups=after)
        self.conv3 = ConvNorm(after, after)

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        """(N, after, H / stride, W / stride)."""
        gelu = nn.functional.gelu
        merged: torch.Tensor = self.conv3(gelu(self.conv2(gelu(self.conv1(x_NCHW)))))
        return merged


class WindowAttention(nn.Module):  # type: ignore[misc]
    """Attention among the W*W tokens of a window, with a learned bias for each pair of distances (rows, columns)."""

    attention_bias_idxs: torch.Tensor

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        # The first token is a corner, so its distances to all others are each pair once, in the checkpoint's order.
        self.attention_biases = nn.Parameter(torch.zeros(heads, window * window))
        at = torch.cartesian_prod(torch.arange(window), torch.arange(window))
        apart_TT2 = (at[:, None] - at[None]).abs()
        self.register_buffer("attention_bias_idxs", apart_TT2[..., 0] * window + apart_TT2[..., 1], persistent=False)

    def forward(self, x_NTC: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        # One head after another, and in each its queries, keys and values.
        qkv_NHTD = self.qkv(self.norm(x_NTC)).unflatten(2, (self.heads, -1)).transpose(1, 2)
        mixed_NHTD = nn.functional.scaled_dot_product_attention(
            *qkv_NHTD.chunk(3, dim=3), attn_mask=self.attention_biases[:, self.attention_bias_idxs]
        )
        mixed: torch.Tensor = self.proj(mixed_NHTD.transpose(1, 2).flatten(2))
        return mixed


class NormedMLP(nn.Module):  # type: ignore[misc]
    """A layer norm and two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x_NTC: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        out: torch.Tensor = self.fc2(nn.functional.gelu(self.fc1(self.norm(x_NTC))))
        return out


class WindowBlock(nn.Module):  # type: ignore[misc]
    """A block of the later stages: attention within windows, a depthwise convolution, an MLP."""

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.window = window
        self.attn = WindowAttention(width, heads, window)
        self.mlp = NormedMLP(width)
        self.local_conv = ConvNorm(width, width, 3, groups=width)

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        x_NCHW = self.local_conv(x_NCHW + self._attend(x_NCHW))
        mixed_NTC = self.mlp(x_NCHW.flatten(2).transpose(1, 2))
        return x_NCHW + mixed_NTC.transpose(1, 2).reshape(x_NCHW.shape)

    def _attend(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        """Attention in each window; the last row and column of windows are filled up with zeros."""
        (count, width, height, length), side = x_NCHW.shape, self.window
        padded = nn.functional.pad(x_NCHW, (0, -length % side, 0, -height % side))
        rows, columns = padded.shape[2] // side, padded.shape[3] // side
        windows = padded.reshape(count, width, rows, side, columns, side).permute(0, 2, 4, 3, 5, 1)
        mixed = self.attn(windows.reshape(-1, side * side, width)).reshape(windows.shape)
        return mixed.permute(0, 5, 1, 3, 2, 4).reshape(padded.shape)[:, :, :height, :length]


class ChannelNorm(nn.Module):  # type: ignore[misc]
    """Layer norm over the channels of (N, C, H, W)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x_NCHW: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        moved = nn.functional.layer_norm(x_NCHW.movedim(1, -1), self.weight.shape, self.weight, self.bias, 1e-6)
        return moved.movedim(-1, 1)


class TinyViT(nn.Module):  # type: ignore[misc]
    """Normalised images (N, 3, S, S), S a multiple of 16, as embeddings (N, 256, S/16, S/16)."""

    def __init__(self) -> None:
        super().__init__()
        first, last = WIDTHS[0], len(WIDTHS) - 1
        stem = [ConvNorm(3, first // 2, 3, 2), nn.GELU(), ConvNorm(first // 2, first, 3, 2)]
        self.patch_embed = nn.ModuleDict({"seq": nn.Sequential(*stem)})
        self.layers = nn.ModuleList()
        for stage, (width, depth) in enumerate(zip(WIDTHS, DEPTHS, strict=True)):
            blocks = [
                InvertedBottleneck(width) if stage == 0 else WindowBlock(width, HEADS[stage], WINDOWS[stage])
                for _ in range(depth)
            ]
            parts = nn.ModuleDict({"blocks": nn.Sequential(*blocks)})
            if stage < last:
                parts["downsample"] = Merging(width, WIDTHS[stage + 1], 1 if stage + 1 == last else 2)
            self.layers.append(parts)
        narrow, mix = nn.Conv2d(WIDTHS[-1], OUTPUT, 1, bias=False), nn.Conv2d(OUTPUT, OUTPUT, 3, padding=1, bias=False)
        self.neck = nn.Sequential(narrow, ChannelNorm(OUTPUT), mix, ChannelNorm(OUTPUT))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The embeddings."""
        x_NCHW = self.patch_embed["seq"](images)
        for stage in self.layers:
            for part in stage.values():
                x_NCHW = part(x_NCHW)
        embedding: torch.Tensor = self.neck(x_NCHW)
        return embedding
