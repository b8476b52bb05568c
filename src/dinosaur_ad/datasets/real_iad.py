"""Real-IAD: thirty products, five views of each part, listed in ``realiad_jsons/<category>.json``.

The images lie in ``realiad_1024/<category>/``, or in ``realiad_512``, ``realiad_256`` or ``realiad_raw``: the first
that is there is read. As in the authors' own reader, a view in which a part's defect cannot be seen (no mask) is a
normal image. The lists of single views (``realiad_jsons_sv``) and of impure training (``realiad_jsons_fuiad_*``) are
other protocols and are not read.
"""

from __future__ import annotations

import json
import ntpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dinosaur_ad.datasets.folder import GOOD, say_absent
from dinosaur_ad.datasets.listed import ListedImage, damaged_list, listed_task
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.errors import InputError

REAL_IAD_CATEGORIES = (
    "audiojack", "bottle_cap", "button_battery", "end_cap", "eraser", "fire_hood", "mint", "mounts", "pcb",
    "phone_battery", "plastic_nut", "plastic_plug", "porcelain_doll", "regulator", "rolled_strip_base", "sim_card_set",
    "switch", "tape", "terminalblock", "toothbrush", "toy", "toy_brick", "transistor1", "u_block", "usb", "usb_adaptor",
    "vcpill", "wooden_beads", "woodstick", "zipper",
)  # fmt: skip
"""The official thirty, alphabetically, as they are learned."""

REAL_IAD_RESOLUTIONS = ("realiad_1024", "realiad_512", "realiad_256", "realiad_raw")
"""The folders that may hold the images; the authors' experiments use the first."""

REAL_IAD_LICENCE = "CC BY-NC-SA 4.0 (no commercial use)"
REAL_IAD_CITATION = (
    "Wang, Zhu, Gao, Gan, Zhang, Gu, Qian, Chen, Ma: Real-IAD: A Real-World Multi-View Dataset for Benchmarking "
    "Versatile Industrial Anomaly Detection, CVPR 2024"
)

_EXPECTED = (
    "a list of Real-IAD with meta (prefix, normal_class), train and test (image_path, mask_path, anomaly_class of each "
    "image)"
)


def real_iad_scenario(root: str | Path) -> Scenario:
    """One task for each category found in ``root``, alphabetically, with all five views of each part.

    :raises InputError: no category, an incomplete one, or a list that does not fit; the sentence names what is missing.
    """
    root = Path(root)
    images = next((root / name for name in REAL_IAD_RESOLUTIONS if (root / name).is_dir()), None)
    present = [name for name in REAL_IAD_CATEGORIES if images is not None and (images / name).is_dir()]
    if images is None or not present:
        raise InputError(
            f"'{root}' holds no categories of Real-IAD; unpack their images so that {REAL_IAD_RESOLUTIONS[0]}/"
            f"audiojack and the like exist there (or in {', '.join(REAL_IAD_RESOLUTIONS[1:])})."
        )
    tasks = tuple(_task(name, root, images) for name in present)
    description = f"Real-IAD, all five views, images of {images.name}, {say_absent(tasks, REAL_IAD_CATEGORIES)}."
    return Scenario("real_iad", tasks, description, REAL_IAD_LICENCE, REAL_IAD_CITATION)


def _task(name: str, root: Path, images: Path) -> Task:
    lists = root / "realiad_jsons"  # the archive holds a folder of that name, so that both depths are found
    source = next((path for folder in (lists, lists / lists.name) if (path := folder / f"{name}.json").is_file()), None)
    if source is None:
        raise InputError(f"'{root}' has no realiad_jsons/{name}.json; extract realiad_jsons.zip there.")
    try:
        listed = list(_listed(json.loads(source.read_text(encoding="utf-8"))))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged_list(source, _EXPECTED) from error
    return listed_task(name, images, source, listed)


def _listed(document: dict[str, Any]) -> Iterator[ListedImage]:
    prefix, normal = document["meta"]["prefix"], document["meta"]["normal_class"]
    for split in ("train", "test"):
        for entry in document[split]:
            image, mask, kind = entry["image_path"], entry["mask_path"], entry["anomaly_class"]
            if not all(isinstance(text, str) for text in (prefix, normal, image, kind, mask or "")) or not image:
                raise TypeError(f"no image: {entry}")
            is_normal = not mask or kind == normal
            yield ListedImage(
                name=f"{split}/{image}",
                training=split == "train",
                kind=GOOD if is_normal else kind,
                image=_joined(prefix, image),
                mask=None if is_normal else _joined(prefix, mask),
            )


def _joined(prefix: str, path: str) -> str:
    return ntpath.join(prefix, path).replace("\\", "/")  # an absolute path stays one, in either notation
