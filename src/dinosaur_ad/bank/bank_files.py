"""A task's files, checked as they are read: for a damaged bank a StoreError says what is wrong.

``bank`` holds what inspecting needs, ``prototype`` what routing needs, ``reserve`` more candidates for later updates,
``calibration`` the distances of the calibration images, where the preset has several readings.
Banks taught by earlier versions under a budget have a fourth file, ``ladder``, which is no longer used; the next update
leaves it out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import Bank, Memory, PackedVectors, half_norms, members_last
from dinosaur_ad.bank.position import Position, is_free
from dinosaur_ad.bank.settings import Settings
from dinosaur_ad.core.arrays import Array
from dinosaur_ad.core.exposure import THUMBNAIL, Exposure, ExposureRange
from dinosaur_ad.core.memory import Coreset
from dinosaur_ad.core.quantise import widen
from dinosaur_ad.core.readings import ReadingScale, windows
from dinosaur_ad.core.registration import SIDE, Reference
from dinosaur_ad.core.tiles import MOST_PATCHES, MOST_TILES, Tiling
from dinosaur_ad.core.zones import Zone
from dinosaur_ad.errors import StoreError
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float32]
HELD_OUT, KEPT_OUT = -1, -2
"""The image that a score belongs to where it was not learned; where its picture is still there besides, and is scored
anew whenever the memory changes."""
_DIGEST = re.compile(r"[1-9]\d{0,4}:[0-9a-f]{32}")


def as_it_is(array: NDArray[Any]) -> Array:
    """The array itself: for CPUs, where nothing has to be moved."""
    return array


def read_bank(store: TaskStore, record: TaskRecord) -> tuple[Arrays, PackedVectors]:
    """The arrays of a task's bank, and its members; a StoreError says what is wrong with them.

    ``scored`` (which image each score belongs to, -1 if it was held out), ``foreign`` and ``foreign_levels`` (scores
    and levels of the control images) are not in banks of older versions; they are then unknown and empty.
    """
    with _checking(record):
        images = learned_images(record)
        arrays = dict(store.arrays(record, "bank"))
        packed = PackedVectors.read(arrays)
        source_HWM = _whole_numbers(arrays, "source")
        if source_HWM.shape != packed.values_HWMK.shape[:3]:
            raise ValueError("it does not say where each member came from")
        if int(source_HWM.min()) < 0 or int(source_HWM.max()) >= len(images):
            raise ValueError("its members come from images that it does not name")
        scores = _measured(arrays, "scores")
        if not scores.size or _measured(arrays, "levels").shape != scores.shape:
            raise ValueError("it has no scores to take a threshold from")
        arrays.setdefault("scored", np.full(scores.shape, HELD_OUT, np.int32))
        arrays.setdefault("foreign", np.empty(0, np.float32))
        scored = _whole_numbers(arrays, "scored")
        if scored.shape != scores.shape or int(scored.min()) < KEPT_OUT or int(scored.max()) >= len(images):
            raise ValueError("its scores belong to images that it does not name")
        arrays.setdefault("foreign_levels", np.empty(0, np.float32))
        _measured(arrays, "foreign")
        _measured(arrays, "foreign_levels")
        return arrays, packed


class CoarseMembers(NamedTuple):
    """Remembered windows, and which image each came from ``(h, w, M)``."""

    packed: PackedVectors
    source_hwM: NDArray[Any]


def coarse_vectors(arrays: Arrays, packed: PackedVectors) -> PackedVectors:
    """The remembered windows among the arrays of a bank; a ValueError says what is wrong with them."""
    own = {name.removeprefix("coarse_"): values for name, values in arrays.items() if name.startswith("coarse_")}
    return PackedVectors.read(own)._replace(basis_CK=packed.basis_CK)


def read_coarse(record: TaskRecord, arrays: Arrays, packed: PackedVectors) -> CoarseMembers:
    """The remembered windows among the arrays of a bank; a StoreError says what is wrong with them."""
    with _checking(record):
        coarse = coarse_vectors(arrays, packed)
        if coarse.precision != packed.precision or coarse.channels != packed.channels:
            raise ValueError("its windows do not fit its patches")
        source_hwM = _whole_numbers(arrays, "coarse_source")
        if coarse.values_HWMK.shape[:2] != coarse_grid(packed) or source_hwM.shape != coarse.values_HWMK.shape[:3]:
            raise ValueError("its windows do not fit its grid")
        if int(source_hwM.min()) < 0 or int(source_hwM.max()) >= len(learned_images(record)):
            raise ValueError("its windows come from images that it does not name")
        return CoarseMembers(coarse, source_hwM)


def coarse_grid(packed: PackedVectors) -> tuple[int, int]:
    """Rows and columns of the windows of a bank."""
    _, height, width, _ = windows(np.zeros((1, *packed.values_HWMK.shape[:2], 1), np.float32)).shape
    return height, width


def read_scale(arrays: Arrays, packed: PackedVectors, readings: int) -> ReadingScale:
    """What is usual for each reading; a ValueError says what is wrong with it."""
    usual_HW, mean_R, spread_R = (_named(arrays, name) for name in ("usual", "reading_mean", "reading_spread"))
    rest = _measured(arrays, "map_rest") if "map_rest" in arrays else np.zeros(1, np.float32)
    shapes = (usual_HW.shape, mean_R.shape, spread_R.shape, _measured(arrays, "map_level").shape)
    if shapes != (packed.values_HWMK.shape[:2], (readings,), (readings,), (1,)):
        raise ValueError("what is usual for its readings does not fit it")
    if rest.shape != (1,):
        raise ValueError("what is usual for its maps does not fit it")
    if not (np.isfinite(mean_R).all() and all((np.isfinite(each) & (each > 0)).all() for each in (usual_HW, spread_R))):
        raise ValueError("what is usual for its readings is no number")
    usual_HW, mean_R, spread_R = (each.astype(np.float32) for each in (usual_HW, mean_R, spread_R))
    return ReadingScale(usual_HW, mean_R, spread_R, float(rest[0]))


def read_calibration_maps(store: TaskStore, record: TaskRecord, preset: Preset) -> Arrays:
    """The distances of the calibration images of a task; empty where the preset has one reading."""
    if len(preset.readings) == 1:
        return {}
    with _checking(record):
        if "calibration" not in record.files:
            raise ValueError("it has no distances of its calibration images")
        arrays, packed = read_bank(store, record)
        maps, grids = dict(store.arrays(record, "calibration")), {"point": packed.values_HWMK.shape[:2]}
        if "coarse" in preset.readings:
            grids["coarse"] = coarse_grid(packed)
        scored, counts = _whole_numbers(maps, "scored"), _named(maps, "counts")
        if counts.dtype != np.bool_ or counts.shape != scored.shape or int(counts.sum()) != len(arrays["scores"]):
            raise ValueError("the distances of its calibration images do not fit its scores")
        if int(scored.min(initial=0)) < KEPT_OUT or int(scored.max(initial=-1)) >= len(learned_images(record)):
            raise ValueError("the distances of its calibration images are of images that it does not name")
        for name, grid in grids.items():
            values = _named(maps, name)
            if values.ndim != 3 or values.dtype != np.float16 or len(values) != len(scored):
                raise ValueError("the distances of its calibration images do not fit its scores")
            if values.shape[1:] != grid:
                raise ValueError("the distances of its calibration images do not fit its grid")
            if not bool(np.all((values >= 0) & np.isfinite(values))):
                raise ValueError("the distances of its calibration images are no distances")
        return maps


def read_zone(record: TaskRecord, packed: PackedVectors) -> Zone | None:
    """What is inspected of a task, None for all; a StoreError if that does not fit its bank."""
    with _checking(record):
        return Settings.of(record).zone(*packed.values_HWMK.shape[:2])


class Prototype(NamedTuple):
    """The mean descriptor of a task's images, the exposure that images are matched to before they are encoded, the mean
    thumbnail (zeros where there is no exposure to choose), what images are registered to, if they are, and the range of
    the exposures of normal images (None where exposure is not matched, or an older version taught the task)."""

    descriptor_C: Floats
    exposure: Exposure | None
    thumbnail_P: Floats
    reference: Reference | None = None
    exposure_range: ExposureRange | None = None


def read_prototype(store: TaskStore, record: TaskRecord, width: int | None = None) -> Prototype:
    """What routing needs of a task; with ``width``, a StoreError if its descriptor is not of so many numbers."""
    with _checking(record):
        arrays = store.arrays(record, "prototype")
        prototype = _named(arrays, "prototype")
        if prototype.ndim != 1 or prototype.dtype != np.float32 or not np.isfinite(prototype).all():
            raise ValueError("its prototype is not a list of numbers")
        if width not in (None, prototype.size):
            raise ValueError(f"its prototype has {prototype.size} numbers, and the encoder gives {width}")
        reference, usual = _read_reference(record, arrays), _read_exposure_range(arrays)
        return Prototype(prototype, *_read_exposure(arrays), reference, usual)


def _read_reference(record: TaskRecord, arrays: Mapping[str, NDArray[Any]]) -> Reference | None:
    position = Position.of(record)
    if position is None or not position.registered:
        return None
    edges_hw = _named(arrays, "reference")
    if edges_hw.ndim != 2 or edges_hw.dtype != np.float32 or not np.isfinite(edges_hw).all():
        raise ValueError("its reference is no small image")
    if max(edges_hw.shape) != SIDE or min(edges_hw.shape) < 16 or any(side % 2 for side in edges_hw.shape):
        raise ValueError("its reference is of another size than it can be")
    return Reference(edges_hw)


def _read_exposure(arrays: Mapping[str, NDArray[Any]]) -> tuple[Exposure | None, Floats]:
    cells = 3 * THUMBNAIL**2
    if "exposure" not in arrays:
        return None, np.zeros(cells, np.float32)
    values, thumbnail_P = arrays["exposure"], _named(arrays, "thumbnail")
    if values.shape != (2,) or not (np.isfinite(values).all() and 0 <= values[0] <= 255 and 0 < values[1] <= 255):
        raise ValueError("its exposure is not two grey levels")
    if thumbnail_P.shape != (cells,) or not np.isfinite(thumbnail_P).all():
        raise ValueError("its thumbnail is not a list of numbers")
    return Exposure(*values.tolist()), thumbnail_P.astype(np.float32)


def _read_exposure_range(arrays: Mapping[str, NDArray[Any]]) -> ExposureRange | None:
    if not {"exposure", "exposure_range"} <= set(arrays):
        return None
    values = arrays["exposure_range"]
    if values.shape != (2, 2) or not bool(np.all((values >= 0) & (values <= 255))) or (values[0] > values[1]).any():
        raise ValueError("its range of exposures is not that of grey levels")
    return ExposureRange(*(Exposure(*each.tolist()) for each in values))


def descriptor_width(preset: Preset, packed: PackedVectors) -> int:
    """How many numbers describe an image for routing: the CLS feature and perhaps the mean patch feature."""
    return packed.width * (2 if preset.describe_patches else 1)


def learned_images(record: TaskRecord) -> list[str]:
    """The names of the images a task was taught with; a StoreError if it does not say."""
    images = record.manifest.get("images")
    with _checking(record):
        if not isinstance(images, list) or not images or not all(isinstance(name, str) for name in images):
            raise ValueError("it does not name its images")
    return list(images)


def read_tiling(record: TaskRecord) -> Tiling | None:
    """How the photos of a task are cut into tiles; None where they are not."""
    stored = record.manifest.get("tiles")
    if not stored:
        return None
    with _checking(record):
        tiling = Tiling(**stored)
        if (
            tiling.size % tiling.side
            or tiling.overlap >= tiling.side
            or tiling.count > MOST_TILES
            or max(tiling.grid) > MOST_PATCHES
        ):
            raise ValueError("its tiles make no sense")
        return tiling


def usual_image_size(record: TaskRecord) -> tuple[int, int] | None:
    """The (height, width) that most images a task was taught with have; None where an older version taught it."""
    size = record.manifest.get("image_size")
    return (int(size[0]), int(size[1])) if size else None


def learned_digests(record: TaskRecord) -> list[str]:
    """A digest of each of those images; tasks of older versions have none, given as empty text."""
    images, digests = learned_images(record), record.manifest.get("digests")
    if not isinstance(digests, list) or len(digests) != len(images):
        return [""] * len(images)
    return [each if isinstance(each, str) and _DIGEST.fullmatch(each) else "" for each in digests]


def read_candidates(store: TaskStore, record: TaskRecord) -> Coreset:
    """A task's members as float32, and after them its reserve, if it has one."""
    arrays, packed = read_bank(store, record)
    members = Coreset(packed.vectors(), arrays["source"].astype(np.int32))
    if "reserve" not in record.files:
        return members
    with _checking(record):
        reserve = store.arrays(record, "reserve")
        values = _named(reserve, "vectors" if packed.scale_HW is None else "codes")
        source_HWM = _whole_numbers(reserve, "source")
        if values.dtype != packed.values_HWMK.dtype or source_HWM.shape != values.shape[:3]:
            raise ValueError("its reserve does not fit its bank")
        if source_HWM.size and not 0 <= int(source_HWM.min()) <= int(source_HWM.max()) < len(learned_images(record)):
            raise ValueError("its reserve comes from images that it does not name")
        more = packed._replace(values_HWMK=values).vectors()
        if not np.isfinite(more).all():
            raise ValueError("its reserve holds values that are no numbers")
        return Coreset(
            np.concatenate([members.vectors_HWMC, more], axis=2),
            np.concatenate([members.source_HWM, source_HWM], axis=2).astype(np.int32),
        )


def open_bank(
    store: TaskStore,
    record: TaskRecord,
    preset: Preset,
    to_device: Callable[[NDArray[Any]], Array] = as_it_is,
    room: float = float("inf"),
) -> Bank:
    """A task's bank, ready for inspecting; ``to_device`` moves its vectors to where the images will be (a GPU).

    Int8 banks stay as they are stored. Float16 ones are widened to float32, because widening them for every image takes
    as long as the products; where that would need more than ``room`` bytes, they too stay as they are.
    """
    arrays, packed = read_bank(store, record)
    prototype = read_prototype(store, record) if preset.exposure else None
    exposure = prototype.exposure if prototype else None
    tiling = read_tiling(record)
    with _checking(record):
        if tiling and (tiling.size != preset.size or tiling.grid != packed.values_HWMK.shape[:2]):
            raise ValueError("its tiles do not fit its grid")
        if preset.exposure and exposure is None:
            raise ValueError("it does not say which exposure it was taught with")
        coarse = read_coarse(record, arrays, packed).packed if "coarse" in preset.readings else None
        scale = read_scale(arrays, packed, len(preset.readings)) if len(preset.readings) > 1 else None
        laid_out = _laid_out(packed, to_device, room)
        coarse = _laid_out(coarse, to_device, room) if coarse else None
        position = Position.of(record)
        coarse_norms = half_norms(coarse) if coarse else None
        memory = Memory(laid_out, half_norms(laid_out), coarse, coarse_norms, anywhere=is_free(position))
    return Bank(
        record=record,
        memory=memory,
        source_HWM=arrays["source"],
        scores=arrays["scores"],
        levels=arrays["levels"],
        control_scores=arrays["foreign"],
        control_levels=arrays["foreign_levels"],
        images=learned_images(record),
        digests=learned_digests(record),
        map_level=float(arrays["map_level"][0]) if scale else float(np.median(arrays["levels"])),
        scale=scale,
        exposure=exposure,
        exposure_range=prototype.exposure_range if prototype else None,
        settings=Settings.of(record),
        zone=read_zone(record, packed),
        position=position,
        tiling=tiling,
        cautious=bool(record.manifest.get("calibration", {}).get("cautious", False)),
    )


def _laid_out(packed: PackedVectors, to_device: Callable[[NDArray[Any]], Array], room: float) -> PackedVectors:
    """Vectors as products read them fastest, where the images will be."""
    values_HWMK = packed.values_HWMK
    if values_HWMK.dtype == np.float16 and 2 * values_HWMK.nbytes <= room:
        values_HWMK = widen(values_HWMK)
    return packed._replace(values_HWMK=members_last(values_HWMK)).moved(to_device)


@contextmanager
def _checking(record: TaskRecord) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise StoreError(
            f"The bank of the task '{record.name}' cannot be used ({error}): restore it from a backup, or undo or "
            "forget the task; the other tasks are not affected."
        ) from error


def _named(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    if name not in arrays:
        raise ValueError(f"it has no {name}")
    return arrays[name]


def _whole_numbers(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    array = _named(arrays, name)
    if array.dtype.kind not in "iu":
        raise ValueError(f"its {name} are not whole numbers")
    return array


def _measured(arrays: Mapping[str, NDArray[Any]], name: str) -> Floats:
    """A list of distances: numbers from 0 on. Written so that what is no number is refused."""
    array = _named(arrays, name)
    if array.ndim != 1 or array.dtype != np.float32 or not bool(np.all((array >= 0) & np.isfinite(array))):
        raise ValueError(f"its {name} are not distances")
    return array
