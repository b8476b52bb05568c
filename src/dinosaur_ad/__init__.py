"""DINOSaur: visual inspection that keeps working while products and conditions change.

>>> import dinosaur_ad
>>> "Dinosaur" in dir(dinosaur_ad)
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dinosaur_ad import _telemetry as _telemetry  # first: it switches off what others would send

__version__ = "0.1.0"
__all__ = ["PRESETS", "Dinosaur", "DinosaurError", "Inspection", "Preset", "load_encoder"]

if TYPE_CHECKING:
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.encoders import load_encoder
    from dinosaur_ad.errors import DinosaurError
    from dinosaur_ad.inspection import Inspection
    from dinosaur_ad.presets import PRESETS, Preset

_HOME = {
    "Dinosaur": "detector",
    "Inspection": "inspection",
    "DinosaurError": "errors",
    "PRESETS": "presets",
    "Preset": "presets",
    "load_encoder": "encoders",
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used: importing the package alone costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module 'dinosaur_ad' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"dinosaur_ad.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
