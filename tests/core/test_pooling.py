"""One score for an image: the mean of its worst patches."""

from __future__ import annotations

import numpy as np
from core_helpers import Backend, examples, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core.pooling import pool

Floats = NDArray[np.float64]
SHARES = st.floats(0, 1)


@st.composite
def maps(draw: st.DrawFn) -> Floats:
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(1, 13)))
    return np.abs(draw(whole_numbers(shape, np.float64, largest=100)))


def pooled(backend: Backend, distance: Floats, top: float) -> Floats:
    return backend.back(pool(backend.array(distance), top))


@examples
@given(distance=maps())
def test_none_is_the_maximum_and_all_is_the_mean(backend: Backend, distance: Floats) -> None:
    np.testing.assert_array_equal(pooled(backend, distance, 0.0), distance.max(axis=(1, 2)))
    np.testing.assert_allclose(pooled(backend, distance, 1.0), distance.mean(axis=(1, 2)), rtol=1e-12)


@examples
@given(distance=maps(), top=SHARES)
def test_a_share_is_the_mean_of_that_many_worst_patches(backend: Backend, distance: Floats, top: float) -> None:
    patches = distance[0].size
    count = max(1, round(top * patches))
    worst = [sorted(image.ravel(), reverse=True)[:count] for image in distance]
    np.testing.assert_allclose(pooled(backend, distance, top), np.mean(worst, axis=1), rtol=1e-12)


@examples
@given(distance=maps(), top=SHARES, seed=st.integers(0, 9))
def test_where_a_patch_lies_does_not_matter(backend: Backend, distance: Floats, top: float, seed: int) -> None:
    shuffled = np.random.default_rng(seed).permuted(distance.reshape(len(distance), -1), axis=1)
    np.testing.assert_array_equal(
        pooled(backend, distance, top), pooled(backend, shuffled.reshape(distance.shape), top)
    )


@examples
@given(distance=maps(), top=SHARES, more=SHARES)
def test_a_larger_share_never_scores_higher(backend: Backend, distance: Floats, top: float, more: float) -> None:
    small, large = sorted((top, more))
    assert np.all(pooled(backend, distance, large) <= pooled(backend, distance, small) * (1 + 1e-12))


@examples
@given(distance=maps(), top=SHARES)
def test_scores_are_on_the_scale_of_the_distances(backend: Backend, distance: Floats, top: float) -> None:
    np.testing.assert_array_equal(pooled(backend, 4 * distance, top), 4 * pooled(backend, distance, top))
