"""OpenVINO runs the same graphs; every test here is skipped where it is not installed."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dinosaur_ad.encoders import Encoder, Layer, compare_tokens, list_specs, load_encoder, providers
from dinosaur_ad.encoders.auto import sample_images
from dinosaur_ad.encoders.backends import openvino_backend
from dinosaur_ad.encoders.parity import failure

pytest.importorskip("openvino")

TINY = ("tiny-dinov2", "tiny-dinov3")
PRECISIONS = ("float32", "bfloat16", "int8")


def tiny(name: str, precision: str = "float32", layers: tuple[Layer, ...] = (0, "final"), **options: Any) -> Encoder:
    if reason := providers.why_not("openvino", precision):
        pytest.skip(reason)
    return load_encoder(
        name,
        layers=layers,
        size=5 * list_specs()[name].patch,
        provider="openvino",
        precision=precision,
        strict=True,
        **options,
    )


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_tokens_pass_the_gate(name: str, precision: str) -> None:
    encoder = tiny(name, precision)
    reference = load_encoder(name, layers=(0, "final"), size=encoder.size)
    images = sample_images(encoder.size)
    parity = compare_tokens(reference.encode_prepared(images), encoder.encode_prepared(images))
    assert failure(parity, precision) is None
    assert (parity.cosine_min < 0.9999999) == (precision != "float32")
    assert encoder.fingerprint == reference.fingerprint
    info = encoder.info()
    assert [info[key] for key in ("backend", "provider", "precision", "fallback")] == [
        "openvino",
        "openvino",
        precision,
        None,
    ]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_many_images_in_streams_give_the_bits_of_one_at_a_time(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # with one thread there are no streams
    monkeypatch.setattr(openvino_backend, "PATIENCE", 8)
    encoder = tiny("tiny-dinov2", precision)
    images = np.random.default_rng(0).integers(0, 256, (13, encoder.size, encoder.size, 3), np.uint8)
    alone = [encoder.encode_prepared(image[None]) for image in images]
    assert encoder._runner._queue is None  # type: ignore[attr-defined]
    together = encoder.encode_prepared(images)
    assert encoder._runner._queue is not None  # type: ignore[attr-defined]
    for n, one in enumerate(alone):
        np.testing.assert_array_equal(together.patches[n], one.patches[0])
        np.testing.assert_array_equal(together.cls[n], one.cls[0])


def test_threads_are_limited() -> None:
    encoder = tiny("tiny-dinov2", threads=1)
    assert encoder.threads == 1
    assert encoder._runner._single.get_compiled_model().get_property("INFERENCE_NUM_THREADS") == 1  # type: ignore[attr-defined]


def test_callers_in_several_threads_get_their_own_tokens() -> None:
    encoder = tiny("tiny-dinov2")
    images = sample_images(encoder.size)
    expected = encoder.encode_prepared(images).patches
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: encoder.encode_prepared(images[n % 4, None]).patches[0], range(16)))
    for n, patches in enumerate(found):
        np.testing.assert_array_equal(patches, expected[n % 4])


def test_a_precision_without_a_provider_is_run_by_openvino() -> None:
    tiny("tiny-dinov2", "int8")  # skips where it cannot
    assert load_encoder("tiny-dinov2", size=70, precision="int8").provider == "openvino"
    assert load_encoder("tiny-dinov2", size=70).provider == "onnx-cpu"


def test_without_openvino_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    providers.openvino_capabilities.cache_clear()
    try:
        encoder = load_encoder("tiny-dinov2", size=70, provider="openvino")
        assert "openvino is not installed" in str(encoder.fallback)
        assert "pip install '.[openvino]'" in str(encoder.fallback)
        assert encoder.backend == "onnx"
    finally:
        providers.openvino_capabilities.cache_clear()
