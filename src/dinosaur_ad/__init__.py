"""DINOSaur: visual inspection that keeps working while products and conditions change.

>>> import dinosaur_ad
>>> "Dinosaur" in dir(dinosaur_ad)
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dinosaur_ad import _telemetry as _telemetry  # first: it switches off what others would send

__version__ = "0.1.0"
__all__ = [
    "PRESETS",
    "Changed",
    "Dinosaur",
    "DinosaurError",
    "EncoderError",
    "EncoderOptions",
    "InputError",
    "Inspection",
    "Learned",
    "Preset",
    "Region",
    "Rejected",
    "StoreError",
    "Suspect",
    "TaskSettings",
    "WorstPatch",
    "__version__",
    "from_bgr",
    "load_encoder",
    "overlay",
    "to_pandas",
]  # fmt: skip

if TYPE_CHECKING:
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.encoders import load_encoder
    from dinosaur_ad.encoders.options import EncoderOptions
    from dinosaur_ad.errors import DinosaurError, EncoderError, InputError, StoreError
    from dinosaur_ad.images.drawing import overlay
    from dinosaur_ad.images.from_arrays import from_bgr
    from dinosaur_ad.inspection import (
        Changed,
        Inspection,
        Learned,
        Region,
        Rejected,
        Suspect,
        TaskSettings,
        WorstPatch,
        to_pandas,
    )
    from dinosaur_ad.presets import PRESETS, Preset

_HOME = {
    "Dinosaur": "detector",
    "DinosaurError": "errors",
    "EncoderError": "errors",
    "EncoderOptions": "encoders.options",
    "InputError": "errors",
    "StoreError": "errors",
    "Changed": "inspection",
    "Inspection": "inspection",
    "Learned": "inspection",
    "Region": "inspection",
    "Rejected": "inspection",
    "Suspect": "inspection",
    "TaskSettings": "inspection",
    "WorstPatch": "inspection",
    "to_pandas": "inspection",
    "PRESETS": "presets",
    "Preset": "presets",
    "from_bgr": "images.from_arrays",
    "load_encoder": "encoders",
    "overlay": "images.drawing",
}

if not TYPE_CHECKING:  # a type checker that sees this function takes every misspelt name for a public one

    def __getattr__(name: str) -> object:
        """Load a public name when it is first used: importing the package alone costs nothing."""
        if name not in _HOME:
            raise AttributeError(f"module 'dinosaur_ad' has no attribute '{name}'")
        from importlib import import_module

        return getattr(import_module(f"dinosaur_ad.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
