from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Literal

import pytest

from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Config, choose_methods, get_method, list_methods
from dinosaur_ad.methods.dinosaur import DinosaurConfig, DinosaurMethod
from dinosaur_ad.methods.method_registry import register, unregister


@dataclass(frozen=True)
class ToyConfig(Config):
    rate: float = 0.5
    steps: int | None = None
    layers: tuple[int | Literal["final"], ...] = (1,)
    kind: Literal["a", "b"] = "a"
    careful: bool = False
    weights: str = field(default="", metadata={"place": True})


@pytest.fixture
def toy() -> object:
    register("toy", variants={"default": ToyConfig(), "fast": ToyConfig(rate=2)}, summary="a toy")(DinosaurMethod)
    yield
    unregister("toy")


def test_both_methods_of_the_issue_are_there() -> None:
    assert {"dinosaur", "patchcore"} <= set(list_methods())
    assert get_method("dinosaur:paper").config == DinosaurConfig(preset="paper")


@pytest.mark.usefixtures("toy")
def test_settings_are_read_as_their_type() -> None:
    settings = {"rate": "0.25", "toy.steps": "7", "layers": "3+final", "kind": "b", "careful": "true"}
    (choice,) = choose_methods(["toy"], settings)
    assert choice.config == ToyConfig(0.25, 7, (3, "final"), "b", True)
    (choice,) = choose_methods(["toy:fast"], {"steps": "none"})
    assert choice.config == ToyConfig(rate=2)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rate": "fast"}, "toy.rate must be a number, got 'fast'"),
        ({"steps": "1.5"}, "must be a whole number, got '1.5'"),
        ({"kind": "c"}, "cannot be 'c'; choose from: a, b"),
        ({"careful": "yes"}, "true or false, not 'yes'"),
        ({"layers": "last"}, "cannot be 'last'; choose from: final"),
        ({"speed": "1"}, "no setting 'speed'; choose from: toy.rate, toy.steps"),
        ({"dinosaur.rate": "1"}, "no setting 'dinosaur.rate'"),
    ],
)
def test_wrong_settings_get_a_sentence(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        choose_methods(["toy"], settings)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["dinosuar"], "no method 'dinosuar'; choose from: dinosaur, dinosaur:fast"),
        (["dinosaur:papr"], "'dinosaur' has no variant 'papr'; choose from: default, fast, best, paper"),
        (["dinosaur", "dinosaur"], "named twice"),
    ],
)
def test_wrong_names_get_a_sentence_with_the_right_ones(names: list[str], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        choose_methods(names, {})
    assert sentence in str(caught.value)


def test_a_name_cannot_be_taken_twice() -> None:
    with pytest.raises(InputError, match="registered already"):
        register("dinosaur", variants={"default": ToyConfig()}, summary="")
    with pytest.raises(InputError, match="no variant 'default'"):
        register("other", variants={"fast": ToyConfig()}, summary="")


@pytest.mark.usefixtures("toy")
def test_where_weights_lie_is_not_part_of_what_is_computed() -> None:
    assert ToyConfig(weights="here").identity() == ToyConfig(weights="there").identity()
    assert ToyConfig(rate=1).identity() != ToyConfig(rate=2).identity()


def test_listing_methods_loads_no_torch() -> None:
    code = "import sys, dinosaur_ad.methods, dinosaur_ad.bench.runner; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_a_method_says_of_itself_is_true_of_its_settings() -> None:
    assert get_method("patchcore").summary.startswith("frozen ResNet, ")
    assert get_method("patchcore:vit").summary.startswith("frozen ViT, ")
    assert "without averaging" in get_method("patchcore:vit-points").summary
    (changed,) = choose_methods(["patchcore"], {"backbone": "dinov2s-focus", "replay": "20"})
    assert changed.summary.startswith("frozen ViT, ")
    assert "20 replayed images of each" in changed.summary
    assert "50 replayed images" in choose_methods(["efficientad"], {"replay": "50"})[0].summary


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden", "a:b", "a b"])
def test_a_name_that_cannot_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a method"):
        register(name, variants={"default": Config()}, summary="")
