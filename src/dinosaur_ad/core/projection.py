"""Fewer channels: the directions in which a task's normal patches differ from each other the most.

Leaving out the directions in which normal patches hardly differ changes the distances between patches of a location but
little: a quarter of the channels takes a quarter of the bytes and tells nearly as much (measured in docs/banks.md).
"""

from __future__ import annotations

import numpy as np

from dinosaur_ad.core.arrays import Array, is_numpy, like, namespace, to_numpy
from dinosaur_ad.core.scoring import products
from dinosaur_ad.core.threads import in_threads, usable_threads

# Images that the directions are taken from; more would not turn them noticeably.
IMAGES = 200
# Directions at a time, so that NumPy's products, which are kept small, are not a few rows by all directions: those take
# four times as long. And patches that a thread takes at a time: many images, of which learning has enough to share.
COLUMNS, ROWS = 48, 8064


def principal_axes(patches_NHWC: Array, channels: int) -> Array:
    """An orthonormal basis ``(C, channels)``, most important direction first, of what varies at each location.

    Its values are ones that float16 can hold, so that a bank and its images are projected alike before and after the
    basis was stored.

    >>> patches = np.random.default_rng(0).normal(size=(50, 2, 2, 4)).astype(np.float32) * np.float32([1, 9, 1, 3])
    >>> np.abs(principal_axes(patches, 2)).round(1).argmax(axis=0).tolist()
    [1, 3]
    """
    xp = namespace(patches_NHWC)
    step = max(1, patches_NHWC.shape[0] // IMAGES)
    some_NHWC = patches_NHWC[::step]
    around_PC = xp.reshape(some_NHWC - xp.mean(some_NHWC, axis=0), (-1, some_NHWC.shape[-1]))
    covariance_CC = to_numpy(xp.matrix_transpose(around_PC) @ around_PC).astype(np.float64)
    # eigh gives the least important direction first.
    basis_CK = np.linalg.eigh(covariance_CC)[1][:, ::-1][:, :channels]
    return like(basis_CK.astype(np.float16).astype(np.float32), patches_NHWC, patches_NHWC.dtype)


def project(tokens: Array, basis_CK: Array, threads: int | None = None) -> Array:
    """Tokens ``(..., C)`` along the directions of a basis, ``(..., K)``; with NumPy by at most so many threads.

    >>> project(np.ones((2, 3), np.float32), np.eye(3, 2, dtype=np.float32)).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    xp = namespace(tokens)
    channels, kept = basis_CK.shape
    flat_11PC, basis_11KC = xp.reshape(tokens, (1, 1, -1, channels)), xp.matrix_transpose(basis_CK)[None, None]
    if not is_numpy(tokens):
        return xp.reshape(products(flat_11PC, basis_11KC), (*tokens.shape[:-1], kept))
    patches = flat_11PC.shape[2]
    projected_PK = np.empty((patches, kept), np.result_type(tokens, basis_CK))

    def fill(top: int) -> None:
        rows = slice(top, top + ROWS)
        for left in range(0, kept, COLUMNS):
            some = slice(left, left + COLUMNS)
            projected_PK[rows, some] = products(flat_11PC[:, :, rows], basis_11KC[:, :, some])[0, 0]

    in_threads(fill, range(0, patches, ROWS), threads or usable_threads())
    return projected_PK.reshape(*tokens.shape[:-1], kept)
