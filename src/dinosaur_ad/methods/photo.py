"""An image as a method sees it: a key for its pixels, and a random token in the place of its loader.

Loaders know paths, labels and samples. They are kept in one table of this process that no photo refers to; a photo
holds only a token, with which :meth:`Photo.pixels` looks up the loader. Following attributes, closures or
``gc.get_referents`` from a photo therefore ends at the token. This prevents a method from using labels by accident; it
cannot stop code that searches for them on purpose (in the table, in the runner's frames, on the disk).
"""

from __future__ import annotations

import atexit
import secrets
import weakref
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING

from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.images.loading import Pixels

__all__ = ["Photo"]


class _Token:
    """The key of one loader. Copies of a photo share it; unpickling finds it again in this process and its forks."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Callable[[str], _Token], tuple[str]]:
        return _find_token, (self.name,)


class _Loaders:
    """The loaders of all photos in use; an entry disappears with the last copy of its photo."""

    def __init__(self) -> None:
        self.loads: weakref.WeakKeyDictionary[_Token, Callable[[], Pixels]] = weakref.WeakKeyDictionary()
        self.tokens: weakref.WeakValueDictionary[str, _Token] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        return len(self.loads)

    def clear(self) -> None:
        self.loads.clear()


def _kept_until_exit(loaders: _Loaders) -> weakref.ref[_Loaders]:
    """A weak reference, because a strong one in this module could be followed; the exit handler holds the table."""
    atexit.register(loaders.clear)
    return weakref.ref(loaders)


_LOADERS = _kept_until_exit(_Loaders())


def _table() -> _Loaders:
    loaders = _LOADERS()
    if loaders is None:
        raise InputError("Photos cannot be loaded while Python is ending; load them before.")
    return loaders


def _find_token(name: str) -> _Token:
    """The token of that name; one without a loader where no photo of this process has it."""
    return _table().tokens.get(name) or _Token(name)


@dataclass(frozen=True)
class Photo:
    """An image as a method sees it.

    ``key`` identifies the pixels: equal keys, equal pixels, whatever file or drift they come from. ``load`` is stored
    apart from the photo and called by :meth:`pixels` only.

    >>> import numpy as np
    >>> grey = Photo("grey", lambda: np.full((2, 2, 3), 128, np.uint8))
    >>> grey, int(grey.pixels().mean())
    (Photo(key='grey'), 128)
    """

    key: str
    load: InitVar[Callable[[], Pixels]]
    _token: _Token = field(init=False, repr=False, compare=False)

    def __post_init__(self, load: Callable[[], Pixels]) -> None:
        token, table = _Token(secrets.token_hex(16)), _table()
        table.tokens[token.name], table.loads[token] = token, load
        object.__setattr__(self, "_token", token)

    def pixels(self) -> Pixels:
        """The image: uint8 (H, W, 3), read or drawn now.

        :raises InputError: the photo was sent to another process, or the image cannot be read.
        """
        load = _table().loads.get(self._token)
        if load is None:
            raise InputError(
                f"The photo '{self.key}' was made in another process and cannot be loaded in this one; call pixels() "
                "where the photo was given to the method, and send the pixels."
            )
        return load()
