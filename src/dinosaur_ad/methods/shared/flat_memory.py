"""One flat memory of feature vectors of all positions and tasks, and the distance of a patch to it.

PatchCore's re-weighting makes a distance count less where the memory is crowded. With ``m*`` the vector nearest to a
patch ``x``, and ``N_b(m*)`` the ``b`` vectors of the memory nearest to ``m*`` (itself among them),

    s = (1 - exp |x - m*| / sum over m in N_b(m*) of exp |x - m|) |x - m*|

written here as ``1 - exp(|x - m*| - logsumexp |x - m|)``: ``exp`` of a plain distance overflows float32 beyond 88.
Arrays are torch tensors; torch is imported by the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Distances in memory at a time: the whole matrix of a million patches and sixty thousand vectors takes 240 GB.
BLOCK_BYTES = 256 * 2**20


class FlatMemory:
    """``M`` vectors ``(M, C)`` and, of each, the indices ``(M, B)`` of its nearest in the memory, itself first."""

    def __init__(self, bank_MC: torch.Tensor, neighbours_MB: torch.Tensor) -> None:
        self.bank_MC = bank_MC
        self.neighbours_MB = neighbours_MB
        self._norms_M = (bank_MC * bank_MC).sum(1)

    def distances(self, points_PC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Distance of each point to the memory ``(P,)``, as it is and re-weighted.

        The nearest vector is found by matrix products, its distance is then computed by difference: for a point that is
        in the memory, a difference of large squares would not be zero.
        """
        import torch

        vectors, channels = self.bank_MC.shape
        widest = max(vectors, self.neighbours_MB.shape[1] * channels)
        raw, reweighted = [], []
        for block_PC in points_PC.split(max(1, BLOCK_BYTES // (4 * widest))):
            nearest_P = torch.addmm(self._norms_M, block_PC, self.bank_MC.T, alpha=-2).argmin(1)
            distance_P = torch.linalg.vector_norm(block_PC - self.bank_MC[nearest_P], dim=1)
            raw.append(distance_P)
            reweighted.append(self._reweighted(block_PC, nearest_P, distance_P))
        return torch.cat(raw), torch.cat(reweighted)

    def _reweighted(self, block_PC: torch.Tensor, nearest_P: torch.Tensor, distance_P: torch.Tensor) -> torch.Tensor:
        import torch

        if self.neighbours_MB.shape[1] < 2:
            return distance_P  # with one neighbour, the formula would make every distance zero
        around_PBC = self.bank_MC[self.neighbours_MB[nearest_P]]
        distance_PB = torch.linalg.vector_norm(block_PC[:, None] - around_PBC, dim=2)
        # Rounding must not make a weight negative.
        exponent_P = (distance_P - torch.logsumexp(distance_PB, dim=1)).clamp(max=0)
        return -torch.expm1(exponent_P) * distance_P


def build_memory(bank_MC: torch.Tensor, neighbours: int) -> FlatMemory:
    """The memory of these vectors; each has ``neighbours`` nearest ones, or all of them where there are fewer."""
    import torch

    norms_M = (bank_MC * bank_MC).sum(1)
    step = max(1, BLOCK_BYTES // (4 * len(bank_MC)))
    found = []
    for start in range(0, len(bank_MC), step):
        squared_SM = torch.addmm(norms_M, bank_MC[start : start + step], bank_MC.T, alpha=-2)
        squared_SM.diagonal(start).fill_(-torch.inf)  # itself first, despite rounding and duplicates
        found.append(squared_SM.topk(min(neighbours, len(bank_MC)), largest=False).indices)
    return FlatMemory(bank_MC, torch.cat(found))
