"""What a program that uses the package sees of it: its names, and what the objects say and turn into."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import dinosaur_ad
from detector_helpers import product, spoil, tiny
from dinosaur_ad import Dinosaur, InputError, Inspection, Rejected, StoreError, from_bgr, overlay, to_pandas
from dinosaur_ad._text import odds
from dinosaur_ad.images.drawing import heat_layer

NAMES = {
    "Dinosaur", "Inspection", "Learned", "Rejected", "WorstPatch", "InputError", "StoreError", "EncoderError",
    "EncoderOptions", "DinosaurError", "PRESETS", "Preset", "Region", "Suspect", "overlay", "from_bgr", "to_pandas",
    "load_encoder", "Changed", "TaskSettings", "__version__",
}  # fmt: skip


@pytest.fixture(scope="module")
def detector() -> Dinosaur:
    taught = tiny()
    taught.learn("plate", product(0, 30))
    return taught


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A good and a bad one as files."""
    folder, good = tmp_path_factory.mktemp("parts"), product(0, 1, seed=7)[0]
    for name, image in {"good": good, "bad": spoil(good)}.items():
        Image.fromarray(image).save(folder / f"{name}.png")
    return [folder / "good.png", folder / "bad.png"]


@pytest.fixture(scope="module")
def results(detector: Dinosaur, parts: list[Path]) -> list[Inspection]:
    return detector.inspect(parts)


# --- the package ---


def test_every_public_name_is_there() -> None:
    assert set(dinosaur_ad.__all__) == NAMES
    assert set(dir(dinosaur_ad)) >= NAMES
    assert len(dir(dinosaur_ad)) == len(set(dir(dinosaur_ad)))
    for name in NAMES:
        assert getattr(dinosaur_ad, name) is not None
    with pytest.raises(AttributeError, match="Dinosaurr"):
        dinosaur_ad.Dinosaurr  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_loads_none_of_its_modules() -> None:
    code = "import dinosaur_ad, sys; dir(dinosaur_ad); print(*(n for n in sys.modules if n.startswith('dinosaur_ad.')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["dinosaur_ad._telemetry"]


def test_inspecting_loads_no_drawing() -> None:
    code = "from dinosaur_ad import Dinosaur, Inspection; import sys; print('PIL.ImageDraw' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


# --- the detector ---


def test_a_detector_says_what_it_is_without_loading_or_making_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dinosaur_ad.basis.load_encoder", lambda *_, **__: pytest.fail("loaded the encoder"))
    new = tiny(tmp_path / "line-3")
    assert repr(new) == f"<Dinosaur {tmp_path}/line-3: 0 tasks, encoder tiny-dinov2, preset tiny>"
    assert repr(tiny()) == "<Dinosaur in memory: 0 tasks, encoder tiny-dinov2, preset tiny>"
    assert len(new) == 0
    assert "plate" not in new
    assert new  # as before it had a length
    assert not (tmp_path / "line-3").exists()


def test_tasks_are_counted_and_found(detector: Dinosaur) -> None:
    assert len(detector) == 1
    assert "plate" in detector
    assert "cap" not in detector
    assert 3 not in detector
    assert "1 task," in repr(detector)
    with pytest.raises(TypeError):
        iter(detector)  # type: ignore[call-overload]


def test_a_task_found_damaged_no_longer_counts(tmp_path: Path) -> None:
    taught = tiny(tmp_path / "store")
    taught.learn("plate", product(0, 20))
    taught.learn("cap", product(1, 20))
    assert len(taught) == 2
    files = [path for path in (tmp_path / "store" / "tasks" / "cap").rglob("*prototype*") if path.is_file()]
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:-8])
    fresh = Dinosaur(tmp_path / "store")
    assert set(fresh.damaged()) == {"cap"}
    assert (len(fresh), "cap" in fresh, "plate" in fresh) == (1, False, True)


def test_a_store_that_cannot_be_read_still_has_a_repr(detector: Dinosaur, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise StoreError("The store is gone.")

    monkeypatch.setattr(detector, "tasks", broken)
    assert "tasks that cannot be read" in repr(detector)


# --- an inspection ---


def test_an_inspection_is_one_readable_line(results: list[Inspection], parts: list[Path]) -> None:
    bad = results[1]
    numbers = f"score {bad.score:.3g} / threshold {bad.threshold:.3g}"
    assert repr(bad) == f"<Inspection anomalous: task plate, {numbers}, {parts[1]}>"
    assert "\n" not in repr(replace(bad, path="a\nnormal\x1b[2J.png"))
    assert bad.to_dict() == bad.to_json()


def test_the_overlay_comes_from_the_file_or_the_image(results: list[Inspection], parts: list[Path]) -> None:
    bad, pixels = results[1], np.asarray(Image.open(parts[1]))
    expected = overlay(pixels, bad)
    for image in (None, pixels, parts[1], str(parts[1]), Image.fromarray(pixels)):
        drawn = bad.overlay(image)
        assert drawn.dtype == np.uint8
        np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize("path", ["image-000000", "gone/part.png", "", "\0", "x" * 9000])
def test_an_overlay_without_a_file_asks_for_the_image(results: list[Inspection], path: str) -> None:
    with pytest.raises(InputError, match=r"is no file that could be read again; give the image: overlay\(image\)\."):
        replace(results[1], path=path).overlay()


def test_an_overlay_on_a_smaller_image_is_refused(results: list[Inspection]) -> None:
    with pytest.raises(InputError, match="20 x 18 pixels, smaller than the one that was inspected"):
        results[1].overlay(np.zeros((18, 20, 3), np.uint8))


def test_the_mask_is_where_the_heat_layer_passes_the_threshold(results: list[Inspection]) -> None:
    good, bad = results
    assert not good.mask((70, 70)).any()
    assert bad.mask((70, 70)).any()
    # On so small a grid the windows of a defect are most of it: a map with one place above the threshold instead.
    one = np.full(bad.map.shape, bad.normal_level, np.float32)
    one[bad.worst.row, bad.worst.column] = 2 * bad.threshold
    bad = replace(bad, map=one)
    mask = bad.mask((140, 210))
    assert (mask.shape, mask.dtype) == ((140, 210), np.bool_)
    left, top, right, bottom = bad.worst.box
    assert mask[(top + bottom), 3 * (left + right) // 2]  # the middle of the worst patch
    assert 0 < mask.mean() < 0.5
    opacity = heat_layer(bad, 140, 210)[..., 3]
    assert opacity[mask].min() >= opacity[~mask].max() - 1  # half opaque is the threshold
    assert opacity[mask].min() >= 127


def test_the_mask_alarms_on_what_is_no_number_and_below_the_usual_level(results: list[Inspection]) -> None:
    broken = replace(results[0], map=np.full((5, 5), np.nan, np.float32))
    assert broken.mask((10, 10)).all()
    low = replace(results[0], map=np.float32([[0.1, 0.3]]), normal_level=0.5, threshold=0.2)
    assert low.mask((1, 2)).tolist() == [[False, True]]
    assert not replace(results[1], threshold=float("inf")).mask((10, 10)).any()


@pytest.mark.parametrize("size", [(0, 5), (5, -1), (5,), (5, 5, 3), 5, None, (1.5, 2), "ab", (10**6, 10**6)])
def test_a_mask_of_no_size_is_refused(results: list[Inspection], size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match=r"\(height, width\) in pixels"):
        results[0].mask(size)


def test_a_notebook_shows_verdict_reason_and_picture(results: list[Inspection]) -> None:
    bad = results[1]
    page = bad._repr_html_()
    assert "anomalous" in page
    assert "plate" in page
    assert odds(bad.p_value) in page
    encoded = page.partition("data:image/png;base64,")[2].partition('"')[0]
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded)))), bad.overlay())


def test_a_notebook_shows_foreign_text_as_text(results: list[Inspection]) -> None:
    hostile = '"><script>alert(1)</script>'
    page = replace(results[1], path=hostile, task=hostile, verdict=hostile, reason=hostile)._repr_html_()
    assert "<script" not in page
    assert '"><' not in page.replace('style="max-width: 100%"><', "")
    assert page.count("&lt;script&gt;") == 4
    assert "<img" not in page


def test_a_task_that_cannot_judge_says_why_in_the_place_of_odds(results: list[Inspection]) -> None:
    page = replace(results[0], verdict="not ready", reason="Teach it more.")._repr_html_()
    assert "Teach it more." in page
    assert "good part" not in page


@pytest.mark.parametrize(
    ("p_value", "words"),
    [(0.025, "1 in 40 "), (1 / 31, "1 in 31 "), (0.5, "1 in 2 "), (0.67, "nearly every"), (1.0, "nearly every")],
)
def test_p_in_plain_words(p_value: float, words: str) -> None:
    assert odds(p_value).startswith(words)
    for unknown in (0.0, -1.0, float("nan"), 2.0):
        assert odds(unknown).endswith("is not known")


# --- regions ---


def test_only_an_anomalous_image_has_regions(results: list[Inspection]) -> None:
    good, bad = results
    assert good.regions == ()
    assert bad.regions
    assert replace(bad, verdict="not ready").regions == ()
    assert replace(bad, verdict="normal").regions == ()
    x, y = bad.regions[0].peak_at
    left, top, right, bottom = bad.worst.box
    assert left <= x < right
    assert top <= y < bottom
    assert bad.regions[0].peak == bad.map.max()


def test_regions_are_in_the_document(results: list[Inspection]) -> None:
    document = json.loads(json.dumps(results[1].to_dict()))
    assert document["image_size"] == [70, 70]
    assert len(document["regions"]) == len(results[1].regions)
    first = document["regions"][0]
    assert [tuple(point) for point in first["contour"]] == list(results[1].regions[0].contour)
    assert set(first) == {"contour", "box", "area", "peak", "peak_at"}
    assert json.loads(json.dumps(results[0].to_dict()))["regions"] == []


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_regions_cover_what_is_above_the_threshold(results: list[Inspection], data: st.DataObject) -> None:
    rows, columns = data.draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    height, width = data.draw(st.tuples(st.integers(16, 90), st.integers(16, 90)))
    values = data.draw(st.lists(st.sampled_from([0.1, 0.3, 0.5, 0.9, float("nan")]), min_size=49, max_size=49))
    map_HW = np.float32(values[: rows * columns]).reshape(rows, columns)
    seen = replace(results[1], map=map_HW, threshold=0.4, verdict="anomalous", image_size=(height, width))
    peaks = [np.inf if np.isnan(region.peak) else region.peak for region in seen.regions]
    assert peaks == sorted(peaks, reverse=True)
    assert len(peaks) >= 1
    assert np.isnan(map_HW).any() == np.isinf(peaks[0]) or peaks[0] == map_HW.max()
    masks = [seen._filled(region) for region in seen.regions]
    union = np.logical_or.reduce(masks)
    assert union.sum() == sum(region.area for region in seen.regions)  # no two overlap
    above = ~(map_HW <= 0.4)
    for row, column in np.ndindex(rows, columns):
        left, top, right, bottom = seen._cell_box(row, column)
        expected = above[row, column] or (not above.any() and (row, column) == divmod(int(map_HW.argmax()), columns))
        assert union[top:bottom, left:right].all() if expected else not union[top:bottom, left:right].any()
    for region, mask in zip(seen.regions, masks, strict=True):
        ys, xs = np.nonzero(mask)
        assert region.box == (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
        assert region.box == (
            *map(min, zip(*region.contour, strict=True)),
            *map(max, zip(*region.contour, strict=True)),
        )


def test_a_threshold_at_the_peak_still_gives_a_region(results: list[Inspection]) -> None:
    """The score is a mean, which may be rounded to slightly more than the largest distance."""
    bad = results[1]
    (only,) = replace(bad, threshold=float(bad.map.max())).regions
    assert only.box == bad.worst.box


# --- for other packages ---


def test_a_table_has_a_row_for_every_image(results: list[Inspection]) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    table = to_pandas([*results, Rejected("broken.png", "It is no image.")])
    assert list(table["verdict"]) == ["normal", "anomalous", "rejected"]
    assert list(table["path"]) == [results[0].path, results[1].path, "broken.png"]
    assert table["worst.box"][1] == results[1].worst.box
    assert table["asked.plate"][0] == results[0].score
    assert table["reason"][2] == "It is no image."
    assert "map" not in table
    empty = to_pandas(iter(()))
    assert len(empty) == 0
    assert "verdict" in empty


def test_without_the_packages_a_sentence_says_so(results: list[Inspection], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(InputError, match=r"^to_pandas needs the package pandas.*pip install pandas\.$"):
        to_pandas(results)
    with pytest.raises(InputError, match=r"^to_supervision needs .*pip install supervision\.$"):
        results[0].to_supervision()


def test_regions_as_detections(results: list[Inspection], monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the constructor of supervision alone where the package is not installed."""
    try:
        import supervision  # noqa: F401
    except ImportError:
        monkeypatch.setitem(sys.modules, "supervision", SimpleNamespace(Detections=SimpleNamespace))
    good, bad = (each.to_supervision() for each in results)
    assert bad.xyxy.tolist() == [list(region.box) for region in results[1].regions]
    assert bad.data["peak"].tolist() == [region.peak for region in results[1].regions]
    masks = results[1].to_supervision(masks=True).mask
    assert masks.shape == (len(results[1].regions), 70, 70)
    assert masks.sum(axis=(1, 2)).tolist() == [region.area for region in results[1].regions]
    assert bad.mask is None
    assert bad.confidence[0] == pytest.approx(1 - results[1].p_value)
    assert set(bad.class_id.tolist()) == {0}
    assert set(bad.data["class_name"].tolist()) == {"plate"}
    assert set(bad.data["verdict"].tolist()) == {"anomalous"}
    assert good.xyxy.shape == (0, 4)
    assert {len(column) for column in (good.confidence, good.class_id, *good.data.values())} == {0}
    unjudged = replace(results[0], verdict="not ready").to_supervision()
    assert unjudged.xyxy.tolist() == [list(results[0].worst.box)]


# --- OpenCV ---


def test_blue_first_becomes_red_first() -> None:
    bgr = np.random.default_rng(0).integers(0, 255, (20, 30, 3), np.uint8)
    rgb = from_bgr(bgr)
    assert rgb.flags.c_contiguous
    for band in range(3):
        np.testing.assert_array_equal(rgb[..., band], bgr[..., 2 - band])
    bgra = np.dstack([bgr, np.full((20, 30), 9, np.uint8)])
    np.testing.assert_array_equal(from_bgr(bgra)[..., :3], rgb)
    assert (from_bgr(bgra)[..., 3] == 9).all()
    grey = bgr[..., 0]
    np.testing.assert_array_equal(from_bgr(grey), grey)
    assert not np.shares_memory(from_bgr(grey), grey)


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        (None, "OpenCV returns for a file it cannot read; check the path"),
        ("part.png", "was given a str; give an array of OpenCV"),
        (np.zeros((4, 20, 30, 3), np.uint8), "one image .* at a time"),
        (np.zeros((20, 30, 2), np.uint8), r"has the shape \(20, 30, 2\)"),
        (np.zeros((3, 20, 30), np.uint8), "channels first"),
        (np.zeros((0, 30, 3), np.uint8), "not one pixel"),
        (np.zeros((20, 30, 3), np.float32), "array of float32, but uint8"),
    ],
)
def test_what_is_no_image_of_opencv_is_refused(image: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        from_bgr(image)  # type: ignore[arg-type]
