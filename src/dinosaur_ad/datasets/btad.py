"""BTAD, three industrial products: ``<product>/train/ok``, ``test/{ok,ko}`` and ``ground_truth/ko/<stem>.*``.

Images and masks are PNG or BMP files: a mask has the name of its image and any image extension.
"""

from __future__ import annotations

from pathlib import Path

from dinosaur_ad.datasets.folder import FolderLayout, category_tasks, named_mask, say_absent
from dinosaur_ad.datasets.tasks import Scenario

BTAD_CATEGORIES = ("01", "02", "03")
"""The three products in the order of their numbers, as they are learned."""

BTAD_LICENCE = "CC BY-SA 4.0"
BTAD_CITATION = (
    "Mishra, Verk, Fornasier, Piciarelli, Foresti: VT-ADL: A Vision Transformer Network for Image Anomaly Detection "
    "and Localization, ISIE 2021"
)

_LAYOUT = FolderLayout("BTAD layout", ("train/ok", "test/ok"), named_mask(""), "{kind}/{stem}.png", good="ok")


def btad_scenario(root: str | Path) -> Scenario:
    """One task for each product found in ``root``, in the order of their numbers; any image extension.

    :raises InputError: no product, or an incomplete one; the sentence names what is missing.
    """
    tasks = category_tasks(root, _LAYOUT)
    return Scenario("btad", tasks, f"BTAD, {say_absent(tasks, BTAD_CATEGORIES)}.", BTAD_LICENCE, BTAD_CITATION)
