"""Named settings of the detector. Every difference between them carries its measurement in docs/presets.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from dinosaur_ad._schema import PRESET
from dinosaur_ad.encoders.base import check_layers, check_size
from dinosaur_ad.encoders.pair import PairSpec
from dinosaur_ad.encoders.registry import find_spec
from dinosaur_ad.encoders.specs import EncoderSpec
from dinosaur_ad.errors import EncoderError, InputError


@dataclass(frozen=True)
class Preset:
    """All settings that change features, banks or scores; saved with every store.

    >>> PRESETS["default"].radius
    1
    """

    name: str
    # Features: images of `size` pixels, whose brightness is matched to the product's with `exposure`.
    layers: tuple[int | Literal["final"], ...]
    size: int
    exposure: bool
    normalise: bool
    average: bool
    # Coreset: max(minimum, floor(ratio * images)) patches a location, and `reserve` times as many candidates
    # beside them on disk, so that later updates need not relearn.
    ratio: float
    minimum: int
    reserve: float
    precision: Literal["float32", "float16", "int8"]
    # With `copies`, so many moved copies of each normal are remembered too; a bank takes at most `budget` bytes.
    copies: int
    budget: int | None
    # How an image is scored: neighbours within `radius`; with one reading, the mean of the `top` share of patches (0:
    # the maximum), with several, what core/readings.py says. Their map is fused with a softness: 1, as the score; and
    # is so far closed, and so far seen beside its own image, as core/map_shape.py says: 0, not at all.
    radius: int
    top: float
    readings: tuple[str, ...]
    map_softness: float
    map_closing: float
    map_relative: float
    # Which banks are used: those of the `limit` nearest prototypes, none farther than `margin` times the nearest.
    describe_patches: bool
    limit: int
    margin: float
    # Where thresholds come from, and the share of normal images that may exceed them. Unseen normals are held out in
    # so many `folds`; with 0 in 5 to 20, the fewer the more images there are, as earlier versions did.
    calibration: Literal["unseen", "in-sample"]
    folds: int
    false_alarms: float

    def __post_init__(self) -> None:
        if self.readings in (("located",), ("coarse",)):
            raise InputError(
                f"The preset '{self.name}' has the reading '{self.readings[0]}' alone, which needs another to be fused "
                "with; add one, or take 'point'."
            )

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self) | {"layers": list(self.layers), "readings": list(self.readings)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Preset:
        """The preset a store was made with, by whatever version; settings that cannot be understood are refused."""
        settings = GAINED | dict(document)
        for migrate in MIGRATIONS:
            migrate(settings)
        unknown = set(settings) ^ {field.name for field in fields(cls)}
        if unknown:
            raise InputError(
                f"The preset has unknown or missing settings ({', '.join(sorted(unknown))}); "
                "it was written by another version of dinosaur-ad: upgrade, or use that version."
            )
        try:
            PRESET(settings, "preset")
        except ValueError as error:
            raise InputError(f"The preset cannot be used ({error}); choose another, or restore it.") from error
        return cls(**settings | {"layers": tuple(settings["layers"]), "readings": tuple(settings["readings"])})


GAINED: dict[str, Any] = {
    "exposure": False,
    "copies": 0,
    "budget": None,
    "readings": ["point"],
    "map_softness": 1.0,
    "map_closing": 0.0,
    "map_relative": 0.0,
    "folds": 0,
}
"""By name of a setting that presets have gained: its value for a preset that was stored before, so that a store made
then gives the same scores."""

MIGRATIONS: list[Callable[[dict[str, Any]], None]] = []
"""What was done to stored settings since, oldest first: each takes those of any earlier version and drops or renames
what is no longer there. (None so far.)"""


PAPER = Preset(
    name="paper",
    layers=("final",),
    size=224,
    exposure=False,
    normalise=False,
    average=False,
    ratio=0.10,
    minimum=20,
    reserve=0.0,
    precision="float32",
    copies=0,
    budget=None,
    radius=3,
    top=0.0,
    readings=("point",),
    map_softness=1.0,
    map_closing=0.0,
    map_relative=0.0,
    describe_patches=False,
    limit=1,
    margin=float("inf"),
    calibration="in-sample",
    folds=0,
    false_alarms=0.025,
)

FAST = Preset(
    name="fast",
    layers=(4, 5, 6, 7, 8),
    size=224,
    exposure=False,
    normalise=True,
    average=True,
    ratio=0.20,
    minimum=20,
    reserve=2.0,
    precision="float16",
    copies=0,
    budget=None,
    radius=1,
    top=0.01,
    readings=("point",),
    map_softness=1.0,
    map_closing=0.0,
    map_relative=0.0,
    describe_patches=True,
    limit=5,
    margin=1.5,
    calibration="unseen",
    folds=0,
    false_alarms=0.025,
)

DEFAULT = replace(
    FAST,
    name="default",
    size=336,
    exposure=True,
    ratio=0.40,
    reserve=0.0,
    precision="int8",
    copies=3,
    budget=8_000_000,
    readings=("located", "coarse"),
    map_softness=8.0,
    map_closing=0.5,
    map_relative=0.2,
    folds=40,
)

BEST = replace(DEFAULT, name="best", size=448, budget=64_000_000)

PRESETS = {preset.name: preset for preset in (DEFAULT, FAST, BEST, PAPER)}
"""The presets by name: ``default``, which ships; ``fast`` in less than half the time; ``best`` for accuracy first;
``paper``, the paper's procedure as printed."""


def get_preset(preset: str | Preset) -> Preset:
    """The preset of that name; an InputError lists the names there are."""
    if isinstance(preset, Preset):
        return preset
    if preset not in PRESETS:
        raise InputError(f"There is no preset '{preset}'; choose one of: {', '.join(PRESETS)}.")
    return PRESETS[preset]


def as_shipped(preset: str | Preset, encoder: str) -> Preset:
    """The preset of that name as it ships for an encoder, whose registry entry may say in which settings its
    ``default`` differs. A :class:`Preset` is what it is for any encoder.

    >>> as_shipped("default", "dinov2s-focus") == DEFAULT
    True
    """
    found, spec = get_preset(preset), find_spec(encoder)
    if preset != "default" or not isinstance(spec, EncoderSpec) or not spec.preset:
        return found
    return Preset.from_json(found.to_json() | dict(spec.preset))


def preset_for(preset: str | Preset, encoder: str, changes: Mapping[str, Any] | None = None) -> Preset:
    """:func:`as_shipped` with ``changes``, if the encoder can have its blocks and its size.

    >>> preset_for("default", "tiny-dinov2", {"layers": (0, 1)}).size
    336

    :raises InputError: a preset by name that does not fit; what is given as an object or as a change, and an unknown
        encoder, are refused when the encoder is loaded.
    """
    found, given, spec = as_shipped(preset, encoder), dict(changes or {}), find_spec(encoder)
    if isinstance(spec, PairSpec) and not given.get("normalise", found.normalise):
        raise InputError(
            f"The preset '{found.name}' does not scale tokens to one length, without which the two parts of "
            f"'{encoder}' cannot be weighed against each other; choose another preset, or one encoder."
        )
    if isinstance(preset, str) and isinstance(spec, EncoderSpec):
        try:
            if "layers" not in given:
                check_layers(found.layers, spec.depth)
            if "size" not in given:
                check_size(found.size, spec)
        except EncoderError as error:
            raise InputError(
                f"The preset '{found.name}' does not fit the encoder '{encoder}' ({str(error).rstrip('.')}); give "
                f"layers and a size, which can be measured with: dinosaur bench tune --encoder {encoder}."
            ) from error
    return replace(found, **given)
