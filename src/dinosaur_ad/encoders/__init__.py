"""A frozen backbone behind one call: uint8 images in, CLS and patch tokens out.

Besides these token encoders there are residual networks, which give feature maps (:func:`load_resnet`). Everything
heavy (ONNX Runtime, OpenVINO, torch, transformers) is imported by the two functions, not by this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dinosaur_ad.encoders.base import Encoder, Layer, Tokens, check_layers, check_size, prepare
from dinosaur_ad.encoders.opening import Request, open_encoder, open_torch
from dinosaur_ad.encoders.parity import TokenParity, compare_tokens
from dinosaur_ad.encoders.providers import DEFAULT_PRECISION, MOST_THREADS, PROVIDERS, check_precision
from dinosaur_ad.encoders.registry import get_spec, list_specs, register, token_encoder
from dinosaur_ad.encoders.resnet import ResNetFeatures, load_resnet
from dinosaur_ad.encoders.specs import BackboneSpec, EncoderSpec, ResNetSpec
from dinosaur_ad.errors import EncoderError

__all__ = [
    "DEFAULT_ENCODER",
    "BackboneSpec",
    "Encoder",
    "EncoderSpec",
    "Layer",
    "ResNetFeatures",
    "ResNetSpec",
    "TokenParity",
    "Tokens",
    "compare_tokens",
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
    provider: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    weights: str | Path | None = None,
    strict: bool = False,
    export: str | Path | None = None,
    device: str = "cpu",
    backend: str | None = None,
) -> Encoder:
    """Return the encoder ``name``, ready to encode.

    ``layers`` are the taps, concatenated in this order: a number k is the residual stream after block k
    (counted from 0, not normalised), ``"final"`` the output of the last norm. ``size`` is the side of the
    square input in pixels, a multiple of the patch size. ``threads`` limits the CPU threads. ``weights`` takes the
    weights from a file or folder instead of the cache.

    ``provider`` is what it runs on: ``"onnx-cpu"`` (the default), ``"openvino"``, another one of
    :data:`~dinosaur_ad.encoders.providers.PROVIDERS`, or ``"auto"`` for the fastest one on this machine that passes the
    parity check. ``precision`` is ``"float32"`` (the default), ``"bfloat16"``, ``"float16"`` or ``"int8"``. If this
    machine does not have the provider or the precision, ``onnx-cpu`` in float32 runs instead: with a line on stderr and
    in ``info()["fallback"]``, or an error with ``strict``. ``export`` runs a folder that ``dinosaur export`` made.

    ``device`` is torch's device and needs ``provider="torch"`` (extra ``bench``): ``device="cuda"`` also runs in
    float16 and bfloat16, and never falls back. The backend (the library that runs the graph) follows from the
    provider; ``backend="torch"`` is accepted as an older way to write ``provider="torch"``.

    >>> load_encoder("tiny-dinov3", layers=(0, "final"), size=64).channels
    32
    """
    spec = token_encoder(get_spec(name))
    check_size(size, spec)  # before a download, not after it
    chosen = check_layers(layers, spec.depth)
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise EncoderError(f"The number of threads must be at least 1 and at most {MOST_THREADS}, got {threads}.")
    if backend not in (None, "onnx", "torch"):
        raise EncoderError(f"There is no backend '{backend}'; choose a provider instead: auto, {', '.join(PROVIDERS)}.")
    if backend == "torch" and provider not in (None, "torch"):
        raise EncoderError(f"The provider '{provider}' does not run on the backend torch; leave one of them out.")
    if device != "cpu" and "torch" not in (backend, provider):
        raise EncoderError(
            f"The device '{device}' is for torch; add provider='torch', or use provider='cuda' for ONNX Runtime."
        )
    request = Request(name, chosen, size, threads, None if weights is None else Path(weights), device)
    if export is not None:
        return _open_export(export, request, provider, precision, strict)
    if precision is not None:
        precision = check_precision(precision)
    if backend == "torch" or device != "cpu":
        return open_torch(request, precision or DEFAULT_PRECISION)
    return open_encoder(request, provider, precision, strict=strict)


def _open_export(
    folder: str | Path, request: Request, provider: str | None, precision: str | None, strict: bool
) -> Encoder:
    if provider is not None or precision is not None or request.weights is not None:
        raise EncoderError(
            "An export holds its own weights and precision and names its own run time; leave out the provider, the "
            "precision and the weights."
        )
    from dinosaur_ad.encoders.backends.exported import open_exported

    encoder = open_exported(folder, layers=request.layers, size=request.size, threads=request.threads, strict=strict)
    if encoder.name != request.name:
        raise EncoderError(
            f"The export {folder} is of the encoder '{encoder.name}', but '{request.name}' is asked for; export that."
        )
    return encoder
