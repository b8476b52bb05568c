"""The losses and anomaly maps of EfficientAD; torch is imported by the functions.

With ``t`` the teacher's standardised features of an image, ``a`` the autoencoder's, ``s1`` and ``s2`` the two halves
of the student's, all ``(N, C, H, W)``:

    L = hard(|t - s1|²) + mean |t - a|² + mean |a - s2|²

where ``hard`` averages only the squares at or above their 0.999 quantile over the whole batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dinosaur_ad.methods.shared.torch_tools import import_torch

if TYPE_CHECKING:
    import torch


class Parts(NamedTuple):
    """The three parts of the loss."""

    student: torch.Tensor
    autoencoder: torch.Tensor
    both: torch.Tensor


def quantile(values: torch.Tensor, share: float) -> torch.Tensor:
    """The ``share`` quantile of all values, interpolated linearly, as ``torch.quantile`` has it.

    ``torch.quantile`` accepts at most 2**24 values; a batch of 12 has 384 * 64 * 64 * 12, which is more. Here only the
    values above the quantile are sorted.
    """
    torch = import_torch()
    flat = values.detach().flatten()
    position = share * (len(flat) - 1)
    below = int(position)
    top = torch.topk(flat, len(flat) - below).values
    lower, upper = top[-1], top[max(len(top) - 2, 0)]
    return lower + (upper - lower) * (position - below)


def hard_mean(squares: torch.Tensor, share: float) -> torch.Tensor:
    """The mean of the values at or above their ``share`` quantile: the places where the student is worst."""
    return squares[squares >= quantile(squares, share)].mean()


def loss_parts(
    teacher: torch.Tensor,
    student: torch.Tensor,
    teacher_ae: torch.Tensor,
    student_ae: torch.Tensor,
    autoencoder: torch.Tensor,
    share: float,
) -> Parts:
    """The three parts, all from ``(N, C, H, W)``.

    ``teacher`` and ``student`` (its first half) describe the image; the other three (``student_ae`` is the student's
    second half) describe what the autoencoder saw, which is the same image or a jittered one. The autoencoder is not
    detached in the third part, so it also learns from the student.
    """
    return Parts(
        hard_mean((teacher - student).square(), share),
        (teacher_ae - autoencoder).square().mean(),
        (autoencoder - student_ae).square().mean(),
    )


def maps(
    teacher: torch.Tensor, student: torch.Tensor, student_ae: torch.Tensor, autoencoder: torch.Tensor
) -> torch.Tensor:
    """Both maps ``(N, 2, H, W)``: teacher against student, autoencoder against student; means over channels."""
    torch = import_torch()
    local = (teacher - student).square().mean(1)
    whole = (autoencoder - student_ae).square().mean(1)
    return torch.stack([local, whole], dim=1)


def map_quantiles(maps_NBHW: torch.Tensor) -> torch.Tensor:
    """The 0.9 and 0.995 quantiles ``(2, 2)`` of each of the two maps over normal images."""
    torch = import_torch()
    rows = [[quantile(each, 0.9), quantile(each, 0.995)] for each in maps_NBHW.unbind(1)]
    return torch.stack([torch.stack(row) for row in rows])


def combine(maps_NBHW: torch.Tensor, quantiles_BQ: torch.Tensor | None = None) -> torch.Tensor:
    """The mean of both maps ``(N, H, W)``, first scaled so that their 0.9 and 0.995 quantiles become 0 and 0.1."""
    if quantiles_BQ is not None:
        start_B, end_B = quantiles_BQ.unbind(1)
        # A constant map has no spread to divide by.
        spread_B = (end_B - start_B).clamp(min=1e-6)
        maps_NBHW = 0.1 * (maps_NBHW - start_B[:, None, None]) / spread_B[:, None, None]
    return maps_NBHW.mean(1)
