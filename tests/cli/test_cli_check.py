"""The verbs recalibrate, defect and check, what learn promises, and the notice that good parts look different."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import NEW_STORE, assert_refused, make_defect, make_normals
from PIL import Image

from dinosaur_ad import Dinosaur
from dinosaur_ad.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve more normal images of the product."""
    folder = tmp_path_factory.mktemp("later") / "good"
    source = make_normals(folder.parent / "all", 40)
    folder.mkdir()
    for path in sorted(source.iterdir())[-12:]:
        path.rename(folder / path.name)
    return folder


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory, later: Path) -> Path:
    """Bad images of two kinds, one of which nobody sees."""
    root = tmp_path_factory.mktemp("bad")
    for kind in ("square", "faint"):
        (root / kind).mkdir()
    for number, path in enumerate(sorted(later.iterdir())[:4]):
        make_defect(path, root / "square" / f"{number}.png")
        pixels = np.array(Image.open(path))
        pixels[0, 0] ^= 1
        Image.fromarray(pixels).save(root / "faint" / f"{number}.png")
    return root


# --- the promise ---


def test_learn_says_what_it_can_promise(capsys: Capture, tmp_path: Path, normals: Path) -> None:
    twenty = [str(path) for path in sorted(normals.iterdir())[:20]]
    assert main(["learn", "screw", *twenty, "--store", str(tmp_path / "new"), *NEW_STORE]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[1:] == [
        "with 20 images: at most 14 % false alarms with 95 % confidence; for 2.5 % take 119",
        "sees defects from about 14 x 14 of 70 x 70 pixels",
        *lines[3:],
    ]
    assert "extrapolated" not in out + err


# --- defects ---


def test_defects_are_kept_listed_and_removed(capsys: Capture, store: Path, bad: Path) -> None:
    at = ["--store", str(store)]
    assert main(["defect", "screw", "--list", *at]) == 0
    assert "no defects are kept with 'screw' yet" in capsys.readouterr().err
    assert main(["defect", "screw", str(bad / "square"), *at]) == 0
    assert capsys.readouterr().out == "'screw' keeps 4 new, 4 defects in all, inspected again after every change\n"
    assert main(["defect", "screw", "--list", *at]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0].split() == ["image", "kept", "since"]
    assert listed[1].startswith(str(bad / "square" / "0.png"))
    assert main(["defect", "screw", "--remove", "0.png", "--remove", "1.png", *at]) == 0
    assert "keeps 2 defects in all" in capsys.readouterr().out
    assert main(["undo", "screw", *at]) == 0
    assert capsys.readouterr().out.startswith("took back the last defect of 'screw'")


def test_a_change_that_lets_defects_pass_is_a_warning(capsys: Capture, store: Path, bad: Path) -> None:
    at = ["--store", str(store)]
    assert main(["defect", "screw", str(bad / "square"), *at]) == 0
    assert main(["update", "screw", str(bad / "square"), "--force", *at]) == 0
    err = capsys.readouterr().err
    assert "warning: 4 confirmed defects of 'screw' would pass now: " in err
    assert "3 more" not in err
    assert " and 1 more; undo takes the change back" in err


def test_defects_that_cannot_be_kept_are_refused(capsys: Capture, store: Path, later: Path, bad: Path) -> None:
    at = ["--store", str(store)]
    good = str(sorted(later.iterdir())[0])
    assert_refused(capsys, ["defect", "screw", good, "--list", *at], "one of the three", store)
    assert_refused(capsys, ["defect", "screw", *at], "one of the three", store)
    assert_refused(capsys, ["defect", "screw", "--remove", "x.png", *at], "no defect 'x.png'", store)
    capsys.readouterr()
    assert main(["defect", "screw", good, *at]) == 2
    assert f"'{good}' is called normal by 'screw'" in capsys.readouterr().err
    assert main(["defect", "screw", good, "--force", *at]) == 0


# --- recalibrate ---


def test_recalibrate_says_threshold_and_promise(capsys: Capture, store: Path, later: Path) -> None:
    at = ["--store", str(store)]
    assert main(["recalibrate", "screw", str(later), *at]) == 0
    out, err = capsys.readouterr()
    first, promise, smallest = out.splitlines()[:3]
    assert first.startswith("recalibrated 'screw' with 12 images in ")
    assert " -> " in first
    assert "times that of before on its scale" in first
    assert promise.startswith("with 12 images: at most 22 % false alarms with 95 % confidence")
    assert smallest.startswith("sees defects from about 14 x 14")
    assert "preset tiny" in err
    assert main(["undo", "screw", *at]) == 0
    assert capsys.readouterr().out.startswith("took back the last recalibrate of 'screw'")


def test_recalibrate_refuses_another_product(capsys: Capture, store: Path, others: Path) -> None:
    argv = ["recalibrate", "screw", *(str(path) for path in sorted(others.iterdir())[:6]), "--store", str(store)]
    before = Dinosaur(store).threshold("screw")
    assert main(argv) == 2
    assert "not belong there" in capsys.readouterr().err
    assert Dinosaur(store).threshold("screw") == before


# --- check ---


def test_check_in_words(capsys: Capture, store: Path, later: Path, bad: Path) -> None:
    assert main(["check", "screw", "--good", str(later), "--bad", str(bad), "--store", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("screw: threshold ")
    assert lines[1].startswith("missed:        4 of 8, 50 % (16 % to 84 %) of the bad images")
    assert lines[2] == "false alarms:  1 of 12, 8.3 % (0.21 % to 38 %) of the good images"
    assert lines[3].startswith("AUROC:         0.")
    assert lines[4].startswith(f"  faint: missed 4 of 4; lowest scores: {bad / 'faint'}")
    assert lines[5] == "  square: missed 0 of 4"
    assert lines[6].startswith("balanced:      ")
    assert lines[7].startswith("promised:      at most 12 % false alarms with 95 % confidence; half of that from ")


def test_check_as_json(capsys: Capture, store: Path, later: Path, bad: Path) -> None:
    argv = ["check", "screw", "--good", str(later), "--bad", str(bad), "--store", str(store), "--format", "json"]
    assert main(argv) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["task"] == "screw"
    assert (checked["misses"]["count"], checked["misses"]["total"]) == (4, 8)
    assert [kind["name"] for kind in checked["kinds"]] == ["faint", "square"]
    assert checked["rejected"] == []


def test_check_leaves_out_what_was_learned_and_what_cannot_be_read(
    capsys: Capture, store: Path, normals: Path, later: Path, bad: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    good = [str(later), str(normals), str(tmp_path / "broken.png")]
    assert main(["check", "screw", "--good", *good, "--bad", str(bad), "--store", str(store)]) == 3
    out, err = capsys.readouterr()
    assert "left out: 24 images that the task has learned" in err
    assert "skipped: " in err
    assert "0 of 12" in out


def test_check_refuses_wrong_input(capsys: Capture, store: Path, later: Path, bad: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    at = ["--store", str(store)]
    assert main(["check", "screw", "--good", str(later), "--bad", str(later), *at]) == 2
    assert "among the good images and among the bad ones" in capsys.readouterr().err
    assert_refused(capsys, ["check", "screw", "--good", str(empty), "--bad", str(bad), *at], "holds no images", store)
    assert_refused(capsys, ["check", "screw", "--good", str(later), "--bad", str(empty), *at], "holds no images", store)
    assert_refused(capsys, ["check", "nut", "--good", str(later), "--bad", str(bad), *at], "no task 'nut'", store)


# --- shift ---


def test_good_parts_that_look_different_are_said_once(
    capsys: Capture, store: Path, normals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector = Dinosaur(store)
    real = detector.inspect(normals / "001.png")
    scores = np.sort(detector._banks.bank(detector.store, detector.store.record("screw")).scores)
    shifted = [replace(real, score=float(score)) for score in np.linspace(scores[-5], scores[-1], 60)]

    monkeypatch.setattr(Dinosaur, "stream", lambda *_, **__: iter(shifted))
    assert main(["inspect", str(normals), "--store", str(store)]) == 0
    warning = capsys.readouterr().err.splitlines()[-1]
    assert warning.startswith("warning: the good parts of 'screw' look different from those learned (scores higher by")
    assert warning.endswith("dinosaur recalibrate screw IMAGES")
    monkeypatch.setattr(Dinosaur, "stream", lambda *_, **__: iter([replace(real, score=float(scores[12]))] * 3))
    assert main(["inspect", str(normals), "--store", str(store)]) == 0
    assert "look different" not in capsys.readouterr().err


def test_images_that_differ_all_over_are_said_although_all_are_flagged(
    capsys: Capture, store: Path, normals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Dinosaur(store).inspect(normals / "001.png")
    lamp = [replace(real, score=9.0, verdict="anomalous", level_ratio=1.6)] * 20
    monkeypatch.setattr(Dinosaur, "stream", lambda *_, **__: iter(lamp))
    assert main(["inspect", str(normals), "--store", str(store)]) == 0
    warning = capsys.readouterr().err.splitlines()[-1]
    assert warning.startswith("warning: nearly all images of 'screw' differ from those learned all over")
    assert warning.endswith("and the parts are good, teach it with: dinosaur recalibrate screw IMAGES")


def test_a_threshold_set_by_hand_is_checked_and_called_so(capsys: Capture, store: Path, later: Path, bad: Path) -> None:
    assert main(["set", "screw", "--threshold", "0.9", "--store", str(store)]) == 0
    assert main(["check", "screw", "--good", str(later), "--bad", str(bad), "--store", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert lines[0] == "screw: threshold 0.900, set by hand"
    assert not any("half of that" in line for line in lines)
