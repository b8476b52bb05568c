"""The states that tasks go through in a crowd, and what each says about every image."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attack.jobs import ENCODER, PRESET, pixels, save
from detector_helpers import product
from dinosaur_ad import Dinosaur, EncoderOptions

VALUES = ("score", "threshold", "p_value", "normal_level")
"""What must come from one version."""

Known = Mapping[str, Sequence[Sequence[Sequence[float]]]]
"""By task, state and image: the values."""


def prepare(root: str, place: str) -> Known:
    """Teach the store of a crowd (``place/crowd``: tasks a, b, c, e) and return all that its tasks will say."""
    base, here = Path(root), Path(place)
    images, more, store = base / "images", base / "more", here / "crowd"
    save(here / "d", product(3, 10, seed=1))
    save(here / "e", product(4, 12, seed=1))
    for seed, name in ((2, "x"), (3, "y")):
        save(here / name, product(4, 5, seed=seed))
    first = Dinosaur(store, encoder=ENCODER, preset=PRESET, options=EncoderOptions(threads=1))
    for name in "abc":
        first.learn(name, images / name)
    first.learn("e", here / "e")
    encoder = first.encoder

    def after(*changes: Callable[[Dinosaur], object]) -> Dinosaur:
        copy = here / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(store, copy)
        changed = Dinosaur(copy, encoder=encoder)
        for change in changes:
            change(changed)
        return changed

    def adds(name: str) -> Callable[[Dinosaur], object]:
        return lambda detector: detector.update("e", here / name)

    seen = pixels(base / "fixed")
    known: dict[str, list[list[list[float]]]] = {
        "a": [_said(after(), "a", seen), _said(after(lambda it: it.update("a", more / "a")), "a", seen)],
        "b": [
            _said(after(), "b", seen),
            _said(after(lambda it: it.learn("b", [images / "b", more / "b"], replace=True)), "b", seen),
        ],
        "c": [_said(after(), "c", seen)],
        "d": [_said(after(lambda it: it.learn("d", here / "d")), "d", seen)],
        "e": [_said(after(*map(adds, order)), "e", seen) for order in ("", "x", "y", "xy", "yx")],
    }
    for task in "abe":
        _refuse_alike(task, known[task])
    return known


def _said(detector: Dinosaur, task: str, images: Sequence[Any]) -> list[list[float]]:
    return [values(each) for each in detector.inspect(images, task=task)]


def values(inspection: Any) -> list[float]:
    """What an inspection says that must come from one version."""
    return [float(getattr(inspection, key)) for key in VALUES]


def _refuse_alike(task: str, states: Sequence[Sequence[Sequence[float]]]) -> None:
    """States that say the same would hide a mixture of them."""
    first, second = states[0], states[1]
    told_apart = [
        abs(one[0] - other[0]) > 1e-4 and abs(one[1] - other[1]) > 1e-4
        for one, other in zip(first, second, strict=True)
    ]
    if not any(told_apart):
        raise RuntimeError(f"the states of {task} cannot be told apart, so the attack would show nothing")
