"""Detectors with fit and decision_function as methods: both signs, routing by the nearest prototype, no pickle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from method_helpers import images_to_test, lessons
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.datasets.tasks import Scenario
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Method, Photo, Workbench, get_method, list_methods, register_detector, unregister
from dinosaur_ad.methods.shared.feature_detector import FeatureDetector, describe_detector


class Distance:
    """A detector as PyOD's are: the distance to the mean of the normals, higher for more anomalous."""

    def __init__(self, power: float = 1.0) -> None:
        self.power = power

    def get_params(self) -> dict[str, Any]:
        return {"power": self.power}

    def fit(self, X: Any, y: Any = None) -> Distance:
        self.mean = X.mean(axis=0)
        return self

    def decision_function(self, X: Any) -> Any:
        return np.linalg.norm(X - self.mean, axis=1) ** self.power


class Likeness(Distance):
    """The same as scikit-learn's: higher for more normal."""

    def decision_function(self, X: Any) -> Any:
        return -super().decision_function(X)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    before = set(list_methods())
    yield
    for name in set(list_methods()) - before:
        unregister(name)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return open_scenario("synthetic-tiny", seed=3)


@pytest.fixture(scope="module")
def photos(scenario: Scenario) -> list[Photo]:
    return images_to_test(scenario)


def taught(name: str, scenario: Scenario, seed: int = 0) -> Method:
    method = get_method(name).tiny().build(Workbench(seed=seed))
    for lesson in lessons(scenario):
        method.learn(lesson)
    return method


def test_both_signs_end_in_the_same_scores(scenario: Scenario, photos: list[Photo]) -> None:
    register_detector("up", lambda seed: Distance(), higher="anomalous")
    register_detector("down", lambda seed: Likeness(), higher="normal")
    up, down = (taught(name, scenario).score(photos) for name in ("up", "down"))
    np.testing.assert_array_equal(up.image, down.image)
    assert (up.image >= 0).all()
    assert up.routes == down.routes


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: IsolationForest(n_estimators=20, random_state=seed),
        lambda seed: LocalOutlierFactor(n_neighbors=3, novelty=True),
        lambda seed: OneClassSVM(),
    ],
)
def test_detectors_of_scikit_learn_call_noise_more_anomalous_than_normals(make: Any, scenario: Scenario) -> None:
    register_detector("sk", make, higher="normal")
    method, rng = taught("sk", scenario), np.random.default_rng(0)
    normals = [photo for lesson in lessons(scenario) for photo in lesson.train]
    noise = [Photo(f"noise {n}", lambda pixels=pixels: pixels) for n, pixels in  # type: ignore[misc]
             enumerate(rng.integers(0, 256, (8, 80, 80, 3), np.uint8))]  # fmt: skip
    scores = method.score([*normals, *noise]).image
    assert np.median(scores[len(normals) :]) > np.median(scores[: len(normals)])


def test_an_image_goes_to_the_nearest_prototype_and_is_scored_there(scenario: Scenario, photos: list[Photo]) -> None:
    register_detector("mine", lambda seed: Distance(), higher="anomalous")
    method = taught("mine", scenario)
    assert isinstance(method, FeatureDetector)
    means = {lesson.task: method._describe(lesson.train).mean(axis=0) for lesson in lessons(scenario)}
    scores = method.score(photos)
    assert scores.routes is not None
    assert len(set(scores.routes)) == 2
    for photo, route, score in zip(photos, scores.routes, scores.image, strict=True):
        away = {task: np.linalg.norm(method._describe([photo])[0] - mean) for task, mean in means.items()}
        assert route == min(away, key=lambda task: away[task])
        assert score == pytest.approx(away[route], rel=1e-4)


def test_a_saved_forest_is_fitted_again_to_the_same_trees(
    scenario: Scenario, photos: list[Photo], tmp_path: Path
) -> None:
    register_detector("forest", lambda seed: IsolationForest(random_state=seed), higher="normal")
    method = taught("forest", scenario, seed=5)
    method.save(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    again = get_method("forest").tiny().build(Workbench(seed=5))
    again.load(tmp_path)
    np.testing.assert_array_equal(again.score(photos).image, method.score(photos).image)
    with pytest.raises(InputError, match="was made with"):
        get_method("forest").tiny().build(Workbench(seed=6)).load(tmp_path)


def test_a_sign_that_is_known_to_be_wrong_is_refused() -> None:
    with pytest.raises(InputError, match=r"IsolationForest cannot mean 'anomalous'; say higher='normal'\."):
        register_detector("x", lambda seed: IsolationForest(), higher="anomalous")
    ecod = type("ECOD", (Distance,), {"__module__": "pyod.models.ecod"})
    with pytest.raises(InputError, match=r"ECOD cannot mean 'normal'; say higher='anomalous'\."):
        register_detector("x", lambda seed: ecod(), higher="normal")
    with pytest.raises(InputError, match=r"Distance cannot mean 'more'; say higher='anomalous' or normal\."):
        register_detector("x", lambda seed: Distance(), higher="more")  # type: ignore[arg-type]
    assert "x" not in list_methods()


def test_what_is_no_detector_is_refused() -> None:
    with pytest.raises(InputError, match=r"LocalOutlierFactor has no decision_function\(X\).*novelty=True"):
        register_detector("x", lambda seed: LocalOutlierFactor(), higher="normal")


def test_values_of_the_wrong_shape_are_refused(scenario: Scenario) -> None:
    wide = type("Wide", (Distance,), {"decision_function": lambda self, X: np.zeros((len(X), 2))})
    register_detector("wide", lambda seed: wide(), higher="anomalous")
    with pytest.raises(InputError, match=r"wide gave values of shape \(8, 2\) for 8 images"):
        taught("wide", scenario)


def test_settings_of_the_detector_are_part_of_the_result() -> None:
    register_detector("mine", lambda seed: Distance(2.0), higher="anomalous")
    choice = get_method("mine").tiny()
    assert choice.config.identity()["detector"] == "Distance(power=2.0)"
    assert choice.build(Workbench()).info()["higher_is"] == "anomalous"
    with pytest.raises(InputError, match="change that where it is registered"):
        choice.with_settings({"detector": "LOF()"}).build(Workbench())


def test_a_description_names_neither_seed_nor_address() -> None:
    assert describe_detector(IsolationForest(random_state=3)) == describe_detector(IsolationForest(random_state=4))
    assert describe_detector(Distance(lambda: 0)) == describe_detector(Distance(lambda: 0))  # type: ignore[arg-type]
    assert describe_detector(object()) == "object()"
