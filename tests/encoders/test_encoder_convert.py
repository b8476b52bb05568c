"""Every published form of the weights becomes the same canonical one, and nothing else passes for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from encoder_helpers import export_like, original_form, transformers_form
from numpy.typing import NDArray
from safetensors.numpy import save_file

from dinosaur_ad.encoders import get_spec, load_encoder
from dinosaur_ad.encoders.graph.vit_graph import build_graph
from dinosaur_ad.encoders.registry import EncoderSpec, register
from dinosaur_ad.encoders.weights.convert import from_onnx, tensors_sha256, to_canonical
from dinosaur_ad.encoders.weights.sources import random_tensors
from dinosaur_ad.errors import EncoderError

TINY = ("tiny-dinov2", "tiny-dinov3")
Tensors = dict[str, NDArray[np.float32]]
FORMS: dict[str, Callable[[EncoderSpec, Tensors], Tensors]] = {
    "canonical": lambda spec, tensors: tensors,
    "original": original_form,
    "transformers, hub": lambda spec, tensors: transformers_form(spec, tensors, newer=False),
    "transformers, newer": lambda spec, tensors: transformers_form(spec, tensors, newer=True),
}


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_every_published_form_gives_the_same_tokens(name: str, form: str, suffix: str, tmp_path: Path) -> None:
    spec = get_spec(name)
    published = FORMS[form](spec, random_tensors(spec))
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch = pytest.importorskip("torch")
        torch.save({"model": {key: torch.from_numpy(value) for key, value in published.items()}}, path)
    else:
        save_file(published, path)
    image = np.random.default_rng(1).integers(0, 256, (1, 60, 60, 3), dtype=np.uint8)
    given, known = load_encoder(name, weights=path), load_encoder(name)
    np.testing.assert_array_equal(given.encode(image).patches, known.encode(image).patches)
    assert given.fingerprint == known.fingerprint
    assert path.name in str(given.info()["description"])


def test_an_onnx_export_holds_the_same_tensors() -> None:
    spec = get_spec("tiny-dinov2")
    tensors = random_tensors(spec)
    assert tensors_sha256(to_canonical(spec, from_onnx(export_like(spec, tensors)))) == tensors_sha256(tensors)


def test_a_folder_of_transformers_is_read(tmp_path: Path) -> None:
    spec = get_spec("tiny-dinov3")
    save_file(transformers_form(spec, random_tensors(spec), newer=False), tmp_path / "model.safetensors")
    assert load_encoder("tiny-dinov3", weights=tmp_path).fingerprint == load_encoder("tiny-dinov3").fingerprint


def without(tensors: Tensors) -> Tensors:
    return {name: value for name, value in tensors.items() if name != "norm.bias"}


def with_registers(tensors: Tensors) -> Tensors:
    return tensors | {"embeddings.register_tokens": np.ones((1, 4, 16), np.float32)}


def wider(tensors: Tensors) -> Tensors:
    return tensors | {"norm.bias": np.ones(32, np.float32)}


def broken(tensors: Tensors) -> Tensors:
    return tensors | {"norm.bias": np.full(16, np.nan, np.float32)}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without, "1 tensors are missing, the first is 'norm.bias'"),
        (with_registers, "do not belong to it, the first is 'embeddings.register_tokens'"),
        (wider, r"'norm.bias' has the shape \(32,\) instead of \(16,\)"),
        (broken, "not finite"),
    ],
)
def test_weights_of_something_else_are_refused(change: Callable[[Tensors], Tensors], says: str, tmp_path: Path) -> None:
    save_file(change(random_tensors(get_spec("tiny-dinov2"))), tmp_path / "a.safetensors")
    with pytest.raises(EncoderError, match=f"not the weights of 'tiny-dinov2'.*{says}"):
        load_encoder("tiny-dinov2", weights=tmp_path / "a.safetensors")


@pytest.mark.parametrize("name", ["a.safetensors", "a.pth", "a.whl", "a.zip", "b-0123abcd.pth", "missing.pth"])
def test_files_that_are_no_weights_get_one_sentence(name: str, tmp_path: Path) -> None:
    if not name.startswith("missing"):
        (tmp_path / name).write_bytes(b"not weights at all")
    with pytest.raises(EncoderError, match=name.replace(".", r"\.")) as caught:
        load_encoder("tiny-dinov2", weights=tmp_path / name)
    assert "\n" not in str(caught.value)


def test_dinov3_small_has_the_parameters_of_the_release() -> None:
    spec = get_spec("dinov3-small")
    assert spec.parameters + spec.width == 21_601_152  # the release also counts its mask token
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    with torch.device("meta"):
        model = transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(num_register_tokens=4, key_bias=True))
    assert sum(parameter.numel() for parameter in model.parameters()) == 21_601_152


def test_a_name_is_registered_only_once() -> None:
    with pytest.raises(EncoderError, match="'tiny-dinov2' is registered already"):
        register(get_spec("tiny-dinov2"))


@pytest.mark.parametrize("name", TINY)
def test_the_graph_is_valid_standard_onnx(name: str) -> None:
    spec = get_spec(name)
    model = build_graph(spec, random_tensors(spec), (0, "final"), 2 * spec.patch)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} == {""}
