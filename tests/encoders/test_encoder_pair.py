"""Two encoders as one: the same tokens on every run time, one identity, and refusals of what cannot be a pair."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from encoder_helpers import cosine
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper
from safetensors.numpy import save_file

from dinosaur_ad.encoders import (
    Encoder,
    ResNetSpec,
    compare_tokens,
    get_spec,
    load_encoder,
    load_resnet,
    prepare,
    registry,
)
from dinosaur_ad.encoders.auto import sample_images
from dinosaur_ad.encoders.graph.resnet_graph import add_maps
from dinosaur_ad.encoders.graph.vit_graph import IR_VERSION, OPSET, GraphBuilder
from dinosaur_ad.encoders.pair import PairSpec, kept_channels, one_network, onto_grid, part_names, reduction
from dinosaur_ad.encoders.parity import failure
from dinosaur_ad.encoders.providers import why_not
from dinosaur_ad.encoders.weights import local as weights
from dinosaur_ad.encoders.weights.sources import random_tensors
from dinosaur_ad.errors import EncoderError

SIZE = 112  # 8 patches of 14 pixels, 7 cells or patches of 16
BESIDE_RESNET, BESIDE_VIT = "tiny-dinov2+tiny-resnet", "tiny-dinov2+tiny-dinov3"
PAIRS = (BESIDE_RESNET, BESIDE_VIT, "tiny-dinov3+tiny-dinov2", "tiny-dinov3+tiny-resnet")
Images = list[NDArray[np.uint8]]


def quiet(_: str) -> None:
    """Say nothing."""


def sentence(error: pytest.ExceptionInfo[EncoderError]) -> str:
    said = str(error.value)
    assert "\n" not in said
    assert said.endswith(".")
    return said


def narrow(monkeypatch: pytest.MonkeyPatch, **changes: object) -> ResNetSpec:
    """A small network of bottlenecks in the registry, under the name ``narrow``."""
    tiny = get_spec("tiny-resnet")
    assert isinstance(tiny, ResNetSpec)
    settings = {"name": "narrow", "width": 4, "block": "bottleneck", "depths": (1, 2, 1), "source": "seed:9"} | changes
    spec = dataclasses.replace(tiny, **settings)
    monkeypatch.setitem(registry._REGISTRY, "narrow", spec)
    return spec


# --- tokens ---


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("layers", [("final",), (2, 0, "final")])
def test_onnx_and_torch_agree(name: str, layers: tuple[int | str, ...], images: Images) -> None:
    pytest.importorskip("transformers")
    ours = load_encoder(name, layers=layers, size=SIZE)
    theirs = load_encoder(name, layers=layers, size=SIZE, provider="torch")
    a, b = ours.encode(images), theirs.encode(images)
    side = SIZE // get_spec(part_names(name)[0]).patch
    assert a.patches.shape == b.patches.shape == (3, side, side, 16 * len(layers) + 16)
    np.testing.assert_allclose(a.patches, b.patches, atol=1e-4)
    np.testing.assert_allclose(a.cls, b.cls, atol=1e-4)
    assert cosine(a.patches[..., -16:], b.patches[..., -16:]) > 0.99999
    assert ours.fingerprint == theirs.fingerprint


@pytest.mark.parametrize("form", [{"block": "basic"}, {"strided_first": True}, {"strided_first": False}])
@pytest.mark.parametrize("size", [32, 112])
def test_the_graph_of_a_residual_network_gives_the_maps_of_torch(
    monkeypatch: pytest.MonkeyPatch, form: dict[str, object], size: int, images: Images
) -> None:
    pytest.importorskip("transformers")
    spec = narrow(monkeypatch, **form)
    graph = GraphBuilder()
    names = add_maps(graph, spec, random_tensors(spec))
    value = helper.make_tensor_value_info
    inputs = [value("images", TensorProto.UINT8, ["N", size, size, 3])]
    outputs = [value(name, TensorProto.FLOAT, None) for name in names]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "maps", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pixels = prepare(images, size)
    for ours, theirs in zip(session.run(None, {"images": pixels}), load_resnet("narrow")(pixels), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-4 * float(theirs.max()))


@pytest.mark.parametrize("name", PAIRS)
def test_the_tokens_of_the_first_come_first_and_unchanged(name: str, images: Images) -> None:
    pair = load_encoder(name, layers=(0, 1), size=SIZE)
    first = load_encoder(part_names(name)[0], layers=(0, 1), size=SIZE)
    both, alone = pair.encode(images), first.encode(images)
    np.testing.assert_allclose(both.patches[..., :32], alone.patches, atol=1e-6)
    np.testing.assert_allclose(both.cls[..., :32], alone.cls, atol=1e-6)
    assert (pair.tail, pair.channels, first.tail) == (16, 48, 0)


@pytest.mark.parametrize("name", PAIRS)
def test_every_place_has_a_tail_of_the_length_that_is_its_weight(
    name: str, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = load_encoder(name, layers=(0, 1), size=SIZE)
    monkeypatch.setitem(registry._PAIRS, name, {"weight": 2.5})
    heavy = load_encoder(name, layers=(0, 1), size=SIZE)
    a, b = plain.encode(images), heavy.encode(images)
    assert (weight_of(plain), weight_of(heavy)) == (1.0, 2.5)
    np.testing.assert_allclose(np.linalg.norm(b.patches[..., 32:], axis=-1), 2.5, rtol=1e-5)
    np.testing.assert_allclose(b.patches[..., 32:] / 2.5, a.patches[..., 32:], atol=1e-6)
    np.testing.assert_allclose(b.cls[..., 32:], b.patches[..., 32:].mean(axis=(1, 2)), atol=1e-5)
    assert plain.fingerprint != heavy.fingerprint


def weight_of(encoder: Encoder) -> float:
    assert isinstance(encoder.spec, PairSpec)
    return encoder.spec.weight


def test_what_the_second_network_sees_of_a_place_stands_at_that_place() -> None:
    """A picture that is flat but for one corner changes the tail most there."""
    pair = load_encoder(BESIDE_RESNET, layers=(0,), size=2 * SIZE)
    flat = np.full((2 * SIZE, 2 * SIZE, 3), 128, np.uint8)
    marked = flat.copy()
    marked[150:200, 20:70] = (250, 10, 240)
    a, b = (pair.encode([each]).patches[0, ..., -16:] for each in (flat, marked))
    change_HW = np.linalg.norm(a - b, axis=-1)
    row, column = np.unravel_index(change_HW.argmax(), change_HW.shape)
    assert 150 <= 14 * row + 7 <= 200
    assert 20 <= 14 * column + 7 <= 70


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    ("provider", "precision"), [("onnx-cpu", "int8"), *(("openvino", each) for each in ("float32", "bfloat16", "int8"))]
)
def test_other_run_times_and_precisions_pass_the_parity_check(name: str, provider: str, precision: str) -> None:
    if reason := why_not(provider, precision):
        pytest.skip(reason)
    encoder = load_encoder(name, layers=(0, 1), size=SIZE, provider=provider, precision=precision, strict=True)
    reference = load_encoder(name, layers=(0, 1), size=SIZE)
    images = sample_images(SIZE)
    tokens = encoder.encode_prepared(images)
    assert failure(compare_tokens(reference.encode_prepared(images), tokens), precision) is None
    assert encoder.fingerprint == reference.fingerprint
    alone = encoder.encode_prepared(images[1:2])
    assert cosine(alone.patches, tokens.patches[1:2]) > 0.99999  # whatever its neighbours


def test_encoding_with_both_loads_neither_torch_nor_transformers() -> None:
    program = (
        "import sys, numpy as np, dinosaur_ad.encoders as e;"
        f"e.load_encoder('{BESIDE_RESNET}', size={SIZE}).encode(np.zeros((1, 9, 9, 3), np.uint8));"
        "assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# --- the grid and the signs ---


@given(st.integers(1, 40), st.integers(1, 40))
def test_a_map_on_another_grid_keeps_its_values_and_its_directions(cells: int, places: int) -> None:
    matrix = onto_grid(cells, places)
    assert matrix.shape == (places, cells)
    assert (matrix >= 0).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(matrix, matrix[::-1, ::-1], atol=1e-6)  # as far from one end as from the other
    ramp = matrix @ np.arange(cells, dtype=np.float32)
    assert (np.diff(ramp) >= -1e-4).all()
    centre = (np.arange(places) + 0.5) * cells / places - 0.5
    inside = (centre >= max(1, cells / places)) & (centre <= cells - 1 - max(1, cells / places))
    np.testing.assert_allclose(ramp[inside], centre[inside], atol=0.51 if cells > places else 1e-3)
    if cells == places:
        np.testing.assert_array_equal(matrix, np.eye(cells))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_fewer_channels_keep_distances_nearly(seed: int) -> None:
    a, b = np.random.default_rng(seed).random((2, 1024)).astype(np.float32)
    signs = reduction(1024, 192)
    assert signs is not None
    before, after = np.linalg.norm(a - b), np.linalg.norm(signs @ (a - b))
    assert 0.75 < after / before < 1.25  # five deviations of 1 / sqrt(2 * 192)


def test_the_signs_are_the_same_everywhere() -> None:
    signs = reduction(1024, 192)
    assert signs is not None
    assert set(np.unique(signs * np.sqrt(192)).round(5)) == {-1, 1}
    digest = hashlib.sha256(np.packbits(signs > 0)).hexdigest()
    assert digest[:16] == "d2a98e54fdad89c5"
    assert reduction(192, 192) is None
    assert [kept_channels(each, 384, 2) for each in (128, 192, 512)] == [128, 192, 192]


# --- names ---


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tiny-dinov2+tiny-resnet+tiny-dinov3", "A pair is two encoders, written A\\+B, got .*; name exactly two"),
        ("tiny-dinov2+", "name exactly two"),
        ("+tiny-dinov2", "name exactly two"),
        ("tiny-dinov2+tiny-dinov2", "names the same encoder twice"),
        ("tiny-dinov2+vgg", "There is no encoder 'vgg' for the pair 'tiny-dinov2\\+vgg'; choose from: dinov2s-focus,"),
        ("vgg+tiny-dinov2", "There is no encoder 'vgg'"),
        ("tiny-resnet+tiny-dinov2", "'tiny-resnet' gives feature maps; put one of these first: dinov2s-focus,"),
    ],
)
def test_what_is_no_pair_is_refused_in_a_sentence(name: str, words: str) -> None:
    with pytest.raises(EncoderError, match=words) as error:
        load_encoder(name, layers=(0,), size=SIZE)
    assert len(sentence(error)) < 400


@pytest.mark.parametrize(("size", "nearest"), [(70, 112), (64, 112), (336 + 14, 336), (448 + 16, 448)])
def test_a_size_at_which_the_grids_cannot_be_matched_is_refused(size: int, nearest: int) -> None:
    with pytest.raises(EncoderError, match=f"14 and 16 pixels, divide: 112, got {size}; {nearest} is the nearest") as e:
        load_encoder(BESIDE_RESNET, layers=(0,), size=size)
    sentence(e)


def test_layers_that_only_the_first_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shallow = dataclasses.replace(get_spec("tiny-dinov3"), name="shallow", depth=2)
    monkeypatch.setitem(registry._REGISTRY, "shallow", shallow)
    load_encoder("tiny-dinov2+shallow", layers=(0, 1), size=SIZE)
    with pytest.raises(EncoderError, match="blocks from 0 to 1 or 'final'"):
        load_encoder("tiny-dinov2+shallow", layers=(2,), size=SIZE)


def test_what_needs_one_network_refuses_a_pair() -> None:
    with pytest.raises(EncoderError, match="is a pair, and one network is needed here; choose tiny-dinov2 or tiny-"):
        one_network(get_spec(BESIDE_VIT))
    assert one_network(get_spec("tiny-resnet")) is get_spec("tiny-resnet")


# --- identity ---


def test_both_are_named_wherever_the_encoder_is() -> None:
    info = load_encoder(BESIDE_RESNET, layers=(0,), size=SIZE).info()
    parts = info["parts"]
    assert isinstance(parts, list)
    assert [part["encoder"] for part in parts] == ["tiny-dinov2", "tiny-resnet"]
    assert [part["weights_sha256"] for part in parts] == [weights.ensure(part["encoder"]).sha256 for part in parts]
    assert all(part["description"] in str(info["description"]) for part in parts)
    sizes = [get_spec(name).parameters for name in part_names(BESIDE_RESNET)]
    assert info["parameters"] == sum(sizes)
    assert "parts" not in load_encoder("tiny-dinov2", layers=(0,), size=70).info()


def test_whatever_changes_the_tokens_changes_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    def pair(name: str = "tiny-dinov2+narrow", **changes: object) -> str:
        narrow(monkeypatch, **changes)
        return load_encoder(name, layers=(0,), size=SIZE).fingerprint

    found = [
        pair(),
        pair(strided_first=True),  # the same tensors
        pair(source="seed:10"),
        pair(depths=(1, 1, 1)),
        pair("tiny-dinov3+narrow"),
        load_encoder("tiny-dinov2", layers=(0,), size=SIZE).fingerprint,
    ]
    assert len(set(found)) == len(found)
    assert pair() == found[0]
    monkeypatch.setitem(registry._PAIRS, "tiny-dinov2+narrow", {"weight": 0.5})
    assert pair() not in found


# --- weights ---


def test_the_second_networks_weights_come_from_the_file_that_was_added(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, images: Images
) -> None:
    spec = narrow(monkeypatch, source="file:", file="narrow.safetensors")
    with pytest.raises(EncoderError, match="'narrow' have no download; add a file: dinosaur weights add narrow") as e:
        load_encoder("tiny-dinov2+narrow", layers=(0,), size=SIZE)
    sentence(e)
    tensors = random_tensors(dataclasses.replace(spec, source="seed:11"))
    file = tmp_path / "narrow.safetensors"
    save_file({name: value.astype(np.float16) for name, value in tensors.items()}, file)
    weights.add("narrow", file, progress=quiet)
    added = load_encoder("tiny-dinov2+narrow", layers=(0,), size=SIZE)
    assert added.weights_source == "seed:2 + file:narrow.safetensors"
    assert "weights from the local file narrow.safetensors" in str(added.info()["description"])
    weights.add("narrow", file.rename(tmp_path / "mine + yours.safetensors"), progress=quiet)
    odd = load_encoder("tiny-dinov2+narrow", layers=(0,), size=SIZE)
    assert "weights from seed:2 + file:mine + yours.safetensors, in the arch" in str(odd.info()["description"])
    narrow(monkeypatch, source="seed:11")
    exact = load_encoder("tiny-dinov2+narrow", layers=(0,), size=SIZE)
    assert cosine(added.encode(images).patches, exact.encode(images).patches) > 0.999  # float16
    assert added.fingerprint != exact.fingerprint


@pytest.mark.parametrize("verb", ["fetch", "verify", "status"])
def test_a_pair_has_no_weights_but_those_of_its_parts(verb: str) -> None:
    with pytest.raises(EncoderError, match="name its parts one by one: tiny-dinov2, then tiny-resnet") as error:
        getattr(weights, verb)(BESIDE_RESNET)
    sentence(error)


def test_a_file_holds_one_network(tmp_path: Path) -> None:
    for take in (weights.add, weights.from_file):
        with pytest.raises(EncoderError, match="name its parts one by one"):
            take(BESIDE_RESNET, tmp_path / "file.safetensors")
    with pytest.raises(EncoderError, match="name its parts one by one"):
        load_encoder(BESIDE_RESNET, layers=(0,), size=SIZE, weights=tmp_path / "file.safetensors")


def test_the_measured_pairs_of_the_registry_can_be_made() -> None:
    assert registry.known_pairs()
    for name in registry.known_pairs():
        spec = get_spec(name)
        assert isinstance(spec, PairSpec)
        assert spec.tail == 384
        assert {"first.norm.weight", "second.embedder.embedder.convolution.weight"} <= spec.tensor_shapes().keys()


def test_the_real_second_network_gives_the_tail_that_torch_gives(images: Images) -> None:
    pytest.importorskip("transformers")
    folder = os.environ.get("DINOSAUR_WEIGHTS")
    if not folder:
        pytest.skip("DINOSAUR_WEIGHTS is not set: this test needs the real weights that it points to")
    weights.add("resnet50-v1", Path(folder) / "resnet50_imagenet_stage3_fp16.safetensors", progress=quiet)
    ours, theirs = (
        load_encoder("tiny-dinov2+resnet50-v1", layers=(0,), size=2 * SIZE, provider=provider).encode(images)
        for provider in (None, "torch")
    )
    assert cosine(ours.patches[..., -16:], theirs.patches[..., -16:]) > 0.9999
    assert float(np.linalg.norm(ours.patches[0, 0, 0, -16:] - ours.patches[1, 8, 8, -16:])) > 0.05
