"""Only the formats that the documentation lists are tried, and other pictures are named, not ignored."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dinosaur_ad.errors import InputError
from dinosaur_ad.images.formats import EXTENSIONS, FORMATS, UNREAD_KINDS, pillow_formats
from dinosaur_ad.images.loading import find_images, read_image
from dinosaur_ad.images.prefetching import read_many

DOCS = Path(__file__).parents[2] / "docs" / "data.md"
POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 50 50\n%%EndComments\nshowpage\n%%EOF\n"


def test_the_documentation_lists_what_is_read() -> None:
    rows = re.findall(r"^\| ([\w ]+) \| ((?:`\.\w+` ?)+)\|", DOCS.read_text(), flags=re.MULTILINE)
    listed = {name: tuple(re.findall(r"`(\.\w+)`", extensions)) for name, extensions in rows}
    assert listed == {each.name: each.extensions for each in FORMATS}


def test_the_documentation_lists_what_is_named_but_not_read() -> None:
    text = DOCS.read_text()
    for kind in UNREAD_KINDS:
        for extension in kind.extensions:
            assert f"`{extension}`" in text
            assert extension not in EXTENSIONS


def test_pillow_may_try_nothing_else() -> None:
    assert {"PNG", "JPEG", "TIFF", "BMP", "GIF", "PPM", "TGA"} <= set(pillow_formats())
    assert set(pillow_formats()) <= {plugin for each in FORMATS for plugin in each.plugins}


@pytest.mark.parametrize("extension", sorted(EXTENSIONS - {".apng", ".mpo"}))
def test_every_listed_extension_is_read(tmp_path: Path, extension: str) -> None:
    image = Image.new("1" if extension == ".pbm" else "L" if extension == ".pgm" else "RGB", (20, 20), 1)
    image.save(tmp_path / f"a{extension}")
    assert find_images([tmp_path]) == [tmp_path / f"a{extension}"]
    assert read_image(tmp_path / f"a{extension}").shape == (20, 20, 3)


@pytest.mark.parametrize("extension", ["ico", "pcx", "sgi", "dds"])
def test_other_formats_of_pillow_are_not_opened(tmp_path: Path, extension: str) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / f"a.{extension}")
    (tmp_path / f"a.{extension}").rename(tmp_path / "photo.png")
    with pytest.raises(InputError, match=r"photo\.png' is not an image that can be read"):
        read_image(tmp_path / "photo.png")


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for Ghostscript is a shell script")
def test_postscript_in_a_png_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = tmp_path / "ran"
    for name in ("gs", "gswin64c", "gswin32c"):
        script = tmp_path / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "photo.png").write_bytes(POSTSCRIPT)
    with pytest.raises(InputError, match="a PostScript file, which is not read"):
        read_image(tmp_path / "photo.png")
    assert not ran.exists()


@pytest.mark.parametrize("kind", UNREAD_KINDS, ids=lambda kind: kind.name)
def test_pictures_that_are_not_read_are_named(tmp_path: Path, kind) -> None:
    Image.new("RGB", (20, 20)).save(tmp_path / "b.png")
    name = f"a{kind.extensions[0].upper()}"
    (tmp_path / name).write_bytes(b"whatever is in it")
    for ignored in ("notes.txt", "list.json", "Thumbs.db", f".hidden{kind.extensions[0]}", "c.dat"):
        (tmp_path / ignored).write_bytes(b"x")
    found = find_images([tmp_path])
    assert [path.name for path in found] == [name, "b.png"]
    (_, wrong), (_, right) = read_many(found)
    assert isinstance(wrong, InputError)
    assert f"{name}' is {kind.name}, which is not read; {kind.advice}." in str(wrong)
    assert isinstance(right, np.ndarray)
    assert [path.name for path in find_images([tmp_path], strict=True)] == ["b.png"]  # a dataset


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "a HEIC photo"),
        (b"\0\0\0\x18ftypisom\0\0\0\0isommp42", "a video"),
        (b"%PDF-1.7\n1 0 obj", "a PDF document"),
    ],
)
def test_a_wrong_extension_does_not_hide_what_it_is(tmp_path: Path, head: bytes, words: str) -> None:
    (tmp_path / "photo.jpg").write_bytes(head + bytes(200))
    with pytest.raises(InputError, match=f"is {words}, which is not read"):
        read_image(tmp_path / "photo.jpg")


def test_a_damaged_avif_is_not_called_a_video(tmp_path: Path) -> None:
    (tmp_path / "a.avif").write_bytes(b"\0\0\0\x18ftypavif\0\0\0\0mif1" + bytes(100))
    with pytest.raises(InputError, match="is not an image that can be read"):
        read_image(tmp_path / "a.avif")


def test_the_preview_in_a_raw_file_is_not_taken_for_the_photo(tmp_path: Path) -> None:
    Image.new("RGB", (160, 120)).save(tmp_path / "a.tif")
    (tmp_path / "a.tif").rename(tmp_path / "a.nef")
    with pytest.raises(InputError, match="a camera's raw file"):
        read_image(tmp_path / "a.nef")
