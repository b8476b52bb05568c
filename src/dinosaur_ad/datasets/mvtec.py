"""The MVTec-AD layout.

``<category>/train/good``, ``<category>/test/good``, ``<category>/test/<kind>`` and
``<category>/ground_truth/<kind>/<stem>_mask.*``.
"""

from __future__ import annotations

from pathlib import Path

from dinosaur_ad.datasets.folder import FolderLayout, category_tasks, named_mask, say_absent
from dinosaur_ad.datasets.tasks import Scenario

MVTEC_CATEGORIES = (
    "bottle", "cable", "capsule", "carpet", "grid", "hazelnut", "leather", "metal_nut",
    "pill", "screw", "tile", "toothbrush", "transistor", "wood", "zipper",
)  # fmt: skip
"""The official fifteen, in the order the paper learns them."""

MVTEC_LICENCE = "CC BY-NC-SA 4.0 (no commercial use)"
MVTEC_CITATION = (
    "Bergmann, Fauser, Sattlegger, Steger: MVTec AD - A Comprehensive Real-World Dataset for Unsupervised "
    "Anomaly Detection, CVPR 2019"
)

MVTEC_LAYOUT = FolderLayout(
    "MVTec-AD layout", ("train/good", "test/good"), named_mask("_mask"), "{kind}/{stem}_mask.png"
)


def mvtec_scenario(root: str | Path) -> Scenario:
    """One task for each category found in ``root``, alphabetically; any image extension.

    Your own categories work as well, and may come without ``ground_truth``: the masks are then unknown. The
    name ``mvtec_ad``, its licence and its citation are given only when a category is one of the official
    fifteen; otherwise the scenario is named after the folder.

    :raises InputError: no category, or an incomplete one; the sentence names what is missing.
    """
    tasks = category_tasks(root, MVTEC_LAYOUT)
    if not any(task.name in MVTEC_CATEGORIES for task in tasks):
        return Scenario(Path(root).resolve().name, tasks, f"{len(tasks)} categories in the {MVTEC_LAYOUT.name}.")
    description = f"MVTec-AD, {say_absent(tasks, MVTEC_CATEGORIES)}."
    return Scenario("mvtec_ad", tasks, description, MVTEC_LICENCE, MVTEC_CITATION)
