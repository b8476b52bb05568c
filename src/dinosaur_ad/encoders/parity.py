"""How near the tokens of one way of running an encoder are to those of another, and how near is near enough.

The reference is ONNX Runtime on the CPU in float32. The limits are part of the promise that a store taught on one
machine can be used on another: docs/encoders.md says what they were measured against.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.encoders.base import Floats, Tokens
from dinosaur_ad.encoders.providers import check_precision
from dinosaur_ad.errors import EncoderError

# The least cosine of any token, and of all on average: a little below the worst that was measured on real images
# (docs/export.md), so that an encoder which has lost more is refused.
_LIMITS = {
    "float32": (0.9999, 0.99999),
    "bfloat16": (0.995, 0.999),
    "float16": (0.995, 0.999),
    "int8": (0.95, 0.995),
}


@dataclass(frozen=True)
class TokenParity:
    """Cosine between corresponding tokens, CLS and patches of all images together; 0 where values are not finite."""

    images: int
    cosine_min: float
    cosine_mean: float
    finite: bool


def compare_tokens(reference: Tokens, other: Tokens) -> TokenParity:
    """Compare the tokens of the same images.

    >>> tokens = Tokens(np.ones((2, 4), np.float32), np.ones((2, 3, 3, 4), np.float32))
    >>> compare_tokens(tokens, tokens)
    TokenParity(images=2, cosine_min=1.0, cosine_mean=1.0, finite=True)
    """
    if reference.cls.shape != other.cls.shape or reference.patches.shape != other.patches.shape:
        raise EncoderError(
            f"Tokens of shape {reference.patches.shape} cannot be compared with tokens of shape {other.patches.shape}; "
            "encode the same images at the same size and layers."
        )
    finite = all(bool(np.isfinite(each).all()) for each in (other.cls, other.patches))
    if not finite:
        return TokenParity(len(reference), 0.0, 0.0, False)
    cosine = np.concatenate([_cosine(reference.cls, other.cls), _cosine(reference.patches, other.patches)])
    return TokenParity(len(reference), float(cosine.min()), float(cosine.mean()), True)


def limits(precision: str) -> tuple[float, float]:
    """The least minimum and the least mean of the token cosine that a precision must reach."""
    return _LIMITS[check_precision(precision)]


def failure(parity: TokenParity, precision: str) -> str | None:
    """Why these tokens must not be used, with the figures; None when they pass."""
    if not parity.finite:
        return f"In {precision} its tokens are not all finite (NaN or infinity in {parity.images} images)."
    least, mean = limits(precision)
    if parity.cosine_min >= least and parity.cosine_mean >= mean:
        return None
    return (
        f"In {precision} its tokens are too far from those of float32: cosine at least {parity.cosine_min:.5f} and "
        f"{parity.cosine_mean:.5f} on average over {parity.images} images, but {least} and {mean} are asked for."
    )


def _cosine(reference: Floats, other: Floats) -> NDArray[np.float64]:
    """Cosine of every token (over the last axis); two zero tokens are equal, a zero and another are not."""
    a, b = (each.reshape(-1, each.shape[-1]).astype(np.float64) for each in (reference, other))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    both_zero = (np.abs(a).max(axis=1) == 0) & (np.abs(b).max(axis=1) == 0)
    products: NDArray[np.float64] = (a * b).sum(axis=1) / np.where(lengths > 0, lengths, 1.0)
    return np.where(both_zero, 1.0, products).clip(-1.0, 1.0)
