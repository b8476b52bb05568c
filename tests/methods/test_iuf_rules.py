"""IUF's rules against their literal definitions: damping, directions, compression, attention."""

from __future__ import annotations

import math

import numpy as np
import pytest
from iuf_helpers import draw, torch

from dinosaur_ad.methods.iuf import rules
from dinosaur_ad.methods.iuf.iuf_networks import Attention


@pytest.mark.parametrize("normalise", [True, False])
def test_a_damped_gradient_is_its_parts_along_the_directions_each_weighted(normalise: bool) -> None:
    rows, gradient = draw(5, 6).numpy(), draw(3, 6, seed=1).numpy()
    vh = np.linalg.svd(rows, full_matrices=True)[2]
    literal = np.zeros_like(gradient)
    for k in range(6):
        weight = math.log(k + 1) / (math.log(6) if normalise else 1)
        for i in range(3):
            literal[i] += weight * (gradient[i] @ vh[k]) * vh[k]
    matrix = rules.damping_matrix(torch.from_numpy(vh), rules.damping_weights(6, normalised=normalise))
    np.testing.assert_allclose(torch.from_numpy(gradient) @ matrix, literal, atol=1e-5)
    np.testing.assert_allclose(matrix @ torch.from_numpy(gradient.T), literal.T, atol=1e-5)
    assert np.abs(matrix.numpy() @ vh[0]).max() < 1e-6  # nothing moves along the first direction
    np.testing.assert_allclose(matrix.numpy() @ vh[5], vh[5] * (1 if normalise else math.log(6)), atol=1e-5)


def test_the_published_weights_are_the_same_counted_from_zero() -> None:
    literal = [math.log(k + 1) / math.log(256) for k in range(256)]
    np.testing.assert_allclose(rules.damping_weights(256), literal, rtol=1e-5)


def test_directions_are_singular_vectors_most_important_first_from_rows_or_their_gram_matrix() -> None:
    rows = draw(9, 5) * torch.tensor([5.0, 4, 3, 2, 1])
    expected = np.linalg.svd(rows.double().numpy())[2]
    for found in (rules.directions_of_rows(rows), rules.directions_of_gram(rows.T @ rows)):
        np.testing.assert_allclose(np.abs((found.numpy() * expected).sum(1)), 1, atol=1e-6)
    few = rules.directions_of_rows(draw(2, 5))
    np.testing.assert_allclose(few @ few.T, np.eye(5), atol=1e-12)  # as many as channels, however few rows


def test_padding_rows_with_zeros_leaves_the_directions_of_the_rows() -> None:
    rows = draw(3, 5)
    padded = rules.directions_of_rows(torch.cat([rows, torch.zeros(4, 5)]))
    np.testing.assert_allclose(np.abs((padded[:3] * rules.directions_of_rows(rows)[:3]).sum(1).numpy()), 1, atol=1e-6)


def test_the_papers_compression_is_the_sum_beyond_the_first_and_its_gradient_the_rest_of_the_decomposition() -> None:
    rows = draw(4, 6).requires_grad_()
    loss = rules.tail_of_singular_values(rows, 1)
    u, s, vh = np.linalg.svd(rows.detach().numpy(), full_matrices=False)
    assert loss.item() == pytest.approx(s[1:].sum(), rel=1e-5)
    loss.backward()
    np.testing.assert_allclose(rows.grad, u[:, 1:] @ vh[1:], atol=1e-5)


def test_the_papers_compression_takes_constant_and_broken_rows() -> None:
    same = torch.ones(4, 6, requires_grad=True)
    rules.tail_of_singular_values(same, 1).backward()
    assert torch.isfinite(same.grad).all()
    assert rules.tail_of_singular_values(torch.full((2, 3), math.nan), 1) == 0  # the reconstruction tells of it


def test_the_published_compression_is_the_share_of_small_singular_values_and_has_a_gradient() -> None:
    rows = (draw(8, 6) * torch.tensor([9.0, 5, 2, 0.5, 0.2, 0.1])).requires_grad_()
    loss = rules.share_of_small_singular_values(rows, 0.05)
    s = np.linalg.svd(rows.detach().numpy(), compute_uv=False)
    shares = s / s.sum()
    assert 0 < (shares < 0.05).sum() < 6
    assert loss.item() == pytest.approx(shares[shares < 0.05].sum(), rel=1e-4)
    loss.backward()
    assert rows.grad.abs().max() > 0
    assert rules.share_of_small_singular_values(torch.zeros(3, 6), 0.05) == 0


def test_attention_is_the_textbooks() -> None:
    attention, tokens, factor = Attention(6, 2), draw(1, 4, 6), draw(1, 4, 6, seed=2)
    q, k, v = (layer(tokens)[0].detach().numpy() for layer in (attention.query, attention.key, attention.value))
    q = q * factor[0].numpy()
    mixed = np.zeros((4, 6), np.float32)
    for head in (slice(0, 3), slice(3, 6)):
        scores = np.exp(q[:, head] @ k[:, head].T / math.sqrt(3))
        mixed[:, head] = scores / scores.sum(1, keepdims=True) @ v[:, head]
    expected = attention.out(torch.from_numpy(mixed)).detach()
    np.testing.assert_allclose(attention(tokens, tokens, tokens, factor)[0].detach(), expected, atol=1e-5)
