"""Eq. 4: from an encoder's tokens to what is remembered and compared.

The paper uses the tokens as they come. Measured on real images, middle blocks tell defects apart far better than
the last one, and averaging several blocks, each scaled to length one, is as good as laying them side by side at a
fraction of the memory (docs/presets.md).
"""

from __future__ import annotations

from dinosaur_ad.core.arrays import Array, l2_normalise, namespace


def combine_blocks(token_C: Array, blocks: int, *, normalise: bool, average: bool, tail: int = 0) -> Array:
    """Tokens ``(..., blocks * C)`` of several blocks side by side, as one feature vector each.

    ``normalise`` scales every block's part to length one; ``average`` then averages the parts to ``(..., C)``. The last
    ``tail`` channels are those of a second network and stay as they are, behind the rest.

    >>> import numpy as np
    >>> combine_blocks(np.asarray([3.0, 4.0, 0.0, 2.0]), 2, normalise=True, average=True).round(6).tolist()
    [0.3, 0.9]
    """
    xp = namespace(token_C)
    if tail:
        combined = combine_blocks(token_C[..., :-tail], blocks, normalise=normalise, average=average)
        return xp.concat([combined, token_C[..., -tail:]], axis=-1)
    if normalise and average and blocks > 1:
        return _mean_direction(token_C, blocks)
    if normalise:
        token_C = l2_normalise(token_C, groups=blocks)
    if average and blocks > 1:
        token_C = xp.mean(xp.reshape(token_C, (*token_C.shape[:-1], blocks, -1)), axis=-2)
    return token_C


def _mean_direction(token_C: Array, blocks: int) -> Array:
    """Normalising and averaging at once, as products: five times faster than one after the other."""
    xp = namespace(token_C)
    split_BC = xp.reshape(token_C, (*token_C.shape[:-1], blocks, -1))
    length_B = xp.sqrt(xp.vecdot(split_BC, split_BC))
    weight_B = 1 / (blocks * xp.where(length_B > 0, length_B, xp.ones_like(length_B)))
    return xp.matmul(weight_B[..., None, :], split_BC)[..., 0, :]


def describe(cls_NC: Array, patches_NHWC: Array, *, with_patches: bool) -> Array:
    """The descriptor of an image for routing: its CLS feature and, ``with_patches``, the mean patch feature.

    >>> import numpy as np
    >>> describe(np.ones((2, 3)), np.zeros((2, 4, 4, 3)), with_patches=True).shape
    (2, 6)
    """
    xp = namespace(cls_NC, patches_NHWC)
    return xp.concat([cls_NC, xp.mean(patches_NHWC, axis=(1, 2))], axis=1) if with_patches else cls_NC
