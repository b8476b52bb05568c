"""The file of a protocol's rows: what was measured is not measured again, and rows of other settings are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.stream_protocols import StreamMeasurement, products_table, read_row, table

from dinosaur_ad.bench.stream_protocol import CurvePoint, ProductDelay, StreamResult

SETTINGS = {
    "stream": "stream-synthetic",
    "preset": "fast",
    "seed": 0,
    "encoder": {"encoder": "tiny", "provider": "onnx-cpu", "precision": "float32"},
    "segment": 4,
    "turns": 2,
    "tests": None,
}


def measured(learner: str, defects: float, surplus: int | None = 0) -> StreamResult:
    return StreamResult(
        learner=learner,
        stream="stream-synthetic",
        plan={"defects": defects},
        pictures=40,
        defects=2,
        judged=20,
        auroc=0.9,
        false_alarms=0.025,
        recall=None,
        products=[ProductDelay("gear", 20, 12, 1), ProductDelay("plate", 20, None, 0)] if learner == "watch" else [],
        purity=1.0 if learner == "watch" else None,
        surplus=surplus if learner == "watch" else None,
        learned_defects=0,
        final={"gear": 1.0},
        final_false_alarms=0.0,
        final_recall=0.5,
        curve=[CurvePoint(40, 20, 0.9, 0.025, 2**20, 0.1)],
    )


def test_each_row_is_stored_at_once_and_found_again(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    first = StreamMeasurement(file, SETTINGS)
    first.add(measured("watch", 0.05))
    again = StreamMeasurement(file, SETTINGS)
    assert again.has(0.05, "watch")
    assert not again.has(0.0, "watch")
    assert not again.has(0.05, "told")
    (row,) = json.loads(file.read_text())["rows"]
    assert read_row(row) == measured("watch", 0.05)
    assert row["environment"]["processor"]


def test_a_row_that_is_measured_again_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    rows = StreamMeasurement(tmp_path / "rows.json", SETTINGS)
    rows.add(measured("watch", 0.05, surplus=3))
    rows.add(measured("told", 0.0))
    rows.add(measured("watch", 0.05, surplus=1))
    found = [(row["learner"], row["surplus"]) for row in rows.document["rows"]]
    assert found == [("told", None), ("watch", 1)]


def test_rows_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    StreamMeasurement(file, SETTINGS).add(measured("watch", 0.05))
    with pytest.raises(SystemExit, match=r"another segment and tests; choose another --out"):
        StreamMeasurement(file, SETTINGS | {"segment": 5, "tests": 7})


def test_the_tables_say_what_was_measured(tmp_path: Path) -> None:
    rows = StreamMeasurement(tmp_path / "rows.json", SETTINGS)
    rows.add(measured("watch", 0.05))
    rows.add(measured("flat", 0.05))
    lines = table(rows.document)
    assert (
        "| 5.0 % | watch | 20 of 40 | 0.900 | 2.5 % | never | 0 | 1.000 | 1.000 | 50.0 % | 0.0 % | 0.0 % | 1.0 MiB |"
        in lines
    )
    assert "| 5.0 % | flat | 20 of 40 | 0.900 | 2.5 % | – | – | – | 1.000 | 50.0 % | 0.0 % | 0.0 % | 1.0 MiB |" in lines
    assert "onnx-cpu, float32, seed 0" in lines[-1]
    assert products_table(rows.document)[-2:] == ["| gear | 12 | 1 |", "| plate | never | 0 |"]
