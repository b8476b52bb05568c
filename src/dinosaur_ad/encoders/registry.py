"""The backbones by name: what each one is, where its weights come from, and under which licence.

Adding one is one more entry in ``registry.toml``, or a call of :func:`register`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dinosaur_ad.encoders.pair import SEPARATOR, make_pair
from dinosaur_ad.encoders.specs import BackboneSpec, EncoderSpec, ResNetSpec
from dinosaur_ad.errors import EncoderError

_REGISTRY: dict[str, BackboneSpec] = {}
_PAIRS: dict[str, Mapping[str, Any]] = {}
"""By name of a pair that was measured: the weight of its tail and its preset."""


def register(spec: BackboneSpec) -> BackboneSpec:
    """Make ``spec`` available by its name; a name can be taken only once."""
    if spec.name in _REGISTRY:
        raise EncoderError(f"An encoder named '{spec.name}' is registered already; choose another name.")
    _REGISTRY[spec.name] = spec
    return spec


def get_spec(name: str) -> BackboneSpec:
    """Return the entry called ``name``, or the pair of two entries that ``A+B`` names.

    >>> get_spec("resnet50").parameters
    8543296
    >>> get_spec("dinov2-small+resnet50").parameters - get_spec("dinov2-small").parameters
    8543296
    """
    if SEPARATOR in name:
        return make_pair(name, _REGISTRY, _PAIRS.get(name))
    if name not in _REGISTRY:
        raise EncoderError(f"There is no encoder '{name}'; choose one of: {', '.join(_REGISTRY)}.")
    return _REGISTRY[name]


def find_spec(name: str) -> BackboneSpec | None:
    """That of :func:`get_spec`, or None where there is no such encoder or pair."""
    try:
        return get_spec(name)
    except EncoderError:
        return None


def known_pairs() -> tuple[str, ...]:
    """The pairs that were measured; any other two encoders can be paired too."""
    return tuple(_PAIRS)


def list_specs() -> Mapping[str, BackboneSpec]:
    """Return all entries by name, in the order of their registration."""
    return dict(_REGISTRY)


def token_encoder(spec: BackboneSpec) -> EncoderSpec:
    """Return ``spec`` if it is a vision transformer; the error for others lists those that are.

    >>> token_encoder(get_spec("dinov3-small")).patch
    16
    """
    if isinstance(spec, EncoderSpec):
        return spec
    others = ", ".join(name for name, other in _REGISTRY.items() if isinstance(other, EncoderSpec))
    raise EncoderError(f"'{spec.name}' is no token encoder: it gives feature maps; choose one of: {others}.")


def residual_network(spec: BackboneSpec) -> ResNetSpec:
    """Return ``spec`` if it is a residual network; the error for others lists those that are."""
    if isinstance(spec, ResNetSpec):
        return spec
    others = ", ".join(name for name, other in _REGISTRY.items() if isinstance(other, ResNetSpec))
    raise EncoderError(f"'{spec.name}' is no residual network: it gives tokens; choose one of: {others}.")


def _load() -> None:
    """Register the entries of ``registry.toml``."""
    entries = tomllib.loads(Path(__file__).with_name("registry.toml").read_text("utf-8"))
    for name, entry in entries.items():
        if "pair" in entry:
            _PAIRS[entry.pop("pair")] = entry
        elif "family" in entry:
            register(EncoderSpec(name=name, **entry))
        else:
            register(ResNetSpec(name=name, **entry | {"depths": tuple(entry["depths"])}))


_load()
