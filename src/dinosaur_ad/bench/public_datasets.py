"""The public datasets: what they are called, where they come from and under which licence. None of them is shipped."""

from __future__ import annotations

from dataclasses import dataclass

from dinosaur_ad.datasets.btad import BTAD_CATEGORIES, BTAD_CITATION, BTAD_LICENCE
from dinosaur_ad.datasets.loco import LOCO_CATEGORIES, LOCO_CITATION, LOCO_LICENCE
from dinosaur_ad.datasets.mpdd import MPDD_CATEGORIES, MPDD_CITATION, MPDD_LICENCE
from dinosaur_ad.datasets.mtd import MTD_CITATION, MTD_LICENCE
from dinosaur_ad.datasets.mvtec import MVTEC_CATEGORIES, MVTEC_CITATION, MVTEC_LICENCE
from dinosaur_ad.datasets.mvtec_ad2 import MVTEC_AD2_CATEGORIES, MVTEC_AD2_CITATION, MVTEC_AD2_LICENCE
from dinosaur_ad.datasets.real_iad import REAL_IAD_CATEGORIES, REAL_IAD_CITATION, REAL_IAD_LICENCE
from dinosaur_ad.datasets.visa import VISA_CATEGORIES, VISA_CITATION, VISA_LICENCE


@dataclass(frozen=True)
class Dataset:
    """A dataset that a person has to download.

    ``folders`` are the names it may have in the data folder, the first one is ours; ``how`` says what to do with the
    download, as part of a sentence. ``categories`` is empty for a set that is read whole or not at all. ``archive``
    is the name of the download and its SHA-256, where that is known, to be shown; nothing is checked against it.
    """

    name: str
    folders: tuple[str, ...]
    url: str
    licence: str
    size: str
    citation: str
    how: str
    categories: tuple[str, ...] = ()
    archive: tuple[str, str] | None = None


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
    "visa": Dataset(
        name="VisA",
        folders=("visa", "VisA", "VisA_20220922", "VisA_pytorch"),
        url="https://github.com/amazon-science/spot-diff",
        licence=VISA_LICENCE,
        size="about 2 GB",
        citation=VISA_CITATION,
        how="unpack it so that visa/split_csv/1cls.csv and visa/candle/Data exist",
        categories=VISA_CATEGORIES,
        archive=("VisA_20220922.tar", "2eb8690c803ab37de0324772964100169ec8ba1fa3f7e94291c9ca673f40f362"),
    ),
    "mpdd": Dataset(
        name="MPDD",
        folders=("mpdd", "MPDD"),
        url="https://github.com/stepanje/MPDD",
        licence=MPDD_LICENCE,
        size="about 2 GB",
        citation=MPDD_CITATION,
        how="unpack it so that mpdd/bracket_black/train/good exists",
        categories=MPDD_CATEGORIES,
    ),
    "real-iad": Dataset(
        name="Real-IAD",
        folders=("real_iad", "Real-IAD", "realiad"),
        url="https://realiad4ad.github.io/Real-IAD/",
        licence=REAL_IAD_LICENCE,
        size="about 53 GB at 1024 pixels, on request",
        citation=REAL_IAD_CITATION,
        how="unpack it so that real_iad/realiad_jsons/audiojack.json and real_iad/realiad_1024/audiojack exist",
        categories=REAL_IAD_CATEGORIES,
    ),
    "mvtec-ad-2": Dataset(
        name="MVTec AD 2",
        folders=("mvtec_ad_2", "MVTec_AD_2"),
        url="https://www.mvtec.com/company/research/datasets/mvtec-ad-2",
        licence=MVTEC_AD2_LICENCE,
        size="about 33 GB",
        citation=MVTEC_AD2_CITATION,
        how="unpack it so that mvtec_ad_2/can/test_public/good exists",
        categories=MVTEC_AD2_CATEGORIES,
        archive=("mvtec_ad_2.tar.gz", "c0ded99ef32bfc8e352d52beb44515e5b292b8598cb963aadfa91ca0763505e4"),
    ),
    "btad": Dataset(
        name="BTAD",
        folders=("btad", "BTech_Dataset_transformed", "BTAD"),
        url="https://avires.dimi.uniud.it/papers/btad/btad.zip",
        licence=BTAD_LICENCE,
        size="about 1 GB",
        citation=BTAD_CITATION,
        how="unpack it so that btad/01/train/ok exists",
        categories=BTAD_CATEGORIES,
        archive=("btad.zip", "461c9387e515bfed41ecaae07c50cf6b10def647b36c9e31d239ab2736b10d2a"),
    ),
}
