"""What a value of a deep image means: the same for every image of a product, and never nearly black by mistake."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from dinosaur_ad.errors import InputError
from dinosaur_ad.images.depth import STRIP_PIXELS, Depth, displayed
from dinosaur_ad.images.loading import read_image

TWELVE_BITS = np.linspace(0, 4095, 400).astype(np.uint16).reshape(20, 20)
FULL = np.rint(TWELVE_BITS * 255.0 / 4095).astype(np.uint8)


def tiff(path: Path, values: np.ndarray, **tags: int) -> Path:
    info = TiffImagePlugin.ImageFileDirectory_v2()
    for name, value in tags.items():
        info[{"SMaxSampleValue": 341, "MaxSampleValue": 281}[name]] = value
        info.tagtype[341] = 3
    Image.fromarray(values).save(path, tiffinfo=info)
    return path


def png16(path: Path, values: np.ndarray, significant: int | None = None) -> Path:
    """A 16-bit PNG, grey (H, W) or colour (H, W, 3), with the chunk sBIT if asked for."""
    height, width = values.shape[:2]
    channels = values.shape[2] if values.ndim == 3 else 1
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    kind = {1: 0, 3: 2, 4: 6}[channels]
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)]
    if significant is not None:
        chunks.append(b"sBIT" + bytes([significant] * channels))
    chunks += [b"IDAT" + zlib.compress(rows), b"IEND"]
    body = b"".join(struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


def packed_tiff(path: Path, values: np.ndarray) -> Path:
    """A TIFF of 12 bits a value without gaps."""
    height, width = values.shape
    pairs = values.reshape(-1, 2).astype(np.uint32)
    packed = np.stack([pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], axis=1)
    data = packed.astype(np.uint8).tobytes()
    tags = [
        (256, width),
        (257, height),
        (258, 12),
        (259, 1),
        (262, 1),
        (273, 8),
        (277, 1),
        (278, height),
        (279, len(data)),
    ]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    directory = struct.pack("<H", len(tags)) + entries + struct.pack("<I", 0)
    path.write_bytes(b"II*\0" + struct.pack("<I", 8 + len(data)) + data + directory)
    return path


@pytest.mark.parametrize("extension", ["png", "tif", "jp2"])
def test_12_bit_values_that_nothing_tells_of_are_refused(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"camera.{extension}"
    Image.fromarray(TWELVE_BITS).save(path)
    with pytest.raises(InputError, match=r"camera\.\w+' is a 16-bit image whose values stay below 4096.*times 16"):
        read_image(path)


def test_12_bit_values_in_32_bits_are_refused(tmp_path: Path) -> None:
    Image.fromarray(TWELVE_BITS.astype(np.int32)).save(tmp_path / "camera.tif")
    with pytest.raises(InputError, match="stay below 4096"):
        read_image(tmp_path / "camera.tif")


@pytest.mark.parametrize("tag", ["SMaxSampleValue", "MaxSampleValue"])
def test_a_tiff_that_says_what_white_is_is_read_by_it(tmp_path: Path, tag: str) -> None:
    bright = read_image(tiff(tmp_path / "bright.tif", TWELVE_BITS, **{tag: 4095}))
    assert np.array_equal(bright[..., 1], FULL)
    dark = read_image(tiff(tmp_path / "dark.tif", TWELVE_BITS // 8, **{tag: 4095}))
    assert np.array_equal(dark[..., 1], np.rint(TWELVE_BITS // 8 * 255.0 / 4095))  # the same scale for every image


def test_10_and_14_bits_by_their_tag(tmp_path: Path) -> None:
    for bits in (10, 14, 16):
        values = np.full((20, 20), 2**bits - 1, np.uint16)
        assert (read_image(tiff(tmp_path / f"{bits}.tif", values, SMaxSampleValue=2**bits - 1)) == 255).all()


def test_a_tag_that_holds_the_highest_value_in_the_image_does_not_stretch_it(tmp_path: Path) -> None:
    values = np.full((20, 20), 30000, np.uint16)
    assert (read_image(tiff(tmp_path / "a.tif", values, MaxSampleValue=30000)) == 117).all()
    with pytest.raises(InputError, match="stay below 4096"):
        read_image(tiff(tmp_path / "b.tif", TWELVE_BITS // 2, SMaxSampleValue=2047 - 1))


def test_values_above_the_stated_white_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"outside 0\.\.4095"):
        read_image(tiff(tmp_path / "a.tif", TWELVE_BITS + 1, SMaxSampleValue=4095))


def test_a_tiff_of_12_packed_bits(tmp_path: Path) -> None:
    assert np.array_equal(read_image(packed_tiff(tmp_path / "a.tif", TWELVE_BITS))[..., 2], FULL)


def test_a_dark_16_bit_tiff_that_says_so_is_read(tmp_path: Path) -> None:
    dark = tiff(tmp_path / "a.tif", np.full((20, 20), 2570, np.uint16), SMaxSampleValue=65535)
    assert (read_image(dark) == 10).all()


def test_a_black_16_bit_image_is_black_on_every_scale(tmp_path: Path) -> None:
    assert not read_image(tiff(tmp_path / "a.tif", np.zeros((20, 20), np.uint16))).any()


@pytest.mark.parametrize("bits", [9, 10, 12, 14])
def test_a_png_that_names_its_significant_bits(tmp_path: Path, bits: int) -> None:
    top = 2**bits - 1
    values = np.linspace(0, top, 400).astype(np.uint16).reshape(20, 20)
    expected = np.rint(values * 255.0 / top)
    aligned_low = read_image(png16(tmp_path / "low.png", values, significant=bits))
    assert np.array_equal(aligned_low[..., 0], expected)
    scaled = np.rint(values * (65535.0 / top)).astype(np.uint16)  # as the standard wants it
    assert np.array_equal(read_image(png16(tmp_path / "high.png", scaled, significant=bits))[..., 0], expected)


def test_a_dark_png_scaled_as_the_standard_wants_it_stays_dark(tmp_path: Path) -> None:
    values = np.rint(np.arange(400) * 250 // 399 * (65535 / 4095)).astype(np.uint16).reshape(20, 20)
    assert values.max() < 4096
    assert read_image(png16(tmp_path / "a.png", values, significant=12)).max() == 16


def test_pnm_and_jpeg_2000_say_how_deep_they_are(tmp_path: Path) -> None:
    header = b"P5 20 20 4095\n"
    (tmp_path / "a.pgm").write_bytes(header + TWELVE_BITS.astype(">u2").tobytes())
    assert np.abs(read_image(tmp_path / "a.pgm")[..., 0].astype(int) - FULL).max() <= 1
    (tmp_path / "b.pgm").write_bytes(header + (TWELVE_BITS // 40).astype(">u2").tobytes())
    assert read_image(tmp_path / "b.pgm").max() == 6  # dark, and that is meant


def test_16_bit_colour_with_12_bit_values_is_refused(tmp_path: Path) -> None:
    colour = np.stack([TWELVE_BITS] * 3, axis=2)
    for significant in (None, 12):
        with pytest.raises(InputError, match="nearly black"):
            read_image(png16(tmp_path / "a.png", colour, significant))
    opaque = np.dstack([colour, np.full_like(TWELVE_BITS, 65535)])
    with pytest.raises(InputError, match="nearly black"):
        read_image(png16(tmp_path / "b.png", opaque))
    assert np.array_equal(read_image(png16(tmp_path / "c.png", colour * 16))[..., 0], TWELVE_BITS >> 4)


def test_colours_without_a_way_to_rgb_are_one_sentence() -> None:
    with pytest.raises(InputError, match="holds La colours, which are not read; save it as RGB"):
        displayed(Image.new("LA", (20, 20)).convert("La"), Depth(), "a")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "1", "CMYK", "F", "I", "I;16"])
def test_a_large_image_converted_in_strips_is_what_it_is_in_one_piece(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    if mode == "F":
        image = Image.fromarray(rng.random((50, 40), np.float32))
    elif mode.startswith("I"):
        deep = rng.integers(0, 65536, (50, 40))
        image = Image.fromarray(deep.astype(np.int32 if mode == "I" else np.uint16))
    else:
        image = Image.fromarray(rng.integers(0, 256, (50, 40, 4), np.uint8)).convert(mode)
    assert image.mode == mode
    whole = np.asarray(displayed(image, Depth(), "a"))
    assert STRIP_PIXELS > 2000
    monkeypatch.setattr("dinosaur_ad.images.depth.STRIP_PIXELS", 40 * 7)
    assert np.array_equal(np.asarray(displayed(image, Depth(), "a")), whole)
