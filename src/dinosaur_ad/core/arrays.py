"""The functions that let one source run with NumPy on an edge box and with torch on a GPU."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np

# Any array that array-api-compat knows; the axes are in the variable's name (bank_HWMC), not in the type.
Array = Any
# NumPy has the names of the array API itself since 2.1. The wrapper in array_api_compat would import all of NumPy's
# submodules: a tenth of a second before the first verdict on a server, more on a small box.
_NUMPY_IS_ENOUGH = hasattr(np, "astype") and hasattr(np, "vecdot")


def namespace(*arrays: Array) -> Any:
    """The array library these arrays belong to (``numpy``- or ``torch``-like module)."""
    if _NUMPY_IS_ENOUGH and all(isinstance(array, np.ndarray) for array in arrays):
        return np
    return array_api_compat.array_namespace(*arrays)


def device_of(array: Array) -> Any:
    """Where the array lives, for making new arrays beside it."""
    return array_api_compat.device(array)


def is_numpy(array: Array) -> bool:
    """Whether the array is NumPy's, for the few places where its speed needs another form of the same computation."""
    return bool(array_api_compat.is_numpy_array(array))


def to_numpy(array: Array) -> np.ndarray:
    """The same values as a NumPy array on the CPU."""
    return array if is_numpy(array) else np.asarray(array_api_compat.to_device(array, "cpu"))


def like(values: Any, array: Array, dtype: Any = None) -> Array:
    """``values`` as an array of the library and on the device of ``array``."""
    return namespace(array).asarray(values, dtype=dtype, device=device_of(array))


def l2_normalise(x: Array, groups: int = 1) -> Array:
    """Scale each of ``groups`` equal slices of the last axis to length one; a zero vector stays zero.

    With tokens of several blocks side by side, ``groups`` is the number of blocks, so that no block outweighs another.

    >>> l2_normalise(np.asarray([[3.0, 4.0, 0.0, 2.0]]), groups=2).tolist()
    [[0.6, 0.8, 0.0, 1.0]]
    """
    xp = namespace(x)
    split = xp.reshape(x, (*x.shape[:-1], groups, x.shape[-1] // groups))
    length = xp.sqrt(xp.sum(split * split, axis=-1, keepdims=True))
    return xp.reshape(split / xp.where(length > 0, length, xp.ones_like(length)), x.shape)


def squared_norms(x: Array) -> Array:
    """``|x|²`` over the last axis."""
    return namespace(x).sum(x * x, axis=-1)
