"""IUF's additions to a reconstruction: losses that compress features into few directions, and damped updates.

The rows of ``Vh_KC``, right singular vectors of the features of earlier tasks, are directions of the C channels, the
most important first. An update is projected on them, each component is multiplied by ``w_k``, and the components are
added up: nothing moves along the first direction, everything along the last. That is one matrix,
``P = Vh^T diag(w) Vh``.
"""

from __future__ import annotations

import torch


def damping_weights(width: int, *, normalised: bool = True) -> torch.Tensor:
    """``w_k = log k / log C`` for k = 1..C ``(C,)``: 0 for the first direction, 1 for the last, or up to log C.

    >>> damping_weights(4).tolist()
    [0.0, 0.5, 0.7924812436103821, 1.0]
    """
    weights_C = torch.arange(1, width + 1, dtype=torch.float32).log()
    return weights_C / weights_C[-1] if normalised and width > 1 else weights_C


def damping_matrix(vh_KC: torch.Tensor, weights_C: torch.Tensor) -> torch.Tensor:
    """``P = Vh^T diag(w) Vh`` ``(C, C)``, symmetric: ``G @ P`` damps the last axis of G, ``P @ G`` the first."""
    return vh_KC.T @ (weights_C.to(vh_KC)[:, None] * vh_KC)


def directions_of_rows(rows_NC: torch.Tensor) -> torch.Tensor:
    """All C right singular vectors ``(C, C)`` of N rows, on the CPU in float64; fewer rows leave the rest arbitrary."""
    return torch.linalg.svd(rows_NC.detach().cpu().double(), full_matrices=True).Vh


def directions_of_gram(gram_CC: torch.Tensor) -> torch.Tensor:
    """The same ``(C, C)`` from the Gram matrix ``rows^T rows``, whose size does not depend on the number of rows."""
    return torch.linalg.eigh(gram_CC.cpu().double()).eigenvectors.T.flip(0)


def tail_of_singular_values(rows_NC: torch.Tensor, kept: int) -> torch.Tensor:
    """The sum of all singular values but the ``kept`` largest: how far the rows are from ``kept`` directions.

    Values that are not finite count as zero here, because no decomposition accepts them.
    """
    return _singular_values(rows_NC)[kept:].sum().to(rows_NC.device)


def share_of_small_singular_values(rows_NC: torch.Tensor, limit: float) -> torch.Tensor:
    """The original's loss: singular values as shares of their sum, and of these the sum of those below ``limit``."""
    values_K = _singular_values(rows_NC)
    shares_K = values_K / values_K.sum().clamp_min(1e-12)
    return torch.where(shares_K < limit, shares_K, 0).sum().to(rows_NC.device)


def _singular_values(rows_NC: torch.Tensor) -> torch.Tensor:
    """Largest first ``(K,)``, on the CPU, where those of a batch (12 x 64) take 0.14 ms with their gradient."""
    return torch.linalg.svdvals(torch.nan_to_num(rows_NC.float()).cpu())
