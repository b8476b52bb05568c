"""MobileSAM: the checkpoint's names, its image encoder against literal computations, and what UCAD makes of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dinosaur_ad.errors import EncoderError
from dinosaur_ad.methods.ucad.regions import Superpixels, make_regions

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra 'bench')")

from dinosaur_ad.methods.ucad.regions_mobile_sam import load_mobile_sam, split_checkpoint  # noqa: E402
from dinosaur_ad.methods.ucad.regions_sam import SamRegions  # noqa: E402
from dinosaur_ad.methods.ucad.tiny_vit import TinyViT, WindowAttention, WindowBlock  # noqa: E402


def linear(name: str, after: int, before: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (after, before)
    yield f"{name}.bias", (after,)


def norm(name: str, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def attention(name: str, inner: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for part in "qkv":
        yield from linear(f"{name}.{part}_proj", inner, 256)
    yield from linear(f"{name}.out_proj", 256, inner)


def mlp(name: str, out: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for layer, width in enumerate((256, 256, out)):
        yield from linear(f"{name}.layers.{layer}", width, 256)


def decoder_names() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Prompt encoder and mask decoder, named and shaped as in the official file."""
    prompt, decoder = "prompt_encoder", "mask_decoder"
    yield f"{prompt}.pe_layer.positional_encoding_gaussian_matrix", (2, 128)
    for name in (*(f"point_embeddings.{n}" for n in range(4)), "not_a_point_embed", "no_mask_embed"):
        yield f"{prompt}.{name}.weight", (1, 256)
    for layer, shape in ((0, (4, 1, 2, 2)), (3, (16, 4, 2, 2)), (6, (256, 16, 1, 1))):
        yield f"{prompt}.mask_downscaling.{layer}.weight", shape
        yield f"{prompt}.mask_downscaling.{layer}.bias", shape[:1]
    for layer, width in ((1, 4), (4, 16)):
        yield from norm(f"{prompt}.mask_downscaling.{layer}", width)
    for block in range(2):
        name = f"{decoder}.transformer.layers.{block}"
        yield from attention(f"{name}.self_attn", 256)
        yield from attention(f"{name}.cross_attn_token_to_image", 128)
        yield from attention(f"{name}.cross_attn_image_to_token", 128)
        yield from linear(f"{name}.mlp.lin1", 2048, 256)
        yield from linear(f"{name}.mlp.lin2", 256, 2048)
        for n in range(1, 5):
            yield from norm(f"{name}.norm{n}", 256)
    yield from attention(f"{decoder}.transformer.final_attn_token_to_image", 128)
    yield from norm(f"{decoder}.transformer.norm_final_attn", 256)
    yield f"{decoder}.iou_token.weight", (1, 256)
    yield f"{decoder}.mask_tokens.weight", (4, 256)
    for layer, after, before in ((0, 256, 64), (3, 64, 32)):
        yield f"{decoder}.output_upscaling.{layer}.weight", (after, before, 2, 2)
        yield f"{decoder}.output_upscaling.{layer}.bias", (before,)
    yield from norm(f"{decoder}.output_upscaling.1", 64)
    for n in range(4):
        yield from mlp(f"{decoder}.output_hypernetworks_mlps.{n}", 32)
    yield from mlp(f"{decoder}.iou_prediction_head", 4)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file as the official one, with random numbers."""
    torch.manual_seed(0)
    stored = {f"image_encoder.{name}": value for name, value in TinyViT().state_dict().items()}
    stored |= {
        "image_encoder.norm_head.weight": torch.ones(320),
        "image_encoder.norm_head.bias": torch.zeros(320),
        "image_encoder.head.weight": torch.zeros(1000, 320),
        "image_encoder.head.bias": torch.zeros(1000),
    }
    stored |= {name: torch.randn(shape) for name, shape in decoder_names()}
    path = tmp_path_factory.mktemp("sam") / "mobile_sam.pt"
    torch.save(stored, path)
    return path


def test_the_checkpoint_has_as_many_tensors_as_the_official_one(checkpoint: Path) -> None:
    stored = torch.load(checkpoint, weights_only=True)
    assert len(stored) == 439
    encoder, rest = split_checkpoint(stored)
    assert len(encoder) == 439 - 4 - len(list(decoder_names()))  # all but the classifier's four
    assert len(rest) == len(list(decoder_names())) + 1  # the positions are used in two places


def test_every_tensor_of_the_checkpoint_finds_its_place(checkpoint: Path) -> None:
    model, stored = load_mobile_sam(checkpoint, "cpu"), torch.load(checkpoint, weights_only=True)
    found = dict(model.named_parameters()) | dict(model.named_buffers())
    taken = {value.data_ptr() for value in found.values()}
    assert len(taken) >= 439 - 4
    head = "mask_decoder.iou_prediction_head"
    assert torch.equal(found[f"{head}.proj_out.bias"], stored[f"{head}.layers.2.bias"])
    assert torch.equal(found[f"{head}.layers.0.weight"], stored[f"{head}.layers.1.weight"])
    last = "mask_decoder.transformer.layers.1"
    assert torch.equal(found[f"{last}.layer_norm3.weight"], stored[f"{last}.norm3.weight"])
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_a_checkpoint_with_a_tensor_missing_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    for lost in ("image_encoder.neck.1.bias", "mask_decoder.iou_token.weight"):
        stored = torch.load(checkpoint, weights_only=True)
        del stored[lost]
        torch.save(stored, tmp_path / "mobile_sam.pt")
        with pytest.raises(EncoderError, match="is no readable checkpoint of MobileSAM"):
            load_mobile_sam(tmp_path / "mobile_sam.pt", "cpu")


def test_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (str(tmp_path / "ran"),))

    torch.save({"image_encoder": Harmful()}, tmp_path / "mobile_sam.pt")
    with pytest.raises(EncoderError, match="is no readable checkpoint of MobileSAM"):
        load_mobile_sam(tmp_path / "mobile_sam.pt", "cpu")
    assert not (tmp_path / "ran").exists()


def test_window_attention_is_the_literal_one() -> None:
    torch.manual_seed(1)
    heads, window, width = 2, 3, 8
    layer = WindowAttention(width, heads, window).eval()
    torch.nn.init.normal_(layer.attention_biases)
    tokens = torch.randn(1, window * window, width)
    # The index of a bias: each new pair of distances, in the order of the pairs of tokens, gets the next number.
    places = list(itertools.product(range(window), range(window)))
    numbers: dict[tuple[int, int], int] = {}
    bias = torch.empty(heads, len(places), len(places))
    for (i, a), (j, b) in itertools.product(enumerate(places), enumerate(places)):
        number = numbers.setdefault((abs(a[0] - b[0]), abs(a[1] - b[1])), len(numbers))
        bias[:, i, j] = layer.attention_biases[:, number]
    projected = layer.qkv(layer.norm(tokens))[0].reshape(len(places), heads, 3, width // heads)
    mixed = torch.empty(len(places), heads, width // heads)
    for head in range(heads):
        queries, keys, values = (projected[:, head, part] for part in range(3))
        weights = (queries @ keys.T / math.sqrt(width // heads) + bias[head]).softmax(1)
        mixed[:, head] = weights @ values
    expected = layer.proj(mixed.reshape(len(places), width))
    torch.testing.assert_close(layer(tokens)[0], expected, atol=1e-5, rtol=1e-4)


def test_windows_are_cut_filled_up_and_put_back() -> None:
    torch.manual_seed(2)
    block = WindowBlock(8, 2, 4).eval()
    images = torch.randn(2, 8, 6, 7)  # neither side is a multiple of the window
    whole = block._attend(images)
    padded = torch.nn.functional.pad(images, (0, 1, 0, 2))
    corner = padded[:, :, 4:8, 4:8].permute(0, 2, 3, 1).reshape(2, 16, 8)
    expected = block.attn(corner).reshape(2, 4, 4, 8).permute(0, 3, 1, 2)[:, :, :2, :3]
    torch.testing.assert_close(whole[:, :, 4:, 4:], expected, atol=1e-5, rtol=1e-4)
    assert whole.shape == images.shape


def test_the_encoder_makes_one_cell_of_sixteen_pixels() -> None:
    with torch.inference_mode():
        assert TinyViT().eval()(torch.zeros(1, 3, 224, 224)).shape == (1, 256, 14, 14)


def test_the_number_of_parameters_is_that_of_the_official_encoder() -> None:
    assert sum(parameter.numel() for parameter in TinyViT().parameters()) == 5_743_892  # without its classifier


def test_masks_become_labels_on_the_grid_and_the_result_says_whose(checkpoint: Path) -> None:
    maker = make_regions("mobile-sam", segments=16, sam=str(checkpoint), device="cpu", points=2)
    assert isinstance(maker, SamRegions)
    assert maker.description.startswith("masks of MobileSAM (sha256 ")
    assert maker.recipe.startswith("regions-mobile-sam-v1-2-")
    image = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3), dtype=np.uint8)
    assert maker(image, (4, 4)).shape == (1, 4, 4)


def test_which_model_is_used(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dinosaur_ad.methods.ucad.regions.cache_home", lambda: tmp_path)

    def made(kind: str, sam: str = "") -> object:
        return make_regions(kind, segments=9, sam=sam, device="cpu")  # type: ignore[arg-type]

    assert isinstance(made("auto"), Superpixels)
    assert isinstance(made("auto", str(checkpoint)), SamRegions)
    assert isinstance(made("auto", str(checkpoint.parent)), SamRegions)
    assert isinstance(made("superpixels", str(checkpoint)), Superpixels)
    with pytest.raises(EncoderError, match=r"There is no mobile_sam.pt \(MobileSAM\) in"):
        made("mobile-sam")
    with pytest.raises(EncoderError, match="There is no Segment-Anything model in"):
        made("sam", str(checkpoint))
    (tmp_path / "regions").mkdir()
    (tmp_path / "regions" / "mobile_sam.pt").write_bytes(checkpoint.read_bytes())
    assert "MobileSAM" in made("auto").description  # type: ignore[attr-defined]
