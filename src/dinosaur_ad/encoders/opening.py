"""Open an encoder: on the provider requested, on the fastest one, or on the fallback."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from dinosaur_ad._text import first_line
from dinosaur_ad.encoders.backends.setup import Setup
from dinosaur_ad.encoders.base import Encoder, Layer
from dinosaur_ad.encoders.providers import (
    DEFAULT_PRECISION,
    DEFAULT_PROVIDER,
    UnavailableError,
    first_with,
    get_provider,
    why_not,
)
from dinosaur_ad.encoders.weights.local import Weights, ensure, from_file, to_stderr
from dinosaur_ad.errors import EncoderError, install_command


@dataclass(frozen=True)
class Request:
    """Which encoder to open, independent of the provider."""

    name: str
    layers: tuple[Layer, ...]
    size: int
    threads: int | None = None
    weights: Path | None = None
    device: str = field(default="cpu", compare=False)  # for torch alone

    @cached_property
    def loaded(self) -> Weights:
        """The weights, loaded once."""
        return ensure(self.name) if self.weights is None else from_file(self.name, self.weights)

    def setup(self, provider: str, precision: str) -> Setup:
        """What a backend makes the encoder from."""
        return Setup(self.loaded, self.layers, self.size, provider, precision, self.threads, self.device)


def open_encoder(request: Request, provider: str | None, precision: str | None, *, strict: bool) -> Encoder:
    """The encoder on the provider and in the precision requested, or on the fallback with a message on stderr.

    Without a provider the first one that offers the precision is taken. ``strict`` refuses instead of falling back.
    """
    if provider is not None and provider != "auto":
        get_provider(provider)
    request.loaded  # noqa: B018 - missing weights are an error, not a reason to fall back
    try:
        if provider == "auto":
            from dinosaur_ad.encoders.auto import choose

            choice = choose(request, precision)
            to_stderr(choice.sentence)
            return open_on(request, choice.provider, choice.precision)
        precision = precision or DEFAULT_PRECISION
        return open_on(request, provider or _usual(precision), precision)
    except UnavailableError as error:
        if strict:
            raise
        encoder = open_on(request, DEFAULT_PROVIDER, DEFAULT_PRECISION)
        encoder.fallback = error.fallback()
        to_stderr(f"fallback: {encoder.fallback}")
        return encoder


def open_on(request: Request, provider: str, precision: str) -> Encoder:
    """The encoder on exactly this provider and precision, after a first run that shows it works here.

    :raises UnavailableError: it is not here, cannot be opened, or its first run fails.
    """
    if reason := why_not(provider, precision):
        raise UnavailableError(provider, precision, reason)
    if (provider, precision) == (DEFAULT_PROVIDER, DEFAULT_PRECISION):
        return _built(request, provider, precision)
    try:
        encoder = _built(request, provider, precision)
        cls, patches = encoder._run(np.full((1, request.size, request.size, 3), 128, np.uint8))
    except Exception as error:  # run times and drivers raise exceptions of any type
        raise UnavailableError(provider, precision, f"its first run failed: {first_line(error)}") from error
    if not (np.isfinite(cls).all() and np.isfinite(patches).all()):
        raise UnavailableError(provider, precision, "its first run gave numbers that are not finite")
    return encoder


def open_torch(request: Request, precision: str) -> Encoder:
    """The encoder on torch, on the request's device."""
    try:
        from dinosaur_ad.encoders.backends.torch_backend import TorchEncoder
        from dinosaur_ad.encoders.backends.torch_pair import TorchPair
    except ImportError as error:
        raise EncoderError(
            f"The provider torch needs torch and transformers ({error.name or 'one'} is missing); install "
            f"them with: {install_command('bench')}, or choose another provider."
        ) from error
    setup = request.setup("torch", precision)
    return TorchPair(setup) if setup.weights.parts else TorchEncoder(setup)


def _usual(precision: str) -> str:
    return DEFAULT_PROVIDER if precision == DEFAULT_PRECISION else first_with(precision)


def _built(request: Request, provider: str, precision: str) -> Encoder:
    backend = get_provider(provider).backend
    if backend == "torch":
        return open_torch(request, precision)
    setup = request.setup(provider, precision)
    if backend == "openvino":
        from dinosaur_ad.encoders.backends.openvino_backend import OpenVinoEncoder

        return OpenVinoEncoder(setup)
    from dinosaur_ad.encoders.backends.onnx_backend import OnnxEncoder

    return OnnxEncoder(setup)
