"""The images a profile is made with: files of the user's, or drawn ones; always files, so that decoding is measured."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import Pixels, find_images, image_size

if TYPE_CHECKING:
    from dinosaur_ad.profile.profiling import ProfilePlan

LEARN_IMAGES = 100
PRODUCT = "gear"
# Drawing takes longer than anything that is done with the images; beyond these they are shifted copies.
DRAWN = 40


@dataclass(frozen=True)
class SizedFile:
    """An image file, and the size of what is in it."""

    path: str
    height: int
    width: int

    @classmethod
    def of(cls, path: Path) -> SizedFile:
        """The file with the size in its header; raises for one that is no image."""
        return cls(str(path), *image_size(path))


@dataclass(frozen=True)
class ProfileImages:
    """Files to learn from and files to inspect; ``words`` say where they come from."""

    learn: tuple[Path, ...]
    inspect: tuple[SizedFile, ...]
    words: str

    @classmethod
    def gathered(cls, plan: ProfilePlan, folder: Path) -> ProfileImages:
        """Those the plan names, or drawn ones; what is inspected lies below ``folder``."""
        if plan.images is None:
            return _drawn(plan.learn_images or LEARN_IMAGES, plan, folder)
        found = find_images([plan.images], strict=True)
        count = min(LEARN_IMAGES, len(found)) if plan.learn_images is None else plan.learn_images
        if len(found) < max(count, 2):
            raise InputError(
                f"'{plan.images}' has {len(found)} images and {max(count, 2)} are to be learned; give a folder with "
                "more, or a smaller --learn-images."
            )
        for path in found[:count]:
            image_size(path)  # an unreadable image is refused before anything is measured
        # Those that are not learned come first, as a camera does not show what it has shown before.
        inspect = _copies([*found[count:], *found[:count]], max(plan.batch_sizes), folder / "inspect")
        return cls(tuple(found[:count]), inspect, f"{len(found)} files of the folder given")

    def facts(self) -> dict[str, Any]:
        """Origin, sizes and formats, without names."""
        return {
            "words": self.words,
            "sizes": sorted({f"{each.width}x{each.height}" for each in self.inspect}),
            "formats": sorted({Path(each.path).suffix.lower().removeprefix(".") for each in self.inspect}),
        }


def _drawn(count: int, plan: ProfilePlan, folder: Path) -> ProfileImages:
    import numpy as np

    from dinosaur_ad.datasets.synthetic import synthetic_scenario

    amounts = {"train": min(count, DRAWN), "test_normal": max(plan.batch_sizes), "test_per_kind": 0}
    scenario = synthetic_scenario(plan.seed, **amounts, size=plan.image_size, products=[PRODUCT])
    task = scenario.tasks[0]
    drawn = [sample.image() for sample in task.train]
    more = [np.roll(drawn[n % len(drawn)], n // len(drawn), axis=(0, 1)) for n in range(len(drawn), count)]
    learn = _written([*drawn, *more], folder / "learn")
    inspect = _written([sample.image() for sample in task.test], folder / "inspect")
    words = f"{len(drawn)} drawn ones ({PRODUCT}, {plan.image_size} px, PNG)"
    words += f" and shifted copies, {count} in all" if more else ""
    return ProfileImages(learn, tuple(map(SizedFile.of, inspect)), words)


def _written(images: Sequence[Pixels], folder: Path) -> tuple[Path, ...]:
    from PIL import Image

    folder.mkdir()
    paths = tuple(folder / f"{number:05d}.png" for number in range(len(images)))
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


def _copies(paths: Sequence[Path], count: int, folder: Path) -> tuple[SizedFile, ...]:
    """``count`` files with names of their own; where there are fewer images, some show the same."""
    folder.mkdir()
    copies = []
    for number in range(count):
        source = paths[number % len(paths)]
        copy = folder / f"{number:05d}{source.suffix}"
        shutil.copyfile(source, copy)
        copies.append(SizedFile.of(copy))
    return tuple(copies)
