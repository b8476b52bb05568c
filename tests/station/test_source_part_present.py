"""The part-present trigger on drawn scenes: one picture for each part, the best of it, whatever the light does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

pytest.importorskip("sqlalchemy", reason="the station needs the extra 'station'")

from dinosaur_ad.station.sources import triggers
from dinosaur_ad.station.sources.part_present import PartPresence, PresenceLimits
from dinosaur_ad.station.sources.triggers import PresenceTrigger, TimerTrigger, small_of

RNG = np.random.default_rng(3)
BELT = RNG.uniform(70, 90, (120, 160, 1)).repeat(3, 2)
PART = np.kron(RNG.uniform(120, 250, (10, 10, 3)), np.ones((5, 5, 1)))
NOWHERE = -1000


class Scene:
    """A frame with a part at a place from the left (NOWHERE: none), in some light, blurred by movement."""

    def __init__(self, left: int = NOWHERE, light: float = 1.0, blur: int = 0, seconds: float = 0.0) -> None:
        self.left, self.light, self.blur, self.seconds = left, light, blur, seconds

    def pixels(self) -> NDArray[np.uint8]:
        scene = np.concatenate([BELT, BELT, BELT], 1)
        start = 160 + self.left
        if 0 <= start <= 320:
            scene[30:80, start : start + 50] = PART
        scene = np.mean([np.roll(scene, shift, 1) for shift in range(self.blur + 1)], 0)
        noisy = scene[:, 160:320] * self.light + RNG.normal(0, 2, (120, 160, 3))
        return np.clip(noisy, 0, 255).astype(np.uint8)

    def small(self) -> Any:
        return small_of(self.pixels())


def chosen(scenes: list[Scene], trigger: PresenceTrigger | None = None) -> list[tuple[int, Scene]]:
    """Which scenes are taken, and when."""
    trigger = trigger or PresenceTrigger()
    taken = [(number, trigger.choose(scene)) for number, scene in enumerate(scenes)]
    return [(number, each.frame) for number, each in taken if each]  # type: ignore[misc]


def empty(count: int, light: float = 1.0) -> list[Scene]:
    return [Scene(light=light) for _ in range(count)]


def arriving(stop_at: int = 50) -> list[Scene]:
    return [Scene(left, blur=8) for left in range(-60, stop_at, 15)]


def test_a_part_that_comes_to_rest_gives_one_picture_at_rest() -> None:
    rest = [Scene(50) for _ in range(30)]
    leaving = [Scene(left, blur=8) for left in range(60, 180, 15)]
    scenes = empty(10) + arriving() + rest + leaving + empty(10)
    taken = chosen(scenes + arriving() + rest + leaving + empty(10))
    assert len(taken) == 2
    for (number, scene), offset in zip(taken, (0, len(scenes) - 10), strict=True):
        assert (scene.left, scene.blur) == (50, 0)
        assert number <= 10 + offset + len(arriving()) + 4  # soon after it lies still


def test_a_part_that_moves_past_gives_one_picture_with_all_of_it() -> None:
    moving = [Scene(left, blur=3) for left in range(-60, 170, 10)]
    taken = chosen(empty(10) + moving + empty(10) + moving + empty(10))
    assert len(taken) == 2
    assert all(0 <= scene.left <= 110 for _, scene in taken)


def test_the_sharpest_of_the_still_frames_is_taken() -> None:
    presence: PartPresence[int] = PartPresence(PresenceLimits(still=0.02), small_of(Scene().pixels()))
    blurs = [2, 2, 2, 0, 2, 2, 2]  # the first one appeared, the next three lie still
    taken = [presence.see(Scene(50, blur=blur).small(), number) for number, blur in enumerate(blurs)]
    assert taken == [None, None, None, 3, None, None, None]


def test_nothing_is_taken_of_an_empty_scene_in_changing_light() -> None:
    fading = [Scene(light=float(light)) for light in np.linspace(1, 0.6, 200)]
    flickering = [Scene(light=light) for light in (0.6, 0.8, 0.6, 1.0) * 10]
    assert chosen(empty(10) + fading + flickering) == []


def test_parts_are_still_found_after_the_light_changed() -> None:
    fading = [Scene(light=float(light)) for light in np.linspace(1, 0.7, 100)]
    taken = chosen(empty(10) + fading + [Scene(50, light=0.7) for _ in range(10)] + empty(10, 0.7))
    assert len(taken) == 1


def test_a_part_on_the_limit_gives_no_second_picture() -> None:
    trigger: PartPresence[int] = PartPresence(empty=small_of(Scene().pixels()))
    at_the_edge = [Scene(left) for left in (-38, -36, -38, -36, -40, -36) * 10]
    taken = [trigger.see(scene.small(), number) for number, scene in enumerate(at_the_edge)]
    assert sum(each is not None for each in taken) <= 1


def test_a_picture_of_the_empty_scene_may_be_given(tmp_path: Any) -> None:
    Image.fromarray(Scene().pixels()).save(tmp_path / "empty.png")
    trigger = PresenceTrigger(tmp_path / "empty.png")
    assert len(chosen([Scene(50) for _ in range(10)], trigger)) == 1  # a part is there from the first frame on


def test_the_empty_scene_can_be_taken_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triggers, "FOREVER_FRAMES", 50)
    trigger = PresenceTrigger()
    assert "being learned" in trigger.note
    assert len(chosen(empty(6) + [Scene(50) for _ in range(100)], trigger)) == 1  # a box was put there
    assert "very long" in trigger.note
    trigger.take_empty()
    assert chosen([Scene(50) for _ in range(20)], trigger) == []
    assert trigger.note == ""


@pytest.mark.parametrize(("rate", "expected"), [(2.0, [0, 5, 10, 15]), (100.0, list(range(20)))])
def test_a_timer_keeps_its_rate(rate: float, expected: list[int]) -> None:
    timer = TimerTrigger(rate)
    assert [n for n in range(20) if timer.choose(Scene(seconds=n / 10))] == expected


def test_a_timer_survives_a_clock_that_jumps() -> None:
    timer = TimerTrigger(1.0)
    moments = [100.0, 100.5, 101.0, 3.0, 3.5, 4.0, 500.0, 500.5]
    assert [moment for moment in moments if timer.choose(Scene(seconds=moment))] == [100.0, 101.0, 3.0, 4.0, 500.0]
