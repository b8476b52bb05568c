"""Operations of an encoder, and the clock that methods carry without knowing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from dinosaur_ad.encoders import EncoderSpec, get_spec
from dinosaur_ad.errors import EncoderError
from dinosaur_ad.methods import Photo
from dinosaur_ad.profile.stages import StageCache, encoder_flops, spread, upsampled, with_the_rest


@pytest.mark.parametrize(
    ("name", "size"), [("dinov2s-focus", 224), ("dinov3-small", 224), ("tiny-dinov2", 70), ("tiny-dinov3", 64)]
)
def test_flops_follow_from_the_shapes_of_the_weights(name: str, size: int) -> None:
    spec = get_spec(name)
    assert isinstance(spec, EncoderSpec)
    places = (size // spec.patch) ** 2
    tokens = places + spec.prefix
    matrices = {key: shape for key, shape in spec.tensor_shapes().items() if key.endswith("_proj.weight")}
    products = sum(2 * tokens * math.prod(shape) for shape in matrices.values())
    attention = spec.depth * 2 * (2 * tokens * tokens * spec.width)
    patches = 2 * places * math.prod(spec.tensor_shapes()["embeddings.patch_embeddings.weight"])
    assert encoder_flops(spec, size, ("final",)) == products + attention + patches


def test_only_the_blocks_that_run_are_counted() -> None:
    spec = get_spec("dinov2s-focus")
    assert isinstance(spec, EncoderSpec)
    whole, half, nine = (encoder_flops(spec, 224, layers) for layers in (("final",), (5,), (4, 5, 6, 7, 8)))
    assert half < nine < whole
    block = (whole - half) / 6
    assert nine == pytest.approx(half + 3 * block)
    with pytest.raises(EncoderError, match="patch size"):
        encoder_flops(spec, 225, ("final",))


def test_spread_of_one_and_of_many() -> None:
    assert spread([4.0])["std"] == 0.0
    many = spread([float(n) for n in range(101)])
    assert (many["p50"], many["p95"], many["p99"], many["max"]) == (50.0, 95.0, 99.0, 100.0)
    assert many["n"] == 101


def test_the_map_gets_the_size_of_the_image_and_keeps_its_range() -> None:
    map_HW = np.random.default_rng(0).random((16, 16))
    large = upsampled(map_HW, 40, 60)
    assert (large.shape, large.dtype) == ((40, 60), np.float32)
    assert map_HW.min() - 1e-6 <= large.min() <= large.max() <= map_HW.max() + 1e-6


def test_the_rest_is_what_the_stages_leave() -> None:
    assert with_the_rest(9.0, {"decode": 2.0}, "model") == {"decode": 2.0, "model": 7.0}


def test_reading_is_no_part_of_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    from dinosaur_ad.profile import stages

    now = [0.0]
    monkeypatch.setattr(stages.time, "perf_counter", lambda: now[0])

    def pixels() -> np.ndarray:
        now[0] += 1.0
        return np.zeros((8, 8, 3), np.uint8)

    cache = StageCache()

    def compute(photos: Sequence[Photo]) -> np.ndarray:
        prepared = cache.prepared(photos, 4)
        now[0] += 5.0
        return prepared.astype(np.float32)

    features = cache.features("recipe", [Photo("a", pixels), Photo("b", pixels)], compute)
    assert features.shape == (2, 4, 4, 3)
    assert cache.taken() == {"decode": 2.0, "resize": 0.0, "encode": 5.0}
    assert cache.taken() == {}
