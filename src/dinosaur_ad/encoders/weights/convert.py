"""Bring the weights of a backbone, in whichever form they were published, to the canonical names and shapes.

Known forms of a ViT: the original DINOv2 and DINOv3 checkpoints (fused qkv), the ``transformers`` checkpoints of both
(older and newer names), the initialisers of an ONNX export of ``transformers``' DINOv2, and the canonical form itself.
Of a ResNet: torchvision's names, which timm shares, and those of ``transformers``, which are the canonical ones. They
are recognised by their tensor names alone; :meth:`BackboneSpec.tensor_shapes` lists the result.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._text import printable
from dinosaur_ad.encoders.specs import BackboneSpec, EncoderSpec
from dinosaur_ad.errors import EncoderError

if TYPE_CHECKING:
    import onnx

Floats = NDArray[np.float32]

# Each pattern rewrites one published spelling; applied in order, so the later ones see names without
# wrappers.
_RENAMES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"^(?:(?:module|teacher|backbone|dinov2|model|encoder)\.)+", ""),
        (r"^blocks\.(?:\d+\.)?(\d+)\.", r"layer.\1."),
        (r"^(cls_token|mask_token|register_tokens)$", r"embeddings.\1"),
        (r"^storage_tokens$", "embeddings.register_tokens"),
        (r"^pos_embed$", "embeddings.position_embeddings"),
        (r"^patch_embed\.proj\.", "embeddings.patch_embeddings."),
        (r"^embeddings\.patch_embeddings\.projection\.", "embeddings.patch_embeddings."),
        (r"\.attention\.attention\.(q|k|v)[a-z]+\.", r".attention.\1_proj."),
        (r"\.(?:attention\.output\.dense|attn\.proj)\.", ".attention.o_proj."),
        (r"\.attn\.qkv\.", ".attention.qkv."),
        (r"\.ls([12])\.gamma$", r".layer_scale\1.lambda1"),
        (r"\.mlp\.fc1\.", ".mlp.up_proj."),
        (r"\.mlp\.fc2\.", ".mlp.down_proj."),
        (r"^layernorm\.", "norm."),
    )
]
# Needed for pre-training or for a head on top, or recomputed here: nothing that changes the tokens.
_UNUSED = re.compile(r"mask_token$|^rope_embed|^(head|classifier|decoder|dino_head|ibot_head|pooler)\.")

_RESNET_RENAMES: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(r"^(?:(?:module|model|backbone|resnet)\.)+"), ""),
    (re.compile(r"^conv1\."), "embedder.embedder.convolution."),
    (re.compile(r"^bn1\."), "embedder.embedder.normalization."),
    # torchvision counts stages and convolutions from 1.
    (re.compile(r"^layer(\d)\.(\d+)\."), lambda m: f"encoder.stages.{int(m[1]) - 1}.layers.{m[2]}."),
    (re.compile(r"\.conv(\d)\."), lambda m: f".layer.{int(m[1]) - 1}.convolution."),
    (re.compile(r"\.bn(\d)\."), lambda m: f".layer.{int(m[1]) - 1}.normalization."),
    (re.compile(r"\.downsample\.0\."), ".shortcut.convolution."),
    (re.compile(r"\.downsample\.1\."), ".shortcut.normalization."),
]
# Beyond stage 3, or a counter of training steps.
_RESNET_UNUSED = re.compile(r"^encoder\.stages\.3\.|^(fc|classifier|pooler)\.|num_batches_tracked$")


def canonical_name(name: str) -> str:
    """Return the canonical spelling of a published tensor name.

    >>> canonical_name("encoder.layer.3.attention.attention.query.bias")
    'layer.3.attention.q_proj.bias'
    """
    for pattern, replacement in _RENAMES:
        name = pattern.sub(replacement, name)
    return name


def canonical_resnet_name(name: str) -> str:
    """Return the canonical spelling of a published tensor name of a ResNet.

    >>> canonical_resnet_name("layer2.0.downsample.1.running_var")
    'encoder.stages.1.layers.0.shortcut.normalization.running_var'
    """
    for pattern, replacement in _RESNET_RENAMES:
        name = pattern.sub(replacement, name)
    return name


def to_canonical(spec: BackboneSpec, published: Mapping[str, NDArray[np.generic]]) -> dict[str, Floats]:
    """Rename, split and check published tensors against ``spec``; float32 arrays in the canonical order."""
    if isinstance(spec, EncoderSpec):
        tensors = _renamed(spec, published, canonical_name, _UNUSED)
        _split_qkv(spec, tensors)
        if spec.family == "dinov3":
            for index in range(spec.depth):
                tensors.setdefault(f"layer.{index}.attention.k_proj.bias", np.zeros(spec.width, np.float32))
    else:
        tensors = _renamed(spec, published, canonical_resnet_name, _RESNET_UNUSED)
    check_tensors(spec, tensors)
    return {name: np.ascontiguousarray(tensors[name]) for name in spec.tensor_shapes()}


def _renamed(
    spec: BackboneSpec,
    published: Mapping[str, NDArray[np.generic]],
    rename: Callable[[str], str],
    unused: re.Pattern[str],
) -> dict[str, Floats]:
    """What counts of the published tensors, under canonical names and in float32."""
    tensors: dict[str, Floats] = {}
    for name, value in published.items():
        if unused.search(renamed := rename(name)):
            continue
        if renamed in tensors:
            raise _not_of(spec, f"'{printable(renamed)}' is there twice, under different names")
        if value.dtype not in (np.float16, np.float32, np.float64):
            raise _not_of(spec, f"'{printable(renamed)}' holds {value.dtype} instead of floating-point numbers")
        if value.dtype == np.float16 and renamed.endswith("running_var"):
            # A variance too large for float16 was stored as infinity, which would silence its channel: the largest
            # float16 is the nearest to what it was.
            value = np.minimum(value, np.finfo(np.float16).max)
        with np.errstate(over="ignore"):  # what becomes infinite is refused later
            tensors[renamed] = np.asarray(value, np.float32)
    return tensors


def _split_qkv(spec: BackboneSpec, tensors: dict[str, Floats]) -> None:
    """Replace every fused ``attention.qkv`` by its three projections, in place."""
    for name in [name for name in tensors if name.endswith((".qkv.weight", ".qkv.bias"))]:
        stem, kind = name.rsplit(".qkv.", 1)
        fused = tensors.pop(name)
        if fused.ndim == 0 or len(fused) % 3:
            raise _not_of(spec, f"'{printable(name)}' has the shape {fused.shape}, which is not three projections")
        parts = dict(zip("qkv", np.split(fused, 3), strict=True))
        if kind == "bias" and tensors.pop(f"{stem}.qkv.bias_mask", None) is not None:
            # DINOv3 multiplies the key's third of the bias by zero; what is stored there means nothing.
            parts["k"] = np.zeros_like(parts["k"])
        tensors |= {f"{stem}.{letter}_proj.{kind}": part for letter, part in parts.items()}


def check_tensors(spec: BackboneSpec, tensors: Mapping[str, Floats]) -> None:
    """Raise unless ``tensors`` are exactly those of ``spec``: names, shapes, float32, finite, no negative variance."""
    expected = spec.tensor_shapes()
    if missing := [name for name in expected if name not in tensors]:
        raise _not_of(spec, f"{len(missing)} tensors are missing, the first is '{missing[0]}'")
    if extra := sorted(name for name in tensors if name not in expected):
        raise _not_of(spec, f"{len(extra)} tensors do not belong to it, the first is '{printable(extra[0])}'")
    for name, shape in expected.items():
        value = tensors[name]
        if value.shape != shape:
            raise _not_of(spec, f"'{name}' has the shape {value.shape} instead of {shape}")
        if value.dtype != np.float32:
            raise _not_of(spec, f"'{name}' holds {value.dtype} instead of float32")
        if not np.isfinite(value).all():
            raise _not_of(spec, f"'{name}' holds values that are not finite")
        if name.endswith("running_var") and (value < 0).any():
            raise _not_of(spec, f"'{name}' holds negative variances")


def _not_of(spec: BackboneSpec, problem: str) -> EncoderError:
    return EncoderError(f"These are not the weights of '{spec.name}' ({spec.description}): {problem}.")


def tensors_sha256(tensors: Mapping[str, Floats]) -> str:
    """Hash names, shapes and values, whatever file they are kept in."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(tensors[name], "<f4").data)
    return digest.hexdigest()


def from_onnx(model: onnx.ModelProto) -> dict[str, Floats]:
    """Collect the tensors of an ONNX export of ``transformers``' DINOv2, under the names they have there.

    The exporter keeps most names, but transposes the weights of linear layers and hides their names: those
    are recovered from the node that multiplies by them. The position embedding is stored as its CLS part and
    its grid.
    """
    from onnx import TensorProto, numpy_helper

    if any(init.data_location == TensorProto.EXTERNAL or init.external_data for init in model.graph.initializer):
        raise EncoderError("This ONNX model keeps its weights in other files, which are not read; give one whole file.")
    stored = {init.name: numpy_helper.to_array(init) for init in model.graph.initializer}
    tensors = {name: value for name, value in stored.items() if not name.startswith("onnx::")}
    for node in model.graph.node:
        if node.op_type == "MatMul" and len(node.input) == 2 and node.input[1].startswith("onnx::"):
            path = node.name.strip("/").removesuffix("/MatMul").replace("/", ".")
            if node.input[1] in stored:
                tensors[f"{path}.weight"] = stored[node.input[1]].T
    hidden = [value for name, value in stored.items() if name.startswith("onnx::") and value.ndim == 3]
    if hidden:
        parts = sorted(hidden, key=lambda value: value.shape[1])
        tensors["embeddings.position_embeddings"] = np.concatenate(parts, axis=1)
    return tensors
