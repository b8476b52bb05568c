"""Two frozen networks behind one name: ``A+B``, a token encoder and beside it a second network.

The first decides the grid, the CLS token and the blocks that are tapped. The maps of the second are brought onto that
grid and laid beside its patch tokens as a *tail*: channels of a fixed length in all, whatever the layers are. So a bank
remembers both in one vector, and the squared distance of two patches is the sum of what each network sees.

A pair is an :class:`EncoderSpec` like any other to whatever loads, runs, stores or exports an encoder.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._text import printable
from dinosaur_ad.encoders.specs import BackboneSpec, EncoderSpec, ResNetSpec, Shape
from dinosaur_ad.errors import EncoderError

SEPARATOR = "+"
JOINED = " + "
"""Between the origins of both networks' weights."""
TAIL = "tail v1"
"""Part of the fingerprint of a pair: change it with what the tail is."""
WEIGHT = 1.0
"""The length of the tail, where the first network's tokens have about length one each block."""
STAGE_STRIDES = (8, 16)
"""Pixels a cell of the stages 2 and 3 of a residual network, which its tail is made of."""

Matrix = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class PairSpec(EncoderSpec):
    """Two networks as one token encoder: the fields of a vision transformer are those of the ``first``.

    ``weight`` is the length of the tail at every place.
    """

    first: EncoderSpec
    second: EncoderSpec | ResNetSpec
    weight: float = WEIGHT

    @property
    def parts(self) -> tuple[EncoderSpec, EncoderSpec | ResNetSpec]:
        """Both networks."""
        return self.first, self.second

    @property
    def embedded(self) -> bool:
        """True when neither needs an account or a file."""
        return all(part.embedded for part in self.parts)

    @property
    def step(self) -> int:
        """Sizes are multiples of it: whole numbers of patches, or cells, of both networks."""
        return math.lcm(self.first.patch, self.stride)

    @property
    def stride(self) -> int:
        """Pixels a side of the second network's coarsest cell."""
        return self.second.patch if isinstance(self.second, EncoderSpec) else STAGE_STRIDES[-1]

    @property
    def map_channels(self) -> tuple[int, ...]:
        """The channels of each of the second network's maps in the tail."""
        return (self.second.width,) if isinstance(self.second, EncoderSpec) else self.second.channels[1:]

    @property
    def tail(self) -> int:
        """Channels beside those of the first network."""
        return sum(kept_channels(each, self.width, len(self.map_channels)) for each in self.map_channels)

    def tensor_shapes(self) -> dict[str, Shape]:
        """Those of both, under ``first.`` and ``second.``."""
        return {
            f"{place}.{name}": shape
            for place, part in zip(("first", "second"), self.parts, strict=True)
            for name, shape in part.tensor_shapes().items()
        }

    def describe(self, source: str) -> str:
        """Both descriptions, of weights from ``source`` as :func:`joined_source` writes it."""
        sources = source.split(JOINED)
        if len(sources) != len(self.parts):  # the name of a file has it too
            return f"weights from {source}, in the architecture of: {self.description}"
        return "; with ".join(part.describe(each) for part, each in zip(self.parts, sources, strict=True))

    def identity(self) -> dict[str, Any]:
        """What decides the tail, for the fingerprint; the weights of both have a hash of their own."""
        vit = ("family", "patch", "width", "depth", "heads", "registers", "native_size", "eps")
        residual = ("width", "block", "depths", "strided_first")
        names = vit if isinstance(self.second, EncoderSpec) else residual
        second = {name: getattr(self.second, name) for name in names}
        return {"tail": TAIL, "weight": self.weight, "channels": self.tail, "second": second}


def joined_source(sources: list[str]) -> str:
    """Where the weights of both networks come from, in one text."""
    return JOINED.join(sources)


def part_names(name: str) -> tuple[str, ...]:
    """The encoders that a name stands for: two of a pair, one of any other.

    >>> part_names("dinov2s-focus+resnet50-v1"), part_names("dinov2s-focus")
    (('dinov2s-focus', 'resnet50-v1'), ('dinov2s-focus',))
    """
    return tuple(name.split(SEPARATOR))


def make_pair(name: str, known: Mapping[str, BackboneSpec], settings: Mapping[str, Any] | None = None) -> PairSpec:
    """The pair that ``A+B`` names; ``settings`` are the weight of its tail and its preset, where they were measured.

    :raises EncoderError: it is no pair of two known encoders of which the first gives tokens.
    """
    shown, names = printable(name, 100), part_names(name)
    if len(names) != 2 or not all(names):
        raise EncoderError(f"A pair is two encoders, written A{SEPARATOR}B, got '{shown}'; name exactly two.")
    if names[0] == names[1]:
        raise EncoderError(f"The pair '{shown}' names the same encoder twice; name another one, or it alone.")
    for each in names:
        if each not in known:
            raise EncoderError(
                f"There is no encoder '{printable(each, 60)}' for the pair '{shown}'; choose from: {', '.join(known)}."
            )
    first, second = (known[each] for each in names)
    if not isinstance(first, EncoderSpec):
        others = ", ".join(each for each, spec in known.items() if isinstance(spec, EncoderSpec))
        raise EncoderError(
            f"The first of a pair must give tokens, but '{first.name}' gives feature maps; put one of these first: "
            f"{others}."
        )
    assert isinstance(second, EncoderSpec | ResNetSpec)
    shared = {field.name: getattr(first, field.name) for field in fields(EncoderSpec)}
    depth = min(first.depth, second.depth) if isinstance(second, EncoderSpec) else first.depth
    shared |= {
        "name": name,
        "depth": depth,  # both are tapped at the same blocks
        "source": joined_source([first.source, second.source]),
        "licence": "; ".join(dict.fromkeys((first.licence, second.licence))),
        "licence_url": " ".join(filter(None, dict.fromkeys((first.licence_url, second.licence_url)))),
        "description": f"{first.description}; with {second.description}",
        "gated": first.gated or second.gated,
        "preset": {},
        **dict.fromkeys(("sha256", "file_bytes", "wheel_sha256", "tensors_sha256")),
        **dict.fromkeys(("file", "original_file"), ""),
    }
    return PairSpec(first=first, second=second, **shared | dict(settings or {}))


def one_network(spec: BackboneSpec) -> BackboneSpec:
    """Return ``spec`` unless it is a pair, for what can only use a single network."""
    if isinstance(spec, PairSpec):
        raise EncoderError(
            f"'{spec.name}' is a pair, and one network is needed here; choose {spec.first.name} or {spec.second.name}."
        )
    return spec


# --- the tail ---


def kept_channels(channels: int, width: int, maps: int) -> int:
    """To how many channels one of ``maps`` maps is reduced, so that the tail is as wide as the first network's tokens.

    >>> kept_channels(512, 384, 2), kept_channels(1024, 384, 2), kept_channels(384, 384, 1)
    (192, 192, 384)
    """
    return min(channels, width // maps)


def reduction(channels: int, kept: int) -> Matrix | None:
    """A fixed matrix (kept, channels) of random signs, which keeps distances nearly as they are; None to keep all.

    The signs come from a hash, so that they are the same on every machine and with every version of NumPy.
    """
    if kept == channels:
        return None
    seed = f"{TAIL} {kept} {channels}".encode()
    drawn = np.frombuffer(hashlib.shake_256(seed).digest(-(-kept * channels // 8)), np.uint8)
    signs = np.unpackbits(drawn)[: kept * channels].reshape(kept, channels)
    matrix: Matrix = (2 * signs.astype(np.float32) - 1) / np.float32(math.sqrt(kept))
    return matrix


def onto_grid(cells: int, places: int) -> Matrix:
    """What brings ``cells`` cells along one side of a map onto ``places`` patches, as a matrix (places, cells).

    Linear between the centres of cells; where cells are smaller than patches, over so many of them as a patch covers.

    >>> onto_grid(2, 4).tolist()
    [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
    """
    ratio = cells / places
    reach = max(ratio, 1.0)
    centre = (np.arange(places) + 0.5) * ratio - 0.5
    share = np.maximum(0, 1 - np.abs(centre[:, None] - np.arange(cells)) / reach)
    matrix: Matrix = (share / share.sum(axis=1, keepdims=True)).astype(np.float32)
    return matrix
