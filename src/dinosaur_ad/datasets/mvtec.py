"""The MVTec-AD layout.

``<category>/train/good``, ``<category>/test/good``, ``<category>/test/<kind>`` and
``<category>/ground_truth/<kind>/<stem>_mask.*``.
"""

from __future__ import annotations

from pathlib import Path

from dinosaur_ad.datasets.folder import Layout, category_tasks, say_absent
from dinosaur_ad.datasets.tasks import Scenario
from dinosaur_ad.images.loading import is_image_name

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


def mvtec_scenario(root: str | Path) -> Scenario:
    """One task for each category found in ``root``, alphabetically; any image extension.

    Your own categories work as well, and may come without ``ground_truth``: the masks are then unknown. The
    name ``mvtec_ad``, its licence and its citation are given only when a category is one of the official
    fifteen; otherwise the scenario is named after the folder.

    :raises InputError: no category, or an incomplete one; the sentence names what is missing.
    """
    layout = Layout("MVTec-AD layout", ("train/good", "test/good"), _find_mask, "{kind}/{stem}_mask.png")
    tasks = category_tasks(root, layout)
    if not any(task.name in MVTEC_CATEGORIES for task in tasks):
        return Scenario(Path(root).resolve().name, tasks, f"{len(tasks)} categories in the {layout.name}.")
    description = f"MVTec-AD, {say_absent(tasks, MVTEC_CATEGORIES)}."
    return Scenario("mvtec_ad", tasks, description, MVTEC_LICENCE, MVTEC_CITATION)


def _find_mask(truth: Path, kind: str, stem: str) -> tuple[Path, ...]:
    expected = truth / kind / f"{stem}_mask.png"
    if expected.is_file():  # the usual case, without listing the folder once for each image
        return (expected,)
    folder = truth / kind
    files = folder.iterdir() if folder.is_dir() else ()
    return tuple(sorted(path for path in files if path.stem == f"{stem}_mask" and is_image_name(path)))
