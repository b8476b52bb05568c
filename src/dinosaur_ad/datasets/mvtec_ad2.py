"""MVTec AD 2: ``<category>/{train,validation}/good`` and ``test_public/{good,bad,ground_truth/bad}``.

``test_private`` and ``test_private_mixed`` come without labels, which only MVTec's own server knows, and are left out.
"""

from __future__ import annotations

from pathlib import Path

from dinosaur_ad.datasets.folder import FolderLayout, category_tasks, named_mask, say_absent
from dinosaur_ad.datasets.tasks import Scenario

MVTEC_AD2_CATEGORIES = ("can", "fabric", "fruit_jelly", "rice", "sheet_metal", "vial", "wallplugs", "walnuts")
"""The official eight, alphabetically, as they are learned."""

MVTEC_AD2_LICENCE = "CC BY-NC-SA 4.0 (no commercial use)"
MVTEC_AD2_CITATION = (
    "Heckler-Kram, Neudeck, Scheler, König, Steger: The MVTec AD 2 Dataset: Advanced Scenarios for Unsupervised "
    "Anomaly Detection, arXiv 2503.21622, 2025"
)

_LAYOUT = FolderLayout(
    "MVTec AD 2 layout",
    ("train/good", "validation/good", "test_public/good"),
    named_mask("_mask"),
    "{kind}/{stem}_mask.png",
    test="test_public",
    truth="test_public/ground_truth",
)


def mvtec_ad2_scenario(root: str | Path) -> Scenario:
    """One task for each category found in ``root``, alphabetically, tested on its public images.

    ``validation/good`` becomes the task's validation, apart from its training images.

    :raises InputError: no category, or an incomplete one; the sentence names what is missing.
    """
    tasks = category_tasks(root, _LAYOUT)
    description = f"MVTec AD 2, public test images, {say_absent(tasks, MVTEC_AD2_CATEGORIES)}."
    return Scenario("mvtec_ad_2", tasks, description, MVTEC_AD2_LICENCE, MVTEC_AD2_CITATION)
