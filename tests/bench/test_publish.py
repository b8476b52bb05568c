"""Cells for publication: all rows by one exact revision, on whatever machine and however often it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cell_helpers import Log, around, tiny_cells
from test_runner import stop_half_way

from dinosaur_ad.bench import environment
from dinosaur_ad.bench.runner import run_local

REVISION = environment.REVISION_VARIABLE


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Outside of any repository, where the revision is what the variable says."""
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "environment.py"))
    monkeypatch.setenv(REVISION, "bf0b1bc")


def test_what_was_begun_by_the_same_revision_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = around(tmp_path, publish=True)
    stop_half_way(monkeypatch, where)
    (done,), _ = run_local(tiny_cells(), where, Log())
    assert done.published


@pytest.mark.parametrize("before", ["abcdef1", "bf0b1bc+changes", ""])
def test_what_was_begun_by_another_is_refused(before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REVISION, before)
    stop_half_way(monkeypatch, around(tmp_path))
    monkeypatch.setenv(REVISION, "bf0b1bc")
    _, (failed,) = run_local(tiny_cells(), around(tmp_path, publish=True), Log())
    assert f"rows of an unfinished run by revision {before or 'unknown'}, and this is bf0b1bc; remove" in failed.error
    (done,), _ = run_local(tiny_cells(), around(tmp_path), Log())  # without publication it goes on
    assert not done.published


def test_a_damaged_row_is_made_again_and_not_held_against_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = around(tmp_path, publish=True)
    stop_half_way(monkeypatch, where)
    Path(where.out, tiny_cells()[0].folder, "partial/row-000.npz").write_bytes(b"damaged")
    (done,), _ = run_local(tiny_cells(), where, Log())
    assert done.published


def test_source_that_changes_during_the_run_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    honest = environment.environment

    def changing(device: str) -> dict[str, Any]:
        said.append(device)
        return honest(device) | ({"revision": "bf0b1bc+changes"} if len(said) > 1 else {})

    monkeypatch.setattr("dinosaur_ad.bench.cell.environment", changing)
    where = around(tmp_path, publish=True)
    _, (failed,) = run_local(tiny_cells(), where, Log())
    assert "The source was changed while dinosaur on synthetic-tiny, seed 0 ran" in failed.error
    assert "published" not in json.loads(Path(where.out, tiny_cells()[0].folder, "result.json").read_text())


def test_a_machine_that_does_not_know_its_revision_computes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REVISION)
    log = Log()
    _, (failed,) = run_local(tiny_cells(), around(tmp_path, publish=True), log)
    assert "set DINOSAUR_REVISION to that commit" in failed.error
    assert "learning" not in log
