"""A product on large photos is learned in tiles, and everything else works as for any other product."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from detector_helpers import TINY, TINY_FAST, product, tiny, tree_hash
from dinosaur_ad import Dinosaur, InputError
from dinosaur_ad.cli import main
from dinosaur_ad.inspection import Rejected
from dinosaur_ad.presets import Preset

HIGH, WIDE = 160, 480
TILES = (3, 1)


def bars(count: int, seed: int = 0) -> list[NDArray[np.uint8]]:
    """Normal images of a long product."""
    base = np.kron(np.random.default_rng(5).integers(60, 200, (4, 12, 3)), np.ones((40, 40, 1)))
    rng = np.random.default_rng(seed)
    return [np.clip(base + rng.normal(0, 4, base.shape), 0, 255).astype(np.uint8) for _ in range(count)]


def with_defect(image: NDArray[np.uint8], row: int = 100, column: int = 300) -> NDArray[np.uint8]:
    spoiled = image.copy()
    spoiled[row : row + 10, column : column + 10] = (255, 0, 255)
    return spoiled


@pytest.fixture(params=[TINY, TINY_FAST], ids=["tiny", "tiny-fast"])
def preset(request: pytest.FixtureRequest) -> Preset:
    found: Preset = request.param
    return found


@pytest.fixture
def taught(tmp_path: Path, preset: Preset) -> Dinosaur:
    detector = tiny(tmp_path / "store", preset)
    detector.learn("bar", bars(20), tiles=TILES)
    return detector


def test_a_defect_is_found_where_it_is_and_inspecting_needs_no_option(taught: Dinosaur, tmp_path: Path) -> None:
    again = Dinosaur(tmp_path / "store")
    good, bad = again.inspect(bars(1, seed=50)[0]), again.inspect(with_defect(bars(1, seed=51)[0]))
    assert (good.verdict, bad.verdict) == ("normal", "anomalous")
    left, top, right, bottom = bad.worst.box
    assert left - 40 <= 305 <= right + 40  # the patch or one beside it
    assert top - 40 <= 105 <= bottom + 40
    assert right - left < WIDE / 10
    assert any(x0 <= 305 <= x1 and y0 <= 105 <= y1 for x0, y0, x1, y1 in (each.box for each in bad.regions))
    assert bad.image_size == (HIGH, WIDE)
    assert bad.overlay(with_defect(bars(1, seed=51)[0])).shape[1] == WIDE
    again.verify("bar")


def test_false_alarms_stay_at_the_rate_that_is_asked_for_the_whole_image(taught: Dinosaur) -> None:
    flagged = [each.verdict != "normal" for each in taught.inspect(bars(40, seed=60), false_alarms=0.1)]
    assert sum(flagged) <= 10


def test_products_with_and_without_tiles_are_told_apart(taught: Dinosaur) -> None:
    before = tiny(preset=taught.preset)
    before.learn("nut", product(0, 20))
    taught.learn("nut", product(0, 20))
    nut, bar = product(0, 1, seed=70)[0], bars(1, seed=71)[0]
    assert taught.inspect(nut).task == "nut"
    assert taught.inspect(bar).task == "bar"
    alone = before.inspect(nut)
    assert taught.inspect(nut).asked["nut"] == pytest.approx(alone.score, rel=1e-5)


def test_photos_of_another_size_are_refused_in_a_sentence(taught: Dinosaur, tmp_path: Path) -> None:
    other = np.ascontiguousarray(bars(1, seed=8)[0][:, : WIDE // 2])
    with pytest.raises(InputError, match=r"240 x 160 pixels.*learned in 3x1 tiles from photos of 480 x 160"):
        taught.inspect(other, task="bar")
    (result,) = taught.stream([other])
    assert isinstance(result, Rejected)
    before = tree_hash(tmp_path)
    with pytest.raises(InputError, match=r"None of the images.*learned in 3x1 tiles"):
        taught.update("bar", [other])
    assert tree_hash(tmp_path) == before
    learned = taught.update("bar", [other, *bars(2, seed=9)])
    assert (learned.images, len(learned.rejected)) == (2, 1)


def test_update_undo_and_recalibrate_keep_the_tiles(taught: Dinosaur) -> None:
    manifest = taught.store.record("bar").manifest
    assert (manifest["tiles"]["columns"], manifest["tiles"]["rows"]) == TILES
    learned = taught.update("bar", bars(5, seed=3))
    assert learned.total_images == 25
    taught.recalibrate("bar", bars(10, seed=4))
    assert taught.store.record("bar").manifest["tiles"] == manifest["tiles"]
    assert taught.inspect(with_defect(bars(1, seed=51)[0])).verdict == "anomalous"
    assert taught.undo("bar") == "recalibrate"
    assert taught.undo("bar") == "update"
    assert taught.inspect(bars(1, seed=50)[0]).verdict == "normal"


def test_the_gallery_keeps_defects_that_only_tiles_show(taught: Dinosaur) -> None:
    with pytest.raises(InputError, match=r"is called normal"):
        taught.add_defects("bar", bars(1, seed=24))
    changed = taught.add_defects("bar", [with_defect(each) for each in bars(2, seed=20)])
    assert changed.added == 2
    assert taught.update("bar", bars(3, seed=21)).gallery_missed == ()
    blinded = taught.update("bar", [with_defect(each) for each in bars(8, seed=22)], force=True)
    assert len(blinded.gallery_missed) == 2


def test_check_counts_good_and_bad_photos(taught: Dinosaur) -> None:
    check = taught.check("bar", bars(8, seed=30), [with_defect(each) for each in bars(4, seed=31)])
    assert check.misses.count == 0
    assert check.auroc == 1.0


def test_zones_are_those_of_the_whole_photo(taught: Dinosaur) -> None:
    bad = with_defect(bars(1, seed=51)[0], row=100, column=420)
    assert taught.inspect(bad).verdict == "anomalous"
    taught.set("bar", zones=[{"ignore": [(180, 0), (480, 0), (480, 160), (180, 160)]}])
    result = taught.inspect(bad)
    assert result.verdict == "normal"
    assert not result.map[:, result.map.shape[1] * 420 // WIDE].any()
    assert taught.inspect(with_defect(bad, row=20, column=60)).verdict == "anomalous"


def test_a_budget_is_that_of_the_whole_task(tmp_path: Path) -> None:
    detector = tiny(tmp_path, budget="60kB")
    assert detector.learn("bar", bars(12), tiles=TILES).bytes <= 60_000
    assert detector.store.record("bar").manifest["bank"]["budget"] == 60_000
    usual = tiny()
    usual.learn("bar", bars(4), tiles=TILES)
    assert usual.store.record("bar").manifest["bank"]["budget"] == 3 * (TINY.budget or 0)


def test_automatic_tiles_cut_large_photos_and_leave_small_ones_whole() -> None:
    detector = tiny()
    detector.learn("bar", bars(4), tiles="auto")
    tiles = detector.store.record("bar").manifest["tiles"]
    assert (tiles["columns"], tiles["rows"]) == (3, 1)
    detector.learn("nut", product(0, 4), tiles="auto")
    assert "tiles" not in detector.store.record("nut").manifest


def test_held_out_photos_and_photos_from_a_generator_are_cut_too() -> None:
    detector = tiny()
    detector.learn("bar", (each for each in bars(12)), held_out=bars(8, seed=2), tiles=TILES)
    assert detector.inspect(with_defect(bars(1, seed=51)[0])).verdict == "anomalous"


def test_many_photos_are_learned_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dinosaur_ad.bank.teaching.LEARN_BYTES", 1)
    monkeypatch.setattr("dinosaur_ad.bank.teaching.LEAST_TILED_AT_ONCE", 8)
    detector = tiny()
    assert detector.learn("bar", bars(20), tiles=TILES).images == 20
    assert detector.inspect(bars(1, seed=50)[0]).verdict == "normal"
    assert detector.inspect(with_defect(bars(1, seed=51)[0])).verdict == "anomalous"


# --- the command line ---


def photos(folder: Path, images: list[NDArray[np.uint8]]) -> Path:
    folder.mkdir()
    for number, pixels in enumerate(images):
        Image.fromarray(pixels).save(folder / f"{number:03d}.png")
    return folder


@pytest.fixture
def small_encoder(tmp_path: Path) -> Path:
    """A store of the tiny preset, for the command line."""
    tiny(tmp_path / "shop").learn("nut", product(0, 4))
    return tmp_path / "shop"


def test_learn_says_what_it_will_cost_and_inspect_takes_no_option(
    small_encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, bad = photos(tmp_path / "good", bars(6)), photos(tmp_path / "bad", [with_defect(bars(1, seed=51)[0])])
    assert main(["learn", "bar", str(folder), "--store", str(small_encoder), "--tiles", "3x1"]) == 0
    told = capsys.readouterr()
    assert "3x1 tiles of about" in told.err
    assert "s for 6 images" in told.err
    assert "24.00 MB on disk" in told.err
    assert main(["inspect", str(bad), "--store", str(small_encoder), "--json", "--exit-code"]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[0])["verdict"] == "anomalous"


@pytest.mark.parametrize("tiles", ["abc", "0x3", "40x1", "1x1"])
def test_wrong_tiles_are_one_line_and_change_nothing(
    small_encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], tiles: str
) -> None:
    folder, before = photos(tmp_path / "good", bars(3)), tree_hash(small_encoder)
    assert main(["learn", "bar", str(folder), "--store", str(small_encoder), "--tiles", tiles]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1, told
    assert told[0].startswith("dinosaur: ")
    assert tree_hash(small_encoder) == before


def test_a_task_in_tiles_is_not_exported_as_one_file(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from dinosaur_ad.export.exporting import export

    tiny(tmp_path / "shop").learn("bar", bars(4), tiles=TILES)
    with pytest.raises(InputError, match=r"learned in tiles.*without its bank"):
        export(tmp_path / "out", store=tmp_path / "shop", with_bank=True, progress=lambda line: None)
    assert not (tmp_path / "out").exists()


# --- a real size ---

LARGE = """
import sys
from dataclasses import replace
from dinosaur_ad import Dinosaur
from dinosaur_ad._memory import peak_memory_bytes
from dinosaur_ad.presets import DEFAULT

folder, tiles = sys.argv[1], sys.argv[2]
detector = Dinosaur(encoder="tiny-dinov2", preset=replace(DEFAULT, layers=(0, 1), size=140))
detector.learn("bar", folder + "/good", tiles=None if tiles == "none" else tiles, force=True)
for result in detector.stream(folder + "/test"):
    found = any(l - 80 <= 4510 <= r + 80 and t - 80 <= 1110 <= b + 80 for l, t, r, b in (x.box for x in result.regions))
    print(result.path[-8:], round(result.score / result.threshold, 3), int(found))
print(peak_memory_bytes() // 2**20)
"""


def large_photo(seed: int, *, spoiled: bool = False) -> Image.Image:
    """A strip of 8000 x 2000 pixels; spoiled, with a mark of 20 x 20."""
    rng = np.random.default_rng(seed)
    row, column = np.arange(250)[:, None], np.arange(1000)[None, :]
    grey = 110 + 40 * np.sin(column / 37) + 30 * np.cos(row / 25) + rng.normal(0, 4, (250, 1000)) + rng.normal(0, 2)
    pixels = np.clip(grey, 0, 255).astype(np.uint8).repeat(8, 0).repeat(8, 1)
    if spoiled:
        pixels[1100:1120, 4500:4520] = 250
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def strips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strips")
    for part, seeds in (("good", range(8)), ("test", range(20, 24))):
        (folder / part).mkdir()
        for seed in seeds:
            large_photo(seed, spoiled=seed in (22, 23)).save(folder / part / f"{seed:04d}.png", compress_level=1)
    return folder


def run_large(folder: Path, tiles: str) -> tuple[list[tuple[float, bool]], int]:
    """(Score over threshold, whether the mark is in a region) of two good strips and two spoiled; the peak in MB."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(folder), tiles], env=environment, capture_output=True, text=True, check=True
    )
    *lines, peak = done.stdout.split("\n")[:-1]
    return [(float(line.split()[1]), line.endswith(" 1")) for line in lines], int(peak)


def test_a_mark_of_20_pixels_on_8000_x_2000_is_found_in_tiles_and_missed_without(strips: Path) -> None:
    tiled, peak = run_large(strips, "12x3")
    whole, _ = run_large(strips, "none")
    assert [found for _, found in tiled] == [False, False, True, True]
    assert min(ratio for ratio, _ in tiled[2:]) > 1.5 * max(ratio for ratio, _ in tiled[:2])
    assert min(ratio for ratio, _ in whole[2:]) < max(1.0, *(ratio for ratio, _ in whole[:2]))
    assert peak < 700  # megabytes; twelve photos alone are 576 as colours, and four times that as numbers
