"""Overlays: named after their images, never over anything else, never inspected themselves."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import NEW_STORE, assert_refused
from numpy.typing import NDArray
from PIL import Image

import dinosaur_ad.basis
from dinosaur_ad.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def cameras(tmp_path: Path, normals: Path, defect: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cameras that number their images alike, in the working directory."""
    for name, image in {"cam1/000.png": defect, "cam2/000.png": normals / "001.png", "cam1/000.jpg": defect}.items():
        (tmp_path / "line" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.open(image).save(tmp_path / "line" / name)
    monkeypatch.chdir(tmp_path / "line")
    return tmp_path / "line"


def inspect(store: Path, *argv: str) -> int:
    return main(["inspect", *argv, "--store", str(store)])


def written(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    for path in found:
        Image.open(path).verify()
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize("images", [["cam1", "cam2"], ["."], ["cam*"], ["cam1/000.png", "cam1/000.jpg", "cam2"]])
def test_overlays_lie_as_their_images_do(store: Path, cameras: Path, images: list[str]) -> None:
    assert inspect(store, *images, "--overlays", "../seen") == 0
    assert sorted(written(cameras.parent / "seen")) == [
        "cam1/000.jpg.overlay.png",
        "cam1/000.png.overlay.png",
        "cam2/000.png.overlay.png",
    ]


def test_the_name_does_not_depend_on_what_else_lies_there(store: Path, cameras: Path) -> None:
    shutil.rmtree(cameras / "cam2")
    assert inspect(store, ".", "--overlays", "../seen") == 0
    assert set(written(cameras.parent / "seen")) == {"cam1/000.jpg.overlay.png", "cam1/000.png.overlay.png"}


def test_a_later_run_replaces_the_picture_of_the_same_image_and_of_no_other(store: Path, cameras: Path) -> None:
    seen = cameras.parent / "seen"
    assert inspect(store, "cam1/000.png", "--overlays", str(seen)) == 0
    first = written(seen)
    assert inspect(store, "cam2/000.png", "--overlays", str(seen)) == 0  # another image with the same name
    second = written(seen)
    assert sorted(second) == ["000.png-2.overlay.png", "000.png.overlay.png"]
    assert second["000.png.overlay.png"] == first["000.png.overlay.png"]
    shutil.copy("cam2/000.png", "cam1/000.png")  # the camera took a new one
    assert inspect(store, "cam1/000.png", "--overlays", str(seen)) == 0
    assert inspect(store, str(cameras / "cam2/000.png"), "--overlays", str(seen)) == 0
    third = written(seen)
    assert sorted(third) == sorted(second)
    assert third["000.png.overlay.png"] != first["000.png.overlay.png"]


def test_what_somebody_else_put_there_stays(store: Path, cameras: Path) -> None:
    seen = cameras.parent / "seen"
    (seen / "cam2/000.png.overlay.png").mkdir(parents=True)
    (seen / "cam1").mkdir()
    (seen / "cam1/000.png.overlay.png").write_text("precious")
    victim = cameras.parent / "victim.png"
    victim.write_text("precious")
    (seen / "cam1/000.jpg.overlay.png").symlink_to(victim)
    assert inspect(store, ".", "--overlays", str(seen)) == 0
    assert (seen / "cam1/000.png.overlay.png").read_text() == victim.read_text() == "precious"
    names = sorted(path.relative_to(seen).as_posix() for path in seen.rglob("*-2*"))
    assert names == ["cam1/000.jpg-2.overlay.png", "cam1/000.png-2.overlay.png", "cam2/000.png-2.overlay.png"]


def test_names_are_safe_and_stay_apart(store: Path, normals: Path, tmp_path: Path) -> None:
    folder, seen = tmp_path / "odd", tmp_path / "seen"
    folder.mkdir()
    names = ["..a b:ü.png", "..a b?ü.png", "esc\x1b[2J\n.png", f"{'n' * 250}.png", f"{'n' * 240}.png"]
    for name in names:
        shutil.copy(normals / "001.png", folder / name)
    assert inspect(store, *(str(folder / name) for name in names), "--overlays", str(seen)) == 0
    assert len(written(seen)) == len(names)
    assert {"a b_ü.png.overlay.png", "a b_ü.png-2.overlay.png", "esc_[2J_.png.overlay.png"} < set(written(seen))
    assert all(name.isprintable() for name in written(seen))


def test_paths_with_dots_and_links_lead_nowhere_else(store: Path, cameras: Path, tmp_path: Path) -> None:
    (cameras / "linked").symlink_to(cameras / "cam1")
    seen = tmp_path / "a" / "b" / "seen"
    assert inspect(store, "cam1/../cam2/000.png", "linked/000.png", "--overlays", str(seen)) == 0
    assert sorted(written(tmp_path / "a")) == [
        "b/seen/cam2/000.png.overlay.png",
        "b/seen/linked/000.png.overlay.png",
    ]


@pytest.fixture
def never_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the encoder was loaded")

    monkeypatch.setattr(dinosaur_ad.basis, "load_encoder", refuse)


@pytest.mark.usefixtures("never_encoded")
class TestBeforeTheFirstImage:
    def test_a_file_is_refused(self, capsys: Capture, store: Path, cameras: Path) -> None:
        (cameras / "file").touch()
        for place in ("file", "file/sub"):
            argv = ["inspect", "cam1", "--store", str(store), "--overlays", place]
            assert_refused(capsys, argv, "file' is a file; give --overlays a folder.", store)

    def test_a_link_to_nowhere_is_refused(self, capsys: Capture, store: Path, cameras: Path) -> None:
        (cameras / "link").symlink_to("nowhere")
        argv = ["inspect", "cam1", "--store", str(store), "--overlays", "link"]
        assert_refused(capsys, argv, "'link' is a link to nowhere; give --overlays a folder.", store)

    def test_a_place_that_cannot_be_written_is_refused(
        self, capsys: Capture, store: Path, cameras: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(**_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("tempfile.TemporaryFile", refuse)
        argv = ["inspect", "cam1", "--store", str(store), "--overlays", "seen"]
        assert_refused(capsys, argv, "cannot be written to (Permission denied); choose another folder", store)
        assert not (cameras / "seen").exists()

    @pytest.mark.parametrize("below", ["", "overlays", "tasks/screw"])
    def test_the_store_is_refused(self, capsys: Capture, store: Path, cameras: Path, below: str) -> None:
        argv = ["inspect", "cam1", "--store", str(store), "--overlays", str(store / below)]
        assert_refused(capsys, argv, "lies in the store, which keeps only what is taught", store)

    def test_a_folder_that_would_lead_into_the_store_is_refused(
        self, capsys: Capture, store: Path, cameras: Path
    ) -> None:
        shutil.copytree(cameras / "cam1", cameras / store.name)
        argv = ["inspect", "cam2", store.name, "--store", str(store), "--overlays", str(store.parent)]
        assert_refused(capsys, argv, "lies in the store", store)

    @pytest.mark.parametrize("kind", ["link", "file"])
    def test_a_folder_below_that_leads_elsewhere_is_refused(
        self, capsys: Capture, store: Path, cameras: Path, kind: str
    ) -> None:
        (cameras.parent / "victim").mkdir()
        (cameras.parent / "seen").mkdir()
        inside = cameras.parent / "seen" / "cam1"
        inside.symlink_to(cameras.parent / "victim") if kind == "link" else inside.touch()
        argv = ["inspect", "cam1", "cam2", "--store", str(store), "--overlays", "../seen"]
        assert_refused(capsys, argv, f"'../seen/cam1' is a {kind}, and overlays would be written below it", store)
        assert list((cameras.parent / "victim").iterdir()) == []


def levels(file: bytes) -> NDArray[np.int16]:
    return np.asarray(Image.open(io.BytesIO(file)), np.int16)


@pytest.mark.parametrize("images", [["."], ["cam1", "cam2"], ["cam*/*.png", "cam*/*.jpg"], ["cam*/*"], ["cam?"]])
def test_overlays_among_the_images_are_not_inspected(
    capsys: Capture, store: Path, cameras: Path, images: list[str]
) -> None:
    assert inspect(store, ".", "--overlays", ".") == 0
    assert (cameras / "cam1" / "000.png.overlay.png").is_file()
    before = written(cameras)
    capsys.readouterr()
    assert inspect(store, *images, "--overlays", ".") == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert "left out: 3 overlays of earlier inspections (*.overlay.png)" in err
    after = written(cameras)
    assert list(after) == list(before)
    assert all(after[name] == before[name] for name in after if not name.endswith(".overlay.png"))
    # Images in another order are encoded in another order, which may round the last bit of a map differently.
    for name in after:
        assert np.abs(levels(after[name]) - levels(before[name])).max() <= 1


def test_an_overlay_that_is_named_is_inspected_and_not_replaced(capsys: Capture, store: Path, cameras: Path) -> None:
    assert inspect(store, "cam1/000.png", "--overlays", ".") == 0
    overlay = cameras / "000.png.overlay.png"
    before = overlay.read_bytes()
    capsys.readouterr()
    assert inspect(store, "cam1/000.png", overlay.name, "--overlays", ".") == 4  # the overlay is no photo of a product
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert "1 of the images named are called *.overlay.png" in err
    assert overlay.read_bytes() == before


def test_overlays_are_not_learned_either(capsys: Capture, store: Path, normals: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(normals, tmp_path / "photos")
    assert inspect(store, str(folder), "--overlays", str(folder)) == 0
    capsys.readouterr()
    assert main(["learn", "nut", str(folder), "--store", str(tmp_path / "new"), *NEW_STORE]) == 0
    out, err = capsys.readouterr()
    assert "from 24 images" in out
    assert "left out: 24 overlays" in err
