"""The public datasets: what they are called, where they come from and under which licence. None of them is shipped."""

from __future__ import annotations

from dataclasses import dataclass

from dinosaur_ad.datasets.loco import LOCO_CATEGORIES, LOCO_CITATION, LOCO_LICENCE
from dinosaur_ad.datasets.mtd import MTD_CITATION, MTD_LICENCE
from dinosaur_ad.datasets.mvtec import MVTEC_CATEGORIES, MVTEC_CITATION, MVTEC_LICENCE


@dataclass(frozen=True)
class Dataset:
    """A dataset that a person has to download.

    ``folders`` are the names it may have in the data folder, the first one is ours; ``how`` says what to do with the
    download, as part of a sentence. ``categories`` is empty for a set that is read whole or not at all.
    """

    name: str
    folders: tuple[str, ...]
    url: str
    licence: str
    size: str
    citation: str
    how: str
    categories: tuple[str, ...] = ()


DATASETS = {
    "mvtec-ad": Dataset(
        name="MVTec-AD",
        folders=("mvtec_ad", "mvtec_anomaly_detection", "mvtec"),
        url="https://www.mvtec.com/company/research/datasets/mvtec-ad",
        licence=MVTEC_LICENCE,
        size="about 5 GB",
        citation=MVTEC_CITATION,
        how="unpack it so that mvtec_ad/bottle/train/good exists",
        categories=MVTEC_CATEGORIES,
    ),
    "mvtec-loco": Dataset(
        name="MVTec-LOCO",
        folders=("mvtec_loco", "mvtec_loco_anomaly_detection"),
        url="https://www.mvtec.com/company/research/datasets/mvtec-loco",
        licence=LOCO_LICENCE,
        size="about 6 GB",
        citation=LOCO_CITATION,
        how="unpack it so that mvtec_loco/breakfast_box/train/good exists",
        categories=LOCO_CATEGORIES,
    ),
    "mtd": Dataset(
        name="Magnetic Tile Defects",
        folders=(
            "mtd",
            "Magnetic-Tile-Defect",
            "Magnetic-tile-defect-datasets.",
            "Magnetic-tile-defect-datasets",
            "Magnetic-tile-defect-datasets.-master",
        ),
        url="https://github.com/abin24/Magnetic-tile-defect-datasets.",
        licence=MTD_LICENCE,
        size="about 60 MB",
        citation=MTD_CITATION,
        how="put it so that mtd/MT_Free/Imgs exists",
    ),
}
