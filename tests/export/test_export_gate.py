"""What the gate lets through, figure by figure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dinosaur_ad.encoders.parity import TokenParity
from dinosaur_ad.errors import InputError
from dinosaur_ad.export.gate import LIMITS, Parity
from dinosaur_ad.export.gate_images import gate_images, pasted

GOOD = Parity(
    precision="int8",
    tokens=TokenParity(images=10, cosine_min=0.99, cosine_mean=0.998, finite=True),
    pearson=0.999,
    spearman=0.9,
    shift=0.002,
    auroc_reference=0.95,
    auroc=0.949,
    pairs=10_000,
    bank_error=1e-6,
    source="labelled ones",
    provider="onnx-cpu",
)


def test_figures_within_the_limits_pass_and_are_said() -> None:
    assert GOOD.failure() is None
    assert "AUROC 0.9490 (float32 0.9500, -0.0010)" in GOOD.sentence()
    assert GOOD.to_json()["auroc_change"] == pytest.approx(-0.001)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokens": TokenParity(10, 0.5, 0.998, True)}, "too far from those of float32"),
        ({"tokens": TokenParity(10, 0.9, 0.97, True)}, "too far from those of float32"),
        ({"tokens": TokenParity(10, 0.0, 0.0, False)}, "not all finite"),
        ({"pearson": 0.98}, r"scores correlate 0\.98000"),
        ({"pearson": float("nan")}, "scores correlate nan"),
        ({"shift": -0.05}, r"shifted by -5\.00 % \(at most 3 % asked\)"),
        ({"shift": float("nan")}, "shifted by"),
        ({"auroc": 0.94}, r"AUROC changes by -0\.0100 \(a loss of at most 0\.003 asked\)"),
        ({"bank_error": 0.02}, r"bank in its graph is off by 2\.00 %"),
        ({"bank_verdicts": 2}, "gives other verdicts than the detector on 2 images"),
    ],
)
def test_a_figure_beyond_its_limit_is_refused_by_name(change: dict[str, object], says: str) -> None:
    sentence = replace(GOOD, **change).failure()  # type: ignore[arg-type]
    assert sentence is not None
    assert re.search(says, sentence)


def test_a_gain_of_auroc_is_no_reason_to_refuse_and_no_labels_neither() -> None:
    assert replace(GOOD, auroc=0.99).failure() is None
    assert replace(GOOD, auroc=None, auroc_reference=None, pairs=0).failure() is None


def test_a_few_pairs_of_a_small_set_may_change_places() -> None:
    small = replace(GOOD, pairs=1000, auroc=0.95 - 0.005)
    assert small.failure() is None
    assert replace(small, auroc=0.95 - 0.006).failure() is not None
    assert replace(small, pairs=10_000).failure() is not None


def test_narrower_precisions_may_be_further_off() -> None:
    order = [LIMITS[name] for name in ("float32", "float16", "int8")]
    assert [each.correlation for each in order] == sorted((each.correlation for each in order), reverse=True)
    assert [each.shift for each in order] == sorted(each.shift for each in order)


def test_too_few_images_and_labels_without_normals_are_refused(tmp_path: Path) -> None:
    folder = tmp_path
    for number in range(3):
        (folder / "good").mkdir(exist_ok=True)
        Image.new("RGB", (70, 70), (number, 2, 3)).save(folder / "good" / f"{number}.png")
    with pytest.raises(InputError, match=r"at least 4 of them, but there are 3; give more with --images\.$"):
        gate_images(sorted((folder / "good").iterdir()), None, 70)
    with pytest.raises(InputError, match="Labelled images alone cannot be scored"):
        gate_images([], folder, 70)
    assert len(gate_images([], folder, 70, has_bank=True).tests) == 3


def test_a_pasted_copy_differs_in_a_rectangle_and_is_always_the_same() -> None:
    images = np.random.default_rng(0).integers(0, 255, (5, 70, 70, 3), np.uint8)
    copies = pasted(images)
    np.testing.assert_array_equal(copies, pasted(images))
    for image, copy in zip(images, copies, strict=True):
        rows, columns = np.nonzero((image != copy).any(axis=2))
        area = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
        assert 0 < len(rows) <= area < 70 * 70 / 4
