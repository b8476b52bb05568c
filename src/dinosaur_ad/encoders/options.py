"""How an encoder is run; which encoder it is, is a choice of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class EncoderOptions:
    """The options of :func:`~dinosaur_ad.encoders.load_encoder` that change how an encoder runs, not what it computes.

    ``provider`` is the execution provider ("onnx-cpu" unless given, "openvino", "cuda", ..., or "auto" for the fastest
    one on this machine), ``precision`` is "float32" unless given, "bfloat16", "float16" or "int8". ``threads`` limits
    the CPU threads, of scoring too. ``weights`` is a file or folder to read the weights from instead of the cache, and
    ``export`` a folder written by ``dinosaur export``. ``strict`` raises an error where the provider or the precision
    is not available, instead of falling back to onnx-cpu in float32. ``device`` is for ``provider="torch"``, with the
    extra ``bench``.

    >>> EncoderOptions(threads=2)
    EncoderOptions(provider=None, precision=None, threads=2, weights=None, export=None, strict=False, \
device='cpu')
    """

    provider: str | None = None
    precision: str | None = None
    threads: int | None = None
    weights: str | Path | None = None
    export: str | Path | None = None
    strict: bool = False
    device: str = "cpu"
