"""Which settings ``dinosaur bench tune`` tries, and how it chooses among them.

One setting is varied at a time, from the current best, in two rounds; the full product would take days. Settings are
compared by the mean image AUROC over products, each of the same weight; means that agree to three decimals are a tie,
which the cheaper setting wins.

The choice for a product must not depend on its own test images. So the whole search is repeated for each product
without it: also which settings are tried on the way is then decided by the others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, Literal, NamedTuple

from dinosaur_ad.core.readings import READINGS
from dinosaur_ad.encoders import EncoderSpec
from dinosaur_ad.errors import InputError
from dinosaur_ad.presets import DEFAULT, as_shipped, preset_for

ROUNDS = 2
DECIMALS = 3
# Shares of the depth: blocks 4-8 of 12, which the default has, earlier and later ones, the last third, most of them.
BANDS = ((1 / 3, 3 / 4), (1 / 6, 1 / 2), (1 / 2, 5 / 6), (2 / 3, 1.0), (1 / 4, 11 / 12))
SIZES = (224, 336)
RATIOS = (0.2, 0.4, 0.8)
RADII = (0, 1, 2)


@dataclass(frozen=True)
class TuneSettings:
    """The settings of a preset that are varied."""

    readings: tuple[str, ...]
    ratio: float
    radius: int
    copies: int
    exposure: bool
    layers: tuple[int | Literal["final"], ...]
    size: int

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TuneSettings:
        """Settings as :meth:`to_json` writes them, or those among the fields of a preset."""
        values = {name: document[name] for name in VARIED}
        return cls(**values | {name: tuple(values[name]) for name in ("readings", "layers")})

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self) | {"readings": list(self.readings), "layers": list(self.layers)}

    @property
    def cost(self) -> tuple[float, ...]:
        """What decides a tie, the most expensive first: pixels, readings, copies, blocks that must run, memory."""
        deepest = max((layer for layer in self.layers if layer != "final"), default=0)
        return self.size, len(self.readings), self.copies, "final" in self.layers, deepest, self.ratio

    def differences(self, other: TuneSettings) -> str:
        """The settings that are not as in ``other``, in words; empty if there are none.

        >>> start = TuneSettings.from_json(DEFAULT.to_json())
        >>> replace(start, radius=0, layers=(2, 3, 4, 5)).differences(start)
        'radius 0, blocks 2-5'
        """
        changed = (name for name in VARIED if getattr(self, name) != getattr(other, name))
        return ", ".join(_words(name, getattr(self, name)) for name in changed)


VARIED = tuple(TuneSettings.__dataclass_fields__)
"""The names of the settings that are varied, in this order: those that need no new features first."""


def _words(name: str, value: Any) -> str:
    if name == "layers":
        blocks = [layer for layer in value if layer != "final"]
        whole = len(value) > 1 and blocks == list(range(blocks[0], blocks[0] + len(value)))
        return f"blocks {value[0]}-{value[-1]}" if whole else f"layers {'+'.join(map(str, value))}"
    if name == "readings":
        return "+".join(value)
    if name == "exposure":
        return "exposure matched" if value else "exposure as it is"
    return f"{value} px" if name == "size" else f"{name} {value:g}"


# --- the space ---


def band(depth: int, low: float, high: float) -> tuple[int, ...]:
    """The blocks between two shares of the depth, at least one.

    >>> band(12, 1 / 3, 3 / 4), band(24, 2 / 3, 1.0), band(3, 1 / 3, 3 / 4)
    ((4, 5, 6, 7, 8), (16, 17, 18, 19, 20, 21, 22, 23), (1,))
    """
    first = min(int(low * depth + 0.5), depth - 1)
    return tuple(range(first, max(first + 1, int(high * depth + 0.5))))


def nearest_size(size: int, patch: int) -> int:
    """The size nearest to ``size`` that is a whole number of patches.

    >>> nearest_size(336, 16), nearest_size(224, 10)
    (336, 220)
    """
    return max(1, round(size / patch)) * patch


def start_for(spec: EncoderSpec) -> TuneSettings:
    """What the search starts from: the default preset as it ships for the encoder, or where it does not fit, the same
    with blocks and size as near as the encoder has them."""
    try:
        preset = preset_for("default", spec.name)
    except InputError:
        preset = as_shipped("default", spec.name)
        preset = replace(preset, layers=band(spec.depth, *BANDS[0]), size=nearest_size(preset.size, spec.step))
    return TuneSettings.from_json(preset.to_json())


def space_for(spec: EncoderSpec, start: TuneSettings) -> dict[str, tuple[Any, ...]]:
    """By name of a setting the values that are tried; that of ``start`` is among them.

    >>> from dinosaur_ad.encoders import get_spec
    >>> spec = get_spec("dinov3-small")
    >>> space_for(spec, start_for(spec))["layers"][3]
    (8, 9, 10, 11)
    """
    # A single reading is scored as `point`, whatever its name.
    several = (names for count in range(2, len(READINGS) + 1) for names in combinations(READINGS, count))
    space: dict[str, tuple[Any, ...]] = {
        "readings": (("point",), *several),
        "ratio": RATIOS,
        "radius": RADII,
        "copies": (0, DEFAULT.copies),
        "exposure": (False, True),
        "layers": tuple(band(spec.depth, *shares) for shares in BANDS),
        "size": tuple(nearest_size(size, spec.step) for size in SIZES),
    }
    return {name: tuple(dict.fromkeys((*values, getattr(start, name)))) for name, values in space.items()}


# --- the choice ---


class Measured(NamedTuple):
    """What was measured of one product or task: image AUROC, false alarms on its normal test images, and recall."""

    auroc: float
    false_alarms: float
    recall: float


class ProductChoice(NamedTuple):
    """One product: the settings chosen without it, and what they, the start and the best by hindsight give on it."""

    product: str
    settings: TuneSettings
    chosen: Measured
    start: Measured
    best_settings: TuneSettings
    best: Measured


Measure = Callable[[TuneSettings, str], Measured]


def search(
    start: TuneSettings, space: Mapping[str, Sequence[Any]], products: Sequence[str], measure: Measure
) -> TuneSettings:
    """The settings that do best on average over ``products``; no other product is measured."""
    best = start
    for _ in range(ROUNDS):
        before = best
        for name, values in space.items():
            others = [replace(best, **{name: value}) for value in values if value != getattr(best, name)]
            best = min((best, *others), key=lambda each: _rank(each, products, measure))
        if best == before:
            break
    return best


def _rank(settings: TuneSettings, products: Sequence[str], measure: Measure) -> tuple[float, tuple[float, ...]]:
    mean = sum(measure(settings, product).auroc for product in products) / len(products)
    return -round(mean, DECIMALS), settings.cost


def leave_one_out(
    start: TuneSettings, space: Mapping[str, Sequence[Any]], products: Sequence[str], measure: Measure
) -> dict[str, TuneSettings]:
    """By product, the settings chosen on all others.

    >>> taste = {"a": 1, "b": 2, "c": 2}
    >>> def measure(settings, product):
    ...     return Measured(float(settings.radius == taste[product]), 0.0, 0.0)
    >>> start = TuneSettings.from_json(DEFAULT.to_json())
    >>> {name: each.radius for name, each in leave_one_out(start, {"radius": (1, 2)}, "abc", measure).items()}
    {'a': 2, 'b': 1, 'c': 1}
    """
    return {left: search(start, space, [name for name in products if name != left], measure) for left in products}
