"""An encoder whose tokens are kept in a folder, for measurements in which several learners see the same pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bench.cache import DEFAULT_LIMIT, DiskCache
from dinosaur_ad.encoders import Encoder
from dinosaur_ad.encoders.base import Floats
from dinosaur_ad.images.loading import digest
from dinosaur_ad.methods.contract import Photo


class CachedEncoder(Encoder):
    """``inner``, with the tokens of each prepared picture kept below ``folder``: equal pixels are encoded once.

    What a picture gives may depend on the batch it was first encoded in, by rounding.

    >>> import tempfile
    >>> from dinosaur_ad.encoders import load_encoder
    >>> plain = load_encoder("tiny-dinov2", layers=(0, 1), size=70)
    >>> pixels = np.zeros((3, 70, 70, 3), np.uint8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cached = CachedEncoder(plain, Path(folder))
    ...     tokens = [cached.encode_prepared(pixels) for _ in range(2)]
    >>> tokens[0].patches.shape, bool((tokens[0].patches == tokens[1].patches).all()), cached.encoded
    ((3, 5, 5, 32), True, 1)
    """

    def __init__(self, inner: Encoder, folder: Path, limit: int = DEFAULT_LIMIT) -> None:
        vars(self).update(vars(inner))  # what an encoder says of itself is that of the inner one
        self.backend, self.provider, self.precision = inner.backend, inner.provider, inner.precision
        self.threads, self.fallback, self.matches = inner.threads, inner.fallback, inner.matches
        self._inner = inner
        self._cache = DiskCache(folder, limit)
        self._recipe = f"tokens-{inner.fingerprint}-{inner.provider}-{inner.precision}"
        self.encoded = 0
        """Pictures that were not in the folder."""

    def _run(self, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
        photos = [Photo(f"pixels {digest(image)}", partial(np.asarray, image)) for image in pixels]
        tokens_NTC = self._cache.features(self._recipe, photos, self._encode)
        return tokens_NTC[:, 0], tokens_NTC[:, 1:].reshape(len(pixels), *self.grid, -1)

    def _encode(self, photos: Sequence[Photo]) -> Floats:
        """The tokens (N, 1 + H * W, C): CLS, then the patches."""
        self.encoded += len(photos)
        cls_NC, patches_NHWC = self._inner._run(np.stack([photo.pixels() for photo in photos]))
        return np.concatenate([cls_NC[:, None], patches_NHWC.reshape(len(photos), -1, cls_NC.shape[-1])], axis=1)
