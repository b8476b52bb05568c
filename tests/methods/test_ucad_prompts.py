"""UCAD's prompts on a frozen network, of either kind and on any backbone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from method_helpers import random
from ucad_helpers import TESTS, network, taught, torch

from dinosaur_ad.errors import EncoderError


@pytest.mark.parametrize("kind", ["added", "prefix"])
def test_the_network_is_frozen_and_the_prompt_is_not(kind: Any) -> None:
    features = network(kind)
    prompt = torch.nn.Parameter(features.draw_prompt((0,)))
    features(random(2, 3, 32, 32), prompt).sum().backward()
    assert prompt.grad.abs().flatten(1).sum(1).min() > 0  # every row of it matters
    assert all(parameter.grad is None for parameter in features.network.module.parameters())


def test_an_added_prompt_of_zeros_changes_nothing() -> None:
    features, images = network(), random(2, 3, 32, 32)
    with torch.no_grad():
        np.testing.assert_allclose(
            features(images, torch.zeros(features.prompt_shape)).numpy(), features(images).numpy(), atol=1e-6
        )


def test_a_prefix_is_one_more_key_and_value() -> None:
    """Against attention written out, with the projections of the network's first block."""
    features, images = network("prefix", blocks=1), random(2, 3, 32, 32)
    prompt = features.draw_prompt((3,))
    with torch.no_grad():
        features(images, prompt)  # only now are its hooks there, and those below come after them
    kept: dict[str, Any] = {}
    parts = {name.rpartition(".")[2]: layer for name, layer in features.network.module.named_modules()}
    for part in ("q_proj", "k_proj", "v_proj"):
        parts[part].register_forward_hook(lambda _m, _i, output, part=part: kept.update({part: output}))
    parts["o_proj"].register_forward_pre_hook(lambda _m, inputs: kept.update(mixed=inputs[0]))
    with torch.no_grad():
        features(images, prompt)
    q, k, v = (kept[part].double().numpy() for part in ("q_proj", "k_proj", "v_proj"))
    heads, dim = 2, 8
    for head in range(heads):
        own = slice(head * dim, (head + 1) * dim)
        keys = np.concatenate([prompt[0, 0, own].numpy()[None], k[1, :, own]])
        values = np.concatenate([prompt[0, 1, own].numpy()[None], v[1, :, own]])
        weights = np.exp(q[1, 4, own] @ keys.T / math.sqrt(dim))
        expected = weights @ values / weights.sum()
        np.testing.assert_allclose(kept["mixed"][1, 4, own].numpy(), expected, rtol=1e-4)


@pytest.mark.parametrize("kind", ["added", "prefix"])
def test_a_prompt_means_the_same_wherever_in_the_batch_an_image_lies(kind: Any) -> None:
    features, images = network(kind), random(4, 3, 32, 32)
    prompt = features.draw_prompt((1,))
    with torch.no_grad():
        together, backwards = features(images, prompt), features(images.flip(0), prompt).flip(0)
        plain = features(images)
    np.testing.assert_allclose(together.numpy(), backwards.numpy(), rtol=1e-4, atol=1e-5)
    assert not np.allclose(together.numpy(), plain.numpy())


def test_a_prefix_needs_keys_that_are_not_rotated() -> None:
    with pytest.raises(EncoderError, match="no prefix fits"):
        network("prefix", backbone="tiny-dinov3", blocks=2)


@pytest.mark.parametrize(("backbone", "size"), [("tiny-dinov2", 42), ("tiny-dinov3", 48)])
def test_any_registered_token_encoder_can_stand_in(backbone: str, size: int) -> None:
    method = taught(backbone=backbone, blocks=2, size=size)
    scores = method.score(TESTS)
    assert scores.maps is not None
    assert scores.maps.shape == (len(TESTS), 3, 3)
    assert np.isfinite(scores.image).all()
    assert "substitute for ViT-B/16" in method.info()["description"]


def test_features_can_be_brought_to_another_width() -> None:
    features, images = network(dim=24), random(1, 3, 32, 32)
    with torch.no_grad():
        pooled, plain = features(images), network()(images)
    assert pooled.shape == (1, 16, 24)
    # 16 channels on 24: the first and second are the first channel and the mean of the first two.
    np.testing.assert_allclose(pooled[0, 0, 0].item(), plain[0, 0, 0].item(), rtol=1e-5)
    np.testing.assert_allclose(pooled[0, 0, 1].item(), plain[0, 0, :2].mean().item(), rtol=1e-5)


def test_a_prompt_is_drawn_anew_but_for_the_published_code() -> None:
    """With a rate of next to nothing a prompt stays what it was at the beginning."""
    for name, same in (("ucad", False), ("ucad:as-published", True)):
        first, second = (memory.prompt for memory in taught(name, rate=1e-12)._tasks)
        assert torch.allclose(first, second, atol=1e-4) is same
