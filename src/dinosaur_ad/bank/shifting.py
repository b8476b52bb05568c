"""Whether the parts that a task inspects look like those it learned: :mod:`dinosaur_ad.core.drift` on inspections."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dinosaur_ad.bank.bank_files import read_bank
from dinosaur_ad.bank.verdict import ANOMALOUS, NORMAL
from dinosaur_ad.core.calibration import conformal_p_values
from dinosaur_ad.core.drift import ShiftNotice, shift_notice
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.inspection import Inspection, Rejected
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskStore


class ShiftWatch:
    """Collects the scores of inspections, by task and in order; maps are not kept."""

    def __init__(self, results: Iterable[Inspection | Rejected] = ()) -> None:
        self._scores: dict[str, list[float]] = {}
        for result in results:
            self.take(result)

    def take(self, result: Inspection | Rejected) -> None:
        """Count one result, if it is a judgement: an unknown image is none of the task's parts."""
        if isinstance(result, Inspection) and result.verdict in (NORMAL, ANOMALOUS):
            self._scores.setdefault(result.task, []).append(result.score)

    def notices(self, store: TaskStore) -> dict[str, ShiftNotice]:
        """By task: parts that pass score higher than learned ones did. Defects, however many, are no sign of it.

        Without a shift a task is named with a probability of 1 % at the most, however many images there are. Tasks that
        were forgotten in the meantime, and scores of learned images (the preset ``paper``), say nothing.
        """
        if Preset.from_json(store.header["preset"]).calibration == "in-sample":
            return {}
        found = {}
        for task, scores in self._scores.items():
            try:
                calibration = read_bank(store, store.record(task))[0]["scores"]
            except DinosaurError:
                continue
            score_N = np.asarray(scores)
            p_value_N = conformal_p_values(score_N, calibration)
            notice = shift_notice(p_value_N, len(calibration), defects=1.0, score_N=score_N, calibration=calibration)
            if notice and notice.passing:
                found[task] = notice
        return found
