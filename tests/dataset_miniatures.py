"""Made-up miniatures of public datasets in the layouts they are published in.

Each category has four training images, two normal and two anomalous test images, of 40 x 32 pixels.
"""

from __future__ import annotations

import csv
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dinosaur_ad.datasets import Task

TRAIN, NORMAL, ANOMALOUS = range(4), range(4, 6), range(2)


def draw(path: Path, *, defect: bool = False) -> None:
    """A product of grey blocks with noise that depends on the file's name, and for a defect a bright corner of 8 x 8.

    Every layout of a dataset has the same images.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = np.random.default_rng(0).integers(60, 160, (4, 5, 1))
    noise = np.random.default_rng(zlib.crc32(path.stem.encode())).integers(0, 10, (32, 40, 3))
    pixels = np.kron(blocks, np.ones((8, 8, 3))) + noise
    if defect:
        pixels[:8, :8] = (250, 10, 240)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def draw_mask(path: Path, value: int = 255) -> None:
    """A mask of the upper left corner, 8 x 8 pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = np.zeros((32, 40), np.uint8)
    mask[:8, :8] = value
    Image.fromarray(mask).save(path)


def sample_names(task: Task) -> dict[str, list[str]]:
    """The names of its images by split."""
    parts = {"train": task.train, "validation": task.validation, "test": task.test}
    return {part: [sample.name for sample in samples] for part, samples in parts.items()}


def make_mpdd(root: Path, *categories: str) -> Path:
    """MVTec-AD's folders, masks called ``NNN_mask.png``."""
    for category in (root / name for name in categories):
        for number in TRAIN:
            draw(category / f"train/good/{number:03d}.png")
        for number in NORMAL:
            draw(category / f"test/good/{number:03d}.png")
        for number in ANOMALOUS:
            draw(category / f"test/scratches/9{number:02d}.png", defect=True)
            draw_mask(category / f"ground_truth/scratches/9{number:02d}_mask.png")
    return root


def make_btad(root: Path, *categories: str) -> Path:
    """BTAD: 02 has PNG images; 01 and 03 have BMP images; only the masks of 03 are BMP files."""
    for category in (root / name for name in categories):
        image, mask = ("png" if category.name == "02" else "bmp"), ("bmp" if category.name == "03" else "png")
        for number in TRAIN:
            draw(category / f"train/ok/{number:04d}.{image}")
        for number in NORMAL:
            draw(category / f"test/ok/{number:04d}.{image}")
        for number in ANOMALOUS:
            draw(category / f"test/ko/90{number:02d}.{image}", defect=True)
            draw_mask(category / f"ground_truth/ko/90{number:02d}.{mask}")
    return root


def make_mvtec_ad2(root: Path, *categories: str) -> Path:
    """MVTec AD 2 with its two private test sets, which have no labels."""
    for category in (root / name for name in categories):
        for number in TRAIN:
            draw(category / f"train/good/{number:03d}_regular.png")
        draw(category / "validation/good/300_regular.png")
        for number in NORMAL:
            draw(category / f"test_public/good/{number:03d}_overexposed.png")
        for number in ANOMALOUS:
            draw(category / f"test_public/bad/9{number:02d}_regular.png", defect=True)
            draw_mask(category / f"test_public/ground_truth/bad/9{number:02d}_regular_mask.png")
        draw(category / "test_private/000_regular.png")
        draw(category / "test_private_mixed/000_mixed.png")
    return root


def make_visa(root: Path, *categories: str, listed: tuple[str, ...] = ()) -> Path:
    """VisA as published; the table also has the ``listed`` objects, of which no file is there."""
    rows = []
    for category in (*categories, *listed):
        for number in (*reversed(TRAIN), *NORMAL):  # the list is in no order
            split = "train" if number in TRAIN else "test"
            rows.append([category, split, "normal", f"{category}/Data/Images/Normal/{number:04d}.JPG", ""])
        for number in ANOMALOUS:
            image, mask = (f"{category}/Data/{what}/Anomaly/{number:03d}" for what in ("Images", "Masks"))
            rows.append([category, "test", "anomaly", f"{image}.JPG", f"{mask}.png"])
    for category, *_, image, mask in rows:
        if category in categories:
            draw(root / image, defect=bool(mask))
            if mask:
                draw_mask(root / mask, value=3)  # the class of the defect
    write_visa_table(root, rows)
    return root


def write_visa_table(root: Path, rows: list[list[str]]) -> None:
    """The table of the split for one class."""
    (root / "split_csv").mkdir(parents=True, exist_ok=True)
    with (root / "split_csv/1cls.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["object", "split", "label", "image", "mask"], *rows])


def read_visa_table(root: Path) -> list[list[str]]:
    """Its rows, without the names of the columns."""
    with (root / "split_csv/1cls.csv").open(newline="") as file:
        return list(csv.reader(file))[1:]


def convert_visa(root: Path, target: Path, ending: str = "") -> Path:
    """What the authors' script makes of :func:`make_visa`; ``ending`` is what other scripts append to masks."""
    for category, split, label, image, mask in read_visa_table(root):
        kind = "good" if label == "normal" else "bad"
        path = target / category / split / kind / Path(image).name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((root / image).read_bytes())
        if mask:
            draw_mask(target / category / "ground_truth/bad" / f"{Path(mask).stem}{ending}.png")
    return target


def make_real_iad(root: Path, *categories: str, images: str = "realiad_1024", nested: bool = True) -> Path:
    """Real-IAD with two views of each part; of the anomalous ones one part's defect shows in the first view alone."""
    for category in categories:
        entries: dict[str, Any] = {"train": [], "test": []}
        for number in (*TRAIN, *NORMAL):
            for view in ("C1", "C2"):
                path = f"OK/S{number:04d}/{category}_{number:04d}_OK_{view}_20231021.jpg"
                entries["train" if number in TRAIN else "test"].append(_entry(category, "OK", path, None))
        for number in ANOMALOUS:
            for view in ("C1", "C2"):
                stem = f"NG/HS/S{number:04d}/{category}_{number:04d}_NG_HS_{view}_20231021"
                kind, mask = ("HS", f"{stem}.png") if number == 0 or view == "C1" else ("OK", None)
                entries["test"].append(_entry(category, kind, f"{stem}.jpg", mask))
        for entry in (*entries["train"], *entries["test"]):
            draw(root / images / category / entry["image_path"], defect=entry["mask_path"] is not None)
            if entry["mask_path"]:
                draw_mask(root / images / category / entry["mask_path"])
        path = real_iad_list(root, category, nested)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"meta": {"prefix": f"{category}/", "normal_class": "OK"}, **entries}))
    return root


def real_iad_list(root: Path, category: str, nested: bool = True) -> Path:
    """The list of a category, as the archive unpacks (``nested``) or as the authors' README shows it."""
    return root / "realiad_jsons" / ("realiad_jsons" if nested else ".") / f"{category}.json"


def _entry(category: str, kind: str, image: str, mask: str | None) -> dict[str, str | None]:
    return {"category": category, "anomaly_class": kind, "image_path": image, "mask_path": mask}


MINIATURES: dict[str, tuple[Callable[..., Path], str, tuple[str, str]]] = {
    "visa": (make_visa, "VisA", ("candle", "pcb1")),
    "mpdd": (make_mpdd, "MPDD", ("connector", "tubes")),
    "real-iad": (make_real_iad, "Real-IAD", ("audiojack", "usb")),
    "mvtec-ad-2": (make_mvtec_ad2, "mvtec_ad_2", ("can", "vial")),
    "btad": (make_btad, "BTech_Dataset_transformed", ("01", "03")),
}
"""Scenario to what makes its miniature, the folder it is published in, and two of its categories."""
