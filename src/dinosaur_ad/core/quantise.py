"""Banks in fewer bytes: int8 codes with one scale a location, and how codes and halves become float32 again.

A bank of int8 codes takes a quarter of the bytes of a float32 one, and its products need no float32 copy of it: codes
are widened a few rows of the grid at a time, and the scale, being one a location, is applied to the products.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.arrays import Array, is_numpy, like, namespace, squared_norms

# The largest code: symmetric, so that zero is zero and -128 is never used.
LARGEST = 127
# A half, shifted into the place of a float32, has an exponent that is too small by the difference of the two biases.
_HALF_TO_SINGLE = np.float32(2.0**112)


class Quantised(NamedTuple):
    """A bank as int8 ``(H, W, M, C)`` and what one unit of a code is worth at each location, float32 ``(H, W)``."""

    codes_HWMC: Array
    scale_HW: Array


def quantise(vectors_HWMC: Array, least_HW: Array | None = None) -> Quantised:
    """The nearest int8 bank; at each location the largest value gets the largest code.

    Scales are not below ``least_HW``: given those of a bank that was quantised before, its members get the codes they
    had, however often new ones come to them.

    >>> codes, scale = quantise(np.asarray([[[[0.5, -1.27], [0.004, 0.0]]]], np.float32))
    >>> codes.tolist(), round(float(scale[0, 0]), 6)
    ([[[[50, -127], [0, 0]]]], 0.01)
    """
    xp = namespace(vectors_HWMC)
    scale_HW = xp.max(xp.abs(vectors_HWMC), axis=(2, 3)) / LARGEST
    # A location of nothing but zeros has codes of zero, whatever its scale; one is a scale like any other.
    scale_HW = xp.where(scale_HW > 0, scale_HW, xp.ones_like(scale_HW))
    scale_HW = scale_HW if least_HW is None else xp.maximum(scale_HW, like(least_HW, scale_HW, scale_HW.dtype))
    return Quantised(xp.astype(xp.round(vectors_HWMC / scale_HW[:, :, None, None]), xp.int8), scale_HW)


def dequantise(quantised: Quantised) -> Array:
    """The vectors ``(H, W, M, C)`` that the codes stand for, float32."""
    return widen(quantised.codes_HWMC) * quantised.scale_HW[:, :, None, None]


def scaled_norms(values_HWMC: Array, scale_HW: Array | None = None) -> Array:
    """``|c|²`` ``(H, W, M)`` of a bank in any precision, a row of locations at a time: it is not widened as a whole."""
    xp = namespace(values_HWMC)
    norms_HWM = xp.stack([squared_norms(widen(values_HWMC[i])) for i in range(values_HWMC.shape[0])], axis=0)
    return norms_HWM if scale_HW is None else norms_HWM * (scale_HW * scale_HW)[:, :, None]


def widen(values: Array) -> Array:
    """The same values as float32 at the least, lying in memory in the same order.

    NumPy turns halves into float32 one by one; moving their bits is up to forty times faster and exact. Infinities and
    NaN are not preserved; opening a bank refuses them (:func:`dinosaur_ad.bank.bank.half_norms`).

    >>> widen(np.asarray([1.5, -0.25, 6e-8], np.float16)).tolist() == np.float16([1.5, -0.25, 6e-8]).tolist()
    True
    """
    xp = namespace(values)
    if values.dtype in (xp.float32, xp.float64):
        return values
    return _halves(values) if is_numpy(values) and values.dtype == np.float16 else xp.astype(values, xp.float32)


def _halves(values: NDArray[np.float16]) -> NDArray[np.float32]:
    # Sign-extended, a half's sign fills all bits above its own; the mask keeps the topmost of them only.
    bits = values.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70000001)
    result = bits.view(np.float32)
    result *= _HALF_TO_SINGLE
    return result
