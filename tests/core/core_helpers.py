"""What the core is compared with: the definitions as literal loops in float64, and the array libraries to run on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from dinosaur_ad.core.arrays import like, namespace
from dinosaur_ad.core.memory import Coreset, remember, unseen_parts
from dinosaur_ad.core.scoring import patch_distances

# Derandomised, so that a machine without an internet connection and a busy one see the same examples; no deadline,
# because a busy machine is slow, not wrong.
examples = settings(derandomize=True, deadline=None, max_examples=40)

DTYPES = st.sampled_from([np.float32, np.float64])


@dataclass(frozen=True)
class Backend:
    """One array library on one device."""

    library: str
    device: str = "cpu"

    def array(self, values: NDArray[Any]) -> Any:
        """``values`` as an array of this library."""
        if self.library == "numpy":
            return values.copy()
        import torch

        return torch.from_numpy(values.copy()).to(self.device)

    def back(self, array: Any) -> NDArray[Any]:
        """An array of this library as NumPy's; what comes out must be of the library that went in."""
        assert type(array).__module__ == self.library
        return array if self.library == "numpy" else array.cpu().numpy()


def whole_numbers(shape: tuple[int, ...], dtype: Any, largest: int = 4) -> st.SearchStrategy[NDArray[Any]]:
    """Arrays of small whole numbers: floats compute with them exactly, so results can be compared without tolerance.

    They also collide often, so that duplicates and ties are the rule and not the exception.
    """
    return hnp.arrays(dtype, shape, elements=st.integers(-largest, largest).map(float))


def naive_coreset(points_DC: NDArray[Any], first: int, size: int) -> list[int]:
    """Greedy k-centre as it is defined: always the vector farthest from all picks, the earlier one in a tie."""
    points, picks = points_DC.astype(np.float64), [first]
    while len(picks) < size:
        rest = [d for d in range(len(points)) if d not in picks]
        picks.append(max(rest, key=lambda d: min(((points[d] - points[p]) ** 2).sum() for p in picks)))
    return picks


def naive_radius(points_DC: NDArray[Any], centres_MC: NDArray[Any]) -> float:
    """How far the worst-covered point is from its nearest centre."""
    points, centres = points_DC.astype(np.float64), centres_MC.astype(np.float64)
    return float(max(min(np.linalg.norm(point - centre) for centre in centres) for point in points))


def naive_distances(tokens_NHWC: NDArray[Any], bank_HWMC: NDArray[Any], radius: int) -> NDArray[np.float64]:
    """Eq. 6-7 as written: each patch against every member of every location in its clipped window."""
    tokens, bank = tokens_NHWC.astype(np.float64), bank_HWMC.astype(np.float64)
    images, height, width, channels = tokens.shape
    distance = np.empty((images, height, width))
    for n, i, j in np.ndindex(images, height, width):
        rows = slice(max(0, i - radius), min(height, i + radius + 1))
        columns = slice(max(0, j - radius), min(width, j + radius + 1))
        members = bank[rows, columns].reshape(-1, channels)
        distance[n, i, j] = min(np.linalg.norm(member - tokens[n, i, j]) for member in members)
    return distance


def unseen_distances(
    patches_NHWC: Any, size: int, radius: int, *, known: Coreset | None = None, seed: int = 0, **parts: int
) -> Any:
    """Distances of images ``(N', H, W)`` to a memory of at most ``size`` of the others, as ``unseen_parts`` says.

    In the order in which they are held out.
    """
    xp, found = namespace(patches_NHWC), []
    source = like(np.arange(patches_NHWC.shape[0]), patches_NHWC, xp.int64)
    for held_out, rest in unseen_parts(patches_NHWC.shape[0], seed=seed, **parts):
        own, others = (like(rows, patches_NHWC, xp.int64) for rows in (held_out, rest))
        memory = remember(patches_NHWC[others], source[others], size, known=known, seed=seed)
        found.append(patch_distances(patches_NHWC[own], memory.vectors_HWMC, radius))
    return xp.concat(found, axis=0)
