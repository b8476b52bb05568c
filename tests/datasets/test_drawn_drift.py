"""Each drift against its definition, written out pixel by pixel."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dinosaur_ad.datasets import BlurDrift, ColorDrift, Drift, GeometricDrift, draw_drift, draw_replay_drift
from dinosaur_ad.datasets.drawn_drift import BLUR_LEVELS, COLOR_BANDS, DRIFT_KINDS, GEOMETRIC_LEVELS, LEVELS
from dinosaur_ad.errors import InputError

COLOURED = hnp.arrays(np.uint8, st.tuples(st.integers(1, 8), st.integers(1, 8), st.just(3)))
NOISE = np.random.default_rng(0).integers(0, 256, (24, 31, 3), dtype=np.uint8)


# Colour


def literal_grey(pixel: np.ndarray) -> int:
    red, green, blue = (int(value) for value in pixel)
    return (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16


def literal_blend(base: float, value: int, factor: float) -> int:
    return int(min(max(np.float32(base) + np.float32(factor) * (np.float32(value) - np.float32(base)), 0), 255))


def literal_color(pixels: np.ndarray, factor: float) -> np.ndarray:
    height, width, _ = pixels.shape
    out = pixels.copy()
    for y, x, c in np.ndindex(out.shape):
        out[y, x, c] = literal_blend(0, out[y, x, c], factor)
    greys = [literal_grey(out[y, x]) for y, x in np.ndindex(height, width)]
    mean = int(sum(greys) / len(greys) + 0.5)
    for y, x, c in np.ndindex(out.shape):
        out[y, x, c] = literal_blend(mean, out[y, x, c], factor)
    for y, x in np.ndindex(height, width):
        grey = literal_grey(out[y, x])
        out[y, x] = [literal_blend(grey, value, factor) for value in out[y, x]]
    return out


@settings(max_examples=40, deadline=None)
@given(pixels=COLOURED, factor=st.floats(0.5, 1.5))
def test_color_is_brightness_then_contrast_then_saturation(pixels: np.ndarray, factor: float) -> None:
    assert np.array_equal(ColorDrift(factor).image(pixels), literal_color(pixels, factor))


def test_color_leaves_grey_grey_and_the_source_alone() -> None:
    grey = np.repeat(NOISE[..., :1], 3, axis=2)
    before = grey.copy()
    drifted = ColorDrift(1.3).image(grey)
    assert (drifted == drifted[..., :1]).all()
    assert not np.array_equal(drifted, grey)
    assert np.array_equal(grey, before)


def test_factor_one_is_the_identity() -> None:
    assert np.array_equal(ColorDrift(1.0).image(NOISE), NOISE)


# Blur


def literal_blur(pixels: np.ndarray, kernel: int, sigma: float) -> np.ndarray:
    height, width, _ = pixels.shape
    radius = kernel // 2
    weights = [math.exp(-(tap**2) / (2 * sigma**2)) for tap in range(-radius, radius + 1)]
    total = sum(weights)
    out = np.zeros(pixels.shape)
    for y, x in np.ndindex(height, width):
        for dy in range(-radius, radius + 1):
            for dx in range(-radius, radius + 1):
                weight = weights[dy + radius] * weights[dx + radius] / total**2
                out[y, x] += weight * pixels[mirror(y + dy, height), mirror(x + dx, width)]
    return out


def mirror(index: int, size: int) -> int:
    index = abs(index)
    return index if index < size else 2 * (size - 1) - index


@pytest.mark.parametrize(("kernel", "sigma"), [(3, 1.0), (5, 1.5), (19, 5.0)])
@pytest.mark.parametrize("channels", [1, 3])
def test_blur_is_the_cut_gaussian_with_mirrored_borders(kernel: int, sigma: float, channels: int) -> None:
    pixels = np.ascontiguousarray(np.broadcast_to(NOISE[:12, :13, :channels], (12, 13, 3)))
    exact = literal_blur(pixels, kernel, sigma)
    drifted = BlurDrift(kernel, sigma).image(pixels)
    assert drifted.dtype == np.uint8
    assert np.abs(drifted - exact).max() <= 0.5 + 1e-3  # rounded to nearest


@settings(max_examples=20, deadline=None)
@given(pixels=COLOURED, sigma=st.floats(0.1, 10))
def test_kernel_one_is_the_identity(pixels: np.ndarray, sigma: float) -> None:
    assert np.array_equal(BlurDrift(1, sigma).image(pixels), pixels)


@settings(max_examples=20, deadline=None)
@given(pixels=COLOURED, level=st.integers(0, 9))
def test_blur_stays_within_the_range_of_the_image(pixels: np.ndarray, level: int) -> None:
    drifted = BlurDrift(*BLUR_LEVELS[level]).image(pixels)  # also images far smaller than the kernel
    assert drifted.shape == pixels.shape
    assert drifted.min() >= pixels.min()
    assert drifted.max() <= pixels.max()


def test_impossible_blurs_are_refused() -> None:
    with pytest.raises(InputError, match="kernel must be odd"):
        BlurDrift(4, 1.0)
    with pytest.raises(InputError, match="sigma above 0"):
        BlurDrift(3, 0.0)


# Geometry


def literal_inverse(drift: GeometricDrift, height: int, width: int) -> list[float]:
    """The inverse affine matrix as torchvision spells it, with its second shear at zero."""
    rot, sx = math.radians(drift.rotation), math.radians(drift.shear)
    a, b = math.cos(rot), -math.cos(rot) * math.tan(sx) - math.sin(rot)
    c, d = math.sin(rot), -math.sin(rot) * math.tan(sx) + math.cos(rot)
    matrix = [value / drift.scale for value in (d, -b, 0.0, -c, a, 0.0)]
    cx, cy = width * 0.5, height * 0.5
    matrix[2] += matrix[0] * (-cx - drift.translate_x) + matrix[1] * (-cy - drift.translate_y) + cx
    matrix[5] += matrix[3] * (-cx - drift.translate_x) + matrix[4] * (-cy - drift.translate_y) + cy
    return matrix


def literal_warp(pixels: np.ndarray, drift: GeometricDrift) -> tuple[np.ndarray, np.ndarray]:
    """Bilinear samples at pixel centres (H, W, 3), and which of them come from inside (H, W)."""
    height, width, _ = pixels.shape
    a, b, c, d, e, f = literal_inverse(drift, height, width)
    out, inside = np.zeros(pixels.shape), np.zeros((height, width), bool)
    for y, x in np.ndindex(height, width):
        sx, sy = a * (x + 0.5) + b * (y + 0.5) + c, d * (x + 0.5) + e * (y + 0.5) + f
        inside[y, x] = 0 <= sx < width and 0 <= sy < height
        if inside[y, x]:
            left, top = math.floor(sx - 0.5), math.floor(sy - 0.5)
            for ny, nx in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
                weight = (1 - abs(sx - 0.5 - nx)) * (1 - abs(sy - 0.5 - ny))
                out[y, x] += weight * pixels[min(max(ny, 0), height - 1), min(max(nx, 0), width - 1)]
    return out, inside


@pytest.mark.parametrize("level", [1, 5, 10])
@pytest.mark.parametrize("kind", ["geo", "geo-literal"])
def test_geometry_is_the_affine_map_about_the_centre(kind: str, level: int) -> None:
    drift = draw_drift(kind, level, "any")
    assert isinstance(drift, GeometricDrift)
    exact, inside = literal_warp(NOISE, drift)
    drifted = drift.image(NOISE)
    assert np.abs(drifted - exact).max() <= 1.0
    assert np.array_equal(drift.valid((24, 31)), inside)
    assert (drifted[~inside] == 0).all()


def test_the_mask_follows_the_image() -> None:
    mask = np.zeros((60, 80), bool)
    mask[20:40, 30:50] = True
    drift = draw_drift("geo", 10, "any")
    image = drift.image(np.repeat(mask[..., None] * np.uint8(255), 3, axis=2))
    moved = drift.mask(mask)
    assert moved.dtype == np.bool_
    assert (moved != mask).any()
    assert (moved != (image[..., 0] > 127)).mean() < 0.01  # they differ only along the edge


def test_rotation_is_clockwise_and_translation_is_right_and_down() -> None:
    mask = np.zeros((5, 5), bool)
    mask[0, 2] = True  # twelve o'clock goes to three o'clock
    turned = GeometricDrift(rotation=90, translate_x=0, translate_y=0, scale=1, shear=0).mask(mask)
    moved = GeometricDrift(rotation=0, translate_x=1, translate_y=3, scale=1, shear=0).mask(mask)
    assert np.argwhere(turned).tolist() == [[2, 4]]
    assert np.argwhere(moved).tolist() == [[3, 3]]


def test_the_literal_reading_leaves_almost_nothing_to_see() -> None:
    shares = {kind: draw_drift(kind, 10, "any").valid((300, 300)).mean() for kind in ("geo", "geo-literal")}
    assert shares["geo"] > 0.8
    assert shares["geo-literal"] < 0.02


def test_both_readings_share_their_draws() -> None:
    plain, literal = draw_drift("geo", 7, "any").params(), draw_drift("geo-literal", 7, "any").params()
    assert plain.pop("scale") == pytest.approx(1 + literal.pop("scale"))
    assert plain == literal


def test_a_scale_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="must be above 0"):
        GeometricDrift(rotation=0, translate_x=0, translate_y=0, scale=0, shear=0)


# Draws


@pytest.mark.parametrize("level", range(1, LEVELS + 1))
def test_draws_stay_in_the_papers_windows(level: int) -> None:
    low, high = COLOR_BANDS[level - 1]
    factors = [draw_drift("color", level, f"{n}.jpg").params()["factor"] for n in range(200)]
    assert all(low <= round(abs(factor - 1), 12) <= high for factor in factors)
    assert 60 < sum(factor > 1 for factor in factors) < 140  # both signs

    rotation, translation, scale, shear = GEOMETRIC_LEVELS[level - 1]
    for seed in range(20):
        drift = draw_drift("geo", level, "any", seed)
        assert isinstance(drift, GeometricDrift)
        assert rotation - 2 <= drift.rotation <= rotation
        assert translation - 1 <= min(drift.translate_x, drift.translate_y)
        assert max(drift.translate_x, drift.translate_y) <= translation
        assert scale - 0.01 <= drift.scale - 1 + 1e-12
        assert drift.scale - 1 <= scale + 1e-12
        assert shear - 1 <= drift.shear <= shear


@pytest.mark.parametrize("kind", DRIFT_KINDS)
def test_draws_do_not_depend_on_order(kind: str) -> None:
    keys = [(level, name) for level in (1, 4, 10) for name in ("a.jpg", "b.jpg")]
    forward = {key: draw_drift(kind, *key) for key in keys}
    backward = {key: draw_drift(kind, *key) for key in reversed(keys)}
    assert forward == backward


def test_color_depends_on_image_level_and_seed_and_geometry_on_level_and_seed() -> None:
    assert len({draw_drift("color", level, n, s) for level in (1, 2) for n in "ab" for s in (0, 1)}) == 8
    assert len({draw_drift("geo", level, n, s) for level in (1, 2) for n in "ab" for s in (0, 1)}) == 4


def test_published_draws_never_change() -> None:
    # Stored results rest on these numbers; a change here makes them incomparable.
    assert draw_drift("color", 3, "MT_Free/exp1_num_10181.jpg").params()["factor"] == pytest.approx(0.8906314)
    assert draw_drift("geo", 3, "any").params()["rotation"] == pytest.approx(4.084768)


@pytest.mark.parametrize("kind", DRIFT_KINDS)
def test_drifts_are_plain_values(kind: str) -> None:
    for drift in (draw_drift(kind, 2, "a.jpg"), draw_replay_drift(kind, 2, "a.jpg")):
        assert isinstance(drift, Drift)
        assert pickle.loads(pickle.dumps(drift)) == drift
        assert json.loads(json.dumps(drift.params())) == drift.params()


# What replay may see


@pytest.mark.parametrize("level", [1, 3, 10])
def test_replay_draws_fill_the_range_from_nothing_to_the_level(level: int) -> None:
    names = [f"{n}.jpg" for n in range(300)]

    def covers(values: list[float], low: float, high: float) -> bool:
        margin = (high - low) / 20
        inside = low - 1e-12 <= min(values) and max(values) <= high + 1e-12
        return inside and min(values) <= low + margin and max(values) >= high - margin

    factors = [draw_replay_drift("color", level, name).factor for name in names]
    assert covers([abs(factor - 1) for factor in factors], 0, COLOR_BANDS[level - 1][1])
    assert 100 < sum(factor > 1 for factor in factors) < 200

    kernel, sigma = BLUR_LEVELS[level - 1]
    blurs = [draw_replay_drift("blur", level, name) for name in names]
    assert {blur.kernel for blur in blurs} == {kernel}
    assert covers([blur.sigma for blur in blurs], 0.5, sigma)

    rotation, translation, scale, shear = GEOMETRIC_LEVELS[level - 1]
    moves = [draw_replay_drift("geo", level, name) for name in names]
    assert covers([move.rotation for move in moves], 0, rotation)
    assert covers([move.translate_x for move in moves], 0, translation)
    assert covers([move.translate_y for move in moves], 0, translation)
    assert covers([move.scale for move in moves], 1, 1 + scale)
    assert covers([move.shear for move in moves], 0, shear)
    literal = [draw_replay_drift("geo-literal", level, name).scale for name in names]
    assert covers(literal, 0, scale)
    assert min(literal) > 0


def test_replay_draws_of_the_first_blur_level_change_nothing() -> None:
    assert np.array_equal(draw_replay_drift("blur", 1, "a").image(NOISE), NOISE)


@pytest.mark.parametrize("kind", ["color", "blur", "geo", "geo-literal"])
def test_replay_is_drawn_for_each_image_level_and_seed(kind: str) -> None:
    drawn = {draw_replay_drift(kind, level, n, seed) for level in (2, 3) for n in "ab" for seed in (0, 1)}
    assert len(drawn) == 8
    assert draw_replay_drift(kind, 2, "a", 1) in drawn


def test_replay_draws_are_independent_of_the_others() -> None:
    narrow = [abs(draw_drift("color", 10, f"{n}").factor - 1) for n in range(300)]
    wide = [abs(draw_replay_drift("color", 10, f"{n}").factor - 1) for n in range(300)]
    assert abs(np.corrcoef(narrow, wide)[0, 1]) < 0.2  # the same generator would give 1


def test_published_replay_draws_never_change() -> None:
    assert draw_replay_drift("color", 3, "MT_Free/exp1_num_10181.jpg").factor == pytest.approx(0.8814176)
    assert draw_replay_drift("blur", 3, "MT_Free/exp1_num_10181.jpg").sigma == pytest.approx(1.282729)
    assert draw_replay_drift("geo", 3, "MT_Free/exp1_num_10181.jpg").rotation == pytest.approx(0.184137)


def test_photometric_drift_moves_nothing() -> None:
    mask = NOISE[..., 0] > 127
    for drift in (draw_drift("color", 5, "a"), draw_drift("blur", 5, "a")):
        assert np.array_equal(drift.mask(mask), mask)
        assert drift.valid(mask.shape) is None


def test_unknown_drifts_are_refused() -> None:
    with pytest.raises(InputError, match="choose one of color, blur, geo, geo-literal"):
        draw_drift("fog", 1, "a")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="level 11 does not exist; choose 1 to 10"):
        draw_drift("blur", 11, "a")
    with pytest.raises(InputError, match="level 0 does not exist"):
        draw_replay_drift("blur", 0, "a")
