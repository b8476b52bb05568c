"""Odd names, links, folders and moments: each costs only itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from detector_helpers import product, tiny
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.image_stream import stream_images
from dinosaur_ad.images.loading import find_images, image_size, read_image
from dinosaur_ad.inspection import Inspection, Rejected

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names and links as on Linux")

NOT_UTF8 = b"part-\xff\xfe.png"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty good images."""
    folder = tmp_path / "images"
    folder.mkdir()
    for index, image in enumerate(product(0, 20)):
        Image.fromarray(image).save(folder / f"{index:02d}.png")
    return folder


def spoil_folder(folder: Path) -> dict[str, str]:
    """Add every odd file that can be made here; what each entry's sentence has to say."""
    good = (folder / "00.png").read_bytes()
    Path(os.fsdecode(os.path.join(os.fsencode(folder), NOT_UTF8))).write_bytes(good)  # noqa: PTH118
    (folder / "circle.png").symlink_to("circle.png")
    (folder / "dangling.png").symlink_to("gone.png")
    os.mkfifo(folder / "pipe.png")
    (folder / "photo.heic").write_bytes(b"x")
    (folder / "empty.png").touch()
    return {
        r"part-\xff\xfe.png": "is not UTF-8",
        "circle.png": "symbolic links",
        "dangling.png": "is a link to 'gone.png', which does not exist",
        "pipe.png": "not a regular file",
        "photo.heic": "is a HEIC photo",
        "empty.png": "is empty",
    }


def test_every_odd_file_is_a_rejected_entry_and_the_others_go_on(folder: Path) -> None:
    expected = spoil_folder(folder)
    detector = tiny(folder.parent / "store")  # labels are written to disk
    learned = detector.learn("x", folder)
    results = list(detector.stream(folder))
    assert learned.images == sum(isinstance(each, Inspection) for each in results) == 20
    for rejected in (learned.rejected, [each for each in results if isinstance(each, Rejected)]):
        reasons = {Path(each.path).name: each.reason for each in rejected}
        assert reasons.keys() == expected.keys()
        for name, words in expected.items():
            assert words in reasons[name]
            assert reasons[name].isprintable()
            reasons[name].encode()


def test_a_file_deleted_between_listing_and_reading(folder: Path) -> None:
    detector = tiny()
    found = find_images([folder])
    (folder / "07.png").unlink()
    learned = detector.learn("x", found)
    assert learned.images == 19
    assert [each.reason for each in learned.rejected] == [f"'{folder / '07.png'}' does not exist; check the path."]


def test_a_path_that_was_typed_and_does_not_exist_is_refused_at_once(folder: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.png' does not exist"):
        stream_images([folder / "00.png", folder / "nothing.png"])
    for impossible in ("a\0b.png", "x" * 5000 + ".png", ""):
        with pytest.raises(InputError):
            stream_images(impossible)
        with pytest.raises(InputError):
            read_image(impossible or folder)


def test_a_link_that_was_typed_is_an_entry(folder: Path) -> None:
    (folder / "circle.png").symlink_to("circle.png")
    total, stream = stream_images([folder / "circle.png", folder / "00.png"])
    assert total == 2
    assert [type(each).__name__ for _, each in stream] == ["InputError", "ndarray"]


def forbid(monkeypatch: pytest.MonkeyPatch, forbidden: Path) -> None:
    """Permissions do not bind root, so the system call is made to fail."""
    scandir = os.scandir

    def refusing(path: object = ".") -> object:
        if Path(os.fsdecode(path)) == forbidden:  # type: ignore[arg-type]
            raise PermissionError(13, "Permission denied", os.fsdecode(path))  # type: ignore[arg-type]
        return scandir(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", refusing)


def test_a_folder_that_cannot_be_listed_is_an_entry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sub").mkdir()
    Image.fromarray(product(0, 1)[0]).save(folder / "sub" / "a.png")
    forbid(monkeypatch, folder / "sub")
    learned = tiny().learn("x", folder)
    assert learned.images == 20
    (rejected,) = learned.rejected
    assert Path(rejected.path) == folder / "sub"
    assert rejected.reason == f"The folder '{folder / 'sub'}' cannot be listed (Permission denied); " + (
        "change its permissions."
    )
    with pytest.raises(InputError, match="cannot be listed"):
        find_images([folder], strict=True)  # a dataset must not shrink in silence


def test_a_forbidden_file_is_an_entry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refusing(path: object, *options: object, **more: object) -> int:
        if str(path).endswith("03.png"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *options, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    learned = tiny().learn("x", folder)
    assert learned.images == 19
    assert "may not be read by this user" in learned.rejected[0].reason


def test_umlauts_where_python_was_started_without_utf8(folder: Path) -> None:
    Image.fromarray(product(0, 1)[0]).save(folder / "größe.png")
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]); from detector_helpers import tiny; from pathlib import Path\n"
        "learned = tiny(Path(sys.argv[1]).parent / 'store').learn('x', sys.argv[1])\n"
        "print(learned.images, [each.reason for each in learned.rejected])"
    )
    environment = os.environ | {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "utf-8",
    }
    tests = str(Path(__file__).parents[1])
    child = subprocess.run(
        [sys.executable, "-c", code, str(folder), tests], env=environment, capture_output=True, check=False
    )
    assert child.returncode == 0, child.stderr.decode()
    answer = child.stdout.decode()
    assert answer.startswith("20 [")
    assert "größe.png' has a name that this process cannot handle" in answer
    assert "PYTHONUTF8=1" in answer


def test_sentences_stay_one_printable_line(tmp_path: Path) -> None:
    for name in ("a\nb.png", "\x1b[31mred.png", "\x9b.png"):
        (tmp_path / name).write_bytes(b"no image")
        with pytest.raises(InputError) as caught:
            read_image(tmp_path / name)
        assert str(caught.value).isprintable()


def test_a_pipe_that_takes_the_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    for read in (read_image, image_size):
        with pytest.raises(InputError, match="not a regular file"):
            read(tmp_path / "a.png")


def test_images_too_small_to_judge_are_refused(tmp_path: Path) -> None:
    detector = tiny()
    detector.learn("x", product(0, 20))
    for side, expected in ((1, Rejected), (3, Rejected), (15, Rejected), (16, Inspection)):
        image = np.full((side, 64, 3), 90, np.uint8)
        Image.fromarray(image).save(tmp_path / f"{side}.png")
        for given in (image, Image.fromarray(image), tmp_path / f"{side}.png"):
            (result,) = detector.stream(given)
            assert isinstance(result, expected)
            if isinstance(result, Rejected):
                assert f"is 64 x {side} pixels; at least 16 a side are needed" in result.reason
