"""A task's bank in memory: the remembered patches in the form in which they are stored, and distances to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.position import Position
from dinosaur_ad.bank.settings import Settings
from dinosaur_ad.core.arrays import Array, namespace, to_numpy
from dinosaur_ad.core.calibration import alarm_level, p_values, quantile_threshold
from dinosaur_ad.core.exposure import Exposure, ExposureRange, UnusualLight, unusual_light
from dinosaur_ad.core.map_shape import shaped
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.projection import project
from dinosaur_ad.core.quantise import Quantised, dequantise, quantise, scaled_norms, widen
from dinosaur_ad.core.readings import COARSE_RADIUS, Distances, Fused, ReadingScale, fuse, windows
from dinosaur_ad.core.scoring import ANYWHERE, NearestPatch, nearest_patch, patch_distances
from dinosaur_ad.core.tiles import Tiling
from dinosaur_ad.core.zones import Zone
from dinosaur_ad.errors import StoreError
from dinosaur_ad.inspection import WorstPatch
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord

Floats = NDArray[np.float32]

# A float16 that is infinite or NaN becomes at least 2**16 when it is widened; no real vector is as long.
LONGEST_HALF_NORM = 2.0**31

FEW_IMAGES = 39
"""From fewer the threshold of the usual rate (1 in 40) cannot be read: it comes from a model of their spread."""
HEADROOM = 1.17
"""Two usual deviations, as a factor: by it half of the pictures without a product must exceed such a threshold."""


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

    def tokens(self, tokens: Array, threads: int | None = None) -> Array:
        """Tokens ``(..., C)`` of an encoder projected as these vectors are, ``(..., K)``."""
        return tokens if self.basis_CK is None else project(tokens, self.basis_CK, threads)

    def distances(
        self, patches_NHWC: Array, radius: int, half_norm_HWM: Array | None = None, threads: int | None = None
    ) -> Array:
        """Patch distances ``(N, H, W)`` of images; see :func:`~dinosaur_ad.core.scoring.patch_distances`."""
        return self.projected_distances(self.tokens(patches_NHWC, threads), radius, half_norm_HWM, threads)

    def projected_distances(
        self, patches_NHWK: Array, radius: int, half_norm_HWM: Array | None = None, threads: int | None = None
    ) -> Array:
        """The same for patches that lie along the basis already."""
        return patch_distances(
            patches_NHWK,
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


class Memory(NamedTuple):
    """What images are compared with: remembered patches and, where the preset has a coarse reading, remembered windows.

    ``half_norm_HWM`` and ``coarse_half_norm_hwM`` are ``|c|²/2`` of the vectors; computed when missing. ``anywhere``:
    places do not count, whatever the radius.
    """

    patches: PackedVectors
    half_norm_HWM: Array | None = None
    coarse: PackedVectors | None = None
    coarse_half_norm_hwM: Array | None = None
    anywhere: bool = False

    def distances(self, patches_NHWC: Array, radius: int, threads: int | None = None) -> Distances:
        """Distances of patches ``(N, H, W)`` of images and, with a coarse part, of windows ``(N, h, w)``."""
        own_NHWK = self.patches.tokens(patches_NHWC, threads)  # projected once for both
        radius, coarse_radius = (ANYWHERE, ANYWHERE) if self.anywhere else (radius, COARSE_RADIUS)
        point_NHW = self.patches.projected_distances(own_NHWK, radius, self.half_norm_HWM, threads)
        if self.coarse is None:
            return Distances(point_NHW)
        coarse = self.coarse.projected_distances(windows(own_NHWK), coarse_radius, self.coarse_half_norm_hwM, threads)
        return Distances(point_NHW, coarse)


def read_images(
    distances: Distances, preset: Preset, scale: ReadingScale | None, zone: Zone | None = None, tiles: int = 1
) -> Fused:
    """Scores, maps and readings of images, of so many tiles each, as the preset makes them from distances in a zone."""
    if len(preset.readings) > 1:
        if scale is None:
            raise ValueError("several readings need what is usual for each")
        fused = fuse(distances, scale, preset.readings, zone, tiles, softness=preset.map_softness)
        closing, relative = preset.map_closing, preset.map_relative
        return fused._replace(
            map_NHW=shaped(fused.map_NHW, scale.map_rest, closing=closing, relative=relative, zone=zone)
        )
    if zone is None:
        score_N = np.asarray(to_numpy(pool(distances.point_NHW, preset.top / tiles)), np.float32)
        return Fused(score_N, np.asarray(to_numpy(distances.point_NHW)), score_N[:, None])
    map_NHW = to_numpy(distances.point_NHW) * zone.patches_HW
    score_N = np.asarray(pool(map_NHW, preset.top / tiles, int(zone.patches_HW.sum())), np.float32)
    return Fused(score_N, map_NHW, score_N[:, None])


def levels(distances: Distances, zone: Zone | None = None) -> Floats:
    """The median patch distance of each image ``(N,)``, in a zone: high for an image that differs all over."""
    point_NHW = to_numpy(distances.point_NHW)
    values_NP = point_NHW.reshape(len(point_NHW), -1) if zone is None else point_NHW[:, zone.patches_HW]
    return np.asarray(np.median(values_NP, axis=1), np.float32)


@dataclass(frozen=True)
class Bank:
    """A task as inspecting uses it; :func:`~dinosaur_ad.bank.bank_files.open_bank` reads it from a store.

    ``source_HWM`` says which of ``images`` a member came from. ``scores`` and ``levels`` are the scores and the median
    patch distances of the calibration images; ``control_scores`` and ``control_levels`` those of the control images
    (empty where an older version taught the task). ``map_level`` is the usual value of a map of a normal image,
    ``scale`` what is usual for each reading, if there are several. ``exposure`` is what images are matched to before
    they are encoded, None where they are not, and ``exposure_range`` that of normal images, None where it is not
    known. ``zone`` is what is inspected, None for all, and ``position`` how the parts lie, None where an older version
    taught the task. ``tiling`` is how images are cut, None where they are not. ``cautious``: what few images say about
    what is usual is distrusted; tasks taught by older versions judge as they did.
    """

    record: TaskRecord
    memory: Memory
    source_HWM: NDArray[Any]
    scores: Floats
    levels: Floats
    control_scores: Floats
    control_levels: Floats
    images: list[str]
    digests: list[str]
    map_level: float
    scale: ReadingScale | None = None
    exposure: Exposure | None = None
    exposure_range: ExposureRange | None = None
    settings: Settings = field(default_factory=Settings)
    zone: Zone | None = None
    position: Position | None = None
    tiling: Tiling | None = None
    cautious: bool = False
    _sensitivities: dict[tuple[Preset, float | None], Sensitivity] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def packed(self) -> PackedVectors:
        """The remembered patches."""
        return self.memory.patches

    @property
    def level(self) -> float:
        """The usual median patch distance of normal images."""
        return float(np.median(self.levels))

    def unusual_light(self, exposure_2: Floats) -> UnusualLight | None:
        """How the light of an image of that exposure differs by far from that of all normal images, if it does."""
        usual = self.exposure_range
        return None if usual is None else unusual_light(exposure_2, usual, len(self.images))

    @property
    def headroom(self) -> float:
        """By which factor half of the pictures without a product must exceed the threshold of a task that judges; one
        that a user has set is no guess."""
        return headroom(len(self.scores)) if self.cautious and self.settings.threshold is None else 1.0

    @property
    def nbytes(self) -> int:
        """The bytes in memory."""
        parts = (self.memory.patches, self.memory.coarse)
        norms = (self.memory.half_norm_HWM, self.memory.coarse_half_norm_hwM)
        return sum(part.nbytes for part in parts if part) + sum(int(norm.nbytes) for norm in norms if norm is not None)

    def threshold(self, preset: Preset, false_alarms: float) -> float:
        """The score above which an image is anomalous at that rate."""
        return self.sensitivity(preset, false_alarms).threshold

    def sensitivity(self, preset: Preset, false_alarms: float | None = None) -> Sensitivity:
        """What decides, as :func:`task_sensitivity` says; computed once for each rate."""
        key = preset, false_alarms
        if key not in self._sensitivities:
            self._sensitivities[key] = task_sensitivity(preset, self.settings, self.scores, false_alarms)
        return self._sensitivities[key]

    def distances(self, patches_NHWC: Array, radius: int, threads: int | None = None) -> Distances:
        """Distances of images to what is remembered."""
        packed = self.packed
        if patches_NHWC.shape[1:3] != packed.values_HWMK.shape[:2] or patches_NHWC.shape[3] != packed.width:
            raise StoreError(
                f"The bank of the task '{self.record.name}' is for patches of {packed.width} channels on a grid "
                f"of {tuple(packed.values_HWMK.shape[:2])}, and the encoder gives "
                f"{tuple(patches_NHWC.shape[1:])}: "
                "restore it from a backup, or undo or forget the task."
            )
        return self.memory.distances(patches_NHWC, radius, threads)

    def read(self, distances: Distances, preset: Preset) -> Fused:
        """Scores, maps and readings of images with those distances.

        Where the task has a smallest area its verdicts depend on the map, which is left as it was fused.
        """
        if self.settings.smallest_area:
            preset = replace(preset, map_closing=0.0, map_relative=0.0)
        return read_images(distances, preset, self.scale, self.zone, self.tiling.count if self.tiling else 1)

    def levels_of(self, distances: Distances) -> Floats:
        """The median patch distance of each image ``(N,)``, of the patches that ``levels`` were taken from."""
        return levels(distances, self.zone if self.scale else None)

    def nearest(self, token_C: Array, row: int, column: int, radius: int) -> NearestPatch:
        """The remembered patch that is nearest to the patch at a position, and so decided its distance."""
        packed = self.packed
        radius = ANYWHERE if self.memory.anywhere else radius
        return nearest_patch(packed.tokens(token_C), packed.values_HWMK, row, column, radius, scale_HW=packed.scale_HW)

    def worst_patch(self, patches_HWC: Array, distance_HW: Floats, radius: int, size: tuple[int, int]) -> WorstPatch:
        """The patch of an image of that (height, width) with the largest distance, and what it was compared with."""
        row, column = divmod(int(np.argmax(distance_HW)), distance_HW.shape[1])
        nearest = self.nearest(patches_HWC[row, column], row, column, radius)
        source = int(self.source_HWM[nearest.row, nearest.column, nearest.member])
        return WorstPatch(
            row=row,
            column=column,
            box=patch_box(row, column, distance_HW.shape, size),
            distance=nearest.distance,
            like_image=self.images[source],
            like_row=nearest.row,
            like_column=nearest.column,
            like_digest=self.digests[source],
        )


def patch_box(row: int, column: int, grid: tuple[int, ...], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """A patch in pixels (left, top, right, bottom) of an image of that (height, width).

    >>> patch_box(0, 1, (2, 2), (10, 20))
    (10, 0, 20, 5)
    """
    (rows, columns), (height, width) = grid, size
    left, right = (at * width // columns for at in (column, column + 1))
    top, bottom = (at * height // rows for at in (row, row + 1))
    return left, top, right, bottom


def headroom(images: int) -> float:
    """By which factor half of the pictures without a product must exceed a threshold from so many calibration images.

    >>> headroom(20), headroom(100)
    (1.17, 1.0)
    """
    return HEADROOM if images < FEW_IMAGES else 1.0


def alarm_threshold(preset: Preset, scores: Floats, false_alarms: float) -> float:
    """The score above which an image is anomalous, from the ``scores`` a task's normals got when it was taught."""
    rule = quantile_threshold if preset.calibration == "in-sample" else alarm_level
    return rule(scores, false_alarms)


class Sensitivity(NamedTuple):
    """The score above which an image is anomalous, and the share of normal images that may exceed it."""

    threshold: float
    false_alarms: float


def task_sensitivity(
    preset: Preset, settings: Settings, scores: Floats, false_alarms: float | None = None
) -> Sensitivity:
    """What decides for a task whose normals got these ``scores``: the given rate, what it is set to, or the preset's
    rate. Of a threshold that was set, the rate is the share of normals that the scores say exceed it."""
    if false_alarms is None and settings.threshold is not None:
        return Sensitivity(settings.threshold, float(p_values(np.asarray([settings.threshold]), scores)[0]))
    rate = settings.rate(preset, false_alarms)
    return Sensitivity(alarm_threshold(preset, scores, rate), rate)


def half_norms(packed: PackedVectors) -> Array:
    """``|c|²/2`` ``(H, W, M)`` of packed vectors; a ValueError if they hold values that are no numbers."""
    half_norm_HWM = scaled_norms(packed.values_HWMK, packed.scale_HW) / 2
    if not bool((half_norm_HWM < LONGEST_HALF_NORM).all()):
        raise ValueError("it holds values that are no numbers")
    return half_norm_HWM


def members_last(values_HWMC: NDArray[Any]) -> NDArray[Any]:
    """The same values, laid out in memory as (H, W, C, M): matrix products read them a third faster."""
    return np.ascontiguousarray(values_HWMC.swapaxes(2, 3)).swapaxes(2, 3)
