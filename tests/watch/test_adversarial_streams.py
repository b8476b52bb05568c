"""Streams that are made to go wrong: one product for ever, nothing twice, black, a long absence, ends at any point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from watch_helpers import kinds, opened, write

from detector_helpers import product
from dinosaur_ad.watch import regrouping, watcher
from dinosaur_ad.watch.tray import Tray
from dinosaur_ad.watch.watch_event import WatchEvent


def state(store: Path) -> tuple[object, ...]:
    """All that a watch has decided and kept, without the dates of versions."""
    detector, tray = opened(store), Tray(store)
    tasks = {each.name: (each.manifest["digests"], detector.threshold(each.name)) for each in detector.tasks()}
    kept = [each.origin for each in tray.loose()]
    recent = {name: [each.origin for each in tray.recent(name)] for name in tasks}
    decisions = tray.decisions()
    tray.close()
    files = sorted(path.name for path in (store / "watch" / "pictures").iterdir())
    return tasks, kept, recent, decisions, files


def test_one_product_for_ever_keeps_a_bounded_number_of_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "GROWN", 30)
    monkeypatch.setattr(regrouping, "RECENT", 5)
    monkeypatch.setattr(regrouping, "EVERY", 1)
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", product(0, 80)), adopt="auto"))
    found = kinds(events)
    assert (found["proposed"], found["adopted"]) == (1, 1)
    assert not {"merge proposed", "split proposed", "refused"} & set(found)
    tasks, loose, recent, _, files = state(tmp_path / "store")
    assert loose == []
    assert len(recent["product-1"]) == 5  # type: ignore[index]
    assert len(files) <= 20 + 30 + watcher.AT_ONCE  # type: ignore[arg-type]
    assert len(tasks) == 1  # type: ignore[arg-type]


def test_a_product_returns_after_a_long_time_in_which_nothing_was_seen_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "MOST_LOOSE", 25)
    others = [product(kind, 1)[0] for kind in range(10, 50)]
    stream = [*product(0, 21), *others, *product(0, 5, seed=9)]
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", stream), adopt="auto"))
    assert kinds(events)["proposed"] == 1
    assert [each.task for each in events if each.kind == "inspected"][-5:] == ["product-1"] * 5
    assert len(opened(tmp_path / "store").proposals()) == 0


def test_black_pictures_between_those_of_a_product_change_nothing(tmp_path: Path) -> None:
    black = np.zeros((70, 70, 3), np.uint8)
    stream = [image for good in product(0, 22) for image in (good, black)]
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", stream), adopt="auto"))
    assert kinds(events)["proposed"] == 1
    (proposed,) = [each for each in events if each.kind == "proposed"]
    assert all(int(Path(path).stem) % 2 == 0 for path in proposed.pictures)
    passed = [each.path for each in events if each.inspection and each.inspection.verdict == "normal"]
    assert all(int(Path(path).stem) % 2 == 0 for path in passed)


def test_ended_after_any_event_it_goes_on_to_the_same_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two products alternate, one is learned as two tasks: proposals, updates and a merge proposal all occur."""
    monkeypatch.setattr(regrouping, "EVERY", 1)
    level = [np.clip(image * 0.93, 0, 255).astype(np.uint8) for image in product(0, 26, seed=6)]
    stream = [
        image for three in zip(product(0, 26, seed=5), level, product(1, 26, seed=7), strict=True) for image in three
    ]
    pictures = write(tmp_path / "pictures", stream)
    learned = (
        write(tmp_path / "learned", product(0, 20)),
        [np.clip(image * 0.93, 0, 255).astype(np.uint8) for image in product(0, 20, seed=1)],
    )

    def begin(store: Path) -> None:
        detector = opened(store)
        detector.learn("tile-1", learned[0])
        detector.learn("tile-2", learned[1], force=True)

    begin(tmp_path / "whole")
    whole: list[WatchEvent] = list(opened(tmp_path / "whole").watch(pictures, adopt="auto"))
    assert {"proposed", "adopted", "merge proposed"} <= set(kinds(whole))
    begin(tmp_path / "ended")
    last = [n for n, each in enumerate(whole) if each.kind in ("updated", "proposed", "adopted", "merge proposed")]
    seen = 0
    for end in last:
        events = opened(tmp_path / "ended").watch(pictures, adopt="auto")
        while seen <= end and next(events, None) is not None:
            seen += 1
        events.close()  # type: ignore[attr-defined]
    list(opened(tmp_path / "ended").watch(pictures, adopt="auto"))
    assert state(tmp_path / "ended") == state(tmp_path / "whole")


def test_a_tray_of_strangers_is_not_searched_again_for_pictures_of_known_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = []
    find = watcher.groups
    monkeypatch.setattr(watcher, "groups", lambda *given: searched.append(1) or find(*given))  # type: ignore[func-returns-value]
    strangers = [product(kind, 1)[0] for kind in range(10, 32)]
    stream = [*strangers, *product(0, 36)]
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", stream), adopt="auto"))
    found = kinds(events)
    assert found["proposed"] == 1
    assert found["inspected"] > 10
    assert len(searched) <= found["unknown"] - watcher.ENOUGH + 2
