"""Plain vision transformers as data: what they are, and their weights in whichever names they were published.

``vit-base`` is the ViT-B/16 of DNE and UCAD, ``tiny-vit`` five random blocks for tests. Weights are read in the names
of the hub (``google/vit-base-patch16-224``), of torchvision (``vit_b_16``, which the authors of the benchmark used) or
of timm. All are given images with the mean and standard deviation of ImageNet: hub and timm weights expect 0.5 for
both, which is folded into their patch projection.

They are not in the encoders' registry: its entries can be loaded as frozen encoders, exported and stored in canonical
form, and all of that assumes transformers with layer scale, which these do not have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dinosaur_ad.encoders import EncoderSpec, get_spec, list_specs
from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD, check_size
from dinosaur_ad.encoders.registry import token_encoder
from dinosaur_ad.encoders.specs import Shape
from dinosaur_ad.encoders.weights.convert import Floats, canonical_name, to_canonical
from dinosaur_ad.encoders.weights.local import Weights, read_published
from dinosaur_ad.encoders.weights.sources import random_tensors
from dinosaur_ad.encoders.weights.weight_folder import cache_home
from dinosaur_ad.errors import EncoderError, InputError

PATCHES = "embeddings.patch_embeddings."
POSITIONS = "embeddings.position_embeddings"

# Spellings that the token encoders do not have; what is left then has a spelling that they share.
_RENAMES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"^(?:(?:module|model)\.)*(?:vit\.)?", ""),
        (r"^class_token$", "cls_token"),
        (r"^conv_proj\.", PATCHES),
        (r"^encoder\.pos_embedding$", "pos_embed"),
        (r"^encoder\.ln\.", "norm."),
        (r"^heads\.(?:head\.)?", "head."),
        (r"^(?:encoder\.layers\.encoder_layer_|layers\.)(\d+)\.", r"layer.\1."),
        (r"\.(?:ln_1|layernorm_before)\.", ".norm1."),
        (r"\.(?:ln_2|layernorm_after)\.", ".norm2."),
        (r"\.self_attention\.in_proj_", ".attention.qkv."),
        (r"\.self_attention\.out_proj\.", ".attention.o_proj."),
        (r"\.(?:mlp\.linear_1|mlp\.0|intermediate\.dense)\.", ".mlp.up_proj."),
        (r"\.(?:mlp\.linear_2|mlp\.3|(?<!attention\.)output\.dense)\.", ".mlp.down_proj."),
    )
]


@dataclass(frozen=True, kw_only=True)
class ViTSpec(EncoderSpec):
    """A plain vision transformer: a DINOv2 without layer scale.

    ``spare`` are the parameters of the classifier that its checkpoint ends in: never used here, but the paper counts
    it.
    """

    spare: int = 0

    def tensor_shapes(self) -> dict[str, Shape]:
        """Names and shapes of the canonical weights; the classifier is not among them."""
        return {name: shape for name, shape in super().tensor_shapes().items() if "layer_scale" not in name}


VITS = {
    spec.name: spec
    for spec in (
        ViTSpec(
            name="vit-base",
            family="dinov2",
            patch=16,
            width=768,
            depth=12,
            heads=12,
            registers=0,
            native_size=224,
            eps=1e-6,
            source="hub:google/vit-base-patch16-224",
            file="model.safetensors",
            original_file="vit_b_16-c867db91.pth",
            licence="Apache-2.0",
            licence_url="https://huggingface.co/google/vit-base-patch16-224",
            description="ViT-B/16 for ImageNet, 224 pixels (google/vit-base-patch16-224)",
            spare=1000 * (768 + 1),
        ),
        ViTSpec(
            name="tiny-vit",
            family="dinov2",
            patch=8,
            width=16,
            depth=5,
            heads=2,
            registers=0,
            native_size=32,
            eps=1e-6,
            source="seed:5",
            licence="Apache-2.0",
            description="five random ViT blocks for tests: it has learned nothing",
        ),
    )
}


def vit_spec(name: str) -> EncoderSpec:
    """The plain ViT or the token encoder called ``name``; an unknown name raises an error that lists the known ones.

    >>> vit_spec("vit-base").parameters
    85798656
    """
    if name in VITS:
        return VITS[name]
    known = list_specs()
    if name not in known:
        others = [*VITS, *(other for other, spec in known.items() if isinstance(spec, EncoderSpec))]
        raise EncoderError(f"There is no backbone '{name}'; choose one of: {', '.join(others)}.")
    return token_encoder(get_spec(name))


def sized(spec: EncoderSpec, *, size: int, depth: int | None = None) -> EncoderSpec:
    """``spec`` as it is built: for images of ``size`` pixels, with its first ``depth`` blocks (None: all).

    >>> sized(vit_spec("vit-base"), size=224, depth=1).parameters - sized(vit_spec("vit-base"), size=224).parameters
    -77966592
    """
    check_size(size, spec)
    depth = spec.depth if depth is None else depth
    if not 1 <= depth <= spec.depth:
        raise InputError(f"'{spec.name}' has {spec.depth} blocks; choose from 1 to {spec.depth}, not {depth}.")
    return replace(spec, native_size=size, depth=depth)


def vit_name(name: str) -> str:
    """Return the canonical spelling of a published tensor name.

    >>> vit_name("encoder.layers.encoder_layer_3.self_attention.in_proj_weight")
    'layer.3.attention.qkv.weight'
    >>> vit_name("vit.encoder.layer.3.output.dense.bias")
    'layer.3.mlp.down_proj.bias'
    """
    for pattern, replacement in _RENAMES:
        name = pattern.sub(replacement, name)
    return canonical_name(name)


def find_vit_weights(spec: ViTSpec, path: str | Path | None) -> Weights:
    """The weights of a plain ViT from ``path``, or from the cache; an error says how to get them."""
    if path is None and spec.source.startswith("seed:"):
        return Weights.in_memory(spec, random_tensors(spec), spec.source)
    if path is None:
        path = cache_home() / "encoders" / spec.name / spec.file
        if not path.is_file():
            raise EncoderError(
                f"The weights of '{spec.name}' are not on this machine; get {spec.file} from {spec.licence_url}, or "
                f"torchvision's {spec.original_file}, and give it with the setting weights=FILE or as {path}; a "
                "substitute that needs no download is backbone=dinov2s-focus."
            )
    published = read_published(spec, Path(path)).tensors
    tensors = to_canonical(spec, {vit_name(name): value for name, value in published.items()})
    if not any(name.endswith("conv_proj.weight") for name in published):
        tensors |= _normalised_like_imagenet(tensors)
    return Weights.in_memory(spec, tensors, f"file:{Path(path).name}")


def _normalised_like_imagenet(tensors: Mapping[str, Floats]) -> dict[str, Floats]:
    """A patch projection for mean and deviation 0.5, for images that have ImageNet's instead."""
    weight, bias = (tensors[f"{PATCHES}{part}"].astype(np.float64) for part in ("weight", "bias"))
    mean_3, std_3 = np.asarray(IMAGE_MEAN), np.asarray(IMAGE_STD)
    moved = bias + weight.sum(axis=(2, 3)) @ ((mean_3 - 0.5) / 0.5)
    scaled = weight * (std_3 / 0.5)[:, None, None]
    return {f"{PATCHES}weight": scaled.astype(np.float32), f"{PATCHES}bias": moved.astype(np.float32)}
