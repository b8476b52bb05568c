"""The stored figures of ``benchmarks.pair`` follow from the scores stored beside them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.encoders.pair import WEIGHT, PairSpec
from dinosaur_ad.encoders.registry import get_spec

RESULTS = json.loads((Path(__file__).parents[1] / "results" / "pair.json").read_text())


@pytest.mark.parametrize("name", RESULTS["sets"])
def test_stored_figures_follow_from_the_stored_scores(name: str) -> None:
    found = RESULTS["sets"][name]
    good, bad = found["tests"]
    labels = np.repeat([0, 1], [good, bad])
    assert found["ways"].keys() == {"first", "second", "pair", "roomy"}
    for row in found["ways"].values():
        assert row["auroc"] == pytest.approx(auroc(row["scores"], labels), abs=2e-4)


def test_the_weight_that_ships_is_the_one_that_was_measured() -> None:
    spec = get_spec(RESULTS["encoder"]["encoder"])
    assert isinstance(spec, PairSpec)
    assert spec.weight == WEIGHT
    areas = {
        weight: np.mean([found["weights"][weight] for found in RESULTS["sets"].values()])
        for weight in next(iter(RESULTS["sets"].values()))["weights"]
    }
    assert areas[str(spec.weight)] > max(areas.values()) - 0.01
