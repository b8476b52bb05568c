"""What the two places for the files of a store have in common: names, limits, and the sentences for their errors."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

from dinosaur_ad._atomic import TEMPORARY, UnconfirmedError
from dinosaur_ad.errors import StoreError
from dinosaur_ad.store.names import MANIFEST, is_array_file

LOCK = ".lock"
LOCKS = ".locks"
WRITER = ".writer"
LOCK_TIMEOUT = 10.0
"""Seconds to wait for another writer; a change holds the lock for as long as writing a bank takes."""

FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


class LinkError(OSError):
    """A folder of the store is a link; a store follows none."""


class NotPlainError(ValueError):
    """There is something else where a file of the store was expected: a link, a folder, a pipe, a device."""


def is_own_file(name: str) -> bool:
    """Tell whether the store gives such a name to a file in the folder of a version."""
    return name == MANIFEST or is_array_file(name) or is_temporary(name)


def is_temporary(name: str) -> bool:
    """Tell whether this is the name of a file that a killed writer may leave."""
    return fnmatchcase(name, TEMPORARY)


@contextmanager
def write_errors(where: object) -> Iterator[None]:
    """Turn the operating system's refusal to write into the sentence the user sees."""
    try:
        yield
    except UnconfirmedError as error:
        raise StoreError(
            f"The change to the store {where} was made, but the disk did not confirm it ({reason(error)}), "
            "so it may not survive a power cut; check the disk."
        ) from error
    except (OSError, NotPlainError) as error:
        raise StoreError(
            f"The store {where} could not be written ({reason(error)}) and was left as it was; {_advice(error)}."
        ) from error


def reason(error: BaseException) -> str:
    """Return why a file could not be used, in a few words."""
    words = error.strerror if isinstance(error, OSError) else None
    return words or str(error) or type(error).__name__


def _advice(error: OSError | NotPlainError) -> str:
    if isinstance(error, LinkError | NotPlainError):
        return "put a plain file or folder in its place, or remove it"
    if error.errno in FULL:
        return "free some space and try again"
    if error.errno in DENIED:
        return "check its permissions or choose another folder"
    return "check the disk and try again"
