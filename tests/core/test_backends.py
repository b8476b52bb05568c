"""Torch and NumPy answer alike on tokens as an encoder gives them: one store serves both."""

from __future__ import annotations

from typing import Any

import numpy as np
from core_helpers import Backend, unseen_distances
from numpy.typing import NDArray

from dinosaur_ad.core.features import combine_blocks
from dinosaur_ad.core.memory import remember
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.scoring import patch_distances


def pipeline(backend: Backend, token_NHWC: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """Tokens of two blocks to features, a memory of the first images, and scores of all."""
    feature = combine_blocks(backend.array(token_NHWC), 2, normalise=True, average=True)
    memory = remember(feature[:20], backend.array(np.arange(20)), 8, seed=1)
    distance = patch_distances(feature, memory.vectors_HWMC, 1)
    unseen = unseen_distances(feature[:20], 8, 1, at_least=20, seed=1)
    results = {"source": memory.source_HWM, "distance": distance, "score": pool(distance, 0.05), "unseen": unseen}
    return {name: backend.back(result) for name, result in results.items()}


def test_scores_do_not_depend_on_the_array_library(other_backend: Backend) -> None:
    token = np.random.default_rng(5).normal(size=(26, 5, 6, 2 * 96)).astype(np.float32)
    expected, result = pipeline(Backend("numpy"), token), pipeline(other_backend, token)
    np.testing.assert_array_equal(result.pop("source"), expected.pop("source"))
    for name, values in result.items():
        assert values.dtype == np.float32
        # Squared, because near zero the root turns a rounding error of 1e-7 into one of 3e-4.
        np.testing.assert_allclose(values**2, expected[name] ** 2, rtol=0, atol=1e-6, err_msg=name)
