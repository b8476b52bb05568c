"""Stores of every earlier format open, answer as they did, are taught further, and are upgraded by the first writer."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from test_store_crash import Died, Faults

from dinosaur_ad import Dinosaur
from dinosaur_ad.core.calibration import alarm_level
from dinosaur_ad.errors import StoreError
from dinosaur_ad.store import Store, store
from dinosaur_ad.store.codec import unseal

FIXTURES = Path(__file__).parent / "fixtures"
sys.path.insert(0, str(FIXTURES))
import make  # noqa: E402

STORES = sorted(path.parent for path in FIXTURES.glob("*/*/store.json"))


@pytest.fixture(params=STORES, ids=lambda path: f"{path.parent.name}-{path.name}")
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = shutil.copytree(request.param, tmp_path / "store")
    (tmp_path / "expected.json").write_bytes(request.param.with_suffix(".json").read_bytes())
    return path


def answers_as_it_did(detector: Dinosaur, path: Path) -> bool:
    """Compare its answers with those of the revision that made the store.

    From unseen normals, the revisions took thresholds by another rule: for few images they lie near today's.
    """
    expected = json.loads((path.parent / "expected.json").read_bytes())
    unseen = detector.preset.calibration == "unseen"
    for answer, before in zip(make.answers(detector), expected, strict=True):
        for key, value in before.items():
            near = 0.25 if unseen and key == "threshold" else 1e-3
            assert answer[key] == (value if isinstance(value, str) else pytest.approx(value, rel=near)), key
        if unseen:
            scores = detector.store.arrays(answer["task"], "bank")["scores"]
            assert answer["threshold"] == alarm_level(scores, detector.preset.false_alarms)
    return True


def sealed(path: Path) -> list[bool]:
    return [unseal(file.read_bytes())[1] for file in (path / "store.json", *sorted(path.glob("tasks/*/task.json")))]


def test_there_are_fixtures_of_every_format() -> None:
    assert {path.parent.name for path in STORES} == {"85da4eb", "fc6d787", "bf0b1bc"}


def test_it_answers_as_it_did_and_reading_changes_nothing(old: Path) -> None:
    before = {path: path.read_bytes() for path in sorted(old.rglob("*")) if path.is_file()}
    detector = Dinosaur(old)
    assert [record.name for record in detector.tasks()] == ["a", "b"]
    assert answers_as_it_did(detector, old)
    for name in detector.store.names():
        detector.store.verify(name)
    assert {path: path.read_bytes() for path in sorted(old.rglob("*")) if path.is_file()} == before


def test_it_is_scored_with_the_one_reading_it_knew(old: Path) -> None:
    detector = Dinosaur(old)
    preset = detector.preset
    assert (preset.readings, preset.exposure, preset.copies, preset.budget) == (("point",), False, 0, None)
    for result in detector.inspect(make.asked()):
        assert result.readings == {"point": result.score}
        assert result.gain is None
        assert result.level > 0
        assert result.worst.distance == pytest.approx(float(result.map.max()), rel=1e-3)
        assert "exposure" not in detector.store.arrays(result.task, "prototype")


def test_it_is_upgraded_by_the_first_writer_and_answers_as_before(old: Path) -> None:
    assert not any(sealed(old))
    reader, detector = Dinosaur(old), Dinosaur(old)
    assert detector.undo("gone") == "forget"
    assert all(sealed(old))
    assert json.loads((old / "store.json").read_bytes())["version"] == 2
    assert set(Store.open(old).names()) == {"a", "b", "gone"}
    detector.forget("gone")
    for each in (reader, detector, Dinosaur(old)):
        assert answers_as_it_did(each, old)
    assert Store.open(old).header == reader.store.header


def test_it_is_taught_further(old: Path) -> None:
    detector = Dinosaur(old)
    learned = detector.update("a", make.product(0, 3, seed=5))
    assert learned.total_images == 11
    detector.learn("c", make.product(3, 5))
    detector.update("b", make.product(1, 2, seed=6))
    again = Dinosaur(old)
    assert [record.name for record in again.tasks()] == ["a", "b", "c"]
    assert [each["verdict"] for each in make.answers(again)] == ["normal", "anomalous"] * 2
    assert [detector.undo(name) for name in ("b", "a")] == ["update", "update"]
    detector.undo("c")
    assert answers_as_it_did(Dinosaur(old), old)


def test_it_is_renamed_undone_and_redone(old: Path) -> None:
    expected = {name: Store.open(old).record(name).id for name in "ab"}
    detector = Dinosaur(old)
    detector.rename("a", "Prüfling 螺丝")
    action = detector.undo("Prüfling 螺丝")
    assert detector.redo("Prüfling 螺丝") == action
    assert [record.id for record in Dinosaur(old).tasks()] == list(expected.values())
    detector.verify("Prüfling 螺丝")
    detector.rename("Prüfling 螺丝", "a")
    assert answers_as_it_did(Dinosaur(old), old)


def test_damage_of_an_old_store_is_mended_too(old: Path) -> None:
    pointer = old / "tasks" / "a" / "task.json"
    pointer.write_bytes(pointer.read_bytes().replace(b'"ordinal": 1', b'"ordinal": x', 1))
    damaged = Store.open(old)
    assert list(damaged.snapshot().damaged) == ["a"]
    assert damaged.undo("a") == "damage"
    assert answers_as_it_did(Dinosaur(old), old)


def test_version_0_of_an_old_pointer_does_not_hide_the_task(old: Path) -> None:
    pointer = old / "tasks" / "a" / "task.json"
    pointer.write_bytes(pointer.read_bytes().replace(b'"version": 2', b'"version": 0', 1))
    damaged = Store.open(old)
    assert damaged.names() == ["b", "a"]
    assert list(damaged.snapshot().damaged) == ["a"]


def content(path: Path) -> tuple[Any, ...]:
    opened = Store.open(path)
    for name in opened.names():
        opened.verify(name)
    records = opened.snapshot().records
    return opened.header, [(name, record.id, record.history) for name, record in records.items()]


def test_a_crash_at_any_step_of_the_upgrade_loses_nothing(tmp_path: Path) -> None:
    template = STORES[-1]
    before, states = content(template), []
    for step in range(1, 200):
        path = shutil.copytree(template, tmp_path / str(step))
        faults = Faults(step, Died())
        try:
            with faults.installed(), Store.open(path).writer():
                pass
        except Died:
            pass
        assert content(path) == before
        states.append(sum(sealed(path)))
        with Store.open(path).writer():
            pass
        assert all(sealed(path))
        assert content(path) == before
        if faults.step < step:
            break
    assert states == sorted(states)
    assert {0, 1, 2, 3, 4} == set(states)


def test_a_full_disk_does_not_stop_what_frees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from test_store_foreign import full_disk

    path = shutil.copytree(STORES[-1], tmp_path / "store")
    opened = Store.open(path)
    with monkeypatch.context() as patch:
        full_disk(patch)
        opened.drop("a")
        assert set(opened.prune()) == {"a", "gone"}
    assert opened.names() == ["b"]
    with opened.writer():
        pass
    assert all(sealed(path))


def test_a_write_error_during_the_upgrade_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shutil.copytree(STORES[-1], tmp_path / "store")
    before = content(path)
    monkeypatch.setattr(store, "seal", lambda document: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(StoreError, match="check the disk"), Store.open(path).writer():
        pass
    assert content(path) == before
