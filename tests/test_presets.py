"""Presets: the paper's is the paper to the letter, and a store gets back what it was made with."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dinosaur_ad import Dinosaur, presets
from dinosaur_ad.core.coreset import coreset_size
from dinosaur_ad.encoders import get_spec, registry
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.methods.dinosaur import DinosaurConfig
from dinosaur_ad.presets import BEST, DEFAULT, FAST, PAPER, PRESETS, Preset, get_preset, preset_for
from dinosaur_ad.store import Store


def test_paper_is_the_paper_to_the_letter() -> None:
    assert (PAPER.layers, PAPER.size, PAPER.normalise) == (("final",), 224, False)
    assert [coreset_size(images, PAPER.ratio, PAPER.minimum) for images in (7, 60, 200, 443)] == [7, 20, 20, 44]
    assert (PAPER.radius, PAPER.top) == (3, 0)
    assert (PAPER.limit, PAPER.describe_patches) == (1, False)
    assert (PAPER.calibration, PAPER.false_alarms) == ("in-sample", 0.025)
    assert (PAPER.exposure, PAPER.copies, PAPER.budget, PAPER.readings) == (False, 0, None, ("point",))


@pytest.mark.parametrize("preset", [DEFAULT, FAST, BEST], ids=lambda preset: preset.name)
def test_thresholds_come_from_unseen_normals(preset: Preset) -> None:
    assert preset.calibration == "unseen"


def test_the_names_say_which_is_faster() -> None:
    assert FAST.size < DEFAULT.size < BEST.size
    assert get_preset("default") is DEFAULT


def test_a_preset_of_the_last_release_means_what_it_meant() -> None:
    """It knew one way to score, no exposure, no copies and no budget: those of today's fast."""
    gained = {"exposure", "copies", "budget", "readings", "map_softness", "map_closing", "map_relative", "folds"}
    before = {key: value for key, value in FAST.to_json().items() if key not in gained}
    assert Preset.from_json(before | {"name": "default"}) == dataclasses.replace(FAST, name="default")


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_a_preset_comes_back_from_a_store_as_it_was(preset: Preset, tmp_path: Path) -> None:
    encoder = {"encoder": "tiny-dinov2", "fingerprint": "7375cbc137a12318"}
    Store.create(tmp_path / "store", {"encoder": encoder, "preset": preset.to_json()})
    assert Preset.from_json(Store.open(tmp_path / "store").header["preset"]) == preset


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_found_by_the_name_it_bears(name: str) -> None:
    assert get_preset(name).name == name


def test_a_preset_of_ones_own_is_taken_as_it_is() -> None:
    own = dataclasses.replace(DEFAULT, name="own", radius=2)
    assert get_preset(own) is own


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"no preset 'quick'; choose one of: default, fast, best, paper\."):
        get_preset("quick")


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({**DEFAULT.to_json(), "colour": "red"}, "colour"),
        ({key: value for key, value in DEFAULT.to_json().items() if key != "radius"}, "radius"),
    ],
    ids=["unknown", "missing"],
)
def test_settings_of_another_version_are_refused_by_name(document: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=rf"\({named}\); .*another version"):
        Preset.from_json(document)


def test_a_preset_cannot_change_under_a_store() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT.radius = 2  # type: ignore[misc]


def test_a_setting_that_presets_gained_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {key: value for key, value in DEFAULT.to_json().items() if key != "radius"}
    monkeypatch.setitem(presets.GAINED, "radius", 3)
    assert Preset.from_json(before) == dataclasses.replace(DEFAULT, radius=3)
    assert Preset.from_json(DEFAULT.to_json()) == DEFAULT


def test_a_setting_that_presets_lost_is_dropped_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop_colour(settings: dict[str, Any]) -> None:
        settings.pop("colour", None)

    monkeypatch.setattr(presets, "MIGRATIONS", [drop_colour])
    assert Preset.from_json({**DEFAULT.to_json(), "colour": "red"}) == DEFAULT
    with pytest.raises(InputError, match=r"\(shape\); .*another version"):
        Preset.from_json({**DEFAULT.to_json(), "shape": "round"})


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Preset)])
def test_every_setting_has_limits(field: str) -> None:
    for absurd in ({"a": 1}, -(10**30), float("nan"), "\x1b[2J" * 1000):
        with pytest.raises(InputError, match="cannot be used") as refusal:
            Preset.from_json({**DEFAULT.to_json(), field: absurd})
        assert len(str(refusal.value)) < 300
        assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    "setting",
    [
        {"radius": 300},
        {"size": 10**9},
        {"layers": []},
        {"layers": "final"},
        {"top": 2},
        {"readings": []},
        {"readings": ["smell"]},
        {"copies": 101},
        {"budget": 0},
        {"folds": -1},
        {"map_softness": 0.5},
        {"map_closing": 1.5},
        {"map_relative": -0.1},
    ],
)
def test_absurd_values_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(setting))):
        Preset.from_json({**DEFAULT.to_json(), **setting})


# --- another encoder ---

OWN = {"layers": [0, 2], "size": 70, "radius": 2}


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> str:
    """An encoder whose entry says in which settings its default differs."""
    spec = dataclasses.replace(get_spec("tiny-dinov2"), preset=OWN)  # type: ignore[call-arg]
    monkeypatch.setitem(registry._REGISTRY, "tiny-dinov2", spec)
    return "tiny-dinov2"


def test_the_default_of_an_encoder_is_what_its_entry_says(tuned: str) -> None:
    expected = dataclasses.replace(DEFAULT, layers=(0, 2), size=70, radius=2)
    assert preset_for("default", tuned) == expected
    assert Dinosaur(encoder=tuned).preset == expected
    assert DinosaurConfig(encoder=tuned).to_preset() == expected
    assert DinosaurConfig(encoder=tuned, radius=0).to_preset() == dataclasses.replace(expected, radius=0)


def test_other_presets_and_other_encoders_are_what_they_were(tuned: str) -> None:
    assert preset_for("paper", tuned) == PAPER
    assert preset_for(DEFAULT, tuned) == DEFAULT
    assert preset_for("default", "dinov3-small") == preset_for("default", "dinov2s-focus") == get_preset("default")


def test_a_store_keeps_the_settings_it_was_made_with_when_the_entry_changes(
    tuned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = list(np.random.default_rng(0).integers(0, 255, (6, 64, 64, 3), np.uint8))
    made = Dinosaur(tmp_path / "store", encoder=tuned)
    made.learn("noise", images)
    assert Dinosaur(tmp_path / "store", preset="default").preset == made.preset
    changed = dataclasses.replace(get_spec(tuned), preset=OWN | {"radius": 1})  # type: ignore[call-arg]
    monkeypatch.setitem(registry._REGISTRY, tuned, changed)
    assert Dinosaur(tmp_path / "store").preset == made.preset
    with pytest.raises(StoreError, match="made with the preset 'default', not with 'default'"):
        Dinosaur(tmp_path / "store", preset="default")


@pytest.mark.parametrize(
    "make", [lambda name: Dinosaur(encoder=name), lambda name: DinosaurConfig(encoder=name).to_preset()]
)
def test_a_preset_that_does_not_fit_an_encoder_is_refused_with_what_to_do(make: Any) -> None:
    with pytest.raises(
        InputError,
        match=r"^The preset 'default' does not fit the encoder 'tiny-dinov3' .*bench tune --encoder tiny-dinov3\.$",
    ):
        make("tiny-dinov3")


def test_an_entry_with_settings_that_no_preset_has_is_refused(tuned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"raduis": 1}, {"radius": -1}):
        spec = dataclasses.replace(get_spec(tuned), preset=wrong)  # type: ignore[call-arg]
        monkeypatch.setitem(registry._REGISTRY, tuned, spec)
        with pytest.raises(InputError, match=next(iter(wrong))):
            preset_for("default", tuned)
