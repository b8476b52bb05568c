"""The paper's numbers as data: read from ``paper.toml``, shown beside measured ones, never mixed with them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

MIB = 2**20


@dataclass(frozen=True)
class ImageNumbers:
    """A row of Table 1 or 2 for one scenario."""

    auroc: float
    accuracy: float
    recall: float
    fm: float


@dataclass(frozen=True)
class PixelNumbers:
    """A row of Table 3 for one scenario; ``pixel`` is NaN where the paper prints a dash."""

    image: float
    pixel: float


@dataclass(frozen=True)
class Latency:
    """One method on one device; all NaN when it ran out of memory."""

    ms: float
    std: float
    fps: float


@dataclass(frozen=True)
class Device:
    """A platform of the efficiency table, with the method printed in bold."""

    name: str
    latency: Mapping[str, Latency]
    best: str


@dataclass(frozen=True)
class Size:
    """Millions of parameters, and what is kept for a task in MiB (printed as MB); NaN where nothing is."""

    parameters: float
    storage: float


@dataclass(frozen=True)
class ScenarioEntry:
    """A protocol as the paper names it, and how many tasks it has there."""

    name: str
    tasks: int


@dataclass(frozen=True)
class GridNumbers:
    """The hyperparameter table: ``auroc[i][j]`` for ratio ``i`` and radius ``j``."""

    ratios: tuple[float, ...]
    radii: tuple[int, ...]
    auroc: tuple[tuple[float, ...], ...]
    selected: tuple[float, int]


@dataclass(frozen=True)
class StorageNumbers:
    """A row of the storage table as printed, and the training images of each task it should follow from."""

    tasks: int
    images: str
    members: str
    total_mb: float
    train_images: tuple[int, ...]


@dataclass(frozen=True)
class PrintedTraining:
    """A column of the training table; ``loss`` is empty and ``trainable`` NaN where no number is printed."""

    backbone: str
    frozen: str
    width: int
    epochs: int
    loss: str
    replay: int
    trainable: float


@dataclass(frozen=True)
class Paper:
    """Everything the paper prints in tables; scenarios and methods by their keys here."""

    methods: Mapping[str, str]
    scenarios: Mapping[str, ScenarioEntry]
    images: Mapping[str, Mapping[str, ImageNumbers]]
    best_images: Mapping[str, ImageBest]
    pixels: Mapping[str, Mapping[str, PixelNumbers]]
    best_pixels: Mapping[str, str]
    sizes: Mapping[str, Size]
    devices: Mapping[str, Device]
    grid: GridNumbers
    storage: Mapping[str, StorageNumbers]
    training: Mapping[str, PrintedTraining]

    def method_of(self, measured: str) -> str | None:
        """The key of the paper's method that a measured one is a variant of, None when there is none.

        >>> paper().method_of("dinosaur:paper"), paper().method_of("patchcore"), paper().method_of("dne2")
        ('dinosaur', 'patchcore', None)
        """
        name = measured.partition(":")[0]
        return name if name in self.methods else None


@dataclass(frozen=True)
class ImageBest:
    """Which method the paper prints in bold in each column of a scenario."""

    auroc: str
    accuracy: str
    recall: str
    fm: str


@cache
def paper() -> Paper:
    """The numbers, read once.

    >>> paper().images["mtd-color"]["dinosaur"].auroc
    0.928
    """
    text = files("dinosaur_ad.bench").joinpath("paper.toml").read_text("utf-8")
    document = tomllib.loads(text)
    methods = document["methods"]
    return Paper(
        methods=methods,
        scenarios={key: ScenarioEntry(**entry) for key, entry in document["scenarios"].items()},
        images=_rows(document["images"], methods, ImageNumbers),
        best_images={key: ImageBest(*entry["best"]) for key, entry in document["images"].items()},
        pixels=_rows(document["pixels"], methods, PixelNumbers),
        best_pixels={key: entry["best"] for key, entry in document["pixels"].items()},
        sizes=_rows({"": document["efficiency"]["size"]}, methods, Size)[""],
        devices={key: _device(entry, methods) for key, entry in document["efficiency"]["devices"].items()},
        grid=_grid(document["grid"]),
        storage={
            key: StorageNumbers(**(entry | {"train_images": tuple(entry["train_images"])}))
            for key, entry in document["storage"].items()
        },
        training={key: PrintedTraining(**entry) for key, entry in document["training"].items()},
    )


def _rows(tables: Mapping[str, Any], methods: Mapping[str, str], kind: Any) -> dict[str, dict[str, Any]]:
    return {key: {method: kind(*entry[method]) for method in methods} for key, entry in tables.items()}


def _device(entry: Mapping[str, Any], methods: Mapping[str, str]) -> Device:
    return Device(entry["name"], {method: Latency(*entry[method]) for method in methods}, entry["best"])


def _grid(entry: Mapping[str, Any]) -> GridNumbers:
    ratio, radius = entry["selected"]
    return GridNumbers(
        tuple(entry["ratios"]), tuple(entry["radii"]), tuple(map(tuple, entry["auroc"])), (ratio, radius)
    )
