"""UCAD's contrastive loss: patches of one region should have similar features, those of different regions not.

All pairs are pairs within one image; features are ``(N, P, C)``, labels ``(N, P)``. torch is imported by the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dinosaur_ad.methods.shared.torch_tools import import_torch

if TYPE_CHECKING:
    import torch


def contrast(features_NPC: torch.Tensor, labels_NP: torch.Tensor) -> torch.Tensor:
    """The paper's loss: mean cosine over pairs of different regions minus the mean over pairs of the same one.

    Every unordered pair counts once, and both means are over all images together. An image of one region has
    no pairs of different regions and is left out; without any other image the loss is 0.
    """
    torch = import_torch()
    cosine_NPP = cosines(features_NPC)
    same_NPP = labels_NP[:, :, None] == labels_NP[:, None, :]
    pairs_PP = torch.ones_like(same_NPP[0]).triu(diagonal=1)
    counted_NPP = pairs_PP & (~same_NPP).any((1, 2))[:, None, None]
    return masked_mean(cosine_NPP, counted_NPP & ~same_NPP) - masked_mean(cosine_NPP, counted_NPP & same_NPP)


def exponential_contrast(features_NPC: torch.Tensor, labels_NP: torch.Tensor, temperature: float = 0.5) -> torch.Tensor:
    """The original's loss: ``exp(s)`` of pairs of different regions, ``-s`` of the same, averaged over all P x P pairs.

    ``s`` is the cosine divided by the temperature; a patch with itself is a pair too.
    """
    torch = import_torch()
    similarity_NPP = cosines(features_NPC) / temperature
    same_NPP = labels_NP[:, :, None] == labels_NP[:, None, :]
    return torch.where(same_NPP, -similarity_NPP, similarity_NPP.exp()).mean()


def cosines(features_NPC: torch.Tensor) -> torch.Tensor:
    """The cosine of each patch with each other of its image, (N, P, P)."""
    unit_NPC = import_torch().nn.functional.normalize(features_NPC.float(), dim=2)
    return unit_NPC @ unit_NPC.transpose(1, 2)


def masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of the values where the mask is true; 0, with gradient 0, where it never is."""
    return (values * mask).sum() / mask.sum().clamp(min=1)
