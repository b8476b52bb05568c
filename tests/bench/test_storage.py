"""The storage table: the paper's figures, and what its own formula gives."""

from __future__ import annotations

import numpy as np
import pytest

from dinosaur_ad.bench.storage import FAST_PLACES, PAPER_PLACES, storage_findings, storage_rows, task_bytes
from dinosaur_ad.cli import main
from dinosaur_ad.presets import FAST, PAPER


def test_the_formula_is_the_papers() -> None:
    assert task_bytes(443, PAPER, PAPER_PLACES) == 196 * 44 * 384 * 4 + 384 * 4
    assert task_bytes(60, PAPER, PAPER_PLACES) == 196 * 20 * 384 * 4 + 384 * 4


def test_the_preset_fast_by_hand() -> None:
    # 16 x 16 places, a fifth of 443 images in half precision, and a prototype of twice the width in float32.
    assert task_bytes(443, FAST, FAST_PLACES) == 256 * 88 * 384 * 2 + 2 * 384 * 4


def test_the_totals_are_those_of_the_datasets() -> None:
    ad, loco, mtd = storage_rows()
    assert [row.tasks for row in (ad, loco, mtd)] == [15, 5, 10]
    assert round(ad.total_mib, 2) == 106.83
    assert round(ad.mib_a_task, 3) == 7.122
    assert round(loco.total_mib, 1) == 50.8
    assert round(mtd.total_mib, 1) == 126.3
    assert [row.members for row in (ad, loco, mtd)] == [(20, 39), (33, 37), (44, 44)]
    assert [row.fast_members for row in (ad, loco, mtd)] == [(20, 78), (67, 74), (88, 88)]
    assert [round(row.fast_total_mib, 1) for row in (ad, loco, mtd)] == [136.7, 66.6, 165.0]


def test_the_printed_totals_are_multiples_of_one_average() -> None:
    ad, loco, mtd = storage_rows()
    assert np.allclose([loco.printed_a_task, mtd.printed_a_task], ad.mib_a_task, atol=0.01)
    assert ad.printed_total == round(ad.total_mib, 1)
    assert loco.printed_total < 0.75 * loco.total_mib
    assert mtd.printed_total < 0.6 * mtd.total_mib


def test_the_findings_say_what_is_wrong() -> None:
    text = " ".join(storage_findings())
    for words in (
        "5 and 10 times the average task of MVTec-AD (7.12 MiB)",
        "50.8 and 126.3 MiB",
        "106.83 MiB",
        "1 of 15: toothbrush, with 60",
        "357–572 training images a task; it has 335–372",
        "5.74 MiB, which is 6.02 MB",
    ):
        assert words in text


def test_the_command_prints_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "storage"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    row = next(line.split() for line in out.splitlines() if line.startswith("MTD"))
    assert row == ["MTD", "10", "443", "44", "71.2", "126.34", "12.634", "88", "165.03", "16.503"]
    assert "toothbrush" in out
