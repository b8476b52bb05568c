"""A product learned with two encoders: what they see counts together, and no other encoder opens its store."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from detector_helpers import TINY, product, spoil
from dinosaur_ad import Dinosaur, EncoderOptions
from dinosaur_ad.core.features import combine_blocks
from dinosaur_ad.encoders import get_spec, registry
from dinosaur_ad.encoders.weights import local as weights
from dinosaur_ad.encoders.weights.sources import random_tensors
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.presets import DEFAULT, PRESETS, Preset, as_shipped, preset_for

PAIR = "tiny-dinov2+tiny-resnet"
PRESET: Preset = dataclasses.replace(TINY, size=112)


def taught(store: Path | None, encoder: str = PAIR) -> Dinosaur:
    detector = Dinosaur(store, encoder=encoder, preset=PRESET)
    detector.learn("plate", product(0, 20))
    return detector


def test_a_defect_stands_out_and_the_store_opens_with_the_pair_alone(tmp_path: Path) -> None:
    store = tmp_path / "store"
    good, bad = product(0, 4, seed=9), [spoil(each) for each in product(0, 4, seed=9)]
    before = [each.score for each in taught(store).inspect([*good, *bad])]
    assert max(before[:4]) < min(before[4:])
    again = Dinosaur(store)
    assert [each.score for each in again.inspect([*good, *bad])] == before
    assert again.encoder.name == PAIR
    assert [each.score for each in Dinosaur(store, encoder=PAIR).inspect([*good, *bad])] == before
    for other in ("tiny-dinov2", "tiny-resnet", "tiny-resnet+tiny-dinov2", "tiny-dinov2+tiny-dinov3"):
        with pytest.raises(StoreError, match=r"was made with the encoder 'tiny-dinov2\+tiny-resnet'"):
            Dinosaur(store, encoder=other)


def test_a_store_of_one_encoder_refuses_a_pair(tmp_path: Path) -> None:
    taught(tmp_path / "store", "tiny-dinov2")
    with pytest.raises(StoreError, match=r"with the encoder 'tiny-dinov2' and cannot be used with 'tiny-dinov2\+tiny"):
        Dinosaur(tmp_path / "store", encoder=PAIR)


def test_the_store_names_both_and_refuses_other_weights_of_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path / "home"))
    spec = dataclasses.replace(get_spec("tiny-resnet"), name="filed", source="file:", file="filed.safetensors")
    monkeypatch.setitem(registry._REGISTRY, "filed", spec)

    def put(seed: int) -> None:
        save_file(random_tensors(dataclasses.replace(spec, source=f"seed:{seed}")), tmp_path / "filed.safetensors")
        weights.add("filed", tmp_path / "filed.safetensors", progress=lambda _: None)

    put(4)
    taught(tmp_path / "store", "tiny-dinov2+filed")
    header = Dinosaur(tmp_path / "store").store.header["encoder"]
    assert [part["encoder"] for part in header["parts"]] == ["tiny-dinov2", "filed"]
    assert [part["weights_sha256"] for part in header["parts"]] == [
        weights.ensure(name).sha256 for name in ("tiny-dinov2", "filed")
    ]
    put(5)
    with pytest.raises(StoreError, match=r"other weights of 'tiny-dinov2\+filed'"):
        Dinosaur(tmp_path / "store").inspect(product(0, 1)[0])
    put(4)
    assert Dinosaur(tmp_path / "store").inspect(product(0, 1)[0]).task == "plate"


def test_both_networks_count() -> None:
    """The squared distance of two patches is the sum of what each network sees."""
    detector = Dinosaur(encoder=PAIR, preset=PRESET)
    images = product(0, 2)
    pixels = np.stack([np.asarray(each) for each in images])
    pixels = np.repeat(np.repeat(pixels, 2, axis=1), 2, axis=2)[:, :112, :112]
    features = detector._features.features(pixels)[1]
    tokens = detector.encoder.encode_prepared(pixels).patches
    first = combine_blocks(tokens[..., :-16], 2, normalise=True, average=True)
    np.testing.assert_allclose(features, np.concatenate([first, tokens[..., -16:]], axis=-1), atol=1e-6)
    squared = ((features[0] - features[1]) ** 2).sum(axis=-1)
    apart = [((part[0] - part[1]) ** 2).sum(axis=-1) for part in (features[..., :-16], features[..., -16:])]
    np.testing.assert_allclose(squared, apart[0] + apart[1], rtol=1e-4, atol=1e-6)
    assert all(each.max() > 1e-4 for each in apart)


def test_int8_inspects_what_float32_learned(tmp_path: Path) -> None:
    taught(tmp_path / "store")
    narrow = Dinosaur(tmp_path / "store", options=EncoderOptions(provider="onnx-cpu", precision="int8"))
    images = [*product(0, 3, seed=9), *(spoil(each) for each in product(0, 3, seed=9))]
    found, exact = narrow.inspect(images), Dinosaur(tmp_path / "store").inspect(images)
    np.testing.assert_allclose([each.score for each in found], [each.score for each in exact], rtol=0.1)
    assert [each.score for each in found] != [each.score for each in exact]


# --- presets ---


def test_without_one_length_the_parts_cannot_be_weighed() -> None:
    with pytest.raises(InputError, match=r"'paper' does not scale tokens to one length.*or one encoder") as error:
        Dinosaur(encoder=PAIR, preset="paper")
    assert str(error.value).endswith(".")
    with pytest.raises(InputError, match="does not scale tokens"):
        preset_for("default", "dinov2s-focus+resnet50-v1", {"normalise": False})


def test_a_pair_has_a_preset_of_its_own_and_changes_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "dinov2s-focus+tiny-resnet"
    assert as_shipped("default", name) == DEFAULT
    monkeypatch.setitem(registry._PAIRS, name, {"weight": 1.0, "preset": {"radius": 2}})
    assert as_shipped("default", name) == dataclasses.replace(DEFAULT, radius=2)
    assert as_shipped("default", "dinov2s-focus") == DEFAULT
    assert as_shipped("fast", name) == PRESETS["fast"]


@pytest.mark.parametrize("preset", ["default", "fast", "best"])
@pytest.mark.parametrize("name", registry.known_pairs())
def test_the_presets_fit_the_measured_pairs(preset: str, name: str) -> None:
    assert preset_for(preset, name).size % 112 == 0
