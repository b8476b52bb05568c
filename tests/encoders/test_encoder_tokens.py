"""What a user of an encoder relies on, for every encoder that needs no download."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from encoder_helpers import cosine
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dinosaur_ad.core.arrays import Array
from dinosaur_ad.encoders import Layer, list_specs, load_encoder, prepare
from dinosaur_ad.encoders.graph.vit_graph import interpolate_positions
from dinosaur_ad.errors import EncoderError, InputError

TINY = ("tiny-dinov2", "tiny-dinov3")
Images = list[NDArray[np.uint8]]


def patch(name: str) -> int:
    return list_specs()[name].patch


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("patches", [1, 4, 5, 9])
@pytest.mark.parametrize("layers", [("final",), (0,), (2, 0, "final")])
def test_onnx_and_torch_agree(name: str, patches: int, layers: tuple[Layer, ...], images: Images) -> None:
    pytest.importorskip("transformers")
    size = patches * patch(name)
    ours = load_encoder(name, layers=layers, size=size)
    theirs = load_encoder(name, layers=layers, size=size, provider="torch")
    a, b = ours.encode(images), theirs.encode(images)
    assert a.patches.shape == b.patches.shape == (3, patches, patches, 16 * len(layers))
    assert cosine(a.cls, b.cls) > 0.99999
    assert cosine(a.patches, b.patches) > 0.99999
    np.testing.assert_allclose(a.patches, b.patches, atol=1e-4)
    assert ours.fingerprint == theirs.fingerprint


@pytest.mark.parametrize("provider", [None, "torch"])
@pytest.mark.parametrize("batch", [2, 8])
def test_tokens_can_be_reduced_where_they_are_computed(provider: str | None, batch: int, images: Images) -> None:
    if provider == "torch":
        pytest.importorskip("transformers")
    encoder = load_encoder("tiny-dinov2", layers=(0, 2), size=70, provider=provider)
    encoder.batch_size = batch
    pixels = prepare(images, 70)
    plain = encoder.encode_prepared(pixels)
    seen: list[tuple[int, ...]] = []

    def halves(token_C: Array) -> Array:
        seen.append(tuple(token_C.shape))
        return token_C[..., :16] - token_C[..., 16:]

    reduced = encoder.encode_prepared(pixels, halves)
    assert reduced.patches.shape == (3, 5, 5, 16)
    assert isinstance(reduced.patches, np.ndarray)
    np.testing.assert_allclose(reduced.cls, plain.cls[:, :16] - plain.cls[:, 16:], atol=1e-6)
    np.testing.assert_allclose(reduced.patches, plain.patches[..., :16] - plain.patches[..., 16:], atol=1e-6)
    assert max(shape[0] for shape in seen) == min(batch, 3)  # a batch at a time


def test_a_reduction_that_gives_no_numbers_is_refused(images: Images) -> None:
    encoder = load_encoder("tiny-dinov2", size=70)
    with pytest.raises(EncoderError, match="no numbers"):
        encoder.encode_prepared(prepare(images, 70), lambda token_C: token_C * np.float32("nan"))


@pytest.mark.parametrize("name", TINY)
def test_layers_come_in_the_order_asked(name: str, images: Images) -> None:
    size = 4 * patch(name)
    both = load_encoder(name, layers=(2, 0), size=size).encode(images)
    for position, layer in enumerate((2, 0)):
        alone = load_encoder(name, layers=(layer,), size=size).encode(images)
        channels = slice(16 * position, 16 * (position + 1))
        np.testing.assert_allclose(both.cls[:, channels], alone.cls, atol=1e-5)
        np.testing.assert_allclose(both.patches[..., channels], alone.patches, atol=1e-5)


@pytest.mark.parametrize("name", TINY)
def test_tokens_do_not_depend_on_the_batch(name: str, images: Images) -> None:
    encoder = load_encoder(name, size=4 * patch(name))
    encoder.batch_size = 2
    together = encoder.encode(images * 2)
    for index, image in enumerate(images):
        alone = encoder.encode([image])
        for copy in (index, index + len(images)):
            np.testing.assert_allclose(together.cls[copy], alone.cls[0], atol=1e-5)
            np.testing.assert_allclose(together.patches[copy], alone.patches[0], atol=1e-5)


def test_patches_lie_where_they_are_in_the_image() -> None:
    encoder = load_encoder("tiny-dinov2", layers=(0,), size=70)
    plain, marked = np.full((2, 70, 70, 3), 128, np.uint8)
    marked[14:28, 42:56] = 255
    tokens = encoder.encode([plain, marked]).patches
    change = np.linalg.norm(tokens[1] - tokens[0], axis=-1)
    assert np.unravel_index(change.argmax(), change.shape) == (1, 3)


@given(image=arrays(np.uint8, st.tuples(st.integers(1, 60), st.integers(1, 60))))
@settings(max_examples=30, deadline=None)
def test_grey_is_replicated_colour(image: NDArray[np.uint8]) -> None:
    colour = np.repeat(image[:, :, None], 3, axis=2)
    np.testing.assert_array_equal(prepare([image], 28), prepare([colour], 28))


def test_an_array_and_a_list_of_its_images_are_the_same() -> None:
    batch = np.random.default_rng(0).integers(0, 256, (3, 50, 40, 3), dtype=np.uint8)
    encoder = load_encoder("tiny-dinov2", size=28)
    tokens = encoder.encode(batch)
    np.testing.assert_array_equal(tokens.patches, encoder.encode(list(batch)).patches)
    np.testing.assert_array_equal(tokens.cls, encoder.encode_prepared(prepare(batch, 28)).cls)


def test_prepare_keeps_the_values_of_an_image_that_fits() -> None:
    image = np.random.default_rng(0).integers(0, 256, (28, 28, 3), dtype=np.uint8)
    np.testing.assert_array_equal(prepare([image], 28)[0], image)


@pytest.mark.parametrize(
    ("images", "says"),
    [
        ([], "at least one image"),
        (np.zeros((28, 28, 3), np.uint8), "into a list"),
        ([np.zeros((28, 28, 3), np.float32)], "Image 0 must be a uint8"),
        (["image.png"], "got a str"),
        ([np.zeros((28, 28), np.uint8), np.zeros((28, 28, 4), np.uint8)], "Image 1 .* alpha"),
        ([np.zeros((0, 28, 3), np.uint8)], "at least one pixel"),
    ],
)
def test_images_that_cannot_be_read_are_named(images: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        load_encoder("tiny-dinov2", size=28).encode(images)  # type: ignore[arg-type]


def test_pixels_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match=r"prepare\(images, 28\)"):
        load_encoder("tiny-dinov2", size=28).encode_prepared(np.zeros((1, 42, 42, 3), np.uint8))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "resnet"}, "no encoder 'resnet'; choose one of: .*dinov3-small"),
        ({"size": 100}, "multiple of its patch size 14, got 100; 98 is the nearest"),
        ({"size": 0}, "14 is the nearest"),
        ({"size": 28.0}, "whole number"),
        ({"layers": (3,)}, "blocks from 0 to 2 or 'final'"),
        ({"layers": ()}, "at least one"),
        ({"layers": (1, 1)}, "different blocks"),
        ({"layers": "final"}, "blocks from 0 to 2"),
        ({"backend": "tensorflow"}, "choose a provider instead: auto, onnx-cpu"),
        ({"device": "cuda"}, "add provider='torch', or use provider='cuda'"),
        ({"precision": "float16", "strict": True}, "knows float32"),
        ({"precision": "float64"}, "choose one of: float32"),
        ({"threads": 0}, "at least 1"),
    ],
)
def test_wrong_options_say_what_is_right(options: dict[str, object], says: str) -> None:
    with pytest.raises(EncoderError, match=says) as caught:
        load_encoder(**{"name": "tiny-dinov2", "size": 28} | options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "dinosaur_ad.encoders.backends.torch_backend", raising=False)
    with pytest.raises(EncoderError, match=r"torch is missing.*'\.\[bench\]'"):
        load_encoder("tiny-dinov2", backend="torch")


def test_torch_refuses_half_precision_on_a_cpu() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(EncoderError, match="on a GPU"):
        load_encoder("tiny-dinov2", backend="torch", precision="bfloat16")


def test_fingerprint_changes_with_whatever_changes_the_tokens() -> None:
    def mark(name: str = "tiny-dinov2", **options: object) -> str:
        return load_encoder(name, **{"size": 112} | options).fingerprint  # type: ignore[arg-type]

    marks = [
        mark(),
        mark(size=224),
        mark(layers=(0,)),
        mark(layers=(0, 1)),
        mark(layers=(1, 0)),
        mark("tiny-dinov3"),
    ]
    assert len(set(marks)) == len(marks)
    assert mark() == marks[0]


def test_info_is_json_and_does_not_overstate() -> None:
    info = json.loads(json.dumps(load_encoder("tiny-dinov3", layers=(1, "final"), size=64).info()))
    assert info["encoder"] == "tiny-dinov3"
    assert "learned nothing" in info["description"]
    assert (info["layers"], info["grid"], info["channels"]) == ([1, "final"], [4, 4], 32)
    assert (info["backend"], info["precision"]) == ("onnx", "float32")


def test_encoding_loads_neither_torch_nor_transformers() -> None:
    program = (
        "import sys, numpy as np, dinosaur_ad.encoders as e;"
        "assert not {'onnx', 'onnxruntime'} & sys.modules.keys();"
        "e.load_encoder('tiny-dinov2', size=28).encode(np.zeros((1, 9, 9, 3), np.uint8));"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("native", "side"), [(5, 5), (5, 3), (5, 16), (37, 16), (37, 20), (4, 1)])
def test_positions_are_interpolated_as_torch_does(native: int, side: int) -> None:
    torch = pytest.importorskip("torch")
    position = np.random.default_rng(0).standard_normal((1 + native**2, 6))
    grid = torch.from_numpy(position[1:].reshape(native, native, 6)).permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(grid, size=(side, side), mode="bicubic", align_corners=False)
    ours = interpolate_positions(position, side)
    np.testing.assert_array_equal(ours[0], position[0])
    np.testing.assert_allclose(ours[1:].reshape(side, side, 6), expected[0].permute(1, 2, 0).numpy(), atol=1e-12)
