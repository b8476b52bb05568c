"""A method of the benchmark inside pyCLAD: with the real library where it is installed, else with its abstract classes.

The stand-in has the abstract methods of pyCLAD 0.3.0 and the loops of its two scenarios, and nothing else.
"""

from __future__ import annotations

import abc
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Scores, Workbench, get_method, pyclad_model, pyclad_strategy
from dinosaur_ad.methods.shared import pyclad_bridge


class InfoProvider(abc.ABC):
    @abc.abstractmethod
    def info(self) -> dict[str, Any]: ...


class Model(InfoProvider):
    @abc.abstractmethod
    def fit(self, data: Any) -> None: ...

    @abc.abstractmethod
    def predict(self, data: Any) -> Any: ...

    @abc.abstractmethod
    def name(self) -> str: ...

    def info(self) -> dict[str, Any]:
        return {"model": {"name": self.name(), **self.additional_info()}}

    def additional_info(self) -> dict[str, Any]:
        return {}


class Strategy(InfoProvider):
    @abc.abstractmethod
    def name(self) -> str: ...

    def additional_info(self) -> dict[str, Any]:
        return {}

    def info(self) -> dict[str, Any]:
        return {"strategy": {"name": self.name(), **self.additional_info()}}


class ConceptAwareStrategy(Strategy):
    @abc.abstractmethod
    def learn(self, data: Any, concept_id: str) -> None: ...

    @abc.abstractmethod
    def predict(self, data: Any, concept_id: str) -> Any: ...


class ConceptIncrementalStrategy(Strategy):
    @abc.abstractmethod
    def learn(self, data: Any) -> None: ...

    @abc.abstractmethod
    def predict(self, data: Any) -> Any: ...


@pytest.fixture
def pyclad(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The three classes, from the library or from above."""
    if importlib.util.find_spec("pyclad") is None:
        names = {"models.model": (Model,), "strategies.strategy": (ConceptAwareStrategy, ConceptIncrementalStrategy)}
        for name in ("pyclad", "pyclad.models", "pyclad.strategies"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        for name, kinds in names.items():
            module = ModuleType(f"pyclad.{name}")
            for kind in kinds:
                setattr(module, kind.__name__, kind)
            monkeypatch.setitem(sys.modules, f"pyclad.{name}", module)
    model = importlib.import_module("pyclad.models.model")
    strategy = importlib.import_module("pyclad.strategies.strategy")
    return SimpleNamespace(
        Model=model.Model, Aware=strategy.ConceptAwareStrategy, Incremental=strategy.ConceptIncrementalStrategy
    )


def images(level: int, count: int, seed: int = 0) -> Any:
    """Nearly even images of one brightness."""
    return np.random.default_rng(seed).integers(level - 3, level + 3, (count, 24, 30, 3)).astype(np.uint8)


DARK, LIGHT = images(60, 12), images(180, 12)


def test_a_model_learns_with_every_fit_and_forgets_nothing(pyclad: SimpleNamespace) -> None:
    model = pyclad_model(get_method("photometer"))
    assert isinstance(model, pyclad.Model)
    model.fit(DARK)
    model.fit(LIGHT)
    labels, scores = model.predict(np.concatenate([images(60, 3, 1), images(180, 3, 1), images(120, 3, 1)]))
    assert labels.shape == scores.shape == (9,)
    assert labels[6:].tolist() == [1, 1, 1]
    assert scores[6:].min() > scores[:6].max()
    info = model.info()["model"]  # type: ignore[attr-defined]
    assert info["name"] == "photometer"
    assert info["settings"] == {"signed": False, "least_spread": 0.5}
    assert info["description"]


def test_a_strategy_is_told_the_concept_where_it_is_named_and_known(pyclad: SimpleNamespace) -> None:
    strategy = pyclad_strategy(get_method("photometer"))
    assert isinstance(strategy, (pyclad.Aware,))
    assert isinstance(strategy, (pyclad.Incremental,))
    strategy.learn(data=DARK, concept_id="dark")
    strategy.learn(data=LIGHT, concept_id="light")
    unnamed, told = strategy.predict(data=LIGHT)[1], strategy.predict(data=LIGHT, concept_id="dark")[1]
    assert told.min() > unnamed.max()  # light images are anomalous where dark ones are expected
    np.testing.assert_array_equal(strategy.predict(data=LIGHT, concept_id="not learned yet")[1], unnamed)
    assert strategy.info()["strategy"]["name"] == "photometer"  # type: ignore[attr-defined]


def test_it_scores_as_the_benchmark_does(pyclad: SimpleNamespace) -> None:
    choice = get_method("dinosaur").tiny()
    strategy = pyclad_strategy(choice, Workbench(seed=2))
    strategy.learn(DARK, "dark")
    method = choice.build(Workbench(seed=2))
    method.learn(pyclad_bridge.Lesson("dark", pyclad_bridge._photos(DARK)))
    expected = method.score(pyclad_bridge._photos(LIGHT))
    labels, scores = strategy.predict(LIGHT)
    np.testing.assert_array_equal(scores, expected.image)
    assert expected.thresholds is not None
    np.testing.assert_array_equal(labels, expected.image > expected.thresholds)


def test_a_score_that_is_no_number_is_an_alarm(pyclad: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    model = pyclad_model(get_method("photometer"))
    model.fit(DARK)
    for thresholds, label in ((np.ones(1, np.float32), [1]), (None, None)):
        scores = Scores(np.full(1, np.nan, np.float32), thresholds=thresholds)
        monkeypatch.setattr(model._method, "score", lambda photos, task, scores=scores: scores)
        if label is None:
            with pytest.raises(InputError, match="photometer sets no threshold"):
                model.predict(DARK[:1])
        else:
            assert model.predict(DARK[:1])[0].tolist() == label


@pytest.mark.parametrize("data", [DARK[..., 0], DARK.astype(np.float32), DARK[0], np.zeros((4, 7))])
def test_what_is_no_image_is_refused(data: Any, pyclad: SimpleNamespace) -> None:
    with pytest.raises(InputError, match=r"must hold images, \(N, H, W, 3\) uint8"):
        pyclad_model(get_method("photometer")).fit(data)


def test_a_concept_is_learned_once(pyclad: SimpleNamespace) -> None:
    strategy = pyclad_strategy(get_method("photometer"))
    strategy.learn(DARK, "dark")
    with pytest.raises(InputError, match="'dark' was learned already"):
        strategy.learn(DARK, "dark")


def test_without_pyclad_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyclad", "pyclad.models", "pyclad.models.model"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"needs pyCLAD .*pip install pyclad"):
        pyclad_model(get_method("photometer"))


def test_the_scenarios_of_pyclad_run_it(pyclad: SimpleNamespace) -> None:
    """The loop of the real library, with its own dataset and metric."""
    pytest.importorskip("pyclad.scenarios.concept_aware", reason="pyCLAD is not installed")
    aware = importlib.import_module("pyclad.scenarios.concept_aware").ConceptAwareScenario
    incremental = importlib.import_module("pyclad.scenarios.concept_incremental").ConceptIncrementalScenario
    dataset = importlib.import_module("pyclad.data.datasets.concepts_dataset").ConceptsDataset
    concept = importlib.import_module("pyclad.data.concept").Concept
    callback = importlib.import_module("pyclad.callbacks.callback").Callback
    naive = importlib.import_module("pyclad.strategies.baselines.naive").NaiveStrategy
    seen: list[tuple[str, bool]] = []

    class Watch(callback):  # type: ignore[misc, valid-type]
        def after_evaluation(self, evaluated_concept: Any, y_true: Any, y_pred: Any, anomaly_scores: Any) -> None:
            normal, strange = anomaly_scores[y_true == 0], anomaly_scores[y_true == 1]
            seen.append((evaluated_concept.name, bool(strange.min() > normal.max())))

    labels = np.repeat([0, 1], [4, 4])
    tests = [
        concept(name, np.concatenate([images(level, 4, 1), images(120, 4, 1)]), labels)
        for name, level in (("dark", 60), ("light", 180))
    ]
    train = [concept("dark", DARK), concept("light", LIGHT)]
    data = dataset("levels", train_concepts=train, test_concepts=tests)
    for scenario, strategy in (
        (aware, pyclad_strategy(get_method("photometer"))),
        (incremental, pyclad_strategy(get_method("photometer"))),
        (incremental, naive(pyclad_model(get_method("photometer")))),
    ):
        seen.clear()
        scenario(data, strategy, [Watch()]).run()
        assert [name for name, _ in seen] == ["dark", "light"] * 2
        assert seen[2:] == [("dark", True), ("light", True)]
