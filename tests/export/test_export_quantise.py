"""int8 and float16 graphs: what is rounded, what is not, and how little it changes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

from detector_helpers import product
from dinosaur_ad.encoders.base import Tokens, prepare
from dinosaur_ad.encoders.graph.forms import projections, to_half
from dinosaur_ad.encoders.graph.vit_graph import build_graph
from dinosaur_ad.encoders.parity import compare_tokens
from dinosaur_ad.encoders.registry import get_spec, token_encoder
from dinosaur_ad.encoders.weights.local import ensure
from dinosaur_ad.errors import InputError
from dinosaur_ad.export.int8 import observe, quantise, smooth

SIZES = {"tiny-dinov2": 70, "tiny-dinov3": 64}
LAYERS = (0, 1, "final")


@pytest.fixture(params=SIZES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(name: str) -> onnx.ModelProto:
    return build_graph(token_encoder(get_spec(name)), ensure(name).tensors(), LAYERS, SIZES[name])


@pytest.fixture
def images(name: str) -> np.ndarray:
    return prepare(product(0, 12), SIZES[name])


def tokens(model: onnx.ModelProto, images: np.ndarray) -> Tokens:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return Tokens(*session.run(["cls", "patches"], {"images": images}))


def with_types(model: onnx.ModelProto) -> dict[str, int]:
    """The element type of every value in a graph."""
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    found = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output, *graph.input)}
    return found | {tensor.name: tensor.data_type for tensor in graph.initializer}


def test_int8_is_near_float32(model: onnx.ModelProto, images: np.ndarray) -> None:
    quantised = quantise(model, images)
    onnx.checker.check_model(quantised, full_check=True)
    parity = compare_tokens(tokens(model, images), tokens(quantised, images))
    assert parity.finite
    assert parity.cosine_mean > 0.98
    assert parity.cosine_mean < 1  # something was rounded


def test_every_projection_but_that_of_the_pixels_is_int8_and_attention_is_not(
    model: onnx.ModelProto, images: np.ndarray
) -> None:
    quantised = quantise(model, images)
    source = {node.output[0]: node.op_type for node in quantised.graph.node}
    fed_by = Counter(
        tuple(source.get(name, "constant") for name in node.input)
        for node in quantised.graph.node
        if node.op_type == "MatMul"
    )
    blocks = token_encoder(get_spec(quantised.graph.name)).depth
    assert fed_by["DequantizeLinear", "DequantizeLinear"] == 6 * blocks
    assert fed_by["Softmax", "Transpose"] == blocks
    assert fed_by["Cast", "constant"] == 1
    # Queries, keys and values share what they read: four different inputs a block.
    assert Counter(node.op_type for node in quantised.graph.node)["QuantizeLinear"] == 4 * blocks
    weights = [tensor for tensor in quantised.graph.initializer if tensor.name.endswith("_int8")]
    assert all(tensor.data_type == TensorProto.INT8 for tensor in weights)
    assert sum(int(np.prod(tensor.dims)) for tensor in weights) == sum(
        int(np.prod(numpy_helper.to_array(tensor).shape))
        for tensor in model.graph.initializer
        if tensor.name in {node.input[1] for node in projections(model)}
    )


def test_smoothing_moves_large_channels_and_changes_no_token(model: onnx.ModelProto, images: np.ndarray) -> None:
    for tensor in model.graph.initializer:  # one channel of every norm is made a hundred times larger
        value = numpy_helper.to_array(tensor)
        norms = [node for node in model.graph.node if node.op_type == "LayerNormalization"]
        if tensor.name in {node.input[1] for node in norms}:
            value = value.copy()
            value[3] *= 100
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    ranges = observe(model, images)
    smoothed, smaller = smooth(model, ranges)
    assert compare_tokens(tokens(model, images), tokens(smoothed, images)).cosine_min > 0.999999
    seen = observe(smoothed, images)
    for key in seen:
        np.testing.assert_allclose(smaller[key].largest_C, seen[key].largest_C, rtol=1e-3, atol=1e-4)
    spread = {key: [max(map(np.ptp, each[key])) for each in (ranges, smaller)] for key in ranges}
    assert sum(after < 0.5 * before for before, after in spread.values()) >= len(LAYERS) - 1


def test_the_range_of_the_calibration_images_can_be_held_and_zero_exactly(
    model: onnx.ModelProto, images: np.ndarray
) -> None:
    quantised = quantise(model, images, smoothing=0.0)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantised.graph.initializer}
    _, ranges = smooth(model, observe(model, images), 0.0)
    for node in quantised.graph.node:
        if node.op_type == "QuantizeLinear":
            scale, zero = (constants[name] for name in node.input[1:])
            least, largest = ranges[node.input[0]].least_C.min(), ranges[node.input[0]].largest_C.max()
            assert zero.dtype == np.uint8
            assert (0 - float(zero)) * scale <= min(least, 0) + scale
            assert (255 - float(zero)) * scale >= max(largest, 0) - scale


def test_an_int8_image_does_not_depend_on_its_neighbours(model: onnx.ModelProto, images: np.ndarray) -> None:
    quantised = quantise(model, images)
    together, alone = tokens(quantised, images), tokens(quantised, images[:1])
    assert compare_tokens(Tokens(together.cls[:1], together.patches[:1]), alone).cosine_min > 0.9999


def test_too_few_calibration_images_are_refused(model: onnx.ModelProto, images: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"at least 8 of them, but there are 3; give more with --images\.$"):
        quantise(model, images[:3])


def test_float16_rounds_the_products_and_nothing_delicate(model: onnx.ModelProto, images: np.ndarray) -> None:
    half = to_half(model)
    onnx.checker.check_model(half, full_check=True)
    kinds = with_types(half)
    for node in half.graph.node:
        if node.op_type in ("LayerNormalization", "Softmax"):
            assert kinds[node.input[0]] == kinds[node.output[0]] == TensorProto.FLOAT
    products = [node for node in half.graph.node if node.op_type == "MatMul"]
    assert [kinds[node.output[0]] for node in products] == [
        TensorProto.FLOAT,
        *[TensorProto.FLOAT16] * (len(products) - 1),
    ]
    assert all(kinds[value.name] == TensorProto.FLOAT for value in half.graph.output)
    assert compare_tokens(tokens(model, images), tokens(half, images)).cosine_min > 0.9999


def test_float16_and_int8_take_less_room_and_leave_the_model_as_it_was(
    model: onnx.ModelProto, images: np.ndarray
) -> None:
    before = model.SerializeToString(deterministic=True)

    def weights(model: onnx.ModelProto) -> int:
        return sum(len(tensor.raw_data) for tensor in model.graph.initializer)

    assert weights(to_half(model)) < 0.85 * weights(model)
    assert weights(quantise(model, images)) < 0.75 * weights(model)
    assert model.SerializeToString(deterministic=True) == before


def test_symmetric_bytes_have_zero_in_the_middle_as_tensorrt_wants_it(
    model: onnx.ModelProto, images: np.ndarray
) -> None:
    quantised = quantise(model, images, symmetric=True)
    zeros = [numpy_helper.to_array(each) for each in quantised.graph.initializer if each.name.endswith("_zero")]
    assert zeros
    assert all(each.dtype == np.int8 and not each.any() for each in zeros)
    assert compare_tokens(tokens(model, images), tokens(quantised, images)).cosine_mean > 0.98
