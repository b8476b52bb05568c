"""Magnetic Tile Defects (MTD), as it is or drifting over ten tasks.

The original layout, ``MT_Free/Imgs/*.jpg`` and ``MT_<Defect>/Imgs/*.jpg`` with a ``.png`` mask beside each,
has no split, and the paper's own list (443 normals to train, 509 to test) cannot be recovered from its text.

**Our rule**: sort the names of the 952 files of MT_Free (such as ``exp1_num_301474.jpg``) by the SHA-256 of
the name, train on the first 443, test on the other 509 and on all 392 defective images.
``MTD_TRAIN_SHA256`` is the SHA-256 of the 443 names, sorted alphabetically and joined by newlines; whoever
holds the same list holds the same split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from dinosaur_ad.datasets.drawn_drift import DRIFT_KINDS, LEVELS, DriftKind, draw_drift, draw_replay_drift
from dinosaur_ad.datasets.folder import images_in
from dinosaur_ad.datasets.samples import FileSample
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.datasets.transforms import Drift
from dinosaur_ad.errors import InputError

MTD_FOLDERS = {
    "MT_Free": 952,
    "MT_Blowhole": 115,
    "MT_Break": 85,
    "MT_Crack": 57,
    "MT_Fray": 32,
    "MT_Uneven": 103,
}
"""Folder of the original layout to its number of images."""

MTD_TRAIN_COUNT = 443
MTD_TRAIN_SHA256 = "299612423ff660fbfd8bf1777915d3f222ce5a9a7ed29ac55f6f0e04af6cea2c"

MtdDrift: TypeAlias = Literal["none"] | DriftKind

MTD_LICENCE = "none stated by its authors; cite the paper"
MTD_CITATION = "Huang, Qiu, Yuan: Surface defect saliency of magnetic tile, The Visual Computer 36, 2020"


def mtd_scenario(root: str | Path, drift: MtdDrift = "none", seed: int = 0) -> Scenario:
    """MTD as one task (``drift="none"``) or as ten tasks of the same images under growing drift.

    The drifts are those of :mod:`dinosaur_ad.datasets.drawn_drift`; ``seed`` changes their draws and never the split.
    For replay methods each task holds its training images also in the widened range (``Task.widened``).

    :raises InputError: an unknown drift, or a set that is not whole; the sentence names what is missing.
    """
    if drift != "none" and drift not in DRIFT_KINDS:
        raise InputError(f"Drift '{drift}' does not exist; choose one of none, {', '.join(DRIFT_KINDS)}.")
    train, test = _read(Path(root))
    if drift == "none":
        tasks: tuple[Task, ...] = (Task("mtd", train, test=test),)
    else:
        tasks = tuple(_drifted_task(train, test, drift, level, seed) for level in range(1, LEVELS + 1))
    return Scenario(
        name="mtd" if drift == "none" else f"mtd-{drift}",
        tasks=tasks,
        description=f"Magnetic Tile Defects, drift: {drift}, our fixed split (443 / 509 + 392).",
        licence=MTD_LICENCE,
        citation=MTD_CITATION,
        same_images=drift != "none",
    )


def split_names(names: Iterable[str], train_count: int) -> tuple[list[str], list[str]]:
    """Split file names into (train, test), each sorted alphabetically, by the SHA-256 of the name.

    >>> split_names(["a.jpg", "b.jpg", "c.jpg"], train_count=1)
    (['a.jpg'], ['b.jpg', 'c.jpg'])
    """
    by_hash = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    return sorted(by_hash[:train_count]), sorted(by_hash[train_count:])


def names_sha256(names: Iterable[str]) -> str:
    """The SHA-256 of the names, sorted alphabetically and joined by newlines."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


def _read(root: Path) -> tuple[tuple[FileSample, ...], tuple[FileSample, ...]]:
    """(train, test) of the whole set without drift."""
    files = {folder: _photographs(root / folder / "Imgs") for folder in MTD_FOLDERS}
    _refuse_partial(root, files)
    free = {path.name: FileSample(f"MT_Free/{path.name}", path) for path in files.pop("MT_Free")}
    train, test = split_names(free, MTD_TRAIN_COUNT)
    if names_sha256(train) != MTD_TRAIN_SHA256:
        raise InputError(
            f"The file names in '{root / 'MT_Free'}' are not the original ones, so the fixed split cannot be "
            "made; extract the dataset again."
        )
    anomalous = (
        FileSample(f"{folder}/{path.name}", path, 1, folder.removeprefix("MT_").lower(), (path.with_suffix(".png"),))
        for folder, paths in files.items()
        for path in paths
    )
    return tuple(free[name] for name in train), (*(free[name] for name in test), *anomalous)


def _photographs(folder: Path) -> list[Path]:
    return [path for path in images_in(folder) if path.suffix == ".jpg"]  # the .png files are masks


def _refuse_partial(root: Path, files: dict[str, list[Path]]) -> None:
    problems = [
        f"{folder}/Imgs has {len(files[folder])} of {count} .jpg files"
        for folder, count in MTD_FOLDERS.items()
        if len(files[folder]) != count
    ]
    defective = (path for folder, paths in files.items() if folder != "MT_Free" for path in paths)
    unmarked = sum(not path.with_suffix(".png").is_file() for path in defective)
    if unmarked:
        problems.append(f"{unmarked} defective images have no .png mask")
    if problems:
        raise InputError(f"'{root}' is not the whole MTD dataset: {', '.join(problems)}; extract the dataset again.")


def _drifted_task(
    train: tuple[FileSample, ...], test: tuple[FileSample, ...], drift: DriftKind, level: int, seed: int
) -> Task:
    def drifted(samples: tuple[FileSample, ...], draw: Callable[..., Drift] = draw_drift) -> tuple[FileSample, ...]:
        return tuple(replace(sample, drift=draw(drift, level, sample.name, seed)) for sample in samples)

    return Task(
        f"mtd-{drift}-{level:02d}",
        drifted(train),
        test=drifted(test),
        widened=drifted(train, draw_replay_drift),
        product="mtd",
    )
