"""The frozen features that the published IUF reconstructs: any backbone, and where their weights come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from iuf_helpers import tiny, torch
from safetensors.torch import save_file

from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.methods import Workbench, get_method
from dinosaur_ad.methods.iuf import efficientnet
from dinosaur_ad.methods.iuf.aligned_features import AlignedFeatures


def features(backbone: str, size: int, **settings: Any) -> AlignedFeatures:
    arguments = {"weights": "", "blocks": (0, 2), **settings}
    return AlignedFeatures(backbone, size=size, device=torch.device("cpu"), **arguments)


@pytest.mark.parametrize(("backbone", "size", "side"), [("tiny-resnet", 64, 4), ("tiny-dinov2", 70, 5)])
def test_any_backbone_gives_tokens_of_one_grid_and_says_that_it_stands_in(backbone: str, size: int, side: int) -> None:
    found = features(backbone, size)
    pixels = np.random.default_rng(0).integers(0, 256, (2, size, size, 3)).astype(np.uint8)
    tokens = found(pixels)
    assert tokens.shape == (2, side**2, found.channels)
    assert found.info()["substitute"] == f"{backbone} stands in for EfficientNet-B4"
    if backbone == "tiny-dinov2":
        np.testing.assert_allclose(tokens[..., :16].square().mean(-1), 1, rtol=1e-4)


def test_efficientnet_takes_the_hubs_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = features("tiny-efficientnet", 64)
    network = source._efficientnet
    state = {f"efficientnet.{name}": value for name, value in network._model.state_dict().items()}
    save_file({**state, "classifier.weight": torch.zeros(3, 3)}, tmp_path / "model.safetensors")
    monkeypatch.setitem(efficientnet.ARCHITECTURES, "efficientnet-b4", efficientnet.ARCHITECTURES["tiny-efficientnet"])
    pixels = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3)).astype(np.uint8)
    for place in (tmp_path, tmp_path / "model.safetensors"):
        loaded = features("efficientnet-b4", 64, weights=str(place))
        np.testing.assert_array_equal(loaded(pixels), source(pixels))
        info = loaded.info()
        assert (info["substitute"], len(info["weights_sha256"])) == ("", 64)
    assert source(pixels).std(0).mean() > 0.01  # random, but not blind
    save_file({"other": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(EncoderError, match=r"has no 'embeddings.convolution.weight' .* not EfficientNet-B4"):
        features("efficientnet-b4", 64, weights=str(tmp_path)).info()
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(EncoderError, match="cannot be read as safetensors"):
        features("efficientnet-b4", 64, weights=str(tmp_path)).info()


def test_missing_weights_are_answered_with_where_to_get_them_and_what_can_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    with pytest.raises(EncoderError, match=r"hf download google/efficientnet-b4 .*iuf.backbone=resnet50-v1"):
        get_method("iuf:original").build(Workbench()).info()
    with pytest.raises(EncoderError, match="no weights of EfficientNet-B4 in"):
        tiny("iuf:original", backbone="efficientnet-b4", weights=str(tmp_path / "absent")).info()
    with pytest.raises(EncoderError, match="no backbone 'vgg' for IUF; choose one of: efficientnet-b4"):
        tiny("iuf:original", backbone="vgg").info()


def test_a_size_that_leaves_no_grid_is_refused() -> None:
    with pytest.raises(InputError, match="multiple of 16 with tiny-resnet, got 72"):
        features("tiny-resnet", 72)
