"""What a person decides about proposals, and pictures that somebody else judged to be of no known product."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from watch_helpers import kinds, opened, write

from detector_helpers import product
from dinosaur_ad import Dinosaur, InputError
from dinosaur_ad.watch.deciding import (
    adopt_proposal,
    ask_again,
    begin_adoption,
    dismiss_proposal,
    finish_adoption,
    open_proposals,
    opened_tray,
    undo_merge,
)
from dinosaur_ad.watch.watch_event import WatchEvent
from dinosaur_ad.watch.watcher import GatherLimits


def gathered(detector: Dinosaur, pictures: Path, limits: GatherLimits | None = None) -> list[WatchEvent]:
    """What follows from pictures that another program judged."""
    watcher, found = detector._watcher("ask", limits), []
    with watcher.alone():
        for path in sorted(pictures.iterdir()):
            key = hashlib.sha256(path.name.encode()).digest()[:16]
            found += watcher.gather(path, key, "it shows none of the products", f"part-{path.stem}")
    return found


def test_what_others_judged_becomes_a_proposal_once(tmp_path: Path) -> None:
    detector, pictures = opened(tmp_path / "store"), write(tmp_path / "pictures", product(0, 22))
    events = gathered(detector, pictures)
    assert kinds(events) == {"unknown": 22, "proposed": 1}
    assert events[0].path == "part-0000"
    assert gathered(detector, pictures) == []
    assert len(detector.tasks()) == 0, "it only proposes"
    with opened_tray(tmp_path / "store") as tray:
        (proposal,) = tray.proposals("open")
        assert len(tray.pictures_of(proposal.id)) == 22
    assert proposal.details["since"]
    assert 0 < proposal.details["promised_rate"] < 1


def test_the_limits_hold(tmp_path: Path) -> None:
    detector = opened(tmp_path / "store")
    images = [*product(0, 10), *product(1, 18)]
    found = gathered(detector, write(tmp_path / "pictures", images), GatherLimits(enough=10, loose=15, proposals=1))
    assert kinds(found) == {"unknown": 28, "proposed": 1, "left out": 3}
    with opened_tray(tmp_path / "store") as tray:
        assert len(tray.loose()) == 15


def test_a_group_that_cannot_be_learned_is_not_tried_for_every_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector, tried = opened(tmp_path / "store"), []

    def nothing(_trial: object, _name: str, pictures: list[object], *_: object) -> tuple[None, dict[int, object]]:
        from dinosaur_ad.watch.adopting import TriedProduct

        tried.append(len(pictures))
        return TriedProduct(None, {})

    monkeypatch.setattr("dinosaur_ad.watch.watcher.learn_without_suspects", nothing)
    others = [product(kind, 1)[0] for kind in range(3, 9)]
    gathered(detector, write(tmp_path / "pictures", [*product(0, 20), *others, *product(0, 5, seed=9)]))
    assert tried == [20, 25]


def test_pictures_that_are_gone_are_said_and_nothing_is_learned(tmp_path: Path) -> None:
    detector = opened(tmp_path / "store")
    gathered(detector, write(tmp_path / "pictures", product(0, 20)))
    for file in list((tmp_path / "store" / "watch" / "pictures").iterdir())[:3]:
        file.unlink()
    with pytest.raises(InputError, match="only 17 of the 20 pictures of proposal 1 are still there"):
        detector.adopt(1, "plate")
    assert [each.proposal for each in open_proposals(tmp_path / "store")] == [1]


def test_a_dismissed_product_can_be_asked_about_again(tmp_path: Path) -> None:
    detector, pictures = opened(tmp_path / "store"), tmp_path / "pictures"
    gathered(detector, write(pictures, product(0, 20)))
    dismiss_proposal(tmp_path / "store", 1)
    with pytest.raises(InputError, match="no open proposal 1"):
        detector.adopt(1, "plate")
    assert kinds(gathered(detector, write(pictures, product(0, 20, seed=4)))) == {"unknown": 20}
    ask_again(tmp_path / "store", 1)
    assert kinds(gathered(detector, write(pictures, product(0, 20, seed=5)))) == {"unknown": 20, "proposed": 1}
    with pytest.raises(InputError, match="Proposal 1 is not dismissed"):
        ask_again(tmp_path / "store", 1)


def test_learning_that_fails_leaves_the_proposal_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = opened(tmp_path / "store")
    gathered(detector, write(tmp_path / "pictures", product(0, 20)))

    def full(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(detector, "learn", full)
    with pytest.raises(OSError, match="disk full"):
        adopt_proposal(detector, tmp_path / "store", 1, "plate")
    monkeypatch.undo()
    assert adopt_proposal(detector, tmp_path / "store", 1, "plate").task == "plate"


def test_an_adoption_that_was_killed_is_finished(tmp_path: Path) -> None:
    detector = opened(tmp_path / "store")
    gathered(detector, write(tmp_path / "pictures", product(0, 20)))
    begin_adoption(detector, tmp_path / "store", 1, "plate")
    seen: list[tuple[int, int | None]] = []
    again = opened(tmp_path / "store")
    event = finish_adoption(again, tmp_path / "store", 1, lambda done, total: seen.append((done, total)))
    assert event.learned is not None
    assert event.learned.images == 20
    assert seen[-1][0] == seen[-1][1]
    assert "plate" in again


def test_what_was_learned_before_a_kill_is_not_learned_again_and_another_product_is_left_alone(tmp_path: Path) -> None:
    detector, place = opened(tmp_path / "store"), tmp_path / "store"
    gathered(detector, write(tmp_path / "pictures", product(0, 20)))
    begin_adoption(detector, place, 1, "plate")
    with opened_tray(place) as tray:
        detector.learn("plate", [each.file for each in tray.pictures_of(1)])
    event = finish_adoption(detector, place, 1)
    assert (event.task, event.learned) == ("plate", None)

    gathered(detector, write(tmp_path / "pictures", product(5, 20)))
    begin_adoption(detector, place, 2, "gear")
    detector.learn("gear", product(6, 20), force=True)
    with pytest.raises(InputError, match="There is a task 'gear' already"):
        finish_adoption(detector, place, 2)
    assert [each.proposal for each in open_proposals(place)] == [2]


@pytest.mark.parametrize("name", ["tile", "tile-1"])
def test_a_merge_is_taken_back(tmp_path: Path, name: str) -> None:
    detector, place = opened(tmp_path / "store"), tmp_path / "store"
    for number, seed in ((1, 2), (2, 3)):
        detector.learn(f"tile-{number}", write(tmp_path / f"tile-{number}", product(0, 20, seed=seed)), force=True)
    before = {each.name: each.id for each in detector.tasks()}
    with opened_tray(place) as tray:
        tray.propose([], [], {"kind": "merge", "tasks": ["tile-1", "tile-2"], "reason": "they look like one"})
    merged = adopt_proposal(detector, place, 1, name)
    assert merged.learned is not None
    assert [each.name for each in detector.tasks()] == [name]
    undo_merge(detector, place, 1)
    assert {each.name: each.id for each in detector.tasks()} == before
    with pytest.raises(InputError, match="no merge that could be taken back"):
        undo_merge(detector, place, 1)
    ask_again(place, 1)
    assert [each.kind for each in open_proposals(place)] == ["merge proposed"]


def test_a_merge_that_was_changed_since_stays(tmp_path: Path) -> None:
    detector, place = opened(tmp_path / "store"), tmp_path / "store"
    for number, seed in ((1, 2), (2, 3)):
        detector.learn(f"tile-{number}", write(tmp_path / f"tile-{number}", product(0, 20, seed=seed)), force=True)
    with opened_tray(place) as tray:
        tray.propose([], [], {"kind": "merge", "tasks": ["tile-1", "tile-2"], "reason": "they look like one"})
    adopt_proposal(detector, place, 1, "tile")
    detector.set("tile", sensitivity=8)
    with pytest.raises(InputError, match="'tile' was changed since it was merged"):
        undo_merge(detector, place, 1)
    detector.undo("tile")
    detector.learn("tile-2", write(tmp_path / "other", product(5, 20)), force=True)
    with pytest.raises(InputError, match="There is a task 'tile-2' again"):
        undo_merge(detector, place, 1)
    assert "tile" in detector
