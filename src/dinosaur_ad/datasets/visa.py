"""VisA: twelve objects, as published or converted to the MVTec-AD layout by the authors' own script.

As published, ``split_csv/1cls.csv`` says which of ``<object>/Data/Images/{Normal,Anomaly}/*`` is for training and where
the mask of each anomalous image lies. The converted set has ``<object>/{train,test}/{good,bad}`` and
``ground_truth/bad``; both give the same tasks, with the same names in the same order.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from dinosaur_ad.datasets.folder import GOOD, FolderLayout, category_tasks, named_mask, say_absent
from dinosaur_ad.datasets.listed import ListedImage, damaged_list, listed_task
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.errors import InputError

VISA_CATEGORIES = (
    "candle", "capsules", "cashew", "chewinggum", "fryum", "macaroni1", "macaroni2", "pcb1", "pcb2", "pcb3", "pcb4",
    "pipe_fryum",
)  # fmt: skip
"""The official twelve, alphabetically, as they are learned."""

VISA_LICENCE = "CC BY 4.0"
VISA_CITATION = (
    "Zou, Jeong, Pemula, Zhang, Dabeer: SPot-the-Difference Self-Supervised Pre-training for Anomaly Detection and "
    "Segmentation, ECCV 2022"
)

_COLUMNS = ("object", "split", "label", "image", "mask")
_EXPECTED = f"VisA's table with the columns {', '.join(_COLUMNS)}"
_KINDS = {"normal": GOOD, "anomaly": "bad"}


def visa_scenario(root: str | Path) -> Scenario:
    """One task for each object found in ``root``, alphabetically, in the split for one class (``1cls``).

    The converted set may lie in ``root`` itself, in ``root/1cls`` or in ``root/visa_pytorch``.

    :raises InputError: no object, an incomplete one, or a table that does not fit; the sentence names what is missing.
    """
    root = Path(root)
    table = root / "split_csv" / "1cls.csv"
    published = [name for name in VISA_CATEGORIES if (root / name / "Data").is_dir()]
    if published and not table.is_file():
        raise InputError(
            f"'{root}' has no split_csv/1cls.csv, which says what is trained on; extract the dataset again."
        )
    tasks = _published(root, table, published) if published else category_tasks(_converted(root), _CONVERTED)
    return Scenario("visa", tasks, f"VisA, {say_absent(tasks, VISA_CATEGORIES)}.", VISA_LICENCE, VISA_CITATION)


def _published(root: Path, table: Path, present: list[str]) -> tuple[Task, ...]:
    images: dict[str, list[ListedImage]] = {name: [] for name in present}
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            for row in csv.DictReader(file, restval=""):
                images.get(row["object"], []).append(_listed(row))
    except (ValueError, KeyError, csv.Error) as error:
        raise damaged_list(table, _EXPECTED) from error
    return tuple(listed_task(name, root, table, listed) for name, listed in images.items())


def _listed(row: Mapping[str, str]) -> ListedImage:
    _, split, label, image, mask = (row[column].strip() for column in _COLUMNS)
    if split not in ("train", "test") or label not in _KINDS or not image:
        raise ValueError(f"no image of a split: {row}")
    kind = _KINDS[label]
    return ListedImage(f"{split}/{kind}/{PurePosixPath(image).name}", split == "train", kind, image, mask or None)


def _converted(root: Path) -> Path:
    return next((path for path in (root / "1cls", root / "visa_pytorch") if path.is_dir()), root)


def _find_mask(truth: Path, kind: str, stem: str) -> tuple[Path, ...]:
    return named_mask("")(truth, kind, stem) or named_mask("_mask")(truth, kind, stem)


_CONVERTED = FolderLayout("converted VisA layout", ("train/good", "test/good"), _find_mask, "{kind}/{stem}.png")
