"""Weights for a profile where those of a method are not here: random ones of the same architecture, and a note on it.

How long an image takes does not depend on what the weights are; how good the answer is does, and is not asked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dinosaur_ad.errors import EncoderError

RANDOM_WEIGHTS = "random weights: speed only"


def stand_in_weights(settings: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], str | None]:
    """Settings to change where the weights they name are not here: random ones of the same architecture; and a note.

    ``settings`` are those of a method (``backbone``, ``encoder``, ``weights``, ``teacher``); others are left alone.

    >>> stand_in_weights({"backbone": "tiny-resnet", "weights": ""}, Path("nowhere"))
    ({}, None)
    """
    if settings.get("teacher") == "":
        from dinosaur_ad.methods.efficientad import pdn

        return ({}, None) if pdn.default_teacher().is_file() else ({"teacher": pdn.RANDOM}, RANDOM_WEIGHTS)
    name = settings.get("backbone") or settings.get("encoder")
    if not name or settings.get("weights") or _weights_are_here(name):
        return {}, None
    from safetensors.numpy import save_file

    from dinosaur_ad.encoders.weights.sources import random_tensors

    path = folder / f"random-{name}.safetensors"
    if not path.is_file():
        save_file(random_tensors(replace(_spec(name), source="seed:0")), path)
    return {"weights": str(path)}, RANDOM_WEIGHTS


def _weights_are_here(name: str) -> bool:
    from dinosaur_ad.encoders import list_specs
    from dinosaur_ad.encoders.weights.local import cache_home, ensure, status
    from dinosaur_ad.methods.shared.vit_weights import VITS

    if name in VITS:
        spec = VITS[name]
        return spec.source.startswith("seed:") or (cache_home() / "encoders" / name / spec.file).is_file()
    if name not in list_specs() or status(name).state in ("ready", "built in"):
        return True  # or a backbone that only its method knows: it will say itself what is missing
    try:
        ensure(name)  # fetches what may be fetched unasked
    except EncoderError:
        return False
    return True


def _spec(name: str) -> Any:
    from dinosaur_ad.encoders import get_spec
    from dinosaur_ad.methods.shared.vit_weights import VITS

    return VITS[name] if name in VITS else get_spec(name)
