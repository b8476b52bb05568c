"""Named settings of the detector. Every difference between the two carries its measurement in docs/presets.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from dinosaur_ad._schema import PRESET
from dinosaur_ad.errors import InputError


@dataclass(frozen=True)
class Preset:
    """All settings that change features, banks or scores; saved with every store.

    >>> PRESETS["default"].radius
    1
    """

    name: str
    # Features.
    layers: tuple[int | Literal["final"], ...]
    size: int
    normalise: bool
    average: bool
    # Coreset: max(minimum, floor(ratio * images)) patches a location, and `reserve` times as many candidates
    # beside them on disk, so that later updates need not relearn.
    ratio: float
    minimum: int
    reserve: float
    precision: Literal["float32", "float16", "int8"]
    # How an image is scored: neighbours within `radius`, the mean of the `top` share of patches (0: the maximum).
    radius: int
    top: float
    # Which banks are used: those of the `limit` nearest prototypes, none farther than `margin` times the nearest.
    describe_patches: bool
    limit: int
    margin: float
    # Where thresholds come from, and the share of normal images that may exceed them.
    calibration: Literal["unseen", "in-sample"]
    false_alarms: float

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self) | {"layers": list(self.layers)}

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
        return cls(**{**settings, "layers": tuple(settings["layers"])})


GAINED: dict[str, Any] = {}
"""By name of a setting that presets have gained: its value for a preset that was stored before, so that a store made
then gives the same scores. (None so far: those of the first version are all there are.)"""

MIGRATIONS: list[Callable[[dict[str, Any]], None]] = []
"""What was done to stored settings since, oldest first: each takes those of any earlier version and drops or renames
what is no longer there. (None so far.)"""


PAPER = Preset(
    name="paper",
    layers=("final",),
    size=224,
    normalise=False,
    average=False,
    ratio=0.10,
    minimum=20,
    reserve=0.0,
    precision="float32",
    radius=3,
    top=0.0,
    describe_patches=False,
    limit=1,
    margin=float("inf"),
    calibration="in-sample",
    false_alarms=0.025,
)

DEFAULT = Preset(
    name="default",
    layers=(4, 5, 6, 7, 8),
    size=224,
    normalise=True,
    average=True,
    ratio=0.20,
    minimum=20,
    reserve=2.0,
    precision="float16",
    radius=1,
    top=0.01,
    describe_patches=True,
    limit=5,
    margin=1.5,
    calibration="unseen",
    false_alarms=0.025,
)

PRESETS = {preset.name: preset for preset in (DEFAULT, PAPER)}
"""The presets by name: ``default``, which ships, and ``paper``, the paper's procedure as printed."""


def get_preset(preset: str | Preset) -> Preset:
    """The preset of that name; an InputError lists the names there are."""
    if isinstance(preset, Preset):
        return preset
    if preset not in PRESETS:
        raise InputError(f"There is no preset '{preset}'; choose one of: {', '.join(PRESETS)}.")
    return PRESETS[preset]
