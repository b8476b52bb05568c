"""Banks in fewer bytes: codes are as near as they can be, and are scored as the vectors they stand for."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from core_helpers import Backend, examples, naive_distances, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from dinosaur_ad.core.projection import principal_axes, project
from dinosaur_ad.core.quantise import LARGEST, dequantise, quantise, scaled_norms, widen
from dinosaur_ad.core.scoring import nearest_patch, patch_distances

Floats = NDArray[np.float32]

SHAPES = st.tuples(*(st.integers(1, most) for most in (3, 3, 4, 5)))


def banks() -> st.SearchStrategy[Floats]:
    return SHAPES.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=st.floats(-1e3, 1e3, width=32)))


def random_bank(*shape: int) -> Floats:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


@examples
@given(vectors=banks())
def test_no_value_is_off_by_more_than_half_a_code(backend: Backend, vectors: Floats) -> None:
    quantised = quantise(backend.array(vectors))
    codes, scale = backend.back(quantised.codes_HWMC), backend.back(quantised.scale_HW)
    assert codes.dtype == np.int8
    assert np.abs(codes.astype(int)).max() <= LARGEST
    off = np.abs(backend.back(dequantise(quantised)) - vectors)
    assert np.all(off <= scale[:, :, None, None] * 0.5001 + 1e-30)


@examples
@given(vectors=banks())
def test_codes_stay_when_they_are_quantised_again(backend: Backend, vectors: Floats) -> None:
    once = quantise(backend.array(vectors))
    again = quantise(dequantise(once))
    np.testing.assert_array_equal(backend.back(again.codes_HWMC), backend.back(once.codes_HWMC))


def test_known_members_keep_their_codes_when_smaller_ones_come(backend: Backend) -> None:
    first = quantise(backend.array(random_bank(2, 3, 4, 5)))
    vectors = np.concatenate([backend.back(dequantise(first)), 0.1 * random_bank(2, 3, 2, 5)], axis=2)
    # Without the largest member the scales would be smaller.
    again = quantise(backend.array(vectors[:, :, 1:]), first.scale_HW)
    np.testing.assert_array_equal(backend.back(again.codes_HWMC)[:, :, :3], backend.back(first.codes_HWMC)[:, :, 1:])


def test_a_location_of_zeros_stays_zero(backend: Backend) -> None:
    vectors = random_bank(2, 2, 3, 4)
    vectors[1, 0] = 0
    quantised = quantise(backend.array(vectors))
    assert np.all(backend.back(dequantise(quantised))[1, 0] == 0)
    assert np.all(backend.back(quantised.scale_HW) > 0)


def test_every_finite_half_is_widened_exactly() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = halves[np.isfinite(halves)]
    np.testing.assert_array_equal(widen(finite), finite.astype(np.float32))
    assert np.array_equal(np.signbit(widen(finite)), np.signbit(finite))


def test_widening_keeps_the_order_in_memory(backend: Backend) -> None:
    values = np.ascontiguousarray(random_bank(2, 2, 3, 4).astype(np.float16).swapaxes(2, 3)).swapaxes(2, 3)
    assert backend.back(widen(backend.array(values))).dtype == np.float32
    assert widen(values).strides == values.astype(np.float32).strides


@examples
@given(shape=SHAPES, data=st.data(), radius=st.integers(0, 3), work_bytes=st.sampled_from([1, 500, 2**23]))
def test_codes_are_scored_as_what_they_stand_for(
    backend: Backend, shape: tuple[int, ...], data: st.DataObject, radius: int, work_bytes: int
) -> None:
    height, width, _, channels = shape
    tokens = data.draw(whole_numbers((2, height, width, channels), np.float32))
    quantised = quantise(backend.array(data.draw(whole_numbers(shape, np.float32))))
    found = patch_distances(
        backend.array(tokens), quantised.codes_HWMC, radius, scale_HW=quantised.scale_HW, work_bytes=work_bytes
    )
    expected = naive_distances(tokens, backend.back(dequantise(quantised)), radius)
    np.testing.assert_allclose(backend.back(found) ** 2, expected**2, atol=1e-4)


def test_halves_are_scored_as_what_they_stand_for(backend: Backend) -> None:
    tokens, bank = random_bank(2, 4, 5, 6), random_bank(4, 5, 7, 6).astype(np.float16)
    found = patch_distances(backend.array(tokens), backend.array(bank), 1)
    assert backend.back(found).dtype == np.float32
    np.testing.assert_allclose(backend.back(found), naive_distances(tokens, bank, 1), rtol=1e-4)


def test_the_nearest_code_is_the_nearest_vector() -> None:
    tokens, quantised = random_bank(1, 4, 5, 6), quantise(random_bank(4, 5, 7, 6))
    codes, scale = quantised
    found = nearest_patch(tokens[0, 2, 3], codes, 2, 3, 1, scale_HW=scale)
    assert found[:3] == nearest_patch(tokens[0, 2, 3], dequantise(quantised), 2, 3, 1)[:3]
    distance = patch_distances(tokens, codes, 1, scale_HW=scale)[0, 2, 3]
    assert found.distance == pytest.approx(float(distance), rel=1e-4)


def test_norms_are_those_of_the_vectors(backend: Backend) -> None:
    quantised = quantise(backend.array(random_bank(3, 2, 4, 5)))
    expected = (backend.back(dequantise(quantised)).astype(np.float64) ** 2).sum(axis=-1)
    np.testing.assert_allclose(backend.back(scaled_norms(*quantised)), expected, rtol=1e-5)


def test_scoring_codes_never_holds_the_bank_as_float32() -> None:
    tokens, (codes, scale) = random_bank(1, 16, 16, 128), quantise(random_bank(16, 16, 300, 128))
    half_norms = scaled_norms(codes, scale) / 2
    tracemalloc.start()
    patch_distances(tokens, codes, 1, scale_HW=scale, half_norm_HWM=half_norms)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < codes.nbytes * 4 / 2


def test_axes_are_orthonormal_and_those_of_what_varies_at_a_location(backend: Backend) -> None:
    rng = np.random.default_rng(0)
    # What differs from place to place is large, but the same in every image: it must not count.
    places = 100 * rng.normal(size=(1, 3, 3, 16))
    patches = (places + rng.normal(size=(80, 3, 3, 16)) * np.r_[np.full(4, 5.0), np.ones(12)]).astype(np.float32)
    basis = backend.back(principal_axes(backend.array(patches), 4))
    np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=2e-3)
    assert (basis[:4] ** 2).sum() > 3.9
    np.testing.assert_array_equal(basis, basis.astype(np.float16))


def test_all_axes_keep_all_distances(backend: Backend) -> None:
    patches = random_bank(40, 3, 3, 8)
    basis = principal_axes(backend.array(patches), 8)
    tokens, bank = backend.array(patches[:2]), backend.array(patches[2:7].transpose(1, 2, 0, 3).copy())
    turned = patch_distances(project(tokens, basis), project(bank, basis), 1)
    np.testing.assert_allclose(backend.back(turned), backend.back(patch_distances(tokens, bank, 1)), rtol=5e-3)


@pytest.mark.parametrize(("patches", "kept"), [(1, 1), (49, 100), (8064 + 13, 47), (2 * 8064, 50)])
def test_projecting_is_a_product_whatever_the_number_of_patches_and_threads(patches: int, kept: int) -> None:
    random = np.random.default_rng(0)
    tokens, basis = (random.normal(size=shape).astype(np.float32) for shape in ((patches, 64), (64, kept)))
    for threads in (1, 3, None):
        np.testing.assert_allclose(project(tokens, basis, threads), tokens @ basis, atol=1e-4)
