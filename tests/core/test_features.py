"""From tokens to features: every block counts the same, and a zero vector harms nothing."""

from __future__ import annotations

import numpy as np
import pytest
from core_helpers import Backend, examples, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core.arrays import l2_normalise, squared_norms
from dinosaur_ad.core.features import combine_blocks, describe

Floats = NDArray[np.float64]


@st.composite
def tokens_of_blocks(draw: st.DrawFn) -> tuple[Floats, int]:
    """Tokens (N, H, blocks * C), some of them zero, and the number of blocks."""
    blocks, channels = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    shape = (*draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), blocks * channels)
    return draw(whole_numbers(shape, np.float64, largest=2)), blocks


def split(token: Floats, blocks: int) -> Floats:
    return token.reshape(*token.shape[:-1], blocks, token.shape[-1] // blocks)


@examples
@given(given_tokens=tokens_of_blocks())
def test_each_slice_keeps_its_direction_and_gets_length_one_or_stays_zero(
    backend: Backend, given_tokens: tuple[Floats, int]
) -> None:
    token, blocks = given_tokens
    before, after = split(token, blocks), split(backend.back(l2_normalise(backend.array(token), blocks)), blocks)
    length = np.linalg.norm(before, axis=-1, keepdims=True)
    np.testing.assert_allclose(after * length, before, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(after, axis=-1), (length[..., 0] > 0).astype(float), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_zero_vector_stays_zero_without_a_warning(backend: Backend, dtype: type) -> None:
    with np.errstate(all="raise"):
        result = backend.back(l2_normalise(backend.array(np.zeros((2, 6), dtype)), groups=2))
    assert result.dtype == dtype
    assert np.all(result == 0)


@examples
@given(given_tokens=tokens_of_blocks())
def test_tokens_as_they_come_stay_as_they_are(backend: Backend, given_tokens: tuple[Floats, int]) -> None:
    token, blocks = given_tokens
    result = combine_blocks(backend.array(token), blocks, normalise=False, average=False)
    np.testing.assert_array_equal(backend.back(result), token)


@examples
@given(given_tokens=tokens_of_blocks(), normalise=st.booleans())
def test_averaging_takes_the_mean_of_the_blocks(
    backend: Backend, given_tokens: tuple[Floats, int], normalise: bool
) -> None:
    token, blocks = given_tokens
    side_by_side = backend.back(combine_blocks(backend.array(token), blocks, normalise=normalise, average=False))
    averaged = backend.back(combine_blocks(backend.array(token), blocks, normalise=normalise, average=True))
    np.testing.assert_allclose(averaged, split(side_by_side, blocks).mean(axis=-2), atol=1e-12)


def test_no_block_outweighs_another_once_normalised(backend: Backend) -> None:
    token = np.random.default_rng(0).normal(size=(5, 12))
    louder = token * np.repeat([1.0, 100.0, 0.01], 4)
    for average in (False, True):
        quiet, loud = (
            backend.back(combine_blocks(backend.array(x), 3, normalise=True, average=average)) for x in (token, louder)
        )
        np.testing.assert_allclose(loud, quiet, rtol=1e-12)


def test_a_description_is_the_cls_feature_and_the_mean_patch_if_asked(backend: Backend) -> None:
    rng = np.random.default_rng(0)
    cls, patches = rng.normal(size=(3, 4)), rng.normal(size=(3, 5, 2, 4))
    alone = describe(backend.array(cls), backend.array(patches), with_patches=False)
    np.testing.assert_array_equal(backend.back(alone), cls)
    both = backend.back(describe(backend.array(cls), backend.array(patches), with_patches=True))
    np.testing.assert_allclose(both, np.concatenate([cls, patches.reshape(3, 10, 4).mean(axis=1)], axis=1))


@examples
@given(given_tokens=tokens_of_blocks())
def test_squared_norms_equal_the_definition(backend: Backend, given_tokens: tuple[Floats, int]) -> None:
    token, _ = given_tokens
    np.testing.assert_array_equal(backend.back(squared_norms(backend.array(token))), (token**2).sum(axis=-1))
