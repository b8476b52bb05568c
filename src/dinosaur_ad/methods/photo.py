"""An image as a method may see it: a name for its pixels, and a token that stands for whoever can load them.

The loaders (which know paths, labels and samples) are kept in one table of this process, which no photo refers to: a
photo holds a random token, and :meth:`Photo.pixels` asks the table. Walking a photo through attributes, closures or
``gc.get_referents`` therefore ends at the token. This keeps a method from seeing by accident what it must not know;
Python cannot keep code from it that looks for it on purpose (in the table, in the runner's frames, on the disk).
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
    """Stands for one loader; it has a random name, so that it means nothing and is never mistaken in another process.

    Copies of a photo share its token, and a pickled one finds it again in this process and in those forked from it.
    """

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Callable[[str], _Token], tuple[str]]:
        return _find, (self.name,)


class _Loaders:
    """The loaders of all photos that are still held by somebody; one goes when the last copy of its photo goes."""

    def __init__(self) -> None:
        self._loads: weakref.WeakKeyDictionary[_Token, Callable[[], Pixels]] = weakref.WeakKeyDictionary()
        self._tokens: weakref.WeakValueDictionary[str, _Token] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._loads)

    def add(self, load: Callable[[], Pixels]) -> _Token:
        """Keep a loader; the token is what it is asked for with."""
        token = _Token(secrets.token_hex(16))
        self._tokens[token.name] = token
        self._loads[token] = load
        return token

    def find(self, name: str) -> _Token:
        """The token of that name; one without a loader where no photo of this process has it."""
        return self._tokens.get(name) or _Token(name)

    def get(self, token: _Token) -> Callable[[], Pixels] | None:
        """The loader, None when this process has none for the token."""
        return self._loads.get(token)

    def clear(self) -> None:
        """Forget all loaders."""
        self._loads.clear()


def _kept(loaders: _Loaders) -> weakref.ref[_Loaders]:
    """A weak reference, because a strong one in this module could be walked to; the exit handler keeps the table."""
    atexit.register(loaders.clear)
    return weakref.ref(loaders)


_LOADERS = _kept(_Loaders())


def _table() -> _Loaders:
    loaders = _LOADERS()
    if loaders is None:
        raise InputError("Photos cannot be loaded while Python is ending; load them before.")
    return loaders


def _find(name: str) -> _Token:
    return _table().find(name)


@dataclass(frozen=True)
class Photo:
    """An image as a method may see it.

    ``key`` names the pixels: equal keys, equal pixels, whatever file or drift they come from. ``load`` is kept apart
    from the photo and only ever called by :meth:`pixels`.

    >>> import numpy as np
    >>> grey = Photo("grey", lambda: np.full((2, 2, 3), 128, np.uint8))
    >>> grey, int(grey.pixels().mean())
    (Photo(key='grey'), 128)
    """

    key: str
    load: InitVar[Callable[[], Pixels]]
    _token: _Token = field(init=False, repr=False, compare=False)

    def __post_init__(self, load: Callable[[], Pixels]) -> None:
        object.__setattr__(self, "_token", _table().add(load))

    def pixels(self) -> Pixels:
        """The image: uint8 (H, W, 3), read or drawn now.

        :raises InputError: the photo was sent to another process, or the image cannot be read.
        """
        load = _table().get(self._token)
        if load is None:
            raise InputError(
                f"The photo '{self.key}' was made in another process and cannot be loaded in this one; call pixels() "
                "where the photo was given to the method, and send the pixels."
            )
        return load()
