"""Torch when it is needed, and not before: listing methods must not load it."""

from __future__ import annotations

from typing import Any

from dinosaur_ad.errors import InputError


def import_torch() -> Any:
    """The torch module, or what to install."""
    try:
        import torch
    except ImportError:
        raise InputError(
            "This method computes with torch; install it with: pip install 'dinosaur-ad[bench]'."
        ) from None
    return torch
