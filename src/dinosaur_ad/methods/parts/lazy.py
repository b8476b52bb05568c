"""Torch when it is needed, and not before: listing methods must not load it."""

from __future__ import annotations

from typing import Any

from dinosaur_ad.errors import InputError, install_advice


def import_torch(who: str = "This method") -> Any:
    """The torch module, or what to install; ``who`` needs it."""
    try:
        import torch
    except ImportError:
        raise InputError(f"{who} computes with torch; {install_advice('bench')}.") from None
    return torch
