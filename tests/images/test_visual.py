from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dinosaur_ad import Dinosaur
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.drawing import LARGEST, colours, heat, outline, overlay, paint, save_overlay
from dinosaur_ad.inspection import Inspection, WorstPatch
from dinosaur_ad.presets import DEFAULT


def inspected(
    map_HW: np.ndarray, *, threshold: float = 0.4, shape: tuple[int, ...] = (64, 64), like: str = "gone.png"
) -> Inspection:
    """An inspection with this map, for a usual level of 0.2; the worst patch is where the map is highest."""
    rows, columns = map_HW.shape
    row, column = divmod(int(map_HW.argmax()), columns)
    height, width = shape[:2]
    box = (column * width // columns, row * height // rows)
    box = (*box, (column + 1) * width // columns, (row + 1) * height // rows)
    score = float(map_HW.max())
    return Inspection(
        path="part.png",
        task="caps",
        score=score,
        p_value=0.02,
        verdict="anomalous" if score > threshold else "normal",
        threshold=threshold,
        false_alarms=0.025,
        normal_level=0.2,
        worst=WorstPatch(row, column, box, score, like, 0, 0),
        asked={"caps": score},
        encoder="tiny-dinov2",
        ms={"total": 1.0},
        image_size=(height, width),
        map=map_HW.astype(np.float32),
    )


def spot(distance: float, grid: tuple[int, int] = (8, 8)) -> np.ndarray:
    """Usual everywhere, and ``distance`` at one patch."""
    map_HW = np.full(grid, 0.2)
    map_HW[grid[0] // 2, grid[1] // 2] = distance
    return map_HW


def changed(before: np.ndarray, after: np.ndarray) -> float:
    return float((before != after).any(axis=-1).mean())


def test_a_good_part_looks_good_and_a_bad_one_does_not() -> None:
    rng = np.random.default_rng(0)
    parts = rng.integers(100, 140, (24, 70, 70, 3), np.uint8)
    detector = Dinosaur(encoder="tiny-dinov2", preset=replace(DEFAULT, layers=(0, 1), size=70))
    detector.learn("plates", list(parts[:20]))
    good, bad = parts[22], parts[23].copy()
    bad[:42, :42] = 0
    good_seen, bad_seen = detector.inspect([good, bad])
    assert (good_seen.verdict, bad_seen.verdict) == ("normal", "unknown")  # most of it is gone
    assert changed(bad, paint(bad, bad_seen)) > 0.25
    assert changed(good, paint(good, good_seen)) < changed(bad, paint(bad, bad_seen)) / 4


def test_the_scale_is_absolute() -> None:
    pixels = np.full((64, 64, 3), 120, np.uint8)
    same_map = spot(0.5)
    assert changed(pixels, paint(pixels, inspected(same_map, threshold=0.4))) > 0.01
    # The same map of a task whose normal images vary more is nothing to look at.
    assert changed(pixels, paint(pixels, inspected(same_map, threshold=0.9))) == 0


def test_heat_is_one_at_the_threshold_even_when_the_threshold_is_odd() -> None:
    assert heat(inspected(spot(0.4))).max() == pytest.approx(1.0)
    assert np.isfinite(heat(inspected(spot(0.3), threshold=0.2))).all()


@given(st.lists(st.floats(0, 4, width=32), min_size=2, max_size=30))
def test_more_heat_is_never_fainter_nor_lighter(values: list[float]) -> None:
    rgba = colours(np.sort(np.float32([values])))[0].astype(float)
    luminance = rgba[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(rgba[:, 3]) >= 0).all()
    assert (np.diff(luminance) <= 0.6).all()  # rounding to whole colour values may lift it by half a step


@pytest.mark.parametrize("shape", [(40, 30), (5, 3000, 3), (2600, 1900, 3), (1, 1, 3), (480, 640, 3)])
def test_any_image_can_be_overlaid(shape: tuple[int, ...]) -> None:
    pixels = np.zeros(shape, np.uint8)
    for distance in (0.3, 0.9):
        picture = overlay(pixels, inspected(spot(distance), shape=shape))
        assert picture.dtype == np.uint8
        assert picture.shape[2] == 3
        assert max(picture.shape) <= LARGEST + 200  # the image, and room for words and close-ups


def test_the_worst_patch_is_boxed_only_in_an_alarm() -> None:
    pixels = np.full((640, 640, 3), 90, np.uint8)
    x, y = 640 // 8 * 4, 640 // 8 * 4
    assert overlay(pixels, inspected(spot(0.9), shape=pixels.shape))[y, x].tolist() == [255, 255, 255]
    assert overlay(pixels, inspected(spot(0.2), shape=pixels.shape))[y, x].tolist() == [90, 90, 90]


def test_what_could_not_be_judged_does_not_look_normal() -> None:
    pixels = np.full((640, 640, 3), 90, np.uint8)
    normal = inspected(spot(0.3), shape=pixels.shape)
    drawn = [overlay(pixels, replace(normal, verdict=verdict)) for verdict in ("normal", "not ready", "anomalous")]
    strips = [picture[640:] for picture in drawn]
    assert not np.array_equal(strips[0], strips[1])
    assert not np.array_equal(strips[1], strips[2])
    assert drawn[1][320, 320].tolist() == [255, 255, 255]  # boxed


def test_a_part_that_cannot_be_judged_says_on_its_picture_what_to_do() -> None:
    pixels = np.full((640, 640, 3), 90, np.uint8)
    seen = replace(inspected(spot(0.3), shape=pixels.shape), verdict="not ready")
    reasons = ("", "Its threshold is too high; teach it more.", "Too close; teach it more.", "So; set a lower one.")
    silent, one, other, another = (overlay(pixels, replace(seen, reason=reason)) for reason in reasons)
    assert not np.array_equal(silent, one)
    np.testing.assert_array_equal(one, other)
    assert not np.array_equal(one, another)


def test_the_normal_it_was_compared_with_is_shown_while_its_file_is_there(tmp_path: Path) -> None:
    like = tmp_path / "normal.png"
    Image.new("RGB", (64, 64), (10, 200, 30)).save(like)
    pixels, seen = np.zeros((64, 64, 3), np.uint8), inspected(spot(0.9), like=str(like))
    with_normal = overlay(pixels, seen)
    assert (with_normal == (10, 200, 30)).all(axis=-1).any()
    like.write_bytes(b"no longer an image")
    assert overlay(pixels, seen).shape[1] < with_normal.shape[1]


def test_overlays_with_a_long_task_name_stay_within_their_picture(tmp_path: Path) -> None:
    seen = replace(inspected(spot(0.9)), task="a-very-long-name" * 8)
    assert (
        overlay(np.zeros((64, 64, 3), np.uint8), seen).shape
        == overlay(np.zeros((64, 64, 3), np.uint8), inspected(spot(0.9))).shape
    )


def test_an_overlay_is_written_whole_or_explained(tmp_path: Path) -> None:
    pixels, seen = np.zeros((64, 64, 3), np.uint8), inspected(spot(0.9))
    save_overlay(tmp_path / "looks" / "part.png", pixels, seen)
    with Image.open(tmp_path / "looks" / "part.png") as image:
        assert np.array_equal(np.asarray(image), overlay(pixels, seen))
    assert [path.name for path in (tmp_path / "looks").iterdir()] == ["part.png"]
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"could not be written .*choose another folder"):
        save_overlay(tmp_path / "file" / "part.png", pixels, seen)


def test_an_outline_runs_around_the_mask_and_not_over_it() -> None:
    pixels, mask = np.zeros((9, 9, 3), np.uint8), np.zeros((9, 9), np.bool_)
    mask[3:6, 3:6] = True
    drawn = (outline(pixels, mask) != pixels).any(axis=-1)
    assert drawn.sum() == 12
    assert not (drawn & mask).any()
    assert not outline(pixels, np.zeros((9, 9), np.bool_)).any()
