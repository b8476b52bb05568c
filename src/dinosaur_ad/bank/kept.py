"""What a bank remembers, in the form in which it is kept: plain vectors, or fewer channels of them as int8 codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.arrays import Array, namespace, to_numpy
from dinosaur_ad.core.projection import project
from dinosaur_ad.core.quantise import Quantised, dequantise, quantise, widen
from dinosaur_ad.core.scoring import NearestPatch, nearest_patch, patch_distances

# A half that is infinite or no number becomes at least 2**16 when it is widened; no real vector is as long.
LONGEST_HALF_NORM = 2.0**31


class Kept(NamedTuple):
    """Remembered patches: float32 or float16 vectors ``(H, W, M, C)``, or int8 codes with a scale for each location.

    With a basis ``(C, K)`` they are kept along its K directions, which are the leading ones of a rotation: dropping the
    last of them, or the last members, leaves a bank that is as valid as one that was made so.

    >>> vectors = np.random.default_rng(0).normal(size=(2, 2, 5, 8)).astype(np.float32)
    >>> kept = Kept.of(vectors, "int8")
    >>> kept.values_HWMK.dtype.name, bool(np.abs(kept.vectors() - vectors).max() < 0.02)
    ('int8', True)
    """

    values_HWMK: Array
    scale_HW: Array | None = None
    basis_CK: Array | None = None

    @classmethod
    def of(cls, vectors_HWMC: Array, precision: str, basis_CK: Array | None = None) -> Kept:
        """Vectors in a precision; along the directions of a basis if there is one (they still have all channels)."""
        vectors_HWMK = vectors_HWMC if basis_CK is None else project(vectors_HWMC, basis_CK)
        return cls.along(vectors_HWMK, precision, basis_CK)

    @classmethod
    def along(cls, vectors_HWMK: Array, precision: str, basis_CK: Array | None, scale_HW: Array | None = None) -> Kept:
        """The same for vectors that lie along the basis already; int8 codes with the scales they had before, if any."""
        if precision == "int8":
            return cls(*quantise(vectors_HWMK, scale_HW), basis_CK)
        xp = namespace(vectors_HWMK)
        return cls(xp.astype(vectors_HWMK, getattr(xp, precision)), None, basis_CK)

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[Any]]) -> Kept:
        """What :meth:`arrays` gave; a ValueError says what is wrong with it."""
        if "codes" not in arrays:
            kept = cls(_array(arrays, "vectors", 4, (np.float32, np.float16)))
        else:
            basis = _array(arrays, "basis", 2, (np.float16,)).astype(np.float32) if "basis" in arrays else None
            codes = _array(arrays, "codes", 4, (np.int8,))
            kept = cls(codes, _array(arrays, "scale", 2, (np.float32,)), basis)
        kept._refuse_misfits()
        return kept

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As a file holds it; codes have a name of their own, so that nobody takes them for vectors."""
        values = np.ascontiguousarray(to_numpy(self.values_HWMK))
        if self.scale_HW is None:
            return {"vectors": values}
        arrays = {"codes": values, "scale": to_numpy(self.scale_HW).astype(np.float32)}
        return arrays if self.basis_CK is None else arrays | {"basis": to_numpy(self.basis_CK).astype(np.float16)}

    def _refuse_misfits(self) -> None:
        if self.scale_HW is not None:
            if self.scale_HW.shape != self.values_HWMK.shape[:2]:
                raise ValueError(f"it has {self.scale_HW.shape} scales for {self.values_HWMK.shape[:2]} locations")
            if not (np.isfinite(self.scale_HW) & (self.scale_HW > 0)).all():
                raise ValueError("a scale is not a positive number")
        if self.basis_CK is not None:
            if self.basis_CK.shape[1] != self.values_HWMK.shape[3] or self.basis_CK.shape[0] < self.basis_CK.shape[1]:
                raise ValueError("its basis does not fit its codes")
            if not np.isfinite(self.basis_CK).all():
                raise ValueError("its basis holds values that are no numbers")

    # --- what it is ---

    @property
    def precision(self) -> str:
        """``"float32"``, ``"float16"`` or ``"int8"``."""
        return str(self.values_HWMK.dtype).rpartition(".")[2]  # torch says torch.int8

    @property
    def members(self) -> int:
        """How many patches each location remembers."""
        return int(self.values_HWMK.shape[2])

    @property
    def channels(self) -> int:
        """How many numbers a patch is remembered by."""
        return int(self.values_HWMK.shape[3])

    @property
    def width(self) -> int:
        """How many numbers the encoder gives for a patch."""
        return self.channels if self.basis_CK is None else int(self.basis_CK.shape[0])

    @property
    def nbytes(self) -> int:
        """What it holds in memory."""
        return sum(int(array.nbytes) for array in self if array is not None)

    def vectors(self) -> Array:
        """The remembered patches as float32 ``(H, W, M, K)``."""
        if self.scale_HW is None:
            return widen(self.values_HWMK)
        return dequantise(Quantised(self.values_HWMK, self.scale_HW))

    def cut(self, members: int, channels: int) -> Kept:
        """The first members and the leading channels; fewer channels only where there is a basis."""
        assert channels == self.channels or self.basis_CK is not None
        basis_CK = None if self.basis_CK is None else self.basis_CK[:, :channels]
        return Kept(self.values_HWMK[:, :, :members, :channels], self.scale_HW, basis_CK)

    def moved(self, put: Callable[[NDArray[Any]], Array]) -> Kept:
        """All of it where ``put`` puts an array."""
        return Kept(*(None if array is None else put(array) for array in self))

    # --- what is asked of it ---

    def tokens(self, tokens: Array) -> Array:
        """Tokens ``(..., C)`` as it remembers them, ``(..., K)``."""
        return tokens if self.basis_CK is None else project(tokens, self.basis_CK)

    def distances(
        self, patches_NHWC: Array, radius: int, half_norm_HWM: Array | None = None, threads: int | None = None
    ) -> Array:
        """Patch distances ``(N, H, W)`` of images."""
        tokens_NHWK = self.tokens(patches_NHWC)
        return patch_distances(
            tokens_NHWK,
            self.values_HWMK,
            radius,
            scale_HW=self.scale_HW,
            half_norm_HWM=half_norm_HWM,
            threads=threads,
        )

    def nearest(self, token_C: Array, row: int, column: int, radius: int) -> NearestPatch:
        """The remembered patch that comes nearest to the patch at a place."""
        return nearest_patch(self.tokens(token_C), self.values_HWMK, row, column, radius, scale_HW=self.scale_HW)


def _array(arrays: Mapping[str, NDArray[Any]], name: str, axes: int, dtypes: tuple[type, ...]) -> NDArray[Any]:
    array = arrays.get(name)
    if array is None:
        raise ValueError(f"it has no {name}")
    if array.ndim != axes or not array.size or array.dtype not in dtypes:
        raise ValueError(f"its {name} are {array.dtype} of shape {array.shape}")
    return array
