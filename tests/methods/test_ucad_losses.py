"""UCAD's losses against literal computations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from method_helpers import random
from numpy.typing import NDArray
from ucad_helpers import torch

from dinosaur_ad.methods.ucad import contrastive_loss as losses


def cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def literal_contrast(features: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    same, different = [], []
    for image, label in zip(features, labels, strict=True):
        if len(set(label.tolist())) == 1:
            continue
        for i in range(len(image)):
            for j in range(i + 1, len(image)):
                (same if label[i] == label[j] else different).append(cosine(image[i], image[j]))
    return float(np.mean(different)) - float(np.mean(same))


def literal_exponential(features: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    means = []
    for image, label in zip(features, labels, strict=True):
        terms = []
        for i in range(len(image)):
            for j in range(len(image)):
                s = cosine(image[i], image[j]) / 0.5
                terms.append(-s if label[i] == label[j] else math.exp(s))
        means.append(np.mean(terms))
    return float(np.mean(means))


@pytest.mark.parametrize(
    ("loss", "literal"),
    [(losses.contrast, literal_contrast), (losses.exponential_contrast, literal_exponential)],
)
def test_losses_are_the_literal_ones(loss: Callable[..., Any], literal: Callable[..., float]) -> None:
    features = random(3, 9, 5)
    labels = np.random.default_rng(1).integers(0, 3, (3, 9))
    labels[2] = 4  # one region only
    found = loss(features, torch.from_numpy(labels)).item()
    assert found == pytest.approx(literal(features.double().numpy(), labels), rel=1e-5)


def test_images_of_one_region_give_no_loss_and_no_slope() -> None:
    features = random(2, 6, 4).requires_grad_()
    loss = losses.contrast(features, torch.zeros(2, 6))
    loss.backward()
    assert loss.item() == 0
    assert features.grad.abs().max() == 0


def test_regions_without_any_pair_inside_are_no_division_by_zero() -> None:
    assert torch.isfinite(losses.contrast(random(1, 4, 3), torch.arange(4)[None]))
