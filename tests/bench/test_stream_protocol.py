"""A stream without boundaries: how it is made, and what is measured of what goes through it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from detector_helpers import TINY_FAST, product, spoil
from dinosaur_ad import InputError
from dinosaur_ad.bench.cached_encoder import CachedEncoder
from dinosaur_ad.bench.hidden_stream import STREAMS, HiddenStream, StreamPlan, make_hidden_stream
from dinosaur_ad.bench.scenarios import list_scenarios, open_scenario
from dinosaur_ad.bench.stream_learners import (
    ENOUGH,
    FlatLearner,
    FoundProduct,
    MethodLearner,
    StreamAnswer,
    ToldLearner,
    WatchLearner,
)
from dinosaur_ad.bench.stream_protocol import _rates, run_stream, stream_table
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.encoders import Encoder, load_encoder
from dinosaur_ad.methods import Photo, Workbench, get_method


@dataclass(frozen=True)
class DrawnPart:
    """A picture of a made-up product, good or with a defect."""

    kind_number: int
    number: int
    label: int = 0

    @property
    def name(self) -> str:
        return f"{self.kind_number}-{self.number}-{self.label}"

    @property
    def kind(self) -> str:
        return "spot" if self.label else "good"

    def image(self) -> NDArray[np.uint8]:
        (image,) = product(self.kind_number, 1, seed=self.number)
        return spoil(image) if self.label else image

    def mask(self) -> None:
        return None

    def valid(self) -> None:
        return None

    def regions(self) -> None:
        return None

    def key(self) -> str:
        return self.name


def plates(train: int = 60) -> Scenario:
    tasks = []
    for kind in range(2):
        test = (*(DrawnPart(kind, 500 + n) for n in range(8)), *(DrawnPart(kind, 600 + n, 1) for n in range(14)))
        tasks.append(Task(f"plate-{kind}", tuple(DrawnPart(kind, n) for n in range(train)), test=test))
    return Scenario("plates", tuple(tasks))


def numbers_of(stream: HiddenStream) -> list[tuple[str, int]]:
    return [(each.product, each.label) for each in stream.pictures]


def before_learning(stream: HiddenStream) -> int:
    """Pictures up to the 20th normal one of their product: a learner that is told learns from these first."""
    normals: Counter[str] = Counter()
    early = 0
    for product_name, label in numbers_of(stream):
        early += normals[product_name] < ENOUGH
        normals[product_name] += not label
    return early


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder("tiny-dinov2", layers=TINY_FAST.layers, size=TINY_FAST.size)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.05, 0.10])
def test_products_return_and_the_share_of_defects_is_as_asked(share: float) -> None:
    stream = make_hidden_stream(plates(), StreamPlan(segment=30, turns=2, defects=share))
    products = [each.product for each in stream.pictures]
    segments = 1 + sum(one != other for one, other in pairwise(products))
    assert segments in (3, 4)  # the second turn may begin with the product that ended the first
    assert sum(each.label for each in stream.pictures) / len(products) == pytest.approx(share, abs=0.02)
    keys = [each.photo.key for each in stream.pictures]
    assert len(set(keys)) == len(keys)
    tests = {sample.key() for samples in stream.tests.values() for sample in samples}
    assert not tests & set(keys)


def test_the_images_of_the_end_are_the_same_however_many_defects_were_in_the_stream() -> None:
    streams = [make_hidden_stream(plates(), StreamPlan(segment=30, defects=share)) for share in (0.0, 0.05, 0.10)]
    ends = [{name: [each.key() for each in tests] for name, tests in stream.tests.items()} for stream in streams]
    assert ends[0] == ends[1] == ends[2]
    shown = [{each.photo.key for each in stream.pictures if each.label} for stream in streams]
    assert shown[0] < shown[1] < shown[2]


def test_the_images_of_the_end_can_be_limited() -> None:
    stream = make_hidden_stream(plates(), StreamPlan(segment=30, tests=3))
    assert [sorted(sample.label for sample in tests) for tests in stream.tests.values()] == [[0, 0, 0, 1, 1, 1]] * 2


def test_the_same_plan_gives_the_same_stream_and_another_seed_another() -> None:
    one, same, other = (
        [each.photo.key for each in make_hidden_stream(plates(), StreamPlan(segment=10, seed=seed)).pictures]
        for seed in (1, 1, 2)
    )
    assert one == same != other


def test_the_light_fades_evenly_and_keys_tell_the_pixels_apart() -> None:
    stream = make_hidden_stream(plates(), StreamPlan(segment=10, turns=1, defects=0, light=0.5))
    still = make_hidden_stream(plates(), StreamPlan(segment=10, turns=1, defects=0))
    levels = [
        float(a.photo.pixels().mean() / b.photo.pixels().mean())
        for a, b in zip(stream.pictures, still.pictures, strict=True)
    ]
    assert levels == pytest.approx(np.linspace(1, 0.5, 20).tolist(), abs=0.02)
    assert stream.pictures[5].photo.key != still.pictures[5].photo.key


def test_tasks_of_one_drifting_product_come_in_their_order() -> None:
    stream = make_hidden_stream(open_scenario("synthetic-color"), StreamPlan(segment=3, turns=1, shuffled=False))
    assert len({each.product for each in stream.pictures}) == 1


def test_every_protocol_has_its_scenario() -> None:
    assert {scenario for scenario, _ in STREAMS.values()} <= set(list_scenarios())


@pytest.mark.parametrize("wrong", [{"segment": 0}, {"defects": 0.9}, {"light": 0.0}, {"tests": 0}])
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"stream|test image"):
        StreamPlan(**wrong)  # type: ignore[arg-type]


class ScriptedLearner:
    """Says what a test tells it to."""

    def __init__(self, answers: Sequence[StreamAnswer], found: Sequence[FoundProduct]) -> None:
        self._answers, self.found = answers, list(found)

    def follow(self, photos: Iterable[Photo]) -> Iterator[StreamAnswer]:
        yield from (answer for _, answer in zip(photos, self._answers, strict=True))

    def judge(self, photos: Sequence[Photo]) -> list[StreamAnswer]:
        return [StreamAnswer(2.0 * photo.key.endswith("-1"), photo.key.endswith("-1")) for photo in photos]

    def storage_bytes(self) -> int:
        return 2**20


def test_measures_are_as_defined() -> None:
    stream = make_hidden_stream(plates(), StreamPlan(segment=10, turns=1, defects=0.17))
    truth = numbers_of(stream)
    first = truth[0][0]
    answers = [
        StreamAnswer() if product == first else StreamAnswer(2.0 * label, label == 1) for product, label in truth
    ]
    mixed = [*[n for n, (product, _) in enumerate(truth) if product == first][:3], len(truth) - 1]
    found = [FoundProduct(4, tuple(mixed)), FoundProduct(6, tuple(mixed[:3]))]
    result = run_stream("scripted", stream, ScriptedLearner(answers, found))
    assert (result.judged, result.auroc, result.false_alarms, result.recall) == (12, 1.0, 0.0, 1.0)
    assert [(each.product == first, each.noticed, each.proposals) for each in result.products] == sorted(
        [(True, 5, 2), (False, None, 0)], key=lambda each: each[0] != (result.products[0].product == first)
    )
    assert (result.purity, result.surplus) == (pytest.approx((0.75 + 1) / 2), 1)
    assert result.final == {"plate-0": 1.0, "plate-1": 1.0}
    assert (result.final_false_alarms, result.final_recall) == (0.0, 1.0)
    assert result.curve[-1].pictures == len(truth)
    row = stream_table([result])[-1]
    assert "| never | 1 | 0.875 | 1.000 | 100.0 % | 0.0 % | 0.0 % | 1.0 MiB |" in row
    assert result.to_json()["final_mean"] == 1.0


def test_the_watch_finds_both_products_and_ends_as_good_as_when_told(tmp_path: Path, encoder: Encoder) -> None:
    stream = make_hidden_stream(plates(), StreamPlan(segment=26, turns=2, defects=0.04))
    watch = run_stream("watch", stream, WatchLearner(tmp_path, encoder, TINY_FAST))
    assert [(each.noticed or 99) <= 30 for each in watch.products] == [True, True]
    assert (watch.surplus, watch.purity) == (0, 1.0)
    told = run_stream("told", stream, ToldLearner(encoder, TINY_FAST, numbers_of(stream)))
    assert told.judged == len(stream.pictures) - before_learning(stream)
    assert watch.final_mean is not None
    assert told.final_mean is not None
    assert watch.final_mean >= told.final_mean - 0.02
    assert watch.false_alarms is not None
    assert watch.false_alarms <= 0.2


def test_a_method_that_is_told_nothing_learns_in_lessons(encoder: Encoder) -> None:
    stream = make_hidden_stream(plates(), StreamPlan(segment=22, turns=1, defects=0.05))
    method = get_method("dinosaur:fast").with_settings({"encoder": "tiny-dinov2", "layers": (0, 1), "size": 70})
    result = run_stream("blind", stream, MethodLearner(method.build(Workbench())))
    assert result.judged == len(stream.pictures) - 20
    assert (result.products, result.surplus) == ([], None)
    assert result.curve[-1].storage_bytes > 0


def test_a_flat_memory_has_the_same_size_at_any_time(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dinosaur_ad.bench.stream_protocol.AT_ONCE", 20)
    stream = make_hidden_stream(plates(), StreamPlan(segment=45, turns=1, defects=0.05))
    result = run_stream("flat", stream, FlatLearner(encoder, TINY_FAST, members=10))
    assert len({each.storage_bytes for each in result.curve}) == 1
    assert result.judged > 0
    assert result.final_mean is not None


def test_a_learner_that_is_told_keeps_a_task_for_each_level_of_a_drift(encoder: Encoder) -> None:
    scenario = plates()
    one = Scenario("one", tuple(replace(task, product="plate") for task in scenario.tasks))
    stream = make_hidden_stream(one, StreamPlan(segment=22, turns=1, defects=0, shuffled=False))
    learner = ToldLearner(encoder, TINY_FAST, [(each.task, each.label) for each in stream.pictures])
    before = [learner.storage_bytes() for _ in learner.follow(each.photo for each in stream.pictures)]
    assert len({each.product for each in stream.pictures}) == 1
    assert before[-1] == pytest.approx(2 * before[30], rel=0.1)


def test_pictures_are_encoded_once_for_all_learners(encoder: Encoder, tmp_path: Path) -> None:
    cached = CachedEncoder(encoder, tmp_path / "cache")
    stream = make_hidden_stream(plates(), StreamPlan(segment=21, turns=1, defects=0, tests=2))
    first = run_stream("flat", stream, FlatLearner(cached, TINY_FAST, members=10))
    count = cached.encoded
    assert count == len(stream.pictures) + 8
    again = run_stream("flat", stream, FlatLearner(cached, TINY_FAST, members=10))
    plain = run_stream("flat", stream, FlatLearner(encoder, TINY_FAST, members=10))
    assert cached.encoded == count
    assert first.final == again.final == plain.final


def test_a_product_that_is_not_ready_gives_no_false_alarms_and_finds_nothing() -> None:
    said = [StreamAnswer(0.5, False), StreamAnswer(2.0, True, ready=False), StreamAnswer(3.0, True), StreamAnswer()]
    assert _rates(said, np.asarray([0, 0, 1, 1])) == (2, 1.0, 0.0, 1.0)


def test_apart_no_image_comes_twice_in_another_condition() -> None:
    """Of a drift, every task has the same images; a part that the watch learned in another light scores too low."""
    levels = tuple(replace(plates().tasks[0], name=f"level-{n}", product="plate") for n in range(2))
    drift = replace(plates(), tasks=levels, same_images=True)
    for share in (0.0, 0.1):
        stream = make_hidden_stream(drift, StreamPlan(segment=30, turns=1, defects=share, shuffled=False, apart=True))
        keys = [each.photo.key for each in stream.pictures]
        assert len(set(keys)) == len(keys)
        assert not {sample.key() for samples in stream.tests.values() for sample in samples} & set(keys)
    returning = make_hidden_stream(drift, StreamPlan(segment=40, turns=1, defects=0.0, shuffled=False))
    assert len({each.photo.key for each in returning.pictures}) < len(returning.pictures)
    with pytest.raises(InputError, match="needs 80 normal images, but there are 60"):
        make_hidden_stream(drift, StreamPlan(segment=40, turns=1, apart=True))
