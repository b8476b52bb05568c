"""Whether the parts that a task inspects look like those it learned: :mod:`dinosaur_ad.core.drift` on inspections."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from dinosaur_ad.bank.bank_files import read_bank
from dinosaur_ad.bank.verdict import ANOMALOUS, NORMAL
from dinosaur_ad.core.calibration import conformal_p_values
from dinosaur_ad.core.drift import ShiftNotice, shift_notice
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.inspection import Inspection, Rejected
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskStore

PASSING_ALPHA, WHOLE_ALPHA = 0.009, 0.001
"""The probability that a task is named without a change, by each of the two signs; 1 % together."""
FEWEST_IMAGES = 10
"""Fewer images are not said to differ as wholes."""
WHOLE_SHARE, WHOLE_LEVEL = 0.9, 1.25
"""Where so many of the images have a median patch distance that many times the usual one, they differ as wholes. Of 20
folders of defects of four products of MVTec AD the lowest tenth reaches 1.2 times; that of bottles in a light of
another colour 1.5, blurred 1.28 and more (docs/start/verdicts.md)."""


class ShiftWatch:
    """Collects the scores of inspections, by task and in order; maps are not kept."""

    def __init__(self, results: Iterable[Inspection | Rejected] = ()) -> None:
        self._seen: dict[str, list[tuple[float, float]]] = {}
        for result in results:
            self.take(result)

    def take(self, result: Inspection | Rejected) -> None:
        """Count one result, if it is a judgement: an unknown image is none of the task's parts."""
        if isinstance(result, Inspection) and result.verdict in (NORMAL, ANOMALOUS):
            self._seen.setdefault(result.task, []).append((result.score, result.level_ratio))

    def notices(self, store: TaskStore) -> dict[str, ShiftNotice]:
        """By task: parts that pass score higher than learned ones did, or nearly all images differ as wholes, flagged
        or not. Defects, however many, are no sign of it.

        Without a shift a task is named with a probability of 1 % at the most, however many images there are. Tasks that
        were forgotten in the meantime, and scores of learned images (the preset ``paper``), say nothing.
        """
        if Preset.from_json(store.header["preset"]).calibration == "in-sample":
            return {}
        found = {}
        for task, seen in self._seen.items():
            try:
                calibration = read_bank(store, store.record(task))[0]["scores"]
            except DinosaurError:
                continue
            score_N, level_N = np.asarray(seen).T
            notice = partial(
                shift_notice,
                conformal_p_values(score_N, calibration),
                len(calibration),
                score_N=score_N,
                calibration=calibration,
            )
            passing = notice(alpha=PASSING_ALPHA, defects=1.0)
            if passing and passing.passing:
                found[task] = passing
            elif len(seen) >= FEWEST_IMAGES and np.quantile(level_N, 1 - WHOLE_SHARE) >= WHOLE_LEVEL:
                whole = notice(alpha=WHOLE_ALPHA, defects=0.2)
                if whole and whole.direction == "higher":
                    found[task] = whole._replace(passing=False)
        return found
