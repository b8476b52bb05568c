from __future__ import annotations

import os
import struct
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import ImageFile, find_images, image_size, read_image, read_mask
from dinosaur_ad.images.prefetching import read_many

RGB = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)


def save(path: Path, array: np.ndarray, **options: object) -> Path:
    Image.fromarray(array).save(path, **options)
    return path


def png(path: Path, header: tuple[int, ...], data: bytes) -> Path:
    """A PNG chunk by chunk; ``header`` is (width, height, bit depth, colour type)."""
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", *header, 0, 0, 0), b"IDAT" + data, b"IEND"]
    body = b"".join(struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


# What becomes of each format


@pytest.mark.parametrize("extension", ["png", "bmp", "tif", "ppm", "tga"])
def test_lossless_colour_comes_back_as_it_was(tmp_path: Path, extension: str) -> None:
    assert np.array_equal(read_image(save(tmp_path / f"a.{extension}", RGB)), RGB)


@pytest.mark.parametrize("extension", ["jpg", "webp"])
def test_lossy_colour_comes_back_nearly(tmp_path: Path, extension: str) -> None:
    smooth = np.full((16, 16, 3), (200, 100, 50), np.uint8)
    back = read_image(save(tmp_path / f"a.{extension}", smooth, quality=95))
    assert back.shape == smooth.shape
    assert np.abs(back.astype(int) - smooth).max() <= 6


def test_grey_is_repeated(tmp_path: Path) -> None:
    grey = RGB[..., 0]
    assert np.array_equal(read_image(save(tmp_path / "a.png", grey)), np.stack([grey] * 3, axis=2))


def test_bilevel_is_black_and_white(tmp_path: Path) -> None:
    Image.fromarray(RGB[..., 0] > 127).save(tmp_path / "a.png")
    assert np.array_equal(read_image(tmp_path / "a.png")[..., 1], np.where(RGB[..., 0] > 127, 255, 0))


@settings(max_examples=20, deadline=None)
@given(values=hnp.arrays(np.uint16, (2, 3)), extension=st.sampled_from(["png", "tif"]))
def test_16_bit_grey_uses_the_whole_range(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, extension: str
) -> None:
    values[0, 0] = 65535
    path = save(tmp_path_factory.mktemp("deep") / f"a.{extension}", values)
    expected = [[round(int(value) / 257) for value in row] for row in values]
    assert read_image(path)[..., 0].tolist() == expected


def test_16_bit_scale_does_not_depend_on_the_image(tmp_path: Path) -> None:
    dark = read_image(save(tmp_path / "dark.png", np.full((2, 2), 5000, np.uint16)))
    mixed = read_image(save(tmp_path / "mixed.png", np.array([[5000, 65535]], np.uint16)))
    assert dark[0, 0, 0] == mixed[0, 0, 0] == 19


def test_16_bit_colour_keeps_the_high_byte(tmp_path: Path) -> None:
    rows = b"\x00" + struct.pack(">6H", 0x1234, 0x80FF, 0xFFFF, 0, 0x0100, 0xABCD)
    path = png(tmp_path / "a.png", (2, 1, 16, 2), zlib.compress(rows))
    assert read_image(path).tolist() == [[[0x12, 0x80, 0xFF], [0, 0x01, 0xAB]]]


def test_32_bit_integers_are_16_bit_counts(tmp_path: Path) -> None:
    path = save(tmp_path / "a.tif", np.array([[0, 257, 65535]], np.int32))
    assert read_image(path)[0, :, 0].tolist() == [0, 1, 255]


@pytest.mark.parametrize("value", [-1, 65536])
def test_32_bit_integers_out_of_range_are_refused(tmp_path: Path, value: int) -> None:
    path = save(tmp_path / "a.tif", np.array([[0, value]], np.int32))
    with pytest.raises(InputError, match=r"a\.tif' holds int32 values outside 0\.\.65535"):
        read_image(path)


def test_float_is_zero_to_one(tmp_path: Path) -> None:
    path = save(tmp_path / "a.tif", np.array([[0.0, 0.5, 1.0]], np.float32))
    assert read_image(path)[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize("value", [-0.5, 255.0, float("nan"), float("inf")])
def test_float_out_of_range_is_refused(tmp_path: Path, value: float) -> None:
    path = save(tmp_path / "a.tif", np.array([[0.0, value]], np.float32))
    with pytest.raises(InputError, match=r"outside 0\.\.1, .* save it as 8- or 16-bit"):
        read_image(path)


def test_transparent_parts_are_black(tmp_path: Path) -> None:
    rgba = np.array([[[200, 100, 50, 255], [200, 100, 50, 0], [200, 100, 50, 51]]], np.uint8)
    assert read_image(save(tmp_path / "a.png", rgba)).tolist() == [[[200, 100, 50], [0, 0, 0], [40, 20, 10]]]


def test_grey_with_alpha(tmp_path: Path) -> None:
    Image.fromarray(np.array([[[90, 255], [90, 0]]], np.uint8), mode="LA").save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png")[0, :, 0].tolist() == [90, 0]


@pytest.mark.parametrize(("transparency", "first"), [(None, [250, 128, 3]), (0, [0, 0, 0])])
def test_palette_gives_its_colours(tmp_path: Path, transparency: int | None, first: list[int]) -> None:
    image = Image.fromarray(np.array([[0, 1]], np.uint8), mode="P")
    image.putpalette([250, 128, 3, 7, 8, 9])
    image.save(tmp_path / "a.png", **({} if transparency is None else {"transparency": transparency}))
    assert read_image(tmp_path / "a.png").tolist() == [[first, [7, 8, 9]]]


def test_cmyk_is_shown_as_rgb(tmp_path: Path) -> None:
    Image.new("CMYK", (2, 2), (0, 255, 255, 0)).save(tmp_path / "a.tif")
    assert read_image(tmp_path / "a.tif")[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int) -> None:
    upright = np.zeros((16, 32, 3), np.uint8)
    upright[:8, :8] = 255  # white in the top left corner
    stored = {
        1: upright, 2: upright[:, ::-1], 3: upright[::-1, ::-1], 4: upright[::-1],
        5: upright.swapaxes(0, 1), 6: np.rot90(upright), 7: np.rot90(upright, 2).swapaxes(0, 1),
        8: np.rot90(upright, -1),
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / "a.jpg", np.ascontiguousarray(stored), exif=exif, quality=95)
    assert np.array_equal(read_image(path) > 127, upright > 127)
    assert image_size(path) == (16, 32)


@pytest.mark.parametrize("extension", ["tif", "gif", "png", "webp", "avif"])
def test_several_pages_or_frames_are_refused(tmp_path: Path, extension: str) -> None:
    frames = [Image.new("RGB", (20, 20), (value, 9, 9)) for value in (10, 200)]
    frames[0].save(tmp_path / f"one.{extension}")
    frames[0].save(tmp_path / f"two.{extension}", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / f"one.{extension}").shape == (20, 20, 3)
    for read in (read_image, image_size):
        with pytest.raises(InputError, match=rf"two\.{extension}' holds several pages or frames.* save each"):
            read(tmp_path / f"two.{extension}")


def test_of_a_photo_with_more_pictures_in_it_the_main_one_is_read(tmp_path: Path) -> None:
    pictures = [Image.new("RGB", (32, 32), colour) for colour in ((200, 10, 10), (10, 10, 200))]
    pictures[0].save(tmp_path / "phone.jpg", format="MPO", save_all=True, append_images=pictures[1:])
    assert read_image(tmp_path / "phone.jpg")[0, 0, 0] > 190


# Bad files


def test_every_bad_file_gets_one_sentence_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.jpg").write_text("this is not an image\n" * 10)
    (tmp_path / "folder.png").mkdir()
    save(tmp_path / "whole.png", np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    data = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(data[: len(data) // 2])
    png(tmp_path / "header.png", (10, 10, 8, 0), b"")
    expected = {
        "empty.png": "is empty",
        "text.jpg": "is not an image",
        "folder.png": "is a folder",
        "cut.png": "is damaged or cut short",
        "header.png": "is damaged or cut short",
        "missing.png": "does not exist",
    }
    for name, words in expected.items():
        with pytest.raises(InputError, match=words) as caught:
            read_image(tmp_path / name)
        text = str(caught.value)
        assert name in text
        assert "\n" not in text
        assert text.endswith(".")


def test_truncated_jpeg_is_refused(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = save(tmp_path / "whole.jpg", noise).read_bytes()
    (tmp_path / "cut.jpg").write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(InputError, match=r"cut\.jpg' is damaged or cut short"):
        read_image(tmp_path / "cut.jpg")


@pytest.mark.parametrize(
    ("width", "height", "words"),
    [
        (30_000, 30_000, "too many pixels"),
        (30_000, 10, "30000 x 10 pixels; at most .* 20,000 a side"),
        (9_001, 9_001, "9001 x 9001 pixels; at most 81,000,000 in all"),
    ],
)
def test_huge_images_are_refused_by_their_header(tmp_path: Path, width: int, height: int, words: str) -> None:
    # The file holds no pixels at all: only a check of the header can give this message.
    with pytest.raises(InputError, match=words):
        read_image(png(tmp_path / "bomb.png", (width, height, 8, 0), b""), max_pixels=81_000_000)


def test_max_pixels_is_inclusive(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", RGB)
    assert read_image(path, max_pixels=35).shape == (5, 7, 3)
    with pytest.raises(InputError, match="7 x 5 pixels; at most 34"):
        read_image(path, max_pixels=34)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_does_not_hang_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(InputError, match="not a regular file"):
        read_image(tmp_path / "pipe.png")


# Masks


def test_masks_are_united_from_raw_values(tmp_path: Path) -> None:
    first = save(tmp_path / "0.png", np.array([[1, 0, 0, 0]], np.uint8))
    second = save(tmp_path / "1.png", np.array([[0, 1, 0, 0]], np.uint16))
    third = save(tmp_path / "2.png", np.array([[[0, 0, 0], [0, 0, 0], [0, 0, 9], [0, 0, 0]]], np.uint8))
    assert read_mask([first, second, third]).tolist() == [[True, True, True, False]]


def test_masks_of_different_size_are_refused(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{n}.png", np.zeros((2, n), np.uint8)) for n in (3, 4)]
    with pytest.raises(InputError, match=r"3\.png' and .*4\.png' of one image differ in size"):
        read_mask(paths)


# Finding


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.PNG", "a.jpg", "notes.txt", ".hidden.png", "sub/c.webp", "sub/raw.dat", ".cache/d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "sub" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["."], ["a.jpg", "b.PNG", "sub/c.webp"]),
        (["sub", "."], ["sub/c.webp", "a.jpg", "b.PNG"]),
        (["b.PNG", "a.jpg", "./b.PNG"], ["b.PNG", "a.jpg"]),
        (["notes.txt"], ["notes.txt"]),
        (["*.jpg"], ["a.jpg"]),
        (["*"], ["a.jpg", "b.PNG", "sub/c.webp"]),
        (["s*"], ["sub/c.webp"]),
        (["sub/*.dat"], ["sub/raw.dat"]),
        (["[ab].*"], ["a.jpg", "b.PNG"]),
    ],
)
def test_files_folders_and_globs(
    tree: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: list[str]
) -> None:
    monkeypatch.chdir(tree)
    assert [path.as_posix() for path in find_images(arguments)] == expected


def test_double_star_reaches_the_bottom(tree: Path) -> None:
    (tree / "sub" / "loop").unlink()
    assert [path.name for path in find_images([f"{tree}/**/*.webp"])] == ["c.webp"]
    assert {path.name for path in find_images([f"{tree}/**"])} == {"a.jpg", "b.PNG", "c.webp"}


def test_a_file_whose_name_looks_like_a_glob_is_a_file(tmp_path: Path) -> None:
    for name in ("part[1].png", "part1.png"):
        (tmp_path / name).touch()
    assert [path.name for path in find_images([tmp_path / "part[1].png"])] == ["part[1].png"]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("empty", "folder .*empty' holds no images"),
        ("nowhere", "nowhere' does not exist"),
        ("*.tif", r"pattern '.*\*\.tif' matches no images"),
    ],
)
def test_the_argument_without_images_is_named(tree: Path, argument: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_images([tree / "a.jpg", tree / argument])


def test_no_arguments_is_an_error() -> None:
    with pytest.raises(InputError, match="No images were given"):
        find_images([])


# Reading ahead


def test_read_many_keeps_order_and_goes_on_after_a_bad_file(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{n}.png", np.full((2, 2), n, np.uint8)) for n in range(10)]
    paths[4].write_text("broken")
    results = list(read_many(paths, threads=3))
    assert [path for path, _ in results] == paths
    assert isinstance(results[4][1], InputError)
    values = [int(result[0, 0, 0]) for _, result in results if not isinstance(result, InputError)]
    assert values == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_read_many_never_runs_far_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    read_enough = threading.Event()
    decoded = ImageFile.decoded

    def record(file: ImageFile) -> Image.Image:
        started.append(file.name)
        if len(started) >= 5:
            read_enough.set()
        return decoded(file)

    monkeypatch.setattr(ImageFile, "decoded", record)
    reader = read_many([save(tmp_path / f"{n}.png", RGB) for n in range(100)], threads=2)
    next(reader)
    assert read_enough.wait(5)  # the consumer is idle, and the next images are being read all the same
    reader.close()
    assert len(started) == 5  # one handed over, four waiting, ninety-five untouched


def test_read_many_refuses_no_threads() -> None:
    with pytest.raises(InputError, match="at least 1"):
        next(read_many(["a.png"], threads=0))
