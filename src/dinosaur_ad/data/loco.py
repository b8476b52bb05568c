"""The MVTec-LOCO layout: MVTec-AD with ``validation/good`` and a folder of masks for each anomalous image.

The masks of one image (``ground_truth/<kind>/<stem>/000.png``, ``001.png``, ...) are united: reading only the
first would drop regions. Their grey value encodes the class of the defect, so anything above zero counts.
"""

from __future__ import annotations

from pathlib import Path

from dinosaur_ad.data.folder import Layout, category_tasks, images_in, say_absent
from dinosaur_ad.data.tasks import Scenario, Task

LOCO_CATEGORIES = ("breakfast_box", "juice_bottle", "pushpins", "screw_bag", "splicing_connectors")
"""The official five, in the order the paper learns them."""

LOCO_KINDS = ("logical_anomalies", "structural_anomalies")
"""The official kinds of anomaly."""

_LICENCE = "CC BY-NC-SA 4.0 (no commercial use)"
_CITATION = (
    "Bergmann, Batzner, Fauser, Sattlegger, Steger: Beyond Dents and Scratches: Logical Constraints in "
    "Unsupervised Anomaly Detection and Localization, IJCV 2022"
)


def loco_scenario(root: str | Path) -> Scenario:
    """One task for each category found in ``root``, alphabetically; any image extension.

    ``validation/good`` becomes the task's validation, apart from its training images. A category may lack one
    of the two kinds of anomaly; the description says so.

    :raises InputError: no category, or an incomplete one; the sentence names what is missing.
    """
    splits = ("train/good", "validation/good", "test/good")
    tasks = category_tasks(root, Layout("MVTec-LOCO layout", splits, _find_masks, "{kind}/{stem}/000.png"))
    return Scenario("mvtec_loco", tasks, _describe(tasks), _LICENCE, _CITATION)


def _find_masks(truth: Path, kind: str, stem: str) -> tuple[Path, ...]:
    return tuple(images_in(truth / kind / stem))


def _describe(tasks: tuple[Task, ...]) -> str:
    lacks = [
        f"{task.name} has no {kind}"
        for task in tasks
        for kind in LOCO_KINDS
        if kind not in {sample.kind for sample in task.test}
    ]
    return f"MVTec-LOCO, {'; '.join([say_absent(tasks, LOCO_CATEGORIES), *lacks])}."
