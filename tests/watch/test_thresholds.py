"""Where the threshold of a product comes from in a stream, and when it is taken anew."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from watch_helpers import Pixels, kinds, opened, write

from detector_helpers import product, spoil
from dinosaur_ad.watch import threshold_keeping, watcher
from dinosaur_ad.watch.threshold_keeping import ThresholdKeeper
from dinosaur_ad.watch.tray import Tray


def noisier(images: list[Pixels], noise: float) -> list[Pixels]:
    return [
        np.clip(each + np.random.default_rng(n).normal(0, noise, each.shape), 0, 255).astype(np.uint8)
        for n, each in enumerate(images)
    ]


def kept_out(store: Path, task: str = "product-1") -> list[Path]:
    tray = Tray(store)
    found = tray.kept_out(task)
    tray.close()
    return found


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threshold_keeping, "KEPT_OUT_FROM", 30)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "GROWN", 40)


def changing(before: int = 60, after: int = 160, noise: float = 2.5) -> list[Pixels]:
    images = product(0, before + after, seed=2)
    return [*images[:before], *noisier(images[before:], noise)]


def test_every_third_picture_is_kept_out_and_never_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threshold_keeping, "KEPT_OUT", 8)
    pictures = write(tmp_path / "pictures", product(0, 100))
    list(opened(tmp_path / "store").watch(pictures, adopt="auto"))
    files = kept_out(tmp_path / "store")
    assert len(files) == 8  # the newest
    assert all(file.is_file() for file in files)
    assert not {file.name for file in files} & {
        Path(image).name for image in opened(tmp_path / "store").store.record("product-1").manifest["images"]
    }
    record = opened(tmp_path / "store").store.record("product-1")
    scored = opened(tmp_path / "store").store.arrays(record, "bank")["scored"]
    assert 0 < np.count_nonzero(np.asarray(scored) == -2) <= 8


def test_to_ask_whether_a_picture_is_kept_out_notes_nothing(tmp_path: Path) -> None:
    detector = opened(tmp_path / "store")
    detector.learn("plate", product(0, 30))
    (result,) = detector.inspect(product(0, 1, seed=9))
    tray = Tray(tmp_path / "store")
    keeper, kept_out = ThresholdKeeper(detector, tray), []
    for _ in range(6):
        with tray.change():
            keeper.note(result)
        kept_out.append([keeper.is_kept_out("plate") for _ in range(4)])
    assert kept_out == [[False] * 4, [False] * 4, [True] * 4] * 2
    assert tray.judged_scores("plate") == [result.score] * 6
    tray.close()


def test_good_parts_that_come_to_score_higher_raise_the_threshold(short: None, tmp_path: Path) -> None:
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", changing()), adopt="auto"))
    (first, *_) = [each for each in events if each.kind == "recalibrated"]
    assert "undo takes it back" in first.reason
    assert first.task == "product-1"


def test_a_run_of_defects_does_not_raise_the_threshold(short: None, tmp_path: Path) -> None:
    images = product(0, 150, seed=2)
    stream = [*images[:110], *(spoil(each) for each in images[110:140]), *images[140:]]
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", stream), adopt="auto"))
    assert "recalibrated" not in kinds(events)
    verdicts = [each.inspection.verdict for each in events if each.inspection]
    assert verdicts[-40:-10].count("anomalous") == 30


def test_killed_while_the_threshold_is_taken_anew_it_ends_in_the_same_state(
    short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "CHANGED", 1e300)  # that evidence begins anew after a kill
    pictures = write(tmp_path / "pictures", changing())

    def end_state(store: Path) -> tuple[object, ...]:
        tray, detector = Tray(store), opened(store)
        scores, outdated = tray.judged_scores("product-1"), tray.outdated_tasks()
        decisions = [(each["event"], each["reason"]) for each in tray.decisions()]
        tray.close()
        return detector.threshold("product-1"), scores, outdated, decisions, [path.name for path in kept_out(store)]

    list(opened(tmp_path / "whole").watch(pictures, adopt="auto"))
    taken, kills = Tray.threshold_taken, []

    def killed(tray: Tray, task: str) -> None:
        if tray.outdated_tasks() and not kills:
            kills.append(task)
            raise KeyboardInterrupt
        taken(tray, task)

    monkeypatch.setattr(Tray, "threshold_taken", killed)
    with pytest.raises(KeyboardInterrupt):
        list(opened(tmp_path / "killed").watch(pictures, adopt="auto"))
    list(opened(tmp_path / "killed").watch(pictures, adopt="auto"))
    assert kills == ["product-1"]
    assert end_state(tmp_path / "killed") == end_state(tmp_path / "whole")


def test_what_an_earlier_version_kept_is_opened(tmp_path: Path) -> None:
    pictures = write(tmp_path / "pictures", product(0, 60))
    early = sorted(pictures.iterdir())[:40]
    list(opened(tmp_path / "store").watch(early, adopt="auto"))
    database = sqlite3.connect(tmp_path / "store" / "watch" / "watch.sqlite")
    for table in ("kept_out", "judged", "thresholds"):
        database.execute(f"DROP TABLE {table}")
    database.commit()
    database.close()
    events = list(opened(tmp_path / "store").watch(pictures, adopt="auto"))
    assert kinds(events)["inspected"] == 20
    assert kept_out(tmp_path / "store")


def test_a_threshold_that_a_person_took_from_other_pictures_is_not_mixed_with_those_from_before(
    tmp_path: Path,
) -> None:
    pictures = write(tmp_path / "pictures", product(0, 70))
    list(opened(tmp_path / "store").watch(pictures, adopt="auto"))
    before = {path.name for path in kept_out(tmp_path / "store")}
    assert before
    detector = opened(tmp_path / "store")
    detector.recalibrate("product-1", product(0, 30, seed=9), force=True)
    write(pictures, product(0, 30, seed=8))
    assert "updated" in kinds(list(detector.watch(pictures, adopt="auto")))
    assert not before & {path.name for path in kept_out(tmp_path / "store")}
