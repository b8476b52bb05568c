"""The picture of a part as the page Live gets it: no larger than a screen needs, and sharp."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="needs the extra station")

from dinosaur_ad.station.web.pages_pictures import SHOWN, _jpeg


def test_a_large_picture_is_made_smaller_and_keeps_the_quality_that_was_asked_for() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (90, 2 * SHOWN, 3), np.uint8)
    sharp, coarse = (_jpeg(pixels, SHOWN, quality=quality) for quality in (88, 30))
    assert Image.open(io.BytesIO(sharp)).size == (SHOWN, 45)
    assert len(sharp) > 1.5 * len(coarse)
