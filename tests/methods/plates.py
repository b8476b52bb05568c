"""A task that anything should learn, for the methods that train: striped plates, and the same with a red spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dinosaur_ad.methods import Lesson, Photo, Scores, Workbench, get_method


def plate(index: int, *, spotted: bool = False) -> Photo:
    """A striped plate, with a red spot or without."""
    generator = np.random.default_rng(index)
    stripes = 40 * np.sin(np.arange(64) / 4)[:, None, None]
    image = np.clip(np.asarray([120, 110, 90]) + stripes + generator.normal(0, 6, (64, 64, 3)), 0, 255).astype(np.uint8)
    if spotted:
        y, x = generator.integers(4, 48, 2)
        image[y : y + 12, x : x + 12] = (230, 40, 40)
    return Photo(f"plate-{index}-{spotted}", lambda: image)


PLATES = Lesson("plate", tuple(plate(index) for index in range(10)))
SPOTTED = [plate(100 + index, spotted=index % 2 == 1) for index in range(16)]


def interrupted(
    name: str, settings: dict[str, Any], scratch: Path, owner: Any, attribute: str
) -> tuple[Scores, Scores]:
    """Scores of a training that ran through, and of one stopped in its second epoch and taken up again."""
    choice = get_method(name).tiny().with_settings(settings)
    whole, resumed = choice.build(Workbench()), choice.build(Workbench(scratch=scratch))
    whole.learn(PLATES)
    loss, calls = getattr(owner, attribute), []

    def stop_at_five(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return loss(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, attribute, stop_at_five)
        with pytest.raises(KeyboardInterrupt):
            choice.build(Workbench(scratch=scratch)).learn(PLATES)
        resumed.learn(PLATES)
    assert len(calls) == 11  # three epochs of three steps, and the two of the stopped epoch once more
    return whole.score(SPOTTED), resumed.score(SPOTTED)
