"""What learning and inspecting say: the one result object, and what stands beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    import pandas
    import supervision
    from PIL.Image import Image


@dataclass(frozen=True)
class WorstPatch:
    """Where an image looks least normal, and the normal patch that came nearest to it.

    ``box`` is the patch in pixels of the inspected image (left, top, right, bottom); ``like_image`` names the
    training image and ``like_row``, ``like_column`` the place on the patch grid of the normal patch it was compared
    with. ``like_digest`` tells whether a file of that name still is that image; empty where the task does not know.
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
class Inspection:
    """What there is to say about one image.

    ``verdict`` is "normal", "anomalous" (the ``score`` is above the ``threshold``), or "not ready" (this task cannot
    judge yet, and ``reason`` says why). ``left_out`` names the damaged tasks that were not asked. ``p_value`` is how
    often a normal image of the task would score as high; with n calibration normals it cannot be below 1 / (n + 1).
    ``map`` (H, W) holds patch distances on the scale of the score, ``normal_level`` their usual value in normal images
    of the task. ``asked`` holds the score under every bank that was asked; the lowest one named the task. ``provider``
    and ``precision`` are what the encoder ran on, and ``fallback`` says what was asked for if that could not be had.
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
    provider: str = ""
    precision: str = ""
    fallback: str | None = None
    reason: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def anomalous(self) -> bool:
        """Whether the verdict is "anomalous"."""
        return self.verdict == "anomalous"

    def __repr__(self) -> str:
        numbers = f"score {self.score:.3g} / threshold {self.threshold:.3g}"
        return f"<Inspection {self.verdict}: task {printable(self.task)}, {numbers}, {printable(self.path)}>"

    def to_json(self) -> dict[str, Any]:
        """As a JSON object, with everything but the map."""
        document = asdict(self)
        del document["map"]
        return document

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
        if self.worst.box[2] > width or self.worst.box[3] > height:
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

    def to_supervision(self) -> supervision.Detections:
        """As the Detections of the package supervision: the worst patch, or nothing if the verdict is "normal".

        Its confidence is 1 - ``p_value``; ``data`` has the task as class name, the verdict and the score.

        :raises InputError: supervision is not installed.
        """
        try:
            from supervision import Detections
        except ImportError as error:
            raise InputError(_missing("supervision", "to_supervision")) from error

        found = [self] if self.verdict != "normal" else []
        return Detections(
            xyxy=np.array([each.worst.box for each in found], np.float32).reshape(-1, 4),
            confidence=np.array([1 - each.p_value for each in found], np.float32),
            class_id=np.zeros(len(found), int),
            data={
                "class_name": np.array([each.task for each in found], str),
                "verdict": np.array([each.verdict for each in found], str),
                "score": np.array([each.score for each in found], float),
            },
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: verdict, task, numbers, and the picture if its file is there."""
        from dinosaur_ad.images.notebook import card

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
class Learned:
    """What a learn or an update did: images used and rejected, memory, and where the time went.

    ``shrunk`` names the tasks that gave up bytes for it, in a store that has a budget. ``duplicates`` names the images
    that the task knew already, or that came twice: they were not taught again. ``not_ready`` says why the task cannot
    judge yet, and is empty if it can.
    """

    task: str
    images: int
    total_images: int
    members: int
    bytes: int
    rejected: tuple[Rejected, ...]
    seconds: dict[str, float]
    shrunk: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    not_ready: str = ""


def to_pandas(results: Iterable[Inspection | Rejected]) -> pandas.DataFrame:
    """Results as a table, one row an image; those that could not be read have the verdict "rejected" and a reason.

    The columns are those of :meth:`Inspection.to_dict`, with the worst patch, the scores asked and the milliseconds in
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
