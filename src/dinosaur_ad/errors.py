"""Errors a user can act on.

The text of a :class:`DinosaurError` is the one sentence the user sees: what happened, what was expected, what to do.
Anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations


class DinosaurError(Exception):
    """A problem the user can act on; ``exit_code`` is what the command line returns for it."""

    exit_code = 2


class InputError(DinosaurError):
    """Something given to us (an image, a name, a number) cannot be used."""


class EncoderError(DinosaurError):
    """An encoder or its weights cannot be had, or are not what they claim to be."""


class StoreError(DinosaurError):
    """A store cannot be opened, read or written; nothing in it was changed."""


class VersionGoneError(StoreError):
    """The version of a task that was asked for is no longer in the store: take a new snapshot and ask again."""
