"""Errors a user can act on.

The text of a :class:`DinosaurError` is the one sentence the user sees: what happened, what was expected, what to do.
Anything else that escapes is a bug; the command line says so and exits with 70.
"""

from __future__ import annotations


class DinosaurError(Exception):
    """A problem the user can act on; ``exit_code`` is what the command line returns for it."""

    exit_code = 2


class InputError(DinosaurError):
    """Something given to us (an image, a name, a number) cannot be used."""


class TeachingRefusedError(InputError):
    """Learning these images would make a task blind; nothing was written. ``paths`` are the images in question, and
    ``reasons`` say of each why, where that is known."""

    def __init__(self, sentence: str, paths: tuple[str, ...] = (), reasons: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.paths = paths
        self.reasons = reasons


class EncoderError(DinosaurError):
    """An encoder or its weights cannot be had, or are not what they claim to be."""


class StoreError(DinosaurError):
    """A store cannot be opened, read or written; nothing in it was changed."""


class VersionGoneError(StoreError):
    """This version of a task is no longer in the store: take a new snapshot and read it again."""


def install_advice(extra: str) -> str:
    """How to get what an extra brings, for the end of a sentence; the same words as in the README.

    >>> install_advice("openvino")
    "install it with: pip install '.[openvino]'"
    """
    return f"install it with: {install_command(extra)}"


def install_command(extra: str) -> str:
    """The command that installs an extra, in a checkout of this repository."""
    return f"pip install '.[{extra}]'"
