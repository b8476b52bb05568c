"""EfficientAD's losses, maps and statistics against literal computations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from efficientad_helpers import torch
from method_helpers import random

from dinosaur_ad.methods.efficientad import distillation_losses as losses
from dinosaur_ad.methods.efficientad import pdn
from dinosaur_ad.methods.shared.torch_tools import LUMA, adjust_colours


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.995, 0.999])
@pytest.mark.parametrize("count", [1, 2, 7, 5000])
def test_the_quantile_is_numpys(share: float, count: int) -> None:
    values = random(count)
    assert losses.quantile(values, share).item() == pytest.approx(
        float(np.quantile(values.double().numpy(), share)), abs=1e-6
    )


def test_a_quantile_of_more_values_than_torch_allows() -> None:
    values = torch.arange(2**24 + 4, dtype=torch.float32).flip(0).reshape(4, -1)
    with pytest.raises(RuntimeError):
        torch.quantile(values, 0.999)
    # Whole numbers up to 2^24 are exact in float32, so the answer is known.
    assert losses.quantile(values, 0.999).item() == pytest.approx(0.999 * (2**24 + 3), abs=1.5)


def literal_loss(t: Any, s1: Any, t_ae: Any, s2: Any, a: Any, share: float) -> float:
    squares = sorted(float((x - y) ** 2) for x, y in zip(t.ravel(), s1.ravel(), strict=True))
    limit = np.quantile(squares, share)
    hard = [each for each in squares if each >= limit]
    second = [float((x - y) ** 2) for x, y in zip(t_ae.ravel(), a.ravel(), strict=True)]
    third = [float((x - y) ** 2) for x, y in zip(a.ravel(), s2.ravel(), strict=True)]
    return sum(hard) / len(hard) + sum(second) / len(second) + sum(third) / len(third)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999])
def test_the_loss_is_the_literal_one(share: float) -> None:
    tensors = [random(2, 3, 4, 4, seed=n) for n in range(5)]
    expected = literal_loss(*(tensor.double().numpy() for tensor in tensors), share)
    assert sum(losses.loss_parts(*tensors, share)).item() == pytest.approx(expected, rel=1e-5)


def test_only_the_worst_places_teach_the_student() -> None:
    student = random(1, 2, 10, 10).requires_grad_()
    losses.hard_mean(student.square(), 0.9).backward()
    taught = student.grad.ne(0)
    assert taught.sum() == 20
    assert student.detach().abs()[taught].min() >= student.detach().abs()[~taught].max()


def test_the_autoencoder_is_drawn_to_the_student_too() -> None:
    rebuilt = random(1, 2, 4, 4, seed=1).requires_grad_()
    parts = losses.loss_parts(*(random(1, 2, 4, 4, seed=n) for n in (2, 3, 4, 5)), rebuilt, 0.9)
    parts.both.backward()
    assert rebuilt.grad.abs().sum() > 0


def test_maps_and_their_combination_are_the_literal_ones() -> None:
    t, s1, s2, a = (random(2, 3, 4, 5, seed=n) for n in range(4))
    both = losses.maps(t, s1, s2, a)
    expected = 0.5 * ((t - s1) ** 2).mean(1) + 0.5 * ((a - s2) ** 2).mean(1)
    np.testing.assert_allclose(losses.combine(both).numpy(), expected.numpy(), rtol=1e-6)
    quantiles = losses.map_quantiles(both)
    normalised = [
        0.1 * (each - np.quantile(each, 0.9)) / (np.quantile(each, 0.995) - np.quantile(each, 0.9))
        for each in (both[:, 0].numpy(), both[:, 1].numpy())
    ]
    np.testing.assert_allclose(losses.combine(both, quantiles).numpy(), np.mean(normalised, axis=0), rtol=1e-4)


def test_maps_without_any_spread_stay_finite() -> None:
    flat = torch.ones(2, 2, 4, 4)
    assert torch.isfinite(losses.combine(flat, losses.map_quantiles(flat))).all()


def test_jitter_changes_brightness_contrast_or_saturation() -> None:
    image = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.2
    images, kinds = image.expand(3, -1, -1, -1), torch.tensor([0, 1, 2])
    np.testing.assert_allclose(adjust_colours(images, kinds, torch.ones(3)).numpy(), images.numpy(), atol=1e-6)
    darker, flatter, greyer = adjust_colours(images, kinds, torch.full((3,), 0.8))
    np.testing.assert_allclose(darker.numpy(), 0.8 * image[0].numpy(), rtol=1e-5)
    grey = (image[0] * torch.tensor(LUMA)[:, None, None]).sum(0)
    np.testing.assert_allclose(flatter.numpy(), (0.8 * image[0] + 0.2 * grey.mean()).numpy(), rtol=1e-5)
    np.testing.assert_allclose(greyer.numpy(), (0.8 * image[0] + 0.2 * grey).numpy(), rtol=1e-5)


def test_statistics_of_batches_are_those_of_everything() -> None:
    batches = [random(count, 3, 5, 5, seed=count) * 3 + 100 for count in (1, 4, 2)]
    mean, deviation = pdn.channel_statistics(batches)
    together = torch.cat(batches).double().transpose(0, 1).flatten(1)
    np.testing.assert_allclose(mean.numpy(), together.mean(1).numpy(), rtol=1e-6)
    np.testing.assert_allclose(deviation.numpy(), together.std(1, correction=0).numpy(), rtol=1e-5)


def test_a_channel_that_never_changes_is_not_blown_up() -> None:
    dead = torch.full((2, 1, 4, 4), 7.0)
    assert pdn.standardise(dead + 1e-3, *pdn.channel_statistics([dead])).abs().max() < 1e-2
