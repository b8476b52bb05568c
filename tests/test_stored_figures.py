"""The stored figures of ``benchmarks.real_images`` follow from the scores stored beside them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dinosaur_ad.core.metrics import auroc

RESULTS = Path(__file__).parents[1] / "results" / "real_images.json"


def test_stored_figures_follow_from_the_stored_scores() -> None:
    scores = np.load(RESULTS.with_suffix(".npz"))
    cells = json.loads(RESULTS.read_text())["cells"]
    assert len(cells) >= 12
    for cell in cells:
        for row in cell["tasks"]:
            key = f"{cell['scenario']}|{row['task']}"
            labels = scores[f"{key}|labels"]
            assert row["auroc"] == pytest.approx(auroc(scores[f"{key}|{cell['step']}"], labels), abs=2e-4)
            assert (row["normals"], row["anomalies"]) == (int((labels == 0).sum()), int(labels.sum()))
