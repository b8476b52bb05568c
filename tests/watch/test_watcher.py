"""A stream that is told nothing: products are found, proposed, adopted; a kill changes nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from watch_helpers import kinds, opened, write

from detector_helpers import TINY_FAST, TINY_PAPER, product, spoil, tiny
from dinosaur_ad import InputError
from dinosaur_ad.watch.tray import Tray


def test_one_product_is_proposed_adopted_and_then_inspected(tmp_path: Path) -> None:
    pictures = write(tmp_path / "pictures", product(0, 30))
    events = list(opened(tmp_path / "store").watch(pictures, adopt="auto"))
    found = kinds(events)
    found.pop("updated", None)  # if all ten are clearly normal
    assert found == {"unknown": 20, "proposed": 1, "adopted": 1, "inspected": 10}
    assert [each.name for each in opened(tmp_path / "store").tasks()] == ["product-1"]
    assert all(each.reason for each in events if each.kind != "inspected")
    verdicts = [each.inspection.verdict for each in events if each.inspection]
    assert verdicts.count("normal") >= 8


def test_two_products_that_alternate_are_two_proposals(tmp_path: Path) -> None:
    both = [image for pair in zip(product(0, 24), product(1, 24), strict=True) for image in pair]
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", both), adopt="auto"))
    proposed = [each for each in events if each.kind == "proposed"]
    assert len(proposed) == 2
    for each in proposed:  # even and odd pictures are not mixed
        assert len({int(Path(path).stem) % 2 for path in each.pictures}) == 1


def test_a_product_that_returns_is_not_proposed_again(tmp_path: Path) -> None:
    images = [*product(0, 25), *product(1, 25), *product(0, 10, seed=5)]
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", images), adopt="auto"))
    assert kinds(events)["proposed"] == 2
    assert [each.task for each in events if each.kind == "inspected"][-10:] == ["product-1"] * 10


def test_pictures_that_all_differ_are_kept_and_nothing_is_proposed(tmp_path: Path) -> None:
    images = [product(kind, 1)[0] for kind in range(30)]
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", images), adopt="auto"))
    assert kinds(events) == {"unknown": 30}


def test_black_pictures_are_no_product(tmp_path: Path) -> None:
    black = [np.zeros((70, 70, 3), np.uint8)] * 25
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", black), adopt="auto"))
    assert kinds(events) == {"left out": 25}
    assert "blank" in events[0].reason


def test_a_full_tray_loses_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dinosaur_ad.watch.watcher.MOST_LOOSE", 5)
    images = [product(kind, 1)[0] for kind in range(8)]
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", images)))
    assert [Path(each.path).stem for each in events if each.kind == "left out"] == ["0000", "0001", "0002"]
    assert len(list((tmp_path / "store" / "watch" / "pictures").iterdir())) == 5


def test_a_defect_in_the_stream_is_a_suspect(tmp_path: Path) -> None:
    images = product(0, 20)
    images[7] = spoil(images[7])
    events = list(opened(tmp_path / "store").watch(write(tmp_path / "pictures", images)))
    (proposed,) = [each for each in events if each.kind == "proposed"]
    assert [Path(each.path).stem for each in proposed.suspects] == ["0007"]
    assert not any(Path(path).stem == "0007" for path in proposed.pictures)


def test_a_person_adopts_or_dismisses(tmp_path: Path) -> None:
    pictures = write(tmp_path / "pictures", [*product(0, 22), *product(1, 22)])
    detector = opened(tmp_path / "store")
    events = list(detector.watch(pictures))
    assert kinds(events) == {"unknown": 44, "proposed": 2}
    assert [each.proposal for each in detector.proposals()] == [1, 2]
    assert detector.adopt(1, "plate").task == "plate"
    detector.dismiss(2)
    assert detector.proposals() == []
    assert "plate" in detector
    write(pictures, [*product(0, 1, seed=8), *product(1, 1, seed=8)])
    later = list(detector.watch(pictures))
    assert [each.kind for each in later] == ["inspected", "unknown"]
    assert "dismissed" in later[1].reason
    with pytest.raises(InputError, match="no open proposal 2; none is open"):
        detector.adopt(2, "cap")


def test_a_taken_name_leaves_the_proposal_open(tmp_path: Path) -> None:
    detector = opened(tmp_path / "store")
    detector.learn("plate", product(3, 20))
    list(detector.watch(write(tmp_path / "pictures", product(0, 20))))
    with pytest.raises(InputError, match="There is a task 'plate' already"):
        detector.adopt(1, "plate")
    assert [each.proposal for each in detector.proposals()] == [1]


def test_known_products_grow_by_updates_that_undo_takes_back(tmp_path: Path) -> None:
    detector = opened(tmp_path / "store")
    detector.learn("plate", product(0, 20))
    events = list(detector.watch(write(tmp_path / "pictures", product(0, 30, seed=3))))
    updated = [each for each in events if each.kind == "updated"]
    assert updated
    assert all("undo takes it back" in each.reason for each in updated)
    grown = len(detector.store.record("plate").manifest["images"])
    assert grown == 20 + 10 * len(updated)
    assert detector.undo("plate") == "update"


def test_a_product_that_cannot_be_judged_yet_grows_too(tmp_path: Path) -> None:
    """Else it could never be: its threshold lies too high until it knows more pictures."""
    detector = opened(tmp_path / "store")
    detector.learn("plate", product(0, 20))
    detector.set("plate", threshold=1000.0)
    events = list(detector.watch(write(tmp_path / "pictures", product(0, 15, seed=3))))
    assert {each.inspection.verdict for each in events if each.inspection} == {"not ready"}
    assert kinds(events)["updated"] == 1


def test_pictures_that_are_not_clearly_normal_count_but_are_not_learned(tmp_path: Path) -> None:
    detector = opened(tmp_path / "store")
    detector.learn("plate", product(0, 20))
    images = product(0, 12, seed=3)
    stream = [spoil(images[0]), *images]
    events = list(detector.watch(write(tmp_path / "pictures", stream)))
    (updated,) = [each for each in events if each.kind == "updated"]
    assert not any(Path(path).stem == "0000" for path in updated.pictures)
    record = detector.store.record("plate")
    assert len(record.manifest["images"]) == 30
    assert len(detector.store.arrays(record, "bank")["scores"]) > 30


def test_what_cannot_be_read_is_an_event_and_the_rest_goes_on(tmp_path: Path) -> None:
    pictures = write(tmp_path / "pictures", product(0, 2))
    (pictures / "0000.png").write_bytes(b"no picture")
    events = list(opened(tmp_path / "store").watch([pictures / "0000.png", tmp_path / "none", pictures / "0001.png"]))
    assert [each.kind for each in events] == ["left out", "left out", "unknown"]


@pytest.mark.parametrize(
    ("store", "preset", "adopt", "sentence"),
    [
        (None, TINY_FAST, "ask", "in the folder of a store"),
        ("store", TINY_PAPER, "ask", "new products could not be noticed"),
        ("store", TINY_FAST, "maybe", "'ask' or 'auto', got 'maybe'"),
    ],
)
def test_what_cannot_be_watched_is_a_sentence(
    tmp_path: Path, store: str | None, preset: Any, adopt: str, sentence: str
) -> None:
    detector = tiny(tmp_path / store if store else None, preset=preset)
    with pytest.raises(InputError, match=sentence):
        detector.watch(write(tmp_path / "pictures", product(0, 2)), adopt=adopt)


def test_only_one_watch_at_a_time(tmp_path: Path) -> None:
    pictures = write(tmp_path / "pictures", product(0, 3))
    first = opened(tmp_path / "store").watch(pictures)
    next(first)
    with pytest.raises(InputError, match="Another watch"):
        next(opened(tmp_path / "store").watch(pictures))
    first.close()  # type: ignore[attr-defined]
    assert len(list(opened(tmp_path / "store").watch(pictures))) == 2


_CHILD = """
import sys
sys.path.insert(0, sys.argv[3])
from detector_helpers import TINY_FAST, tiny
for event in tiny(sys.argv[1], preset=TINY_FAST).watch(sys.argv[2], adopt="auto"):
    print(event.kind, flush=True)
"""


def _end_state(store: Path) -> tuple[object, ...]:
    detector = opened(store)
    tasks = [(each.name, each.manifest["digests"], detector.threshold(each.name)) for each in detector.tasks()]
    tray = Tray(store)
    decisions = [{key: value for key, value in each.items() if key != "promised_rate"} for each in tray.decisions()]
    loose = [each.origin for each in tray.loose()]
    tray.close()
    return tasks, decisions, loose


def test_killed_at_any_point_it_ends_in_the_same_state(tmp_path: Path) -> None:
    images = [image for pair in zip(product(0, 32), product(1, 32), strict=True) for image in pair]
    pictures = write(tmp_path / "pictures", images)
    list(opened(tmp_path / "whole").watch(pictures, adopt="auto"))
    killed, kills = tmp_path / "killed", 0
    argv = [sys.executable, "-c", _CHILD, str(killed), str(pictures), str(Path(__file__).parents[1])]
    for lines in (3, 20, 19, 1, 1, 4):
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(lines):
                child.stdout.readline()
            time.sleep(0.03 * kills)  # in the middle of a picture, a trial or a learn
            child.send_signal(signal.SIGKILL)
            child.wait()
            kills += 1
    list(opened(killed).watch(pictures, adopt="auto"))
    assert _end_state(killed) == _end_state(tmp_path / "whole")
