"""A frozen backbone behind one call: uint8 images in, CLS and patch tokens out.

Besides these token encoders there are residual networks, which give feature maps (:func:`load_resnet`). Everything
heavy (ONNX Runtime, torch, transformers) is imported by the two functions, not by this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dinosaur_ad.encoders.base import Encoder, Layer, Tokens, check_layers, check_size, prepare
from dinosaur_ad.encoders.registry import get_spec, list_specs, register, token_encoder
from dinosaur_ad.encoders.resnet import ResNetFeatures, load_resnet
from dinosaur_ad.encoders.specs import BackboneSpec, EncoderSpec, ResNetSpec
from dinosaur_ad.encoders.weights import ensure, from_file
from dinosaur_ad.errors import EncoderError

__all__ = [
    "DEFAULT_ENCODER",
    "BackboneSpec",
    "Encoder",
    "EncoderSpec",
    "Layer",
    "ResNetFeatures",
    "ResNetSpec",
    "Tokens",
    "get_spec",
    "list_specs",
    "load_encoder",
    "load_resnet",
    "prepare",
    "register",
]

DEFAULT_ENCODER = "dinov2s-focus"


def load_encoder(
    name: str = DEFAULT_ENCODER,
    *,
    layers: Sequence[Layer] = ("final",),
    size: int = 224,
    backend: str = "onnx",
    threads: int | None = None,
    device: str = "cpu",
    precision: str = "float32",
    weights: str | Path | None = None,
) -> Encoder:
    """Return the encoder ``name``, ready to encode.

    ``layers`` are the taps, concatenated in this order: a number k is the residual stream after block k
    (counted from 0, not normalised), ``"final"`` the output of the last norm. ``size`` is the side of the
    square input in pixels, a multiple of the patch size. ``backend`` is ``"onnx"`` or ``"torch"`` (with the
    extra ``bench``), ``device`` ``"cpu"`` or ``"cuda"``, ``precision`` ``"float32"`` or, with torch on a GPU,
    ``"float16"`` or ``"bfloat16"``. ``threads`` limits the CPU threads. ``weights`` takes the weights from a
    file or folder instead of the cache.

    >>> load_encoder("tiny-dinov3", layers=(0, "final"), size=64).channels
    32
    """
    spec = token_encoder(get_spec(name))
    check_size(size, spec)  # before a download, not after it
    chosen = check_layers(layers, spec.depth)
    if threads is not None and threads < 1:
        raise EncoderError(f"The number of threads must be at least 1, got {threads}.")
    if backend == "onnx":
        if precision != "float32":
            raise EncoderError(
                f"The onnx backend computes in float32, got precision '{precision}'; use backend='torch'."
            )
        from dinosaur_ad.encoders.onnx_backend import OnnxEncoder

        found = ensure(name) if weights is None else from_file(name, weights)
        return OnnxEncoder(found, chosen, size, threads, device)
    if backend == "torch":
        try:
            from dinosaur_ad.encoders.torch_backend import TorchEncoder
        except ImportError as error:
            raise EncoderError(
                f"The torch backend needs torch and transformers ({error.name or 'one'} is missing); install "
                "them with: pip install 'dinosaur-ad[bench]', or use backend='onnx'."
            ) from error
        found = ensure(name) if weights is None else from_file(name, weights)
        return TorchEncoder(found, chosen, size, threads, device, precision)
    raise EncoderError(f"There is no backend '{backend}'; choose onnx or torch.")
