"""Plain folders of images, and the layouts of categories that most public datasets share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from dinosaur_ad.datasets.samples import FileSample, Saturation
from dinosaur_ad.datasets.tasks import Task
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import find_images, is_image_name

GOOD = "good"
"""The folder that holds normal images; every other folder beside it is named after a defect."""

MaskFinder: TypeAlias = Callable[[Path, str, str], tuple[Path, ...]]
"""From (ground-truth folder, kind of defect, stem of the image's name) to the image's mask files."""

Saturations: TypeAlias = tuple[tuple[int, Saturation], ...]
"""How much of a region has to be found, by the grey value of its mask; empty when the dataset does not say."""


@dataclass(frozen=True)
class FolderLayout:
    """How a root of categories is laid out: ``<category>/{train,validation,test}/<kind>``, and the masks."""

    name: str
    normal_splits: tuple[str, ...]
    find_masks: MaskFinder
    mask_pattern: str
    """Where a mask is expected, for the error message; with ``{kind}`` and ``{stem}``."""
    read_saturations: Callable[[Path], Saturations] = lambda category: ()
    """From the category's folder to its saturations."""
    good: str = GOOD
    """The folder of normal images in each split."""
    test: str = "test"
    truth: str = "ground_truth"
    """The folders of test images and of their masks in the category."""


def named_mask(ending: str) -> MaskFinder:
    """Finds ``<kind>/<stem><ending>.png`` in the ground truth, or the same name with another image extension."""

    def find(truth: Path, kind: str, stem: str) -> tuple[Path, ...]:
        folder, name = truth / kind, f"{stem}{ending}"
        expected = folder / f"{name}.png"
        if expected.is_file():  # the usual case, without listing the folder once for each image
            return (expected,)
        return tuple(path for path in images_in(folder) if path.stem == name)

    return find


def folder_task(train: str | Path, *, test: str | Path | None = None, name: str | None = None) -> Task:
    """A task from a folder of normal images, searched to the bottom, and optionally a folder to test on.

    The test folder holds ``good/`` and one folder for each kind of defect; masks are unknown. The name
    defaults to the train folder's.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("RGB", (8, 8)).save(f"{folder}/1.png")
    ...     [sample.name for sample in folder_task(folder, name="caps").train]
    ['train/1.png']

    :raises InputError: a folder is missing or has no images, or a test image has no label.
    """
    train = Path(train)
    _require_folder(train)
    found = find_images([train], strict=True)
    normals = tuple(FileSample(f"train/{path.relative_to(train).as_posix()}", path) for path in found)
    labelled = () if test is None else _labelled_folder(Path(test))
    return Task(name or train.resolve().name, normals, test=labelled)


def category_tasks(root: str | Path, layout: FolderLayout) -> tuple[Task, ...]:
    """One task for each category found in ``root``, alphabetically; any image extension.

    A category without a folder of masks has unknown ones; where there is such a folder, it must be complete.

    :raises InputError: no category, or an incomplete one; the sentence names what is missing.
    """
    root = Path(root)
    categories = _category_folders(root, layout)
    tests = {category: _test_samples(category, layout) for category in categories}
    missing = [lack for category in categories for lack in _missing(category, layout, tests[category])]
    if missing:
        raise InputError(
            f"'{root}' is not a whole {layout.name}: missing {say_some(missing)}; extract the dataset again."
        )
    return tuple(
        Task(
            category.name,
            train=_normals(category / "train" / layout.good, f"train/{layout.good}"),
            validation=_normals(category / "validation" / layout.good, f"validation/{layout.good}"),
            test=tests[category],
        )
        for category in categories
    )


def say_absent(present: tuple[Task, ...], official: tuple[str, ...]) -> str:
    """How many of the ``official`` categories are ``present``, and which are not, for a description."""
    absent = [name for name in official if name not in {task.name for task in present}]
    lack = f" (missing: {', '.join(absent)})" if absent else ""
    return f"{len(official) - len(absent)} of {len(official)} official categories{lack}"


def say_some(names: list[str]) -> str:
    """The first five names, and how many more there are.

    >>> say_some(["a", "b"]), say_some(list("abcdefg"))
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def images_in(folder: Path) -> list[Path]:
    """The image files directly in ``folder``, sorted; none when there is no such folder."""
    return sorted(path for path in folder.iterdir() if is_image_name(path)) if folder.is_dir() else []


def _category_folders(root: Path, layout: FolderLayout) -> list[Path]:
    _require_folder(root)
    if (root / "train").is_dir():
        raise InputError(f"'{root}' is one category, not a root of several; give the folder that holds it.")
    categories = [root / name for name in _subfolders(root) if {"train", layout.test} & {*_subfolders(root / name)}]
    if not categories:
        raise InputError(
            f"'{root}' holds no categories; a {layout.name} has <category>/train/{layout.good} and "
            f"<category>/{layout.test}."
        )
    return categories


def _missing(category: Path, layout: FolderLayout, test: tuple[FileSample, ...]) -> list[str]:
    missing = [f"{category.name}/{split}" for split in layout.normal_splits if not images_in(category / split)]
    anomalous = [sample for sample in test if sample.label == 1]
    if not anomalous:
        missing.append(f"{category.name}/{layout.test}/<kind of defect>")
    if (category / layout.truth).is_dir():
        missing += [
            f"{category.name}/{layout.truth}/" + layout.mask_pattern.format(kind=sample.kind, stem=sample.path.stem)
            for sample in anomalous
            if not sample.mask_paths
        ]
    return missing


def _test_samples(category: Path, layout: FolderLayout) -> tuple[FileSample, ...]:
    truth, saturations = category / layout.truth, layout.read_saturations(category)
    return _labelled(
        category / layout.test,
        lambda kind, stem: layout.find_masks(truth, kind, stem),
        saturations,
        split=layout.test,
        good=layout.good,
    )


def _labelled_folder(folder: Path) -> tuple[FileSample, ...]:
    _require_folder(folder)
    stray = images_in(folder)
    if stray:
        raise InputError(
            f"'{stray[0]}' has no label; move it to '{folder / GOOD}' or to a folder named after its defect."
        )
    samples = _labelled(folder, lambda kind, stem: ())
    if not samples:
        raise InputError(f"The test folder '{folder}' holds no images; expected {GOOD}/ and a folder a defect.")
    return samples


def _labelled(
    test: Path,
    find_masks: Callable[[str, str], tuple[Path, ...]],
    saturations: Saturations = (),
    *,
    split: str = "test",
    good: str = GOOD,
) -> tuple[FileSample, ...]:
    """The images in ``test/good`` and then those in each other ``test/<kind>``; ``split`` stands in their names."""
    anomalous = (
        FileSample(f"{split}/{kind}/{path.name}", path, 1, kind, find_masks(kind, path.stem), saturations=saturations)
        for kind in _subfolders(test)
        if kind != good
        for path in images_in(test / kind)
    )
    return (*_normals(test / good, f"{split}/{good}", saturations), *anomalous)


def _normals(folder: Path, split: str, saturations: Saturations = ()) -> tuple[FileSample, ...]:
    return tuple(FileSample(f"{split}/{path.name}", path, saturations=saturations) for path in images_in(folder))


def _subfolders(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError(f"'{folder}' is not a folder; give an existing folder of images.")
