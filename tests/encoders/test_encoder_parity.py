"""The parity gate: what counts as the same tokens."""

from __future__ import annotations

import numpy as np
import pytest

from dinosaur_ad.encoders import Tokens, load_encoder
from dinosaur_ad.encoders.auto import sample_images
from dinosaur_ad.encoders.parity import TokenParity, compare_tokens, failure, limits
from dinosaur_ad.encoders.providers import PRECISIONS
from dinosaur_ad.errors import EncoderError


def tokens(seed: int = 0, images: int = 2) -> Tokens:
    rng = np.random.default_rng(seed)
    return Tokens(rng.standard_normal((images, 8), np.float32), rng.standard_normal((images, 3, 3, 8), np.float32))


def test_equal_tokens_pass_every_limit() -> None:
    parity = compare_tokens(tokens(), tokens())
    assert parity == TokenParity(2, pytest.approx(1.0), pytest.approx(1.0), True)
    assert all(failure(parity, precision) is None for precision in PRECISIONS)


def test_one_turned_patch_is_seen_in_the_minimum() -> None:
    turned = tokens()
    turned.patches[1, 2, 0] *= -1
    parity = compare_tokens(tokens(), turned)
    assert parity.cosine_min == pytest.approx(-1.0)
    assert parity.cosine_mean == pytest.approx(1 - 2 / 20)
    says = failure(parity, "bfloat16")
    assert says is not None
    assert "-1.00000" in says
    assert "0.90000" in says


def test_a_turned_class_token_is_seen_too() -> None:
    turned = tokens()
    turned.cls[0] *= -1
    assert compare_tokens(tokens(), turned).cosine_min == pytest.approx(-1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_fails_whatever_the_rest_is(value: float) -> None:
    broken = tokens()
    broken.patches[0, 0, 0, 0] = value
    parity = compare_tokens(tokens(), broken)
    assert not parity.finite
    assert "not all finite" in str(failure(parity, "int8"))


def test_zero_tokens_equal_only_zero_tokens() -> None:
    zero = Tokens(np.zeros((1, 4), np.float32), np.zeros((1, 2, 2, 4), np.float32))
    other = Tokens(np.zeros((1, 4), np.float32), np.full((1, 2, 2, 4), 0.1, np.float32))
    assert compare_tokens(zero, zero).cosine_min == 1.0
    assert compare_tokens(zero, other).cosine_min == 0.0


def test_tokens_of_other_images_or_sizes_are_refused() -> None:
    with pytest.raises(EncoderError, match="same images at the same size"):
        compare_tokens(tokens(), tokens(images=3))


def test_limits_loosen_with_the_rounding() -> None:
    assert limits("float32") > limits("bfloat16") == limits("float16") > limits("int8")
    with pytest.raises(EncoderError, match="no precision 'fp4'; choose one of: float32"):
        limits("fp4")


def test_the_gate_tells_one_encoder_from_another() -> None:
    images = sample_images(70)
    small, other = (load_encoder("tiny-dinov2", layers=layers, size=70) for layers in ((0,), (2,)))
    parity = compare_tokens(small.encode_prepared(images), other.encode_prepared(images))
    assert failure(parity, "int8") is not None
