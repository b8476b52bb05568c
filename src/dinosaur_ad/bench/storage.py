"""The paper's storage table: what it prints, what its own formula gives, and what the preset fast keeps.

A task keeps M patches at every place of the grid, and one prototype. All sizes in MiB, which the paper calls MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dinosaur_ad.bench.paper import MIB, StorageNumbers, paper
from dinosaur_ad.core.coreset import coreset_size
from dinosaur_ad.presets import FAST, PAPER, Preset

# Grids of 224 pixels: the paper's encoder has patches of 16, the default one of 14. Both are 384 wide.
PAPER_PLACES, FAST_PLACES = (224 // 16) ** 2, (224 // 14) ** 2
WIDTH = 384

_NAMES = {"mvtec-ad": "MVTec-AD", "mvtec-loco": "MVTec-LOCO", "mtd": "MTD"}


@dataclass(frozen=True)
class StorageRow:
    """One dataset: as printed, by the paper's formula, and the same for the preset fast.

    ``images`` and ``members`` are the fewest and the most over its tasks.
    """

    key: str
    name: str
    tasks: int
    images: tuple[int, int]
    printed_images: str
    printed_members: str
    printed_total: float
    members: tuple[int, int]
    total_mib: float
    fast_members: tuple[int, int]
    fast_total_mib: float

    @property
    def printed_a_task(self) -> float:
        """The printed total for one of its tasks."""
        return self.printed_total / self.tasks

    @property
    def mib_a_task(self) -> float:
        """The paper's formula for an average task."""
        return self.total_mib / self.tasks

    @property
    def fast_mib_a_task(self) -> float:
        """The preset fast for an average task."""
        return self.fast_total_mib / self.tasks


def task_bytes(images: int, preset: Preset, places: int, width: int = WIDTH) -> int:
    """What a task of so many training images keeps: the bank's vectors and the prototype, and nothing else.

    >>> task_bytes(60, PAPER, PAPER_PLACES) == 196 * 20 * 384 * 4 + 384 * 4
    True
    """
    vectors = places * coreset_size(images, preset.ratio, preset.minimum)
    # The default prototype holds the mean patch beside the CLS token; prototypes are always float32.
    prototype = width * (2 if preset.describe_patches else 1) * np.dtype(np.float32).itemsize
    return vectors * width * np.dtype(preset.precision).itemsize + prototype


def storage_rows() -> list[StorageRow]:
    """A row for each dataset of the paper's table.

    >>> [(row.name, row.printed_total, round(row.total_mib, 1)) for row in storage_rows()]
    [('MVTec-AD', 106.8, 106.8), ('MVTec-LOCO', 35.6, 50.8), ('MTD', 71.2, 126.3)]
    """
    return [_row(key, printed) for key, printed in paper().storage.items()]


def _row(key: str, printed: StorageNumbers) -> StorageRow:
    images = printed.train_images
    return StorageRow(
        key=key,
        name=_NAMES[key],
        tasks=printed.tasks,
        images=_range(images),
        printed_images=printed.images,
        printed_members=printed.members,
        printed_total=printed.total_mb,
        members=_members(images, PAPER),
        total_mib=sum(task_bytes(count, PAPER, PAPER_PLACES) for count in images) / MIB,
        fast_members=_members(images, FAST),
        fast_total_mib=sum(task_bytes(count, FAST, FAST_PLACES) for count in images) / MIB,
    )


def _members(images: Sequence[int], preset: Preset) -> tuple[int, int]:
    return _range([coreset_size(count, preset.ratio, preset.minimum) for count in images])


def _range(values: Sequence[int]) -> tuple[int, int]:
    return min(values), max(values)


def storage_findings() -> list[str]:
    """What the paper's storage table and the text around it get wrong, one sentence or two each."""
    ad, loco, mtd = storage_rows()
    counts = paper().storage["mvtec-ad"].train_images
    few = [count for count in counts if count < 200]
    smallest = task_bytes(min(counts), PAPER, PAPER_PLACES)
    return [
        f"{loco.name} and {mtd.name}: the printed totals are {loco.tasks} and {mtd.tasks} times the average task of "
        f"{ad.name} ({ad.mib_a_task:.2f} MiB), whatever is remembered there. By the paper's formula they are "
        f"{loco.total_mib:.1f} and {mtd.total_mib:.1f} MiB.",
        f"The totals are said to be measured and to include serialisation overhead. {ad.name}'s is to its last digit "
        f"the size of the bare numbers ({ad.total_mib:.2f} MiB), so there is next to none in it; and its MB are MiB.",
        f"Most categories of {ad.name} are said to have fewer than 200 images, so that the minimum of {PAPER.minimum} "
        f"decides. It is {len(few)} of {len(counts)}: toothbrush, with {min(few)}.",
        f"{loco.name} is said to have {loco.printed_images} training images a task; it has "
        f"{loco.images[0]}–{loco.images[1]}, and so {loco.members[0]}–{loco.members[1]} members, not "
        f"{loco.printed_members}.",
        f"A task of {PAPER.minimum} members is said to take about 5.8 MB; it takes {smallest / MIB:.2f} MiB, which is "
        f"{smallest / 1e6:.2f} MB.",
    ]
