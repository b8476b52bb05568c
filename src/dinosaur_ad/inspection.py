"""The results of inspecting (``Inspection``, with ``Region`` and ``WorstPatch``) and of learning (``Learned``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._text import printable
from dinosaur_ad.core.map_regions import Cell, cells_above, counts, outer_contour
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    import pandas
    import supervision
    from PIL.Image import Image


@dataclass(frozen=True)
class WorstPatch:
    """The patch with the largest distance, and the normal patch that is nearest to it.

    ``box`` is the patch in pixels of the inspected image (left, top, right, bottom); ``like_image`` names the
    training image and ``like_row``, ``like_column`` the position on the patch grid of the normal patch that it was
    compared with. ``like_digest`` is a hash of that training image, to find out whether the file still holds it; empty
    for tasks that were taught without.
    """

    row: int
    column: int
    box: tuple[int, int, int, int]
    distance: float
    like_image: str
    like_row: int
    like_column: int
    like_digest: str = ""


@dataclass(frozen=True)
class Region:
    """A connected area of an anomalous image whose patches are farther from normal than the threshold.

    All coordinates are pixels of the inspected image. ``contour`` is the outer border, clockwise, as (x, y) points
    along the borders of patches; ``box`` is (left, top, right, bottom). ``area`` is in pixels, without holes. ``peak``
    is the largest patch distance in the region and ``peak_at`` the (x, y) of the centre of that patch.
    """

    contour: tuple[tuple[int, int], ...]
    box: tuple[int, int, int, int]
    area: int
    peak: float
    peak_at: tuple[int, int]


@dataclass(frozen=True)
class Inspection:
    """The result for one image.

    ``verdict`` is "normal", "anomalous" (the ``score`` is above the ``threshold``), "unknown" (none of the learned
    products; ``task`` is the most similar one), or "not ready" (the task cannot be used for a verdict yet); ``reason``
    explains the last two. ``left_out`` names the damaged tasks that were not compared with. ``p_value`` is the share of
    normal images of the task that would score at least as high. ``map`` (H, W) is on the scale of the score,
    ``normal_level`` is its usual value in normal images of the task, and ``image_size`` is the (height, width) of the
    image in pixels. ``readings`` are what the score is fused from, ``level`` is the median patch distance,
    ``level_ratio`` the same over what is usual for normal images of the task, and ``gain`` the factor by which the
    contrast was stretched to match the task's exposure (None where that is not done). ``light`` says how an image
    is far darker, brighter, flatter or harsher than all normal images learned, which matching hides; mostly empty.
    ``asked`` has the score under every bank that the image was compared with; the lowest decides the ``task``. Of a
    task that clearly lost to a normal part it is that of the image as it was encoded for another task.
    ``provider`` and ``precision`` are what the encoder ran on, and ``fallback`` names what was requested instead if
    that was not available. ``threshold`` and ``false_alarms`` are what was used: the task's, unless a rate was given.
    Regions smaller than ``smallest_area``, a share of the image, count for nothing: the score is that of the rest.
    ``inspected`` (H, W) says which patches lie in the task's zones, None for all; outside, the map is zero. Of an image
    that was registered, all this is in the coordinates of the image as it was given; ``moved`` is how the part lay
    ("right", "down" as shares of the sides, "degrees" clockwise, "scale"), None where the image was taken as it is.
    """

    path: str
    task: str
    score: float
    p_value: float
    verdict: str
    threshold: float
    false_alarms: float
    normal_level: float
    worst: WorstPatch
    asked: dict[str, float]
    encoder: str
    ms: dict[str, float]
    map: NDArray[np.float32] = field(repr=False, compare=False)
    image_size: tuple[int, int]
    provider: str = ""
    precision: str = ""
    fallback: str | None = None
    reason: str = ""
    left_out: tuple[str, ...] = ()
    readings: dict[str, float] = field(default_factory=dict)
    level: float = 0.0
    level_ratio: float = 0.0
    gain: float | None = None
    light: str = ""
    smallest_area: float = 0.0
    inspected: NDArray[np.bool_] | None = field(default=None, repr=False, compare=False)
    moved: dict[str, float] | None = None

    @property
    def anomalous(self) -> bool:
        """Whether the verdict is "anomalous"."""
        return self.verdict == "anomalous"

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The connected areas above the threshold, the largest peak first; empty unless the verdict is "anomalous".

        Patches that share a side or a corner are connected. The patch with the largest distance is always in the first
        region, unless the task has a smallest area: smaller regions are left out, as long as there is a larger one.
        """
        return tuple(map(self._region, self._region_cells))

    @cached_property
    def _region_cells(self) -> list[list[Cell]]:
        if not self.anomalous:
            return []
        found = cells_above(self.map, self.threshold)
        return [cells for cells in found if counts(cells, self.map.size, self.smallest_area)] or found

    def _region(self, cells: list[Cell]) -> Region:
        contour = tuple(self._corner(*cell) for cell in outer_contour(cells))
        boxes = [self._cell_box(*cell) for cell in cells]
        lefts, tops, rights, bottoms = zip(*boxes, strict=True)
        distances = np.asarray([self.map[cell] for cell in cells])
        left, top, right, bottom = boxes[int(np.argmax(distances))]
        return Region(
            contour=contour,
            box=(min(lefts), min(tops), max(rights), max(bottoms)),
            area=sum((right - left) * (bottom - top) for left, top, right, bottom in boxes),
            peak=float(distances.max()),
            peak_at=((left + right) // 2, (top + bottom) // 2),
        )

    def _corner(self, row: int, column: int) -> tuple[int, int]:
        """The pixel (x, y) at the upper left corner of a patch."""
        (rows, columns), (height, width) = self.map.shape, self.image_size
        return column * width // columns, row * height // rows

    def _cell_box(self, row: int, column: int) -> tuple[int, int, int, int]:
        return (*self._corner(row, column), *self._corner(row + 1, column + 1))

    def __repr__(self) -> str:
        numbers = f"score {self.score:.3g} / threshold {self.threshold:.3g}"
        return f"<Inspection {self.verdict}: task {printable(self.task)}, {numbers}, {printable(self.path)}>"

    def to_json(self) -> dict[str, Any]:
        """As a JSON object: all fields but the map, the share of the image that is inspected, and the regions."""
        document = asdict(replace(self, map=np.empty((0, 0), np.float32), inspected=None))
        del document["map"]
        document["inspected"] = 1.0 if self.inspected is None else float(self.inspected.mean())
        return document | {"regions": [asdict(region) for region in self.regions]}

    def to_dict(self) -> dict[str, Any]:
        """The same as :meth:`to_json`."""
        return self.to_json()

    def overlay(self, image: str | Path | NDArray[np.uint8] | Image | None = None) -> NDArray[np.uint8]:
        """The image with what was found drawn on it, RGB uint8 ``(H', W', 3)``; see :func:`dinosaur_ad.overlay`.

        ``image`` is the one that was inspected. Without it the file at ``path`` is read again.

        :raises InputError: there is no such file, or the image is smaller than the inspected one was.
        """
        from dinosaur_ad.images.drawing import overlay
        from dinosaur_ad.images.from_arrays import pixels_of
        from dinosaur_ad.images.loading import read_image

        if image is None:
            if not _is_file(self.path):
                raise InputError(
                    f"The inspected image '{printable(self.path)}' is no file that could be read again; give the "
                    "image: overlay(image)."
                )
            image = self.path
        pixels = read_image(image) if isinstance(image, str | Path) else pixels_of(image, self.path)
        height, width = pixels.shape[:2]
        if height < self.image_size[0] or width < self.image_size[1]:
            raise InputError(
                f"The image for the overlay of '{printable(self.path)}' is {width} x {height} pixels, smaller than the "
                "one that was inspected; give that one."
            )
        return overlay(pixels, self)

    def mask(self, size: tuple[int, int]) -> NDArray[np.bool_]:
        """Where the map lies above the threshold, bool ``(height, width)`` for a ``size`` of (height, width).

        The map is enlarged as in :meth:`overlay`. The mask says where, the ``verdict`` says whether: a "not ready"
        task has a threshold that nothing reaches, so that an empty mask does not mean a good part.

        :raises InputError: ``size`` is not two whole numbers above 0, or as large as no image is.
        """
        from dinosaur_ad.images.drawing import mask_above
        from dinosaur_ad.images.loading import MAX_PIXELS

        try:
            height, width = map(index, size)
        except (TypeError, ValueError):
            height = width = 0
        if not (height > 0 and width > 0 and height * width <= MAX_PIXELS):
            raise InputError(
                f"The size of a mask is (height, width) in pixels, got {printable(size)}; image.shape[:2] is usual."
            )
        return mask_above(self, height, width)

    def to_supervision(self, *, masks: bool = False) -> supervision.Detections:
        """As the Detections of the package supervision: one for each region; of a "not ready" task the worst patch, and
        of an "unknown" image all of it.

        The confidence is 1 - ``p_value``; ``data`` has the task as class name, the verdict, the score of the image and
        the ``peak`` of the region. With ``masks`` each has a mask of the size of the image, with its patches filled.

        :raises InputError: supervision is not installed.
        """
        try:
            from supervision import Detections
        except ImportError as error:
            raise InputError(_missing("supervision", "to_supervision")) from error

        found: list[Region | WorstPatch] = [self.worst] if self.verdict == "not ready" else [*self.regions]
        if self.verdict == "unknown":
            height, width = self.image_size
            found = [replace(self.worst, box=(0, 0, width, height))]
        count = len(found)
        return Detections(
            xyxy=np.array([each.box for each in found], np.float32).reshape(-1, 4),
            mask=np.stack([self._filled(each) for each in found]) if masks and found else None,
            confidence=np.full(count, 1 - self.p_value, np.float32),
            class_id=np.zeros(count, int),
            data={
                "class_name": np.array([self.task] * count, str),
                "verdict": np.array([self.verdict] * count, str),
                "score": np.full(count, self.score, float),
                "peak": np.array([each.peak if isinstance(each, Region) else each.distance for each in found], float),
            },
        )

    def _filled(self, found: Region | WorstPatch) -> NDArray[np.bool_]:
        """The patches of a region, or the worst patch, as a mask of the size of the image."""
        mask = np.zeros(self.image_size, np.bool_)
        if isinstance(found, Region):
            cells = self._region_cells[self.regions.index(found)]
        elif self.verdict == "unknown":
            return np.ones(self.image_size, np.bool_)
        else:
            cells = [(found.row, found.column)]
        for cell in cells:
            left, top, right, bottom = self._cell_box(*cell)
            mask[top:bottom, left:right] = True
        return mask

    def _repr_html_(self) -> str:
        """What a notebook shows: verdict, task, numbers, and the picture if its file is there."""
        from dinosaur_ad.images.drawing import card

        try:
            picture = self.overlay()
        except InputError:
            picture = None
        return card(self, picture)


@dataclass(frozen=True)
class Rejected:
    """An image that could not be read, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Suspect:
    """An image that may not belong among the normal images of a task, why, and the number that shows it.

    ``score`` is relative to what is usual for the task: 2.0 is twice as much. Of a blank image it is 0.
    """

    path: str
    reason: str
    score: float


@dataclass(frozen=True)
class Learned:
    """The result of learn, update or recalibrate: images used and rejected, size of the bank, seconds of each step.

    ``duplicates`` names the images that the task had learned before, or that were given twice: they are learned once.
    ``not_ready`` is the reason why the task cannot give verdicts yet, and empty if it can. ``threshold`` is the one at
    the preset's false-alarm rate, ``threshold_before`` that before an update (None after learn). Recalibrating with
    several readings takes their scale anew too: ``threshold_ratio`` is by which factor the threshold rose on the scale
    of before. ``suspects`` are images that were learned but may not belong there. ``near_duplicates`` are pairs of
    images: one that was learned, and an earlier one that shows nearly the same picture.

    ``promised_rate`` is the share of false alarms that is not exceeded with 95 % confidence, whatever the distribution:
    what the ``calibrated`` images, which the memory has not seen, can show. With ``images_needed`` of them it would be
    the rate that is asked for. Both are None with in-sample calibration, which promises nothing. ``smallest_defect`` is
    the height of a patch as a share of the image, ``smallest_width`` its width: what is smaller is hardly seen.
    ``photo_size`` is the usual (height, width) of the images. ``gallery_missed`` names the confirmed defects that would
    pass from now on. ``position`` is how the parts lie in their photos: "aligned", "moving", "moving, registered" or
    "free"; empty where that was not looked at.
    """

    task: str
    images: int
    total_images: int
    members: int
    bytes: int
    rejected: tuple[Rejected, ...]
    seconds: dict[str, float]
    duplicates: tuple[str, ...] = ()
    not_ready: str = ""
    threshold: float | None = None
    threshold_before: float | None = None
    threshold_ratio: float | None = None
    suspects: tuple[Suspect, ...] = ()
    calibrated: int = 0
    promised_rate: float | None = None
    images_needed: int | None = None
    smallest_defect: float = 0.0
    smallest_width: float = 0.0
    photo_size: tuple[int, int] | None = None
    gallery_missed: tuple[str, ...] = ()
    position: str = ""
    near_duplicates: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class TaskSettings:
    """How a task is set: the score above which an image is anomalous, and the share of normal images that exceeds it.

    ``fixed_threshold`` says whether the threshold was given as such. ``inspected`` is the share of the image in the
    zones, ``smallest_area`` the pixels of the product's photos below which a region does not count (0: all do).
    ``position`` is that of :class:`Learned`.
    """

    threshold: float
    false_alarms: float
    fixed_threshold: bool
    inspected: float
    smallest_area: int
    position: str = ""


@dataclass(frozen=True)
class Changed:
    """The result of changing the settings of a task: what they were, and what they are.

    ``note`` is what should be known about the change, and ``not_ready`` the reason why the task cannot give verdicts
    with these settings; both are empty where there is nothing to say. ``gallery_missed`` names the confirmed defects
    that would pass now.
    """

    task: str
    before: TaskSettings
    after: TaskSettings
    note: str = ""
    not_ready: str = ""
    gallery_missed: tuple[str, ...] = ()


def to_pandas(results: Iterable[Inspection | Rejected]) -> pandas.DataFrame:
    """Results as a table, one row an image; those that could not be read have the verdict "rejected" and a reason.

    The columns are those of :meth:`Inspection.to_dict`, with the worst patch, the scores by task and the times in
    columns of their own, such as ``worst.box``, ``asked.screw`` and ``ms.total``.

    :raises InputError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise InputError(_missing("pandas", "to_pandas")) from error

    columns = [name for name in Inspection.__dataclass_fields__ if name not in ("map", "worst", "asked", "ms")]
    rows = [_row(result) for result in results]
    # In the order of the fields; a table without rows has columns too.
    return pandas.DataFrame(rows, columns=list(dict.fromkeys([*columns, *(name for row in rows for name in row)])))


def _row(result: Inspection | Rejected) -> dict[str, Any]:
    if isinstance(result, Rejected):
        return {"path": result.path, "verdict": "rejected", "reason": result.reason}
    row: dict[str, Any] = {}
    for name, value in result.to_dict().items():
        row |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    return row


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _missing(package: str, function: str) -> str:
    return f"{function} needs the package {package}, which is not installed; install it with: pip install {package}."
