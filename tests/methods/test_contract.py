"""Every registered method, in every variant, keeps what the contract promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from method_helpers import build, every_variant, grey, images_to_test, lessons, tiny

from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.datasets.tasks import Scenario
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Lesson, Method, Photo, Scores

pytest.importorskip("torch", reason="the baselines compute with torch (extra: bench)")


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return open_scenario("synthetic-tiny", seed=3)


@pytest.fixture(scope="module", params=every_variant())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def taught(name: str, scenario: Scenario) -> Method:
    method = build(name)
    for lesson in lessons(scenario):
        method.learn(lesson)
    return method


@pytest.fixture(scope="module")
def begun(name: str, scenario: Scenario) -> Method:
    """It has learned the first lesson, and nothing more is taught to it."""
    method = build(name)
    method.learn(lessons(scenario)[0])
    return method


@pytest.fixture(scope="module")
def photos(scenario: Scenario) -> list[Photo]:
    return images_to_test(scenario)


@pytest.fixture(scope="module")
def scores(taught: Method, photos: list[Photo]) -> Scores:
    return taught.score(photos)


def assert_same(one: Scores, other: Scores) -> None:
    np.testing.assert_array_equal(one.image, other.image)
    assert (one.maps is None) == (other.maps is None)
    if one.maps is not None and other.maps is not None:
        np.testing.assert_array_equal(one.maps, other.maps)
    assert one.routes == other.routes
    if one.thresholds is not None and other.thresholds is not None:
        np.testing.assert_array_equal(one.thresholds, other.thresholds)


def test_every_image_gets_a_finite_score(scores: Scores, photos: list[Photo]) -> None:
    assert scores.image.shape == (len(photos),)
    assert scores.image.dtype == np.float32
    assert np.isfinite(scores.image).all()
    assert len(set(scores.image.tolist())) > 1  # one number for everything would be finite too


def test_it_is_honest_about_maps(taught: Method, scores: Scores, photos: list[Photo]) -> None:
    assert (scores.maps is not None) == taught.has_maps
    if scores.maps is not None:
        assert scores.maps.ndim == 3
        assert len(scores.maps) == len(photos)
        assert np.isfinite(scores.maps).all()


def test_it_is_honest_about_routing(taught: Method, scores: Scores, photos: list[Photo], scenario: Scenario) -> None:
    assert (scores.routes is not None) == taught.routes
    if scores.routes is None:
        with pytest.raises(InputError, match="does not route"):
            taught.score(photos[:1], task=scenario.tasks[0].name)
        return
    assert len(scores.routes) == len(photos)
    assert set(scores.routes) <= {task.name for task in scenario.tasks}
    told = taught.score(photos, task=scenario.tasks[1].name)
    assert told.routes == (scenario.tasks[1].name,) * len(photos)


def test_its_own_threshold_comes_with_every_score(scores: Scores, photos: list[Photo]) -> None:
    if scores.thresholds is not None:
        assert scores.thresholds.shape == (len(photos),)
        assert np.isfinite(scores.thresholds).all()


def test_the_same_seed_gives_the_same_scores(
    name: str, scenario: Scenario, scores: Scores, photos: list[Photo]
) -> None:
    again = build(name)
    for lesson in lessons(scenario):
        again.learn(lesson)
    assert_same(again.score(photos), scores)


def test_scores_do_not_depend_on_company_or_order(taught: Method, scores: Scores, photos: list[Photo]) -> None:
    backwards = taught.score(photos[::-1])
    np.testing.assert_allclose(backwards.image[::-1], scores.image, rtol=1e-4, atol=1e-6)
    alone = taught.score(photos[2:3])
    np.testing.assert_allclose(alone.image, scores.image[2:3], rtol=1e-4, atol=1e-6)


def test_a_saved_method_comes_back_the_same(
    name: str, taught: Method, scores: Scores, photos: list[Photo], tmp_path: Path
) -> None:
    taught.save(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pkl", ".pt", ".pth")]
    loaded = build(name)
    loaded.load(tmp_path)
    assert_same(loaded.score(photos), scores)
    assert loaded.storage_bytes() == taught.storage_bytes()


def test_a_loaded_method_learns_on_like_one_that_never_stopped(
    name: str, begun: Method, scenario: Scenario, scores: Scores, photos: list[Photo], tmp_path: Path
) -> None:
    begun.save(tmp_path)
    resumed = build(name)
    resumed.load(tmp_path)
    resumed.learn(lessons(scenario)[1])
    assert_same(resumed.score(photos), scores)


def test_what_it_keeps_is_counted(name: str, begun: Method, taught: Method) -> None:
    assert build(name).storage_bytes() == 0
    assert 0 < begun.storage_bytes() <= taught.storage_bytes()


def test_it_says_what_it_is(taught: Method) -> None:
    parameters = taught.parameters()
    assert 0 <= parameters.trainable <= parameters.total
    info = taught.info()
    assert info["description"]
    assert info["weights_sha256"] == "" or len(info["weights_sha256"]) == 64  # empty: there are none


def test_constant_and_single_images_do_no_harm(name: str) -> None:
    method = build(name)
    flat = Lesson("flat", tuple(grey(100, f"grey-{n}") for n in range(3)))
    method.learn(flat)
    assert np.isfinite(method.score([grey(100, "grey-0"), grey(30, "other")]).image).all()


def test_tiny_settings_are_settings(name: str) -> None:
    choice = tiny(name)
    assert choice.config != choice.spec.variants[choice.variant] or not choice.spec.tiny
