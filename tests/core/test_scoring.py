"""Neighbourhood-restricted distances equal their definition, however the work is tiled."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from core_helpers import DTYPES, Backend, examples, naive_distances, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core import scoring
from dinosaur_ad.core.arrays import squared_norms
from dinosaur_ad.core.scoring import WORK_BYTES, nearest_patch, patch_distances

Floats = NDArray[np.floating]


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Floats, Floats, int]:
    """Tokens (N, H, W, C), a bank (H, W, M, C), and a radius from none to beyond the grid."""
    images, height, width, members, channels = (draw(st.integers(1, most)) for most in (4, 5, 6, 4, 3))
    dtype = draw(DTYPES)
    tokens = draw(whole_numbers((images, height, width, channels), dtype))
    bank = draw(whole_numbers((height, width, members, channels), dtype))
    return tokens, bank, draw(st.integers(0, 7))


def distances(backend: Backend, tokens: Floats, bank: Floats, radius: int, **options: Any) -> Floats:
    return backend.back(patch_distances(backend.array(tokens), backend.array(bank), radius, **options))


@examples
@given(
    scene=scenes(),
    work_bytes=st.sampled_from([1, 300, 5000, WORK_BYTES]),
    quiet_product=st.sampled_from([1, 30, scoring.QUIET_PRODUCT]),
)
def test_distances_equal_the_definition(
    backend: Backend, scene: tuple[Floats, Floats, int], work_bytes: int, quiet_product: int
) -> None:
    tokens, bank, radius = scene
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "QUIET_PRODUCT", quiet_product)
        result = distances(backend, tokens, bank, radius, work_bytes=work_bytes)
    assert result.dtype == tokens.dtype
    np.testing.assert_allclose(result, naive_distances(tokens, bank, radius), rtol=1e-6)


@pytest.mark.parametrize("radius", [0, 1, 3])
@pytest.mark.parametrize("length", [1.0, 40.0], ids=["unit tokens", "raw tokens"])
def test_real_tokens_are_as_near_as_float32_allows(backend: Backend, radius: int, length: float) -> None:
    """Of the lengths real tokens have, and with twins in the bank, where rounding hurts most."""
    rng = np.random.default_rng(0)
    tokens, bank = rng.normal(size=(2, 5, 7, 96)), rng.normal(size=(5, 7, 6, 96))
    tokens, bank = (length * x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (tokens, bank))
    bank[2, 3, 1] = tokens[1, 2, 3]
    expected = naive_distances(tokens.astype(np.float32), bank.astype(np.float32), radius)
    result = distances(backend, tokens.astype(np.float32), bank.astype(np.float32), radius)
    np.testing.assert_allclose(result.astype(np.float64) ** 2, expected**2, rtol=0, atol=8e-7 * length**2)


@examples
@given(scene=scenes())
def test_half_norms_kept_by_the_caller_change_nothing(backend: Backend, scene: tuple[Floats, Floats, int]) -> None:
    tokens, bank, radius = scene
    half_norm = squared_norms(backend.array(bank)) / 2
    np.testing.assert_array_equal(
        distances(backend, tokens, bank, radius, half_norm_HWM=half_norm), distances(backend, tokens, bank, radius)
    )


@examples
@given(scene=scenes())
def test_a_batch_is_scored_as_its_images_alone(backend: Backend, scene: tuple[Floats, Floats, int]) -> None:
    tokens, bank, radius = scene
    alone = [distances(backend, image[None], bank, radius)[0] for image in tokens]
    np.testing.assert_array_equal(distances(backend, tokens, bank, radius), np.stack(alone))


@examples
@given(scene=scenes())
def test_a_wider_neighbourhood_only_brings_patches_nearer(backend: Backend, scene: tuple[Floats, Floats, int]) -> None:
    tokens, bank, radius = scene
    assert np.all(distances(backend, tokens, bank, radius + 1) <= distances(backend, tokens, bank, radius))


@examples
@given(scene=scenes(), data=st.data())
def test_a_remembered_image_is_at_distance_zero(
    backend: Backend, scene: tuple[Floats, Floats, int], data: st.DataObject
) -> None:
    tokens, bank, radius = scene
    bank[:, :, data.draw(st.integers(0, bank.shape[2] - 1))] = tokens[0]
    assert np.all(distances(backend, tokens, bank, radius)[0] == 0)


@examples
@given(scene=scenes(), data=st.data())
def test_the_nearest_patch_explains_the_distance(
    backend: Backend, scene: tuple[Floats, Floats, int], data: st.DataObject
) -> None:
    tokens, bank, radius = scene
    images, height, width, _ = tokens.shape
    n, row, column = (data.draw(st.integers(0, most - 1)) for most in (images, height, width))
    found = nearest_patch(backend.array(tokens[n, row, column]), backend.array(bank), row, column, radius)
    assert abs(found.row - row) <= radius
    assert abs(found.column - column) <= radius
    remembered = bank[found.row, found.column, found.member].astype(np.float64)
    assert found.distance == pytest.approx(np.linalg.norm(remembered - tokens[n, row, column]), rel=1e-6)
    assert found.distance == pytest.approx(distances(backend, tokens, bank, radius)[n, row, column], rel=1e-6)


def test_more_images_need_no_more_memory_at_a_time() -> None:
    """NumPy reports its memory, so it can be seen."""
    rng = np.random.default_rng(0)
    bank = rng.normal(size=(8, 8, 10, 64)).astype(np.float32)
    work_bytes, peaks = 2**20, []
    for images in (32, 32, 256):  # the first run also pays for what is allocated only once
        tokens = rng.normal(size=(images, 8, 8, 64)).astype(np.float32)
        tracemalloc.start()
        try:
            result = patch_distances(tokens, bank, 2, work_bytes=work_bytes)
            peaks.append(tracemalloc.get_traced_memory()[1] - 2 * result.nbytes)
        finally:
            tracemalloc.stop()
    assert peaks[2] <= 1.05 * peaks[1] < 3 * work_bytes
