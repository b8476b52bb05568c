"""MPDD, painted metal parts under changing light and in changing places: six categories in the MVTec-AD layout."""

from __future__ import annotations

from pathlib import Path

from dinosaur_ad.datasets.folder import category_tasks, say_absent
from dinosaur_ad.datasets.mvtec import MVTEC_LAYOUT
from dinosaur_ad.datasets.tasks import Scenario

MPDD_CATEGORIES = ("bracket_black", "bracket_brown", "bracket_white", "connector", "metal_plate", "tubes")
"""The official six, alphabetically, as they are learned."""

MPDD_LICENCE = "CC BY-NC-SA 4.0 (no commercial use)"
MPDD_CITATION = (
    "Jezek, Jonak, Burget, Dvorak, Skotak: Deep learning-based defect detection of metal parts: evaluating current "
    "methods in complex conditions, ICUMT 2021"
)


def mpdd_scenario(root: str | Path) -> Scenario:
    """One task for each category found in ``root``, alphabetically; any image extension.

    :raises InputError: no category, or an incomplete one; the sentence names what is missing.
    """
    tasks = category_tasks(root, MVTEC_LAYOUT)
    return Scenario("mpdd", tasks, f"MPDD, {say_absent(tasks, MPDD_CATEGORIES)}.", MPDD_LICENCE, MPDD_CITATION)
