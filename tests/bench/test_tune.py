"""Settings for an encoder: what is tried, how it is chosen, and that no choice looks at the product it is for."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dinosaur_ad.bench import tune
from dinosaur_ad.bench.cell import OtherConfigurationError
from dinosaur_ad.bench.runner import RunOptions
from dinosaur_ad.bench.tune import TunePlan, draw_task, plan_tune, run_tune
from dinosaur_ad.bench.tune_search import (
    Measured,
    TuneSettings,
    leave_one_out,
    search,
    space_for,
    start_for,
)
from dinosaur_ad.datasets import Scenario
from dinosaur_ad.datasets.samples import Sample
from dinosaur_ad.datasets.synthetic import synthetic_drift_scenario, synthetic_scenario
from dinosaur_ad.encoders import EncoderSpec, check_layers, check_size, get_spec
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.presets import DEFAULT, Preset, preset_for

START = TuneSettings.from_json(DEFAULT.to_json())
SPACE: dict[str, tuple[Any, ...]] = {"radius": (0, 1, 2), "ratio": (0.2, 0.4), "copies": (0, 3)}
PRODUCTS = ("fabric", "gear", "board")


def quiet(text: str) -> None:
    """Say nothing."""


# --- the choice ---


def made_up(table: int) -> Callable[[TuneSettings, str], Measured]:
    """AUROCs that are drawn once for each setting and product."""

    def measure(chosen: TuneSettings, product: str) -> Measured:
        words = f"{table} {chosen} {product}".encode()
        return Measured(zlib.crc32(words) % 41 / 40, 0.0, 1.0)

    return measure


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(PRODUCTS))
def test_a_choice_never_depends_on_the_product_it_is_for(table: int, other: int, left: str) -> None:
    measure, elsewhere = made_up(table), made_up(other)

    def changed(chosen: TuneSettings, product: str) -> Measured:
        return elsewhere(chosen, product) if product == left else measure(chosen, product)

    assert leave_one_out(START, SPACE, PRODUCTS, changed)[left] == leave_one_out(START, SPACE, PRODUCTS, measure)[left]


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_what_is_chosen_is_no_worse_on_average_than_the_start(table: int) -> None:
    measure = made_up(table)

    def mean(chosen: TuneSettings) -> float:
        return float(np.mean([measure(chosen, product).auroc for product in PRODUCTS]))

    assert round(mean(search(START, SPACE, PRODUCTS, measure)), 3) >= round(mean(START), 3)


def test_settings_that_help_independently_are_all_found() -> None:
    def measure(chosen: TuneSettings, product: str) -> Measured:
        return Measured(0.5 + 0.1 * (chosen.radius == 2) + 0.1 * (chosen.ratio == 0.2), 0.0, 1.0)

    found = search(START, SPACE, PRODUCTS, measure)
    assert (found.radius, found.ratio) == (2, 0.2)


def test_a_tie_goes_to_the_cheaper_settings_and_otherwise_nothing_changes() -> None:
    space = {"size": (448, 224), "readings": (("point",), DEFAULT.readings), "copies": (3, 0), "radius": (0, 1, 2)}
    alike = search(START, space, PRODUCTS, lambda chosen, product: Measured(0.9, 0.0, 1.0))
    assert alike == replace(START, size=224, readings=("point",), copies=0)


def test_less_than_half_a_thousandth_is_a_tie() -> None:
    def measure(chosen: TuneSettings, product: str) -> Measured:
        return Measured(0.9004 if chosen.size == 336 else 0.9, 0.0, 1.0)

    assert search(START, {"size": (224, 336)}, PRODUCTS, measure).size == 224


# --- the space ---


@settings(deadline=None)
@given(st.integers(1, 48), st.integers(8, 32))
def test_every_encoder_gets_blocks_and_sizes_that_it_has(depth: int, patch: int) -> None:
    spec = get_spec("tiny-dinov2")
    assert isinstance(spec, EncoderSpec)
    spec = replace(spec, depth=depth, patch=patch)
    space = space_for(spec, replace(START, layers=(0,), size=patch))
    for layers in space["layers"]:
        check_layers(layers, depth)
    for size in space["size"]:
        check_size(size, spec)
    assert max(layer for layers in space["layers"] for layer in layers) == depth - 1


def test_the_search_starts_from_the_default_where_it_fits() -> None:
    for name in ("dinov2s-focus", "dinov2-small", "dinov3-small"):
        assert start_for(get_spec(name)) == START  # type: ignore[arg-type]
    tiny = start_for(get_spec("tiny-dinov3"))  # type: ignore[arg-type]
    assert (tiny.layers, tiny.size, tiny.readings) == ((1,), 336, DEFAULT.readings)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"encoder": "dinov2-smal"}, "There is no encoder 'dinov2-smal', did you mean dinov2-small?"),
        ({"encoder": "resnet50"}, "'resnet50' is no token encoder"),
        ({"vary": ["radius", "raduis"]}, "What can be varied is readings, ratio, .* got 'raduis'"),
        ({"vary": []}, "What can be varied is"),
        ({"images": 3}, "3 images a task are too few; give at least 4"),
        ({"tasks": 0}, "0 tasks of a scenario are too few"),
        ({"seed": -1}, "A seed of -1 is not possible"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Exception, match=sentence) as refused:
        plan_tune(**{"encoder": "tiny-dinov2"} | given)
    assert str(refused.value).count("\n") == 0


@settings(deadline=None)
@given(st.integers(4, 40), st.integers(0, 5))
def test_drawn_images_are_the_tasks_own_with_both_classes(images: int, seed: int) -> None:
    (task,) = synthetic_scenario(train=9, test_normal=5, test_per_kind=3, products=["gear"]).tasks
    drawn = draw_task(task, images, seed)
    assert drawn == draw_task(task, images, seed)
    assert set(drawn.train) <= set(task.train)
    assert set(drawn.test) <= set(task.test)
    assert (len(drawn.train), len(drawn.test)) == (min(images, 9), min(images, len(task.test)))
    normals = sum(sample.label == 0 for sample in drawn.test)
    assert min(images // 2, 5) <= normals < len(drawn.test)


# --- measuring ---


@dataclass(frozen=True)
class Relabelled:
    """A sample with another label."""

    sample: Any
    label: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sample, name)


def swap_labels(scenario: Scenario, product: str) -> Scenario:
    """The same images, with normal and anomalous exchanged among those of one product."""

    def swapped(samples: tuple[Sample, ...]) -> tuple[Any, ...]:
        return tuple(Relabelled(sample, 1 - sample.label) for sample in samples)

    tasks = (replace(task, test=swapped(task.test)) if task.name == product else task for task in scenario.tasks)
    return replace(scenario, tasks=tuple(tasks))


def small(name: str, data: Path | None, seed: int) -> Scenario:
    """Three products of a few small images, or one of them under two levels of drift."""
    if name == "drift":
        drifting = synthetic_drift_scenario(
            "color", seed, levels=(1, 9), train=6, test_normal=3, test_per_kind=1, size=70
        )
        return replace(drifting, name=name)
    return replace(
        synthetic_scenario(seed, train=6, test_normal=4, test_per_kind=2, size=70, products=PRODUCTS), name=name
    )


@pytest.fixture(autouse=True)
def _small_scenarios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tune, "open_scenario", small)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests: they ask for the same few images."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def where(tmp_path: Path, cache: Path) -> RunOptions:
    return RunOptions(str(tmp_path / "out" / "tune.json"), cache=cache)


def tiny_plan(**changes: Any) -> TunePlan:
    plan = plan_tune("tiny-dinov2", **{"vary": ["readings", "radius", "layers"]} | changes)
    return replace(plan, start=replace(plan.start, size=70, copies=1, exposure=False))


def test_permuted_labels_of_a_product_change_nothing_in_its_choice(
    where: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {each.product: each for each in run_tune(tiny_plan(), ["small"], where, quiet).products}
    changed = set()
    for product in PRODUCTS:
        monkeypatch.setattr(tune, "open_scenario", lambda *given: swap_labels(small(*given), product))  # noqa: B023
        elsewhere = replace(where, out=str(tmp_path / f"{product}.json"))
        after = {each.product: each for each in run_tune(tiny_plan(), ["small"], elsewhere, quiet).products}
        assert after[product].settings == before[product].settings
        assert after[product].chosen.auroc == pytest.approx(1 - before[product].chosen.auroc)
        changed |= {name for name in PRODUCTS if after[name].settings != before[name].settings}
    assert changed  # the other choices do look at them, or this would prove nothing


def test_the_result_has_what_the_file_has(where: RunOptions) -> None:
    result = run_tune(tiny_plan(), ["small"], where, quiet)
    document = json.loads(Path(where.out).read_text())
    assert (document["format"], document["kind"]) == (1, "tune")
    measured = {json.dumps(each["settings"]): each["tasks"] for each in document["measured"]}
    for each in result.products:
        own = measured[json.dumps(each.settings.to_json())][f"small/{each.product}"]
        assert own == list(each.chosen)
        everything = [
            tasks[f"small/{each.product}"][0] for tasks in measured.values() if f"small/{each.product}" in tasks
        ]
        assert each.best.auroc == max(everything) >= max(each.chosen.auroc, each.start.auroc)
    assert document["mean"]["chosen"]["auroc"] == pytest.approx(
        np.mean([each.chosen.auroc for each in result.products])
    )
    assert document["preset"] == result.overrides()


def test_what_is_printed_makes_the_settings_advised(where: RunOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    import tomllib

    from dinosaur_ad.encoders import registry

    result = run_tune(tiny_plan(), ["small"], where, quiet)
    entry = tomllib.loads(result.toml())["tiny-dinov2"]["preset"]
    monkeypatch.setitem(registry._REGISTRY, "tiny-dinov2", replace(get_spec("tiny-dinov2"), preset=entry))  # type: ignore[call-arg]
    preset = preset_for("default", "tiny-dinov2")
    assert TuneSettings.from_json(preset.to_json()) == result.advised
    assert preset == replace(DEFAULT, **vars(result.advised))
    assert isinstance(preset, Preset)


def test_interrupted_it_goes_on_and_ends_in_the_same_file(where: RunOptions, tmp_path: Path) -> None:
    plan = tiny_plan(vary=["radius", "copies"])
    whole = replace(where, out=str(tmp_path / "whole.json"))
    run_tune(plan, ["small"], whole, quiet)
    for after in (1, 4, 8):
        part, said = replace(where, out=str(tmp_path / f"{after}.json")), list[str]()

        def interrupt(text: str, said: list[str] = said, after: int = after) -> None:
            said.append(text)
            if len(said) == after:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_tune(plan, ["small"], part, interrupt)
        run_tune(plan, ["small"], part, said.append)
        assert Path(part.out).read_bytes() == Path(whole.out).read_bytes()
        assert len(said) - len(set(said)) == 1  # the one it was stopped in is measured again, and no other
    said = []
    run_tune(plan, ["small"], whole, said.append)
    assert said == []


def test_levels_of_a_drift_are_one_product(where: RunOptions) -> None:
    result = run_tune(tiny_plan(vary=["radius"]), ["small", "drift"], where, quiet)
    assert [each.product for each in result.products] == list(PRODUCTS)
    tasks = json.loads(Path(where.out).read_text())["measured"][0]["tasks"]
    levels = [tasks[name][0] for name in ("small/fabric", "drift/fabric-color-01", "drift/fabric-color-09")]
    assert result.products[0].start.auroc == pytest.approx(np.mean(levels))


def test_fewer_tasks_are_spread_over_the_scenario(where: RunOptions) -> None:
    with pytest.raises(InputError, match=r"needs at least 3 products, got 2 \(fabric, board\); name more scenarios"):
        run_tune(tiny_plan(tasks=2), ["small"], where, quiet)


@pytest.mark.parametrize(
    ("changes", "different"),
    [({"seed": 1}, "data, seed"), ({"images": 4}, "data, images"), ({"vary": ["ratio"]}, "space")],
)
def test_a_file_made_otherwise_is_refused(changes: dict[str, Any], different: str, where: RunOptions) -> None:
    run_tune(tiny_plan(vary=["radius"]), ["small"], where, quiet)
    before = Path(where.out).read_bytes()
    with pytest.raises(OtherConfigurationError, match=rf"\(different: {different}\)"):
        run_tune(tiny_plan(**{"vary": ["radius"]} | changes), ["small"], where, quiet)
    assert Path(where.out).read_bytes() == before


@pytest.mark.parametrize("content", ["", "[]", '{"format": 1}', '{"format": 1, "kind": "grid", "made_with": {}}'])
def test_a_damaged_file_is_named(content: str, where: RunOptions) -> None:
    Path(where.out).parent.mkdir()
    Path(where.out).write_text(content)
    with pytest.raises(InputError, match=r"tune\.json' cannot be continued"):
        run_tune(tiny_plan(), ["small"], where, quiet)


def test_test_images_of_one_class_are_refused(where: RunOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_defects(*given: Any) -> Scenario:
        scenario = small(*given)
        good = tuple(sample for sample in scenario.tasks[1].test if sample.label == 0)
        return replace(scenario, tasks=(scenario.tasks[0], replace(scenario.tasks[1], test=good), scenario.tasks[2]))

    monkeypatch.setattr(tune, "open_scenario", without_defects)
    with pytest.raises(InputError, match="'small/gear' are of one class"):
        run_tune(tiny_plan(), ["small"], where, quiet)


def test_the_sizes_that_are_tried_for_a_pair_are_those_of_both_grids() -> None:
    plan = plan_tune("dinov2s-focus+resnet50-v1", vary=["size", "layers"])
    assert plan.space["size"] == (224, 336)
    assert all(max(layers) < 12 for layers in plan.space["layers"])
    with pytest.raises(EncoderError, match="There is no encoder 'resnet50v1' for the pair"):
        plan_tune("dinov2s-focus+resnet50v1")
