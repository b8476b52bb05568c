"""Named selections of methods, scenarios and seeds (``--suite``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dinosaur_ad.bench.scenarios import ONE_CATEGORY_SCENARIO
from dinosaur_ad.errors import InputError


@dataclass(frozen=True)
class Suite:
    """Which methods on which scenarios with which seeds, and what differs from the methods' settings."""

    summary: str
    methods: tuple[str, ...]
    scenarios: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    settings: Mapping[str, str] = field(default_factory=dict)


SUITES = {
    "tiny": Suite(
        "seconds, random encoder: shows that everything works, and nothing else",
        ("dinosaur", "patchcore"),
        ("synthetic-tiny",),
        settings={
            "dinosaur.encoder": "tiny-dinov2",
            "dinosaur.layers": "0+1",
            "dinosaur.size": "70",
            "patchcore.backbone": "tiny-resnet",
            "patchcore.size": "64",
            "patchcore.dim": "16",
            "patchcore.minimum": "50",
        },
    ),
    "quick": Suite(
        "minutes on two cores, no downloads beyond the embedded encoder: synthetic products and drift; PatchCore "
        "with a smaller memory and less replay, and a light meter as a control",
        ("dinosaur", "dinosaur:paper", "patchcore:vit", "photometer:signed"),
        ("synthetic", "synthetic-color"),
        settings={"patchcore.replay": "20", "patchcore.ratio": "0.02"},
    ),
    "reproduce": Suite(
        "one category alone, each method in its authors' form: does it reach the figure of its own paper? Wants "
        "MVTec-AD, the authors' networks (or --set ucad.backbone=NAME), a teacher and a GPU",
        (
            "patchcore:original-resnet50",
            "patchcore:original-resnet50-1percent",
            "ucad:original",
            "ucad:original-no-prompt",
            "ucad:no-prompt",
            "efficientad:original",
            "dne:original",
            "iuf:original",
        ),
        (ONE_CATEGORY_SCENARIO,),
    ),
    "paper": Suite(
        "the paper's five protocols, its geometric drift as printed, and a light meter as a control; wants the "
        "datasets and a GPU",
        (
            *("dne", "iuf", "ucad", "patchcore", "patchcore:tuned", "efficientad"),
            *("dinosaur", "dinosaur:paper", "photometer:signed"),
        ),
        ("mvtec-ad", "mvtec-loco", "mtd-color", "mtd-geo", "mtd-blur", "mtd-geo-literal"),
        seeds=(0, 1, 2),
    ),
}


def get_suite(name: str) -> Suite:
    """The suite called ``name``; the error for an unknown one lists all."""
    if name not in SUITES:
        raise InputError(f"There is no suite '{name}'; choose from: {', '.join(SUITES)}.")
    return SUITES[name]
