"""A task's bank in memory: the remembered patches in the form in which they are stored, and distances to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.arrays import Array, namespace, to_numpy
from dinosaur_ad.core.projection import project
from dinosaur_ad.core.quantise import Quantised, dequantise, quantise, scaled_norms, widen
from dinosaur_ad.core.scoring import NearestPatch, nearest_patch, patch_distances
from dinosaur_ad.errors import StoreError
from dinosaur_ad.inspection import WorstPatch
from dinosaur_ad.store import TaskRecord

Floats = NDArray[np.float32]

# A float16 that is infinite or NaN becomes at least 2**16 when it is widened; no real vector is as long.
LONGEST_HALF_NORM = 2.0**31


class PackedVectors(NamedTuple):
    """Remembered patches: float32 or float16 vectors ``(H, W, M, C)``, or int8 codes with a scale for each location.

    With a basis ``(C, K)`` they are stored along its K directions, most important first: without the last directions,
    or without the last members, they are what would have been packed for the smaller size.

    >>> vectors = np.random.default_rng(0).normal(size=(2, 2, 5, 8)).astype(np.float32)
    >>> packed = PackedVectors.of(vectors, "int8")
    >>> packed.values_HWMK.dtype.name, bool(np.abs(packed.vectors() - vectors).max() < 0.02)
    ('int8', True)
    """

    values_HWMK: Array
    scale_HW: Array | None = None
    basis_CK: Array | None = None

    @classmethod
    def of(cls, vectors_HWMC: Array, precision: str, basis_CK: Array | None = None) -> PackedVectors:
        """Pack vectors with all channels; with a basis they are projected first."""
        vectors_HWMK = vectors_HWMC if basis_CK is None else project(vectors_HWMC, basis_CK)
        return cls.projected(vectors_HWMK, precision, basis_CK)

    @classmethod
    def projected(
        cls, vectors_HWMK: Array, precision: str, basis_CK: Array | None, scale_HW: Array | None = None
    ) -> PackedVectors:
        """Pack vectors that are projected already; int8 scales do not fall below ``scale_HW``."""
        if precision == "int8":
            return cls(*quantise(vectors_HWMK, scale_HW), basis_CK)
        xp = namespace(vectors_HWMK)
        return cls(xp.astype(vectors_HWMK, getattr(xp, precision)), None, basis_CK)

    @classmethod
    def read(cls, arrays: Mapping[str, NDArray[Any]]) -> PackedVectors:
        """From the arrays of a file, as :meth:`arrays` gives them; a ValueError says what is wrong with them."""
        if "codes" not in arrays:
            packed = cls(_array(arrays, "vectors", 4, (np.float32, np.float16)))
        else:
            basis = _array(arrays, "basis", 2, (np.float16,)).astype(np.float32) if "basis" in arrays else None
            codes = _array(arrays, "codes", 4, (np.int8,))
            packed = cls(codes, _array(arrays, "scale", 2, (np.float32,)), basis)
        packed._check()
        return packed

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of a file; codes have a name of their own, so that they are not taken for vectors."""
        values = np.ascontiguousarray(to_numpy(self.values_HWMK))
        if self.scale_HW is None:
            return {"vectors": values}
        arrays = {"codes": values, "scale": to_numpy(self.scale_HW).astype(np.float32)}
        return arrays if self.basis_CK is None else arrays | {"basis": to_numpy(self.basis_CK).astype(np.float16)}

    def _check(self) -> None:
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

    @property
    def precision(self) -> str:
        """``"float32"``, ``"float16"`` or ``"int8"``."""
        return str(self.values_HWMK.dtype).rpartition(".")[2]  # torch says torch.int8

    @property
    def members(self) -> int:
        """The number of patches at each location."""
        return int(self.values_HWMK.shape[2])

    @property
    def channels(self) -> int:
        """The number of values that are stored of a patch."""
        return int(self.values_HWMK.shape[3])

    @property
    def width(self) -> int:
        """The number of values that the encoder gives for a patch."""
        return self.channels if self.basis_CK is None else int(self.basis_CK.shape[0])

    @property
    def nbytes(self) -> int:
        """The bytes in memory."""
        return sum(int(array.nbytes) for array in self if array is not None)

    def vectors(self) -> Array:
        """The patches as float32 ``(H, W, M, K)``."""
        if self.scale_HW is None:
            return widen(self.values_HWMK)
        return dequantise(Quantised(self.values_HWMK, self.scale_HW))

    def first(self, members: int) -> PackedVectors:
        """The first members of every location."""
        return self._replace(values_HWMK=self.values_HWMK[:, :, :members])

    def moved(self, to_device: Callable[[NDArray[Any]], Array]) -> PackedVectors:
        """The same with all arrays on a device."""
        return PackedVectors(*(None if array is None else to_device(array) for array in self))

    def tokens(self, tokens: Array) -> Array:
        """Tokens ``(..., C)`` of an encoder projected as these vectors are, ``(..., K)``."""
        return tokens if self.basis_CK is None else project(tokens, self.basis_CK)

    def distances(
        self, patches_NHWC: Array, radius: int, half_norm_HWM: Array | None = None, threads: int | None = None
    ) -> Array:
        """Patch distances ``(N, H, W)`` of images; see :func:`~dinosaur_ad.core.scoring.patch_distances`."""
        return patch_distances(
            self.tokens(patches_NHWC),
            self.values_HWMK,
            radius,
            scale_HW=self.scale_HW,
            half_norm_HWM=half_norm_HWM,
            threads=threads,
        )


def _array(arrays: Mapping[str, NDArray[Any]], name: str, axes: int, dtypes: tuple[type, ...]) -> NDArray[Any]:
    array = arrays.get(name)
    if array is None:
        raise ValueError(f"it has no {name}")
    if array.ndim != axes or not array.size or array.dtype not in dtypes:
        raise ValueError(f"its {name} are {array.dtype} of shape {array.shape}")
    return array


@dataclass(frozen=True)
class Bank:
    """A task as inspecting uses it; :func:`~dinosaur_ad.bank.bank_files.open_bank` reads it from a store.

    ``source_HWM`` says which of ``images`` a member came from. ``scores`` are those of the calibration images and
    ``level`` is their usual patch distance; ``control_scores`` are those of the control images (empty where an older
    version taught the task). ``half_norm_HWM`` is ``|c|²/2`` of the vectors.
    """

    record: TaskRecord
    packed: PackedVectors
    half_norm_HWM: Array
    source_HWM: NDArray[Any]
    scores: Floats
    level: float
    control_scores: Floats
    images: list[str]
    digests: list[str]

    @property
    def nbytes(self) -> int:
        """The bytes in memory."""
        return self.packed.nbytes + int(self.half_norm_HWM.nbytes)

    def distances(self, patches_NHWC: Array, radius: int, threads: int | None = None) -> Array:
        """Patch distances (N, H, W) of images to this bank."""
        if patches_NHWC.shape[1:3] != self.packed.values_HWMK.shape[:2] or patches_NHWC.shape[3] != self.packed.width:
            raise StoreError(
                f"The bank of the task '{self.record.name}' is for patches of {self.packed.width} channels on a grid "
                f"of {tuple(self.packed.values_HWMK.shape[:2])}, and the encoder gives "
                f"{tuple(patches_NHWC.shape[1:])}: "
                "restore it from a backup, or undo or forget the task."
            )
        return self.packed.distances(patches_NHWC, radius, self.half_norm_HWM, threads)

    def nearest(self, token_C: Array, row: int, column: int, radius: int) -> NearestPatch:
        """The remembered patch that is nearest to the patch at a position, and so decided its distance."""
        packed = self.packed
        return nearest_patch(packed.tokens(token_C), packed.values_HWMK, row, column, radius, scale_HW=packed.scale_HW)

    def worst_patch(self, patches_HWC: Array, distance_HW: Floats, radius: int, size: tuple[int, int]) -> WorstPatch:
        """The patch of an image of that (height, width) with the largest distance, and what it was compared with."""
        (rows, columns), (height, width) = distance_HW.shape, size
        row, column = divmod(int(np.argmax(distance_HW)), columns)
        nearest = self.nearest(patches_HWC[row, column], row, column, radius)
        source = int(self.source_HWM[nearest.row, nearest.column, nearest.member])
        left, right = (at * width // columns for at in (column, column + 1))
        top, bottom = (at * height // rows for at in (row, row + 1))
        return WorstPatch(
            row=row,
            column=column,
            box=(left, top, right, bottom),
            distance=nearest.distance,
            like_image=self.images[source],
            like_row=nearest.row,
            like_column=nearest.column,
            like_digest=self.digests[source],
        )


def half_norms(packed: PackedVectors) -> Array:
    """``|c|²/2`` ``(H, W, M)`` of packed vectors; a ValueError if they hold values that are no numbers."""
    half_norm_HWM = scaled_norms(packed.values_HWMK, packed.scale_HW) / 2
    if not bool((half_norm_HWM < LONGEST_HALF_NORM).all()):
        raise ValueError("it holds values that are no numbers")
    return half_norm_HWM


def members_last(values_HWMC: NDArray[Any]) -> NDArray[Any]:
    """The same values, laid out in memory as (H, W, C, M): matrix products read them a third faster."""
    return np.ascontiguousarray(values_HWMC.swapaxes(2, 3)).swapaxes(2, 3)
