"""What the methods' own papers print for one category learned alone, as data: ``published_figures.toml``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from dinosaur_ad.methods import list_methods

ORIGINAL = "original"


@dataclass(frozen=True)
class PublishedFigure:
    """One variant's figure; ``auroc`` is NaN where none is known. The other fields are explained in the file."""

    what: str
    source: str
    network: str
    backbones: tuple[str, ...]
    stands: bool
    auroc: float = math.nan
    regions: str = ""


@cache
def published_figures() -> Mapping[str, PublishedFigure]:
    """By full name of the variant.

    >>> published_figures()["patchcore:original-resnet50"].auroc
    1.0
    """
    document = tomllib.loads(files("dinosaur_ad.bench").joinpath("published_figures.toml").read_text("utf-8"))
    return {
        name: PublishedFigure(**entry | {"backbones": tuple(entry["backbones"])})
        for name, entry in document["figures"].items()
    }


def claims_original(method: str) -> bool:
    """Whether a method's name says that it is its authors'.

    >>> claims_original("ucad:original"), claims_original("iuf:original-vit"), claims_original("ucad")
    (True, True, False)
    """
    return method.partition(":")[2].partition("-")[0] == ORIGINAL


def what_is_not_original(method: str, backbone: object) -> str:
    """What has to be added to the name of a row that ran its whole schedule on ``backbone``; empty if nothing is.

    A variant that is defined with another network than its authors' says so by its own name.

    >>> what_is_not_original("ucad:original", "dinov2s-focus"), what_is_not_original("ucad:original", "vit-base")
    ('other-network', 'not-reproduced')
    >>> what_is_not_original("patchcore:original-resnet50", "resnet50-v1"), what_is_not_original("ucad", "vit-base")
    ('', '')
    """
    if not claims_original(method):
        return ""
    figure = published_figures().get(method)
    if figure is None:
        return "not-reproduced"
    spec = list_methods().get(method.partition(":")[0])
    config = None if spec is None else spec.variants.get(method.partition(":")[2])
    usual = getattr(config, "backbone", None)
    if backbone in figure.backbones:
        return "" if figure.stands else "not-reproduced"
    return "" if backbone == usual is not None else "other-network"
