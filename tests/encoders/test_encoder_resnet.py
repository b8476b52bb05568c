"""Residual networks: every published form gives the same maps, and the registry's verbs cover them."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from dinosaur_ad.encoders import ResNetSpec, get_spec, load_encoder, load_resnet, prepare, registry
from dinosaur_ad.encoders.weights import local as weights
from dinosaur_ad.encoders.weights.sources import random_tensors
from dinosaur_ad.errors import EncoderError, InputError

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra 'bench')")

Tensors = dict[str, NDArray[Any]]


def quiet(_: str) -> None:
    """Say nothing."""


@pytest.fixture
def bottleneck(monkeypatch: pytest.MonkeyPatch) -> ResNetSpec:
    """A small network of bottlenecks whose weights come from a file, under the name ``narrow``."""
    tiny = get_spec("tiny-resnet")
    assert isinstance(tiny, ResNetSpec)
    spec = dataclasses.replace(tiny, name="narrow", width=4, block="bottleneck", depths=(1, 2, 1), source="seed:9")
    monkeypatch.setitem(registry._REGISTRY, "narrow", spec)
    return spec


def torchvision_form(tensors: Tensors) -> Tensors:
    """Imitate torchvision: its names, stage 4, a classifier, counters of batches."""
    out: Tensors = {
        "fc.weight": np.ones((10, 8), np.float32),
        "layer4.0.conv1.weight": np.ones((8, 8, 1, 1), np.float32),
    }
    for name, value in tensors.items():
        name = name.replace("embedder.embedder.convolution", "conv1").replace("embedder.embedder.normalization", "bn1")
        name = re.sub(r"^encoder\.stages\.(\d)\.layers", lambda m: f"layer{int(m[1]) + 1}", name)
        name = re.sub(r"\.layer\.(\d)\.convolution", lambda m: f".conv{int(m[1]) + 1}", name)
        name = re.sub(r"\.layer\.(\d)\.normalization", lambda m: f".bn{int(m[1]) + 1}", name)
        name = name.replace("shortcut.convolution", "downsample.0").replace("shortcut.normalization", "downsample.1")
        out[name] = value
        if name.endswith("running_var"):
            out[name.replace("running_var", "num_batches_tracked")] = np.array(7, np.int64)
    return out


def hub_form(tensors: Tensors) -> Tensors:
    """Imitate the hub's classifiers: a prefix, stage 4, a head."""
    extra = {
        "classifier.1.bias": np.ones(10, np.float32),
        "resnet.encoder.stages.3.layers.0.layer.0.convolution.weight": np.ones((2, 2, 1, 1), np.float32),
    }
    return {f"resnet.{name}": value for name, value in tensors.items()} | extra


FORMS: dict[str, Callable[[Tensors], Tensors]] = {"canonical": dict, "torchvision": torchvision_form, "hub": hub_form}


@pytest.mark.parametrize("name", ["tiny-resnet", "narrow"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.usefixtures("bottleneck")
def test_every_published_form_gives_the_same_maps(
    name: str, form: str, suffix: str, tmp_path: Path, images: list[NDArray[np.uint8]]
) -> None:
    published = FORMS[form](random_tensors(get_spec(name)))
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save({key: torch.from_numpy(value) for key, value in published.items()}, path)
    else:
        save_file(published, path)
    given, known = load_resnet(name, weights=path), load_resnet(name)
    for ours, theirs in zip(given(prepare(images, 64)), known(prepare(images, 64)), strict=True):
        assert torch.equal(ours, theirs)
    assert given.info()["weights_sha256"] == known.info()["weights_sha256"]
    assert path.name in str(given.info()["description"])


def test_the_maps_are_those_of_transformers(images: list[NDArray[np.uint8]], bottleneck: ResNetSpec) -> None:
    features = load_resnet("narrow")
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[16, 32, 64], depths=[1, 2, 1])
    model = transformers.ResNetModel(config).eval()
    state = {name: torch.from_numpy(value) for name, value in random_tensors(bottleneck).items()}
    model.load_state_dict(state, strict=False)
    pixels = prepare(images, 96)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    normalised = (torch.from_numpy(pixels).float() / 255 - mean) / std
    with torch.inference_mode():
        hidden = model(normalised.permute(0, 3, 1, 2), output_hidden_states=True).hidden_states
    second, third = features(pixels)
    assert (second.shape, third.shape) == ((3, 32, 12, 12), (3, 64, 6, 6))
    torch.testing.assert_close(second, hidden[2])
    torch.testing.assert_close(third, hidden[3])
    assert features.channels == (32, 64)


def test_version_one_strides_in_its_first_convolution(
    bottleneck: ResNetSpec, monkeypatch: pytest.MonkeyPatch, images: list[NDArray[np.uint8]]
) -> None:
    monkeypatch.setitem(registry._REGISTRY, "first", dataclasses.replace(bottleneck, name="first", strided_first=True))
    strides = {
        name: [layer.convolution.stride[0] for layer in load_resnet(name)._model.encoder.stages[1].layers[0].layer]
        for name in ("narrow", "first")
    }
    assert strides == {"narrow": [1, 2, 1], "first": [2, 1, 1]}
    assert get_spec("resnet50-v1").strided_first  # type: ignore[attr-defined]
    pixels = prepare(images, 64)
    assert not torch.equal(load_resnet("narrow")(pixels)[0], load_resnet("first")(pixels)[0])


@pytest.mark.parametrize(
    ("name", "parameters"), [("resnet50", 8_543_296), ("resnet18", 2_782_784), ("resnet34", 8_170_304)]
)
def test_names_and_shapes_are_those_of_the_hubs_networks(name: str, parameters: int) -> None:
    spec = get_spec(name)
    assert spec.parameters == parameters
    layouts = {
        "resnet50": {},
        "resnet18": {"layer_type": "basic", "depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512]},
        "resnet34": {"layer_type": "basic", "depths": [3, 4, 6, 3], "hidden_sizes": [64, 128, 256, 512]},
    }
    with torch.device("meta"):
        state = transformers.ResNetModel(transformers.ResNetConfig(**layouts[name])).state_dict()
    ours = spec.tensor_shapes()
    missing = {key for key in state if not key.startswith("encoder.stages.3") and not key.endswith("tracked")} - set(
        ours
    )
    assert not missing
    assert {key: tuple(state[key].shape) for key in ours} == ours


def test_a_half_precision_file_is_read_as_float32_and_its_overflow_mended(tmp_path: Path) -> None:
    half = {key: value.astype(np.float16) for key, value in random_tensors(get_spec("tiny-resnet")).items()}
    half["embedder.embedder.normalization.running_var"][2] = np.inf  # what a variance of 70,000 becomes
    save_file(half, tmp_path / "half.safetensors")
    features = load_resnet("tiny-resnet", weights=tmp_path / "half.safetensors")
    state = features._model.state_dict()
    assert state["embedder.embedder.normalization.running_var"][2] == 65504
    assert {value.dtype for key, value in state.items() if not key.endswith("tracked")} == {torch.float32}
    half["embedder.embedder.convolution.weight"][0] = np.inf
    save_file(half, tmp_path / "broken.safetensors")
    with pytest.raises(EncoderError, match=r"convolution\.weight' holds values that are not finite"):
        load_resnet("tiny-resnet", weights=tmp_path / "broken.safetensors")


def test_the_network_is_frozen() -> None:
    features = load_resnet("tiny-resnet")
    assert not features._model.training
    assert not any(parameter.requires_grad for parameter in features._model.parameters())
    assert not features(np.zeros((1, 32, 32, 3), np.uint8))[0].requires_grad


@pytest.mark.parametrize("shape", [(1, 60, 60, 3), (64, 64, 3), (1, 64, 32, 3), (1, 64, 64, 4)])
def test_pixels_it_cannot_map_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"S a multiple of 16, got uint8 \("):
        load_resnet("tiny-resnet")(np.zeros(shape, np.uint8))


def test_each_kind_is_loaded_by_its_own_function() -> None:
    with pytest.raises(EncoderError, match=r"'resnet50' is no token encoder.*choose one of: dinov2s-focus"):
        load_encoder("resnet50")
    with pytest.raises(EncoderError, match=r"'tiny-dinov2' is no residual network.*choose one of: resnet50"):
        load_resnet("tiny-dinov2")


def test_weights_that_are_not_here_say_how_to_get_them() -> None:
    with pytest.raises(EncoderError, match=r"fetch resnet50, or add .* resnet50-0676ba61\.pth"):
        load_resnet("resnet50")
    for attempt in (load_resnet, weights.fetch):
        with pytest.raises(EncoderError, match=r"no download; add a file: dinosaur weights add resnet50-v1 \S+tensors"):
            attempt("resnet50-v1")


def test_an_added_file_is_kept_verified_and_its_damage_found(
    bottleneck: ResNetSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path
) -> None:
    spec = dataclasses.replace(bottleneck, name="own", source="file:", file="own.safetensors")
    monkeypatch.setitem(registry._REGISTRY, "own", spec)
    save_file(torchvision_form(random_tensors(bottleneck)), tmp_path / "own.safetensors")
    assert weights.add("own", tmp_path / "own.safetensors", progress=quiet).state == "ready"
    assert weights.fetch("own", progress=quiet).state == "ready"  # here and intact: nothing to download
    assert weights.verify("own").source == "file:own.safetensors"
    pixels = np.full((1, 32, 32, 3), 90, np.uint8)
    assert torch.equal(load_resnet("own")(pixels)[1], load_resnet("narrow")(pixels)[1])
    (home / "encoders" / "own" / "model.safetensors").write_bytes(b"")
    with pytest.raises(EncoderError, match="'own' are damaged on disk; add them again"):
        weights.verify("own")


def test_a_deeper_network_does_not_pass_for_a_shallower(tmp_path: Path, bottleneck: ResNetSpec) -> None:
    deeper = random_tensors(dataclasses.replace(bottleneck, depths=(1, 2, 3)))
    save_file(deeper, tmp_path / "deeper.safetensors")
    with pytest.raises(EncoderError, match=r"do not belong to it, the first is 'encoder\.stages\.2\.layers\.1"):
        load_resnet("narrow", weights=tmp_path / "deeper.safetensors")


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dinosaur_ad.encoders.backends.torch_backend", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(EncoderError, match=r"transformers is missing.*pip install '\.\[bench\]'"):
        load_resnet("tiny-resnet")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_said() -> None:
    with pytest.raises(EncoderError, match="'cuda' was asked for but torch sees no GPU"):
        load_resnet("tiny-resnet", device="cuda")


def test_the_real_file_gives_maps_of_the_right_shapes() -> None:
    folder = os.environ.get("DINOSAUR_WEIGHTS")
    if not folder:
        pytest.skip("DINOSAUR_WEIGHTS is not set: this test needs the real weights that it points to")
    file = Path(folder) / "resnet50_imagenet_stage3_fp16.safetensors"
    features = load_resnet("resnet50-v1", weights=file)
    second, third = features(np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), dtype=np.uint8))
    assert (second.shape, third.shape) == ((2, 512, 28, 28), (2, 1024, 14, 14))
    assert torch.isfinite(third).all()
    assert (second.amax((0, 2, 3)) > 0).float().mean() > 0.9  # hardly a channel that never fires
    assert load_file(file)["embedder.embedder.convolution.weight"].dtype == np.float16
