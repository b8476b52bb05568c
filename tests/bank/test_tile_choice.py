"""How many tiles there are: what is given, what suits the photos, and what makes no sense."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from detector_helpers import tiny
from dinosaur_ad import InputError
from dinosaur_ad.bank.tile_choice import automatic_tiles, choose_tiling, estimate, parse_tiles


@pytest.mark.parametrize("tiles", ["abc", "0x3", "3x0", "4", "", "4x1x2", "-1x2", "1.5x2", (0, 3), (2,), (1.5, 2), 7])
def test_what_is_no_number_of_tiles_is_refused_in_a_sentence(tiles: Any) -> None:
    with pytest.raises(InputError, match=r"columns x rows.*like 4x1.*auto"):
        parse_tiles(tiles)


@pytest.mark.parametrize("tiles", ["1x1", "9x9", "65x1"])
def test_too_few_and_too_many_tiles_are_refused(tiles: str) -> None:
    with pytest.raises(InputError, match=r"2 to 64 are possible"):
        parse_tiles(tiles)


def test_a_tile_has_no_fewer_pixels_than_the_encoder_looks_at() -> None:
    features = tiny()._features
    assert choose_tiling((3, 1), (100, 300), features) is not None
    with pytest.raises(InputError, match=re.escape("fewer than the 70 x 70")) as refused:
        choose_tiling((8, 1), (100, 300), features)
    assert "at most 4x1 tiles" in str(refused.value)
    with pytest.raises(InputError, match=r"give no tiles"):
        choose_tiling((2, 1), (60, 100), features)


@pytest.mark.parametrize("photo", [(2000, 8000), (8000, 2000), (3000, 3000), (10_000, 10_000), (700, 20_000)])
def test_automatic_tiles_are_about_twice_the_input_or_larger(photo: tuple[int, int]) -> None:
    columns, rows = automatic_tiles(photo, 336)
    assert 2 <= columns * rows <= 64
    assert min(photo[0] / rows, photo[1] / columns) > 336
    if columns * rows < 40:
        assert max(photo[0] / rows, photo[1] / columns) < 1.5 * 2 * 336


def test_small_photos_need_no_tiles() -> None:
    assert choose_tiling(None, (80, 90), tiny()._features) is None


def test_the_estimate_grows_with_images_and_tiles() -> None:
    features = tiny()._features
    tiling = choose_tiling((3, 1), (200, 600), features)
    assert tiling is not None
    sentence = estimate(tiling, features, 1000, 1, 24_000_000, 16, 20)
    costs = r"3x1 tiles.*at least ([\d.]+) s for 1000 images; about ([\d.]+) (M|G)B of memory.*24.00 MB"
    found = re.search(costs, sentence)
    assert found, sentence
    assert float(found[1]) > 0


def test_the_estimate_of_memory_is_about_right(tmp_path: Path) -> None:
    code = """
import os
import re
import subprocess
import sys
from pathlib import Path
import numpy as np
from detector_helpers import tiny
from dinosaur_ad._memory import peak_memory_bytes
random = np.random.default_rng(0)
photo = np.repeat(np.repeat(random.integers(0, 255, (50, 50, 3), np.uint8), 40, axis=0), 40, axis=1)
said = []
detector = tiny()
detector.waiting = said.append
detector.learn("bar", [np.roll(photo, 40 * n, axis=1) for n in range(12)], tiles=(6, 6))
amount, unit = re.search(r"about ([0-9.]+) (M|G)B of memory", said[0]).groups()
print(float(amount) * (1e6 if unit == "M" else 1e9) / peak_memory_bytes())
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert 0.7 < float(done.stdout.split()[-1]) < 1.5
