"""Datasets whose images are listed in a file instead of sorted into folders (VisA, Real-IAD)."""

from __future__ import annotations

import ntpath
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dinosaur_ad.datasets.folder import GOOD, say_some
from dinosaur_ad.datasets.samples import FileSample
from dinosaur_ad.datasets.tasks import Task
from dinosaur_ad.errors import InputError


@dataclass(frozen=True)
class ListedImage:
    """One line of a list: ``image`` and ``mask`` are paths below the dataset's folder, as the list gives them.

    ``name`` is the sample's, ``kind`` is ``"good"`` or the defect, ``training`` says which split it is of.
    """

    name: str
    training: bool
    kind: str
    image: str
    mask: str | None = None


def listed_task(name: str, root: Path, source: Path, images: Sequence[ListedImage]) -> Task:
    """The task that the file ``source`` lists, with the images of ``root``: normal ones first, then kind by kind.

    The order is that of the kinds and names, whatever the list's, so that the same images in folders give the same
    task. Where no anomalous image has a mask, masks are unknown; where some have, all must.

    :raises InputError: a path that leads out of ``root``, a listed file that is not there, an image listed twice, a
        mask that is not listed, or no training, normal test or anomalous test images.
    """
    _refuse_twice(source, images)
    ordered = sorted(images, key=lambda listed: (listed.kind != GOOD, listed.kind, listed.name))
    train = tuple(_sample(listed, root, source) for listed in ordered if listed.training)
    test = tuple(_sample(listed, root, source) for listed in ordered if not listed.training)
    _refuse_missing(root, source, (*train, *test))
    normal = [sample for sample in test if sample.label == 0]
    anomalous = [sample for sample in test if sample.label == 1]
    needed = {"training images": train, "normal test images": normal, "anomalous test images": anomalous}
    lacks = [what for what, there in needed.items() if not there]
    if lacks:
        raise InputError(f"'{source}' lists no {' and no '.join(lacks)} of '{name}'; extract the dataset again.")
    unmarked = [sample.path.relative_to(root).as_posix() for sample in anomalous if not sample.mask_paths]
    if unmarked and len(unmarked) < len(anomalous):
        raise InputError(f"'{source}' lists no mask for {say_some(unmarked)}; extract the dataset again.")
    return Task(name, train, test=test)


def damaged_list(source: Path, expected: str) -> InputError:
    """The error for a list that cannot be read; ``expected`` says what it should hold."""
    return InputError(f"'{source}' is not {expected}; extract the dataset again.")


def _refuse_twice(source: Path, images: Sequence[ListedImage]) -> None:
    for image, count in Counter(listed.image for listed in images).most_common(1):
        if count > 1:
            raise InputError(
                f"'{source}' lists '{image}' {count} times, but an image belongs to one split; extract the dataset "
                "again."
            )


def _sample(listed: ListedImage, root: Path, source: Path) -> FileSample:
    masks = () if listed.mask is None else (_inside(listed.mask, root, source),)
    return FileSample(listed.name, _inside(listed.image, root, source), int(listed.kind != GOOD), listed.kind, masks)


def _inside(text: str, root: Path, source: Path) -> Path:
    # Looked at as a path of Windows, which has drives and both separators, wherever the program runs.
    drive, rest = ntpath.splitdrive(text)
    parts = rest.replace("\\", "/").split("/")
    if drive or not parts[0] or ".." in parts:
        raise InputError(
            f"'{source}' lists '{text}', which leads out of the dataset's folder '{root}'; paths must lie below it: "
            "get the list from the dataset's authors."
        )
    return root / text


def _refuse_missing(root: Path, source: Path, samples: Sequence[FileSample]) -> None:
    paths = (path for sample in samples for path in (sample.path, *sample.mask_paths))
    missing = [path.relative_to(root).as_posix() for path in paths if not path.is_file()]
    if missing:
        raise InputError(f"'{root}' lacks {say_some(missing)}, listed in '{source}'; extract the dataset again.")
