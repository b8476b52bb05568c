"""UCAD's memory of each task, and routing by it.

Keys are features without a prompt, for routing; knowledge are features with the task's prompt, for scoring. Both are
selected by farthest-point sampling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dinosaur_ad.core.coreset import greedy_coreset
from dinosaur_ad.methods.shared.flat_memory import BLOCK_BYTES, FlatMemory, build_memory
from dinosaur_ad.methods.shared.torch_tools import import_torch

if TYPE_CHECKING:
    import torch


@dataclass
class TaskMemory:
    """One task: keys ``(K, C)``, knowledge ``(M, C)``, its prompt, its threshold, and the record of its training."""

    name: str
    keys_KC: torch.Tensor
    knowledge: FlatMemory
    prompt: torch.Tensor
    threshold: float = 0.0
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of keys, knowledge and prompt; neighbourhoods are computed from them."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors of the state."""
        return {"keys": self.keys_KC, "knowledge": self.knowledge.bank_MC, "prompt": self.prompt}

    def facts(self) -> dict[str, Any]:
        """The rest of the state, as JSON."""
        return {"name": self.name, "threshold": self.threshold, "record": self.record}


def pack(tasks: Sequence[TaskMemory]) -> dict[str, NDArray[Any]]:
    """The tensors of all tasks by their names in the state file."""
    return {
        f"{n}.{part}": value.cpu().numpy() for n, memory in enumerate(tasks) for part, value in memory.tensors().items()
    }


def unpack(facts: Sequence[dict[str, Any]], stored: Mapping[str, torch.Tensor], neighbours: int) -> list[TaskMemory]:
    """The tasks of a state file; neighbourhoods are computed again, with the same result."""
    return [
        TaskMemory(
            entry["name"],
            stored[f"{n}.keys"],
            build_memory(stored[f"{n}.knowledge"], neighbours),
            stored[f"{n}.prompt"],
            float(entry["threshold"]),
            dict(entry["record"]),
        )
        for n, entry in enumerate(facts)
    ]


def farthest_points(points_PC: torch.Tensor, count: int, first: int) -> torch.Tensor:
    """``count`` of the points ``(K, C)``, farthest first, beginning with that at ``first``; all when there are fewer.

    Farthest-point sampling and greedy k-centre coreset selection are two names of this.
    """
    picks_K = greedy_coreset(points_PC[None], min(count, len(points_PC)), first=first)[0]
    return points_PC[picks_K]


def route(features_NPC: torch.Tensor, keys: Sequence[torch.Tensor]) -> torch.Tensor:
    """The task of each image ``(N,)``: that with the smallest sum, over patches, of distances to the nearest key.

    All tasks' keys are compared in one product.
    """
    torch = import_torch()
    patches, channels = features_NPC.shape[1:]
    all_KC = torch.cat(list(keys))
    norms_K = all_KC.square().sum(1)
    sizes = [len(each) for each in keys]
    sums = []
    for block_NPC in features_NPC.split(max(1, BLOCK_BYTES // (4 * patches * len(all_KC)))):
        points_PC = block_NPC.reshape(-1, channels)
        partial_PK = torch.addmm(norms_K, points_PC, all_KC.T, alpha=-2)
        nearest_PT = torch.stack([part.amin(1) for part in partial_PK.split(sizes, dim=1)], dim=1)
        squared_PT = (nearest_PT + points_PC.square().sum(1, keepdim=True)).clamp(min=0)
        sums.append(squared_PT.sqrt().reshape(len(block_NPC), patches, len(sizes)).sum(1))
    return torch.cat(sums).argmin(1)
