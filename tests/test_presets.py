"""Presets: the paper's is the paper to the letter, and a store gets back what it was made with."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dinosaur_ad import presets
from dinosaur_ad.core.coreset import coreset_size
from dinosaur_ad.errors import InputError
from dinosaur_ad.presets import DEFAULT, PAPER, PRESETS, Preset, get_preset
from dinosaur_ad.store import Store


def test_paper_is_the_paper_to_the_letter() -> None:
    assert (PAPER.layers, PAPER.size, PAPER.normalise) == (("final",), 224, False)
    assert [coreset_size(images, PAPER.ratio, PAPER.minimum) for images in (7, 60, 200, 443)] == [7, 20, 20, 44]
    assert (PAPER.radius, PAPER.top) == (3, 0)
    assert (PAPER.limit, PAPER.describe_patches) == (1, False)
    assert (PAPER.calibration, PAPER.false_alarms) == ("in-sample", 0.025)


def test_default_takes_its_threshold_from_unseen_normals() -> None:
    assert DEFAULT.calibration == "unseen"


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
    with pytest.raises(InputError, match=r"no preset 'fast'; choose one of: default, paper"):
        get_preset("fast")


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


@pytest.mark.parametrize("setting", [{"radius": 300}, {"size": 10**9}, {"layers": []}, {"layers": "final"}, {"top": 2}])
def test_absurd_values_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(setting))):
        Preset.from_json({**DEFAULT.to_json(), **setting})
