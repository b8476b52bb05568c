"""The MVTec-LOCO layout: MVTec-AD with ``validation/good`` and a folder of masks for each anomalous image.

The masks of one image (``ground_truth/<kind>/<stem>/000.png``, ``001.png``, ...) are united: reading only the
first would drop regions. Their grey value encodes the class of the defect, so anything above zero counts.

``<category>/defects_config.json`` says for each grey value how much of such a region has to be found (its saturation
area), which the official metric AU-sPRO needs. A set without that file can be read; AU-sPRO is then unknown.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dinosaur_ad.datasets.folder import FolderLayout, Saturations, category_tasks, images_in, say_absent
from dinosaur_ad.datasets.samples import Saturation
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.errors import InputError

LOCO_CATEGORIES = ("breakfast_box", "juice_bottle", "pushpins", "screw_bag", "splicing_connectors")
"""The official five, in the order the paper learns them."""

LOCO_KINDS = ("logical_anomalies", "structural_anomalies")
"""The official kinds of anomaly."""

LOCO_LICENCE = "CC BY-NC-SA 4.0 (no commercial use)"
LOCO_CITATION = (
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
    layout = FolderLayout("MVTec-LOCO layout", splits, _find_masks, "{kind}/{stem}/000.png", _read_saturations)
    tasks = category_tasks(root, layout)
    return Scenario("mvtec_loco", tasks, _describe(tasks), LOCO_LICENCE, LOCO_CITATION)


def _find_masks(truth: Path, kind: str, stem: str) -> tuple[Path, ...]:
    return tuple(images_in(truth / kind / stem))


def _read_saturations(category: Path) -> Saturations:
    path = category / "defects_config.json"
    if not path.is_file():
        return ()
    try:
        return tuple(_saturation(entry) for entry in json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"'{path}' is not a list of defects with pixel_value, saturation_threshold and relative_saturation; "
            "extract the dataset again."
        ) from error


def _saturation(entry: dict[str, Any]) -> tuple[int, Saturation]:
    threshold, relative = float(entry["saturation_threshold"]), entry["relative_saturation"]
    if not isinstance(relative, bool) or not threshold > 0 or (relative and threshold > 1):
        raise ValueError(f"no saturation: {entry}")
    return int(entry["pixel_value"]), Saturation(threshold, relative)


def _describe(tasks: tuple[Task, ...]) -> str:
    lacks = [
        f"{task.name} has no {kind}"
        for task in tasks
        for kind in LOCO_KINDS
        if kind not in {sample.kind for sample in task.test}
    ]
    return f"MVTec-LOCO, {'; '.join([say_absent(tasks, LOCO_CATEGORIES), *lacks])}."
