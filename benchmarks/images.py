"""Images to learn from, drawn before any clock runs."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.datasets.synthetic import SyntheticSample

# Photographs drawn; more are made of these by shifting them a little, which is a hundred times quicker than drawing.
DRAWN = 40


@cache
def products(name: str, count: int, size: int = 256) -> list[NDArray[np.uint8]]:
    """``count`` different normal images of a synthetic product."""
    drawn = [SyntheticSample(name, index=index, size=size).image() for index in range(min(count, DRAWN))]
    rng = np.random.default_rng(0)
    shifted = (np.roll(drawn[n % DRAWN], tuple(rng.integers(-6, 7, size=2)), axis=(0, 1)) for n in range(DRAWN, count))
    return [*drawn, *shifted]
