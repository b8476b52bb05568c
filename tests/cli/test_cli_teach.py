from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import NEW_STORE, assert_refused, make_normals, tree_hash
from PIL import Image

import dinosaur_ad.basis
from dinosaur_ad._text import columns
from dinosaur_ad.cli import main
from dinosaur_ad.cli._suspects import shown_if_refused
from dinosaur_ad.errors import TeachingRefusedError

Capture = pytest.CaptureFixture[str]


def listed(capsys: Capture, store: Path) -> dict[str, dict[str, object]]:
    capsys.readouterr()
    assert main(["tasks", "--store", str(store), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {row["name"]: row for row in rows}


def test_learn_says_what_it_did_and_who_encoded(capsys: Capture, tmp_path: Path, normals: Path) -> None:
    argv = ["learn", "screw", str(normals), "--store", str(tmp_path / "new"), *NEW_STORE]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    number = r"[\d.]+"
    line = rf"learned 'screw' from 24 images in {number} s: threshold {number} \(at most 2.5 % false alarms asked\), "
    first, promise, smallest, position, kept = out.splitlines()
    assert re.fullmatch(rf"{line}{number} MB", first)
    assert promise == "with 24 images: at most 12 % false alarms with 95 % confidence; for 2.5 % take 119"
    assert smallest == "sees defects from about 14 x 14 of 70 x 70 pixels"
    assert position.startswith("position: aligned (found out: most parts lie within 0.")
    assert err == "tiny-dinov2 on onnx-cpu, float32, preset tiny, seed 0\n"
    assert main([*argv[:5], "--replace", "--verbose"]) == 0
    *_, memory, seconds = capsys.readouterr().out.splitlines()
    assert memory == kept == "memory: 20 normal patches kept for every place in the image, int8, within 8.00 MB"
    assert all(step in seconds for step in ("encode", "memory", "calibrate", "store"))


@pytest.mark.parametrize(
    ("option", "name", "sentence"),
    [
        ("--preset", "papr", "There is no preset 'papr', did you mean paper?"),
        ("--preset", "zzz", "There is no preset 'zzz'; choose one of: default, fast, best, paper"),
        ("--encoder", "dinov2-smal", "There is no encoder 'dinov2-smal', did you mean dinov2-small?"),
    ],
)
def test_a_misspelt_preset_or_encoder_is_one_sentence(
    capsys: Capture, tmp_path: Path, normals: Path, option: str, name: str, sentence: str
) -> None:
    assert main(["learn", "screw", str(normals), "--store", str(tmp_path / "new"), option, name]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["Deckel groß", "螺丝 🔩", "Pru\u0308fling"])
def test_a_name_may_have_spaces_and_any_letters(capsys: Capture, store: Path, normals: Path, name: str) -> None:
    at = ["--store", str(store)]
    assert main(["rename", "screw", name, *at]) == 0
    assert main(["inspect", str(normals / "001.png"), "--task", name, *at, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["task"] == unicodedata.normalize("NFC", name)
    assert main(["forget", name, *at]) == 0
    assert main(["undo", name, *at]) == 0
    capsys.readouterr()
    assert main(["tasks", *at]) == 0
    assert len({columns(line[: line.index("0.")].rstrip()) for line in capsys.readouterr().out.splitlines()[1:]}) == 1


def test_few_images_are_learned_with_a_warning(capsys: Capture, tmp_path: Path, normals: Path) -> None:
    seven = [str(normals / f"{index:03d}.png") for index in range(7)]
    assert main(["learn", "screw", *seven, "--store", str(tmp_path / "new"), *NEW_STORE]) == 0
    out, err = capsys.readouterr()
    assert "only 7 images: 20 or more are recommended" in err
    assert "with 7 images: at most 35 % false alarms with 95 % confidence; for 2.5 % take 119" in out


def test_a_quoted_glob_is_expanded(capsys: Capture, tmp_path: Path, normals: Path) -> None:
    assert main(["learn", "screw", f"{normals}/00?.png", "--store", str(tmp_path / "new"), *NEW_STORE]) == 0
    assert "from 10 images" in capsys.readouterr().out


def test_images_of_different_sizes_are_learned_together(capsys: Capture, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for index, (height, width) in enumerate([(40, 70), (70, 40), (128, 128), (31, 31)]):
        Image.fromarray(rng.integers(0, 255, (height, width, 3), np.uint8)).save(tmp_path / f"{index}.png")
    assert main(["learn", "mixed", str(tmp_path), "--store", str(tmp_path / "new"), *NEW_STORE]) == 0
    assert "from 4 images" in capsys.readouterr().out


def test_a_bad_file_among_good_ones_is_reported_and_skipped(capsys: Capture, tmp_path: Path) -> None:
    folder, store = make_normals(tmp_path / "images", 5), tmp_path / "new"
    (folder / "empty.png").touch()
    whole = (folder / "000.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "text.png").write_text("not an image")
    assert main(["learn", "screw", str(folder), "--store", str(store), *NEW_STORE]) == 3
    out, err = capsys.readouterr()
    assert "from 5 images" in out
    skipped = [line for line in err.splitlines() if line.startswith("skipped: ")]
    assert [name in line for name, line in zip(("cut", "empty", "text"), skipped, strict=True)] == [True] * 3
    assert listed(capsys, store)["screw"]["images"] == 5


def test_one_image_is_not_images(capsys: Capture, tmp_path: Path, store: Path) -> None:
    one = make_normals(tmp_path / "one", 1, pattern=2)
    assert main(["update", "screw", str(one), "--store", str(store), "--force"]) == 0
    assert capsys.readouterr().out.startswith("updated 'screw' with 1 image, now 25, in ")


def test_update_adds_images_and_undo_takes_them_back(capsys: Capture, tmp_path: Path, store: Path) -> None:
    more = make_normals(tmp_path / "more", 6, pattern=2)
    assert main(["update", "screw", str(more), "--store", str(store), "--force"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("updated 'screw' with 6 images, now 30, in ")
    assert "preset tiny" in err
    assert listed(capsys, store)["screw"]["images"] == 30
    assert main(["undo", "screw", "--store", str(store)]) == 0
    assert capsys.readouterr().out == (
        "took back the last update of 'screw'; redo makes it again; "
        "undo can still take back: learn (which removes the task)\n"
    )
    assert listed(capsys, store)["screw"]["images"] == 24


def test_forget_and_undo(capsys: Capture, store: Path) -> None:
    assert main(["forget", "screw", "--store", str(store)]) == 0
    assert list(listed(capsys, store)) == ["washer"]
    assert main(["undo", "screw", "--store", str(store)]) == 0
    assert list(listed(capsys, store)) == ["screw", "washer"]


def test_replace_learns_a_task_anew(capsys: Capture, store: Path, others: Path) -> None:
    assert main(["learn", "screw", str(others), "--store", str(store), "--replace"]) == 0
    assert listed(capsys, store)["screw"]["images"] == 20


def test_tasks_prints_a_table_without_an_encoder(capsys: Capture, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the encoder was loaded")

    monkeypatch.setattr(dinosaur_ad.basis, "load_encoder", refuse)
    assert main(["tasks", "--store", str(store), "--verify"]) == 0
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "images", "MB", "threshold", "learned", "last", "change"]
    assert first.split()[:2] == ["screw", "24"]
    assert second.split()[:2] == ["washer", "20"]
    assert " learn 20" in first  # the last change and its date


def test_prune_frees_the_space_of_forgotten_tasks_and_of_nothing_else(capsys: Capture, store: Path) -> None:
    assert main(["forget", "screw", "--store", str(store)]) == 0
    assert (store / "tasks" / "screw").exists()  # undo would bring it back
    capsys.readouterr()
    assert main(["tasks", "--store", str(store), "--prune", "--verify"]) == 0
    out, err = capsys.readouterr()
    assert "removed for good: screw" in err
    assert [line.split()[0] for line in out.splitlines()] == ["name", "washer"]
    assert not (store / "tasks" / "screw").exists()
    assert main(["undo", "screw", "--store", str(store)]) == 2


def test_the_threshold_listed_is_the_one_used(capsys: Capture, store: Path, normals: Path) -> None:
    threshold = listed(capsys, store)["screw"]["threshold"]
    assert main(["inspect", str(normals / "000.png"), "--store", str(store), "--task", "screw", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["threshold"] == threshold


def test_a_damaged_task_is_reported_and_the_rest_are_listed(capsys: Capture, store: Path) -> None:
    manifest = next(store.glob("tasks/screw/*/manifest.json"))
    manifest.write_bytes(manifest.read_bytes()[:-20])
    assert main(["tasks", "--store", str(store)]) == 2
    out, err = capsys.readouterr()
    assert "washer" in out
    assert "screw" not in out
    assert err.startswith("dinosaur: The file tasks/screw/")


def test_a_flipped_bit_in_a_bank_is_found(capsys: Capture, store: Path) -> None:
    bank = next(store.glob("tasks/screw/*/bank.safetensors"))
    content = bytearray(bank.read_bytes())
    content[-1] ^= 1
    bank.write_bytes(content)
    for options in ([], ["--verify"]):
        assert main(["tasks", "--store", str(store), *options]) == 2
        assert "sha256" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../screw", "a/b", "..", ".hidden", "", "screw."])
def test_a_name_that_is_no_folder_name_is_refused(capsys: Capture, store: Path, normals: Path, name: str) -> None:
    assert_refused(capsys, ["learn", name, str(normals), "--store", str(store)], "A task cannot be called", store)


def test_a_name_taken_is_refused(capsys: Capture, store: Path, others: Path) -> None:
    sentence = "There is a task 'screw' already; add images to it with update"
    assert_refused(capsys, ["learn", "screw", str(others), "--store", str(store)], sentence, store)


@pytest.mark.parametrize("verb", ["update", "forget", "undo"])
def test_an_unknown_task_is_refused(capsys: Capture, store: Path, normals: Path, verb: str) -> None:
    images = [str(normals)] if verb == "update" else []
    assert_refused(capsys, [verb, "scrw", *images, "--store", str(store)], "'scrw'", store)


@pytest.mark.parametrize("verb", ["update", "forget", "undo", "tasks", "inspect"])
def test_a_store_that_is_not_there_is_not_made(capsys: Capture, tmp_path: Path, normals: Path, verb: str) -> None:
    words = {"tasks": [], "inspect": [str(normals)], "update": ["screw", str(normals)]}.get(verb, ["screw"])
    argv = [verb, *words, "--store", str(tmp_path / "nowhere")]
    assert_refused(capsys, argv, "There is no store in", tmp_path)


def test_a_folder_without_images_is_refused(capsys: Capture, tmp_path: Path, store: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert_refused(capsys, ["learn", "nut", str(tmp_path / "empty"), "--store", str(store)], "holds no images", store)


def test_a_path_that_is_not_there_is_refused(capsys: Capture, store: Path, normals: Path) -> None:
    argv = ["learn", "nut", str(normals), "typo.png", "--store", str(store)]
    assert_refused(capsys, argv, "'typo.png' does not exist", store)


def test_settings_of_another_store_are_refused(capsys: Capture, store: Path, normals: Path) -> None:
    learn = ["learn", "nut", str(normals), "--store", str(store)]
    assert_refused(capsys, [*learn, "--encoder", "tiny-dinov3"], "made with the encoder 'tiny-dinov2'", store)
    assert_refused(capsys, [*learn, "--preset", "paper"], "made with the preset 'tiny'", store)
    assert_refused(capsys, [*learn, "--seed", "7"], "made with the seed 0", store)
    assert_refused(capsys, [*learn, "--preset", "zzz"], "choose one of: default, fast, best, paper", store)


def test_one_image_is_too_few(capsys: Capture, store: Path, normals: Path) -> None:
    before = tree_hash(store)
    assert main(["learn", "nut", str(normals / "000.png"), "--store", str(store)]) == 2
    assert "Learning 'nut' needs at least 2 normal images" in capsys.readouterr().err
    assert tree_hash(store) == before


def test_nothing_but_bad_files_is_refused(capsys: Capture, tmp_path: Path, store: Path) -> None:
    (tmp_path / "bad.png").write_text("not an image")
    before = tree_hash(store)
    assert main(["learn", "nut", str(tmp_path / "bad.png"), "--store", str(store)]) == 2
    said = capsys.readouterr().err
    assert "None of the images for 'nut' could be used" in said
    assert ".)" not in said
    assert tree_hash(store) == before


def test_what_a_change_removes_from_the_store_is_said(capsys: Capture, tmp_path: Path, normals: Path) -> None:
    store = str(tmp_path / "new")
    assert main(["learn", "screw", str(normals), "--store", store, *NEW_STORE]) == 0
    for number in range(3):  # three versions are kept
        assert "removed from the store" not in capsys.readouterr().err
        more = make_normals(tmp_path / f"more-{number}", 25 + number)
        assert main(["update", "screw", str(more / f"{24 + number:03d}.png"), "--store", store]) == 0
    assert "removed from the store: tasks/screw/v0001\n" in capsys.readouterr().err
    assert main(["forget", "screw", "--store", store]) == 0
    assert "removed" not in capsys.readouterr().err
    assert main(["tasks", "--prune", "--store", store]) == 0
    err = capsys.readouterr().err
    assert "removed for good: screw\n" in err
    assert "tasks/screw/v0002" in err


def test_a_blinding_update_is_one_sentence_and_force_learns_it(
    capsys: Capture, tmp_path: Path, store: Path, normals: Path
) -> None:
    argv = ["update", "washer", str(normals), "--store", str(store)]
    before = tree_hash(store)
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert tree_hash(store) == before
    sentence = next(line for line in err.splitlines() if line.startswith("dinosaur: "))
    assert "Nothing was learned for 'washer', because 24 of 24 images do not belong there" in sentence
    assert "(belongs to 'screw')" in sentence
    assert sentence.endswith("and 21 more; leave them out, or learn them all the same with --force (force=True).")
    assert main([*argv, "--force"]) == 0
    out, err = capsys.readouterr()
    assert " -> " in out
    assert err.count("warning: perhaps not a normal image of 'washer': ") == 3
    assert "warning: 21 more such images" in err


def test_suspects_are_shown_on_a_sheet(capsys: Capture, tmp_path: Path, store: Path, normals: Path) -> None:
    Image.new("RGB", (70, 70)).save(tmp_path / "black.png")
    sheet = tmp_path / "suspects.png"
    teach = ["learn", "nut", str(normals), str(tmp_path / "black.png"), "--store", str(store), "--suspects"]
    before = tree_hash(store)
    assert main([*teach, str(sheet)]) == 2
    said = capsys.readouterr().err
    assert f"pictures of the suspects: {sheet}" in said
    assert "black.png (blank or nearly so)" in said
    assert tree_hash(store) == before
    with Image.open(sheet) as image:
        assert image.getpixel((130, 130)) == (0, 0, 0)  # the black frame
    assert main([*teach, str(sheet), "--force"]) == 0  # an earlier sheet is replaced
    for place, sentence in (
        (normals / "000.png", "is not a sheet of suspects, and is left alone"),
        (tmp_path / "none" / "x.png", "does not exist"),
        (tmp_path / "x.jpg", "is no name of a PNG file"),
    ):
        assert_refused(capsys, [*teach, str(place)], sentence, store)


def test_a_refusal_about_no_image_in_particular_says_that_there_is_no_sheet(capsys: Capture, tmp_path: Path) -> None:
    sheet = tmp_path / "suspects.png"
    with pytest.raises(TeachingRefusedError), shown_if_refused(sheet):
        raise TeachingRefusedError("Its threshold would move far.")
    assert "no sheet of suspects was written to" in capsys.readouterr().err
    assert not sheet.exists()
    with pytest.raises(TeachingRefusedError), shown_if_refused(None):
        raise TeachingRefusedError("Its threshold would move far.")
    assert capsys.readouterr().err == ""
