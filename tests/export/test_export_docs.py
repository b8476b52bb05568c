"""The page on exports says what the code does and what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.encoders.parity import limits
from dinosaur_ad.export.gate import FEW_PAIRS, LIMITS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "export.md"
RESULT = ROOT / "results" / "edge" / "precision.json"
ROWS = {"float32": "float32", "float16": "float16, bfloat16", "bfloat16": "float16, bfloat16", "int8": "int8"}
REFERENCE = "onnx-cpu float32"


def test_the_limits_on_the_page_are_those_of_the_gate() -> None:
    lines = PAGE.read_text().splitlines()
    for precision, limit in LIMITS.items():
        least, mean = limits(precision)
        shift = f"{100 * limit.shift:g} %"
        row = f"| {ROWS[precision]} | {least} | {mean} | {limit.correlation} | {shift} | {limit.auroc_loss} |"
        assert row in lines


def test_the_stored_figures_follow_from_the_stored_scores() -> None:
    scores = np.load(RESULT.with_suffix(".npz"))
    rows = json.loads(RESULT.read_text())["rows"]
    assert len({row["set"] for row in rows}) >= 4
    for row in rows:
        labels = scores[f"{row['set']}|labels"]
        for key, bank in {"auroc": "float32", "auroc_own": "own"}.items():
            found = auroc(scores[f"{row['set']}|{row['way']}|{bank}"], labels)
            assert row[key] == pytest.approx(found, abs=1e-5)
        assert (row["normals"], row["anomalies"]) == (int((labels == 0).sum()), int(labels.sum()))


def test_every_precision_that_was_measured_passes_the_gate_on_the_real_images() -> None:
    rows = json.loads(RESULT.read_text())["rows"]
    reference = {row["set"]: row for row in rows if row["way"] == REFERENCE}
    for row in rows:
        precision = next((name for name in ("int8", "bfloat16") if name in row["way"]), "float32")
        least, mean = limits(precision)
        assert row["cosine_min"] >= least
        assert row["cosine_mean"] >= mean
        assert row["pearson"] >= LIMITS[precision].correlation
        assert abs(row["shift"]) <= LIMITS[precision].shift
        loss = reference[row["set"]]["auroc"] - row["auroc"]
        pairs = row["normals"] * row["anomalies"]
        assert loss <= max(LIMITS[precision].auroc_loss, FEW_PAIRS / pairs) + 1e-5


def test_int8_changes_auroc_by_at_most_0_003_over_the_real_images() -> None:
    rows = json.loads(RESULT.read_text())["rows"]
    by_way: dict[str, list[float]] = {}
    for row in rows:
        by_way.setdefault(row["way"], []).append(row["auroc"])
    narrow = {way: np.mean(values) for way, values in by_way.items() if "int8" in way}
    assert len(narrow) == 4
    assert all(abs(value - np.mean(by_way[REFERENCE])) <= 0.003 for value in narrow.values())
