"""The vision transformer of DNE and UCAD: a literal one, its weights in every spelling, and its substitutes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dinosaur_ad.datasets.synthetic import synthetic_scenario
from dinosaur_ad.encoders import list_specs, load_encoder, prepare
from dinosaur_ad.encoders.weights.sources import random_tensors
from dinosaur_ad.errors import EncoderError, InputError

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")

from dinosaur_ad.methods.dne.classifier_training import normalised  # noqa: E402
from dinosaur_ad.methods.shared.vit_base import load_vit, sized, vit_spec  # noqa: E402
from dinosaur_ad.methods.shared.vit_weights import VITS  # noqa: E402

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def literal_vit(images: Any, tensors: dict[str, Any], prompts: Any = None, *, shifted: bool = False) -> Any:
    """Every token of tiny-vit after its last block, written out."""
    functional, w = torch.nn.functional, {name: torch.from_numpy(value) for name, value in tensors.items()}

    def linear(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        return functional.layer_norm(x, (16,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-6)

    patches = functional.conv2d(
        images, w["embeddings.patch_embeddings.weight"], w["embeddings.patch_embeddings.bias"], stride=8
    )
    x = torch.cat([w["embeddings.cls_token"].expand(len(images), -1, -1), patches.flatten(2).transpose(1, 2)], dim=1)
    position = w["embeddings.position_embeddings"]
    x = x[:, 1:] + position[:, :-1] if shifted else x + position
    for layer in range(5):
        name = f"layer.{layer}"
        if prompts is not None:
            x = x + prompts[layer]
        normed = norm(x, f"{name}.norm1")
        q, k, v = (linear(normed, f"{name}.attention.{p}_proj").unflatten(-1, (2, 8)).transpose(1, 2) for p in "qkv")
        mixed = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(8), dim=-1) @ v
        x = x + linear(mixed.transpose(1, 2).flatten(2), f"{name}.attention.o_proj")
        hidden = functional.gelu(linear(norm(x, f"{name}.norm2"), f"{name}.mlp.up_proj"))
        x = x + linear(hidden, f"{name}.mlp.down_proj")
    return x


TINY = random_tensors(VITS["tiny-vit"])


def test_the_network_is_a_vision_transformer_with_and_without_prompts() -> None:
    vit = load_vit("tiny-vit", size=32)
    expected = literal_vit(IMAGES, TINY)
    final = torch.nn.functional.layer_norm(
        expected, (16,), torch.from_numpy(TINY["norm.weight"]), torch.from_numpy(TINY["norm.bias"]), 1e-6
    )
    torch.testing.assert_close(vit.cls(IMAGES), final[:, 0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(vit.tokens(IMAGES), expected, rtol=1e-4, atol=1e-5)
    prompts = torch.rand(5, 16, generator=torch.Generator().manual_seed(1))
    found = vit.tokens(IMAGES, prompts)
    torch.testing.assert_close(found, literal_vit(IMAGES, TINY, prompts), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(vit.tokens(IMAGES), expected, rtol=1e-4, atol=1e-5)  # prompts leave no trace
    moved = vit.tokens(IMAGES, prompts, shifted=True)
    torch.testing.assert_close(moved, literal_vit(IMAGES, TINY, prompts, shifted=True), rtol=1e-4, atol=1e-4)


def test_the_first_blocks_are_those_of_the_whole() -> None:
    short, whole = load_vit("tiny-vit", size=32, depth=2), load_vit("tiny-vit", size=32)
    seen: list[Any] = []
    whole.module.layers[1].register_forward_hook(lambda _m, _i, output: seen.append(output))
    whole.cls(IMAGES)
    torch.testing.assert_close(short.tokens(IMAGES), seen[0])
    with pytest.raises(InputError, match="has 5 blocks; choose from 1 to 5, not 6"):
        load_vit("tiny-vit", size=32, depth=6)
    with pytest.raises(InputError, match=r"prompts of shape \(2, 16\), one row a block"):
        short.tokens(IMAGES, torch.zeros(5, 16))


def published(form: str) -> dict[str, Any]:
    """tiny-vit's weights as the hub, torchvision or timm would spell them, with a classifier."""
    parts = {
        "hub": {
            "embeddings.patch_embeddings.": "vit.embeddings.patch_embeddings.projection.",
            "embeddings.": "vit.embeddings.",
            "norm.": "vit.layernorm.",
            "layer.": "vit.encoder.layer.",
            ".norm1.": ".layernorm_before.",
            ".norm2.": ".layernorm_after.",
            ".attention.q_proj.": ".attention.attention.query.",
            ".attention.k_proj.": ".attention.attention.key.",
            ".attention.v_proj.": ".attention.attention.value.",
            ".attention.o_proj.": ".attention.output.dense.",
            ".mlp.up_proj.": ".intermediate.dense.",
            ".mlp.down_proj.": ".output.dense.",
        },
        "torchvision": {
            "embeddings.patch_embeddings.": "conv_proj.",
            "embeddings.cls_token": "class_token",
            "embeddings.position_embeddings": "encoder.pos_embedding",
            "norm.": "encoder.ln.",
            "layer.": "encoder.layers.encoder_layer_",
            ".norm1.": ".ln_1.",
            ".norm2.": ".ln_2.",
            ".attention.o_proj.": ".self_attention.out_proj.",
            ".mlp.up_proj.": ".mlp.linear_1.",
            ".mlp.down_proj.": ".mlp.linear_2.",
        },
        "timm": {
            "embeddings.patch_embeddings.": "patch_embed.proj.",
            "embeddings.cls_token": "cls_token",
            "embeddings.position_embeddings": "pos_embed",
            "layer.": "blocks.",
            ".attention.o_proj.": ".attn.proj.",
            ".mlp.up_proj.": ".mlp.fc1.",
            ".mlp.down_proj.": ".mlp.fc2.",
        },
    }[form]
    tensors: dict[str, Any] = {}
    for name, value in TINY.items():
        for ours, theirs in parts.items():
            if name.startswith(ours) or (ours.startswith(".") and ours in name):
                name = name.replace(ours, theirs, 1)
        tensors[name] = value
    if form != "hub":
        fused = "{}.self_attention.in_proj_{}" if form == "torchvision" else "{}.attn.qkv.{}"
        for key in [key for key in tensors if ".attention.q_proj." in key]:
            stem, kind = key.split(".attention.q_proj.")
            parts_qkv = [tensors.pop(f"{stem}.attention.{letter}_proj.{kind}") for letter in "qkv"]
            tensors[fused.format(stem, kind)] = np.concatenate(parts_qkv)
    head = {"hub": "classifier", "torchvision": "heads.head", "timm": "head"}[form]
    return tensors | {f"{head}.weight": np.zeros((10, 16), np.float32), f"{head}.bias": np.zeros(10, np.float32)}


@pytest.mark.parametrize("form", ["hub", "torchvision", "timm"])
def test_weights_are_read_in_all_their_spellings(form: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file(published(form), tmp_path / "model.safetensors")
    read = load_vit("tiny-vit", size=32, weights=tmp_path / "model.safetensors")
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    expects = normalised(pixels) if form == "torchvision" else (pixels - 0.5) / 0.5
    torch.testing.assert_close(
        read.cls(normalised(pixels)), load_vit("tiny-vit", size=32).cls(expects), rtol=1e-4, atol=1e-4
    )
    assert "local file model.safetensors" in str(read.info()["description"])


@pytest.mark.parametrize(("name", "size"), [("tiny-dinov2", 42), ("tiny-dinov2", 70), ("tiny-dinov3", 64)])
def test_a_registered_encoder_can_stand_in(name: str, size: int) -> None:
    task = synthetic_scenario(train=3, test_normal=1, test_per_kind=1, size=64, products=["gear"]).tasks[0]
    images = [sample.image() for sample in task.train]
    pixels = torch.from_numpy(prepare(images, size)).permute(0, 3, 1, 2).float() / 255
    vit = load_vit(name, size=size)
    expected = load_encoder(name, size=size).encode(images).cls
    np.testing.assert_allclose(vit.cls(normalised(pixels)).detach(), expected, rtol=1e-3, atol=1e-4)
    assert str(vit.info()["description"]).startswith("a substitute for ViT-B/16: ")
    count = sum(each.numel() for key, each in vit.module.named_parameters() if not key.endswith("mask_token"))
    assert count == sized(vit_spec(name), size=size).parameters


def test_only_what_may_change_can_be_trained() -> None:
    assert not any(each.requires_grad for each in load_vit("tiny-dinov2", size=70).module.parameters())
    frozen = [
        name
        for name, each in load_vit("tiny-dinov2", size=70, train=True).module.named_parameters()
        if not each.requires_grad
    ]
    assert sorted(frozen) == [
        "embeddings.mask_token",
        "embeddings.patch_embeddings.projection.bias",
        "embeddings.patch_embeddings.projection.weight",
    ]


def test_missing_weights_say_which_file_where_from_and_what_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path))
    with pytest.raises(EncoderError) as caught:
        load_vit()
    for part in ("model.safetensors", "google/vit-base-patch16-224", "vit_b_16-c867db91.pth", "weights=FILE"):
        assert part in str(caught.value)
    assert str(caught.value).endswith("a substitute that needs no download is backbone=dinov2s-focus.")
    with pytest.raises(EncoderError, match="There is no file"):
        load_vit(weights=tmp_path / "nothing.safetensors")
    with pytest.raises(EncoderError, match="no backbone 'vit-bas'; choose one of: vit-base, tiny-vit, dinov2s-focus"):
        vit_spec("vit-bas")
    with pytest.raises(EncoderError, match="no token encoder"):
        vit_spec("resnet50")
    with pytest.raises(EncoderError, match="multiple of its patch size 16"):
        sized(vit_spec("vit-base"), size=230)


def test_plain_vits_hide_no_registered_encoder_and_say_what_registered_ones_say() -> None:
    assert not VITS.keys() & list_specs().keys()  # a plain one would be taken in the place of the other
    for name, spec in VITS.items():
        assert (spec.name, bool(spec.licence), bool(spec.description)) == (name, True, True)
        assert spec.source.startswith("seed:") or (spec.file and spec.original_file and spec.licence_url)


def test_weights_that_the_disk_does_not_give_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"anything")

    def fail(path: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("dinosaur_ad.encoders.weights.weight_files.read_whole", fail)
    with pytest.raises(EncoderError, match=r"Could not read .*model\.safetensors: Permission denied; check the path"):
        load_vit("tiny-vit", size=32, weights=tmp_path / "model.safetensors")
