"""UCAD's memories: the vectors that are kept, routing by keys, scores by knowledge."""

from __future__ import annotations

import math

import numpy as np
import pytest
from method_helpers import random
from ucad_helpers import LESSONS, TESTS, taught, tiny, torch

from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.ucad.key_memory import farthest_points, route


def test_farthest_points_are_the_literal_ones() -> None:
    points = np.random.default_rng(0).normal(size=(40, 4))
    picked = [7]
    while len(picked) < 12:
        gaps = [min(float(np.linalg.norm(point - points[other])) for other in picked) for point in points]
        picked.append(int(np.argmax(gaps)))
    found = farthest_points(torch.from_numpy(points), 12, first=7)
    np.testing.assert_allclose(found.numpy(), points[picked])


def test_all_points_are_kept_when_there_are_fewer() -> None:
    points = random(5, 3)
    assert sorted(farthest_points(points, 196, first=2)[:, 0].tolist()) == sorted(points[:, 0].tolist())


def test_routing_is_the_literal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    features, keys = random(6, 7, 4), [random(count, 4, seed=count) for count in (3, 5, 9)]
    expected = [
        int(np.argmin([sum(min(np.linalg.norm(p - k) for k in task.numpy()) for p in image) for task in keys]))
        for image in features.numpy()
    ]
    assert route(features, keys).tolist() == expected
    monkeypatch.setattr("dinosaur_ad.methods.ucad.key_memory.BLOCK_BYTES", 1)  # one image at a time
    assert route(features, keys).tolist() == expected
    assert len(set(expected)) > 1


def test_an_image_is_scored_by_the_memory_it_is_sent_to() -> None:
    method = taught()
    scores = method.score(TESTS)
    assert scores.routes is not None
    for index in (0, len(TESTS) - 1):
        told = method.score([TESTS[index]], task=scores.routes[index])
        assert told.image[0] == pytest.approx(scores.image[index], rel=1e-4)


def test_the_score_is_the_largest_reweighted_distance_to_the_knowledge() -> None:
    method = taught()
    memory = method._tasks[0]
    bank = memory.knowledge.bank_MC.double().numpy()
    with torch.no_grad():
        points = method._features(method._images(TESTS[:1]), memory.prompt)[0].double().numpy()
    found = []
    for point in points:
        gaps = [float(np.linalg.norm(point - m)) for m in bank]
        star = int(np.argmin(gaps))
        around = sorted(range(len(bank)), key=lambda m: float(np.linalg.norm(bank[m] - bank[star])))[:5]
        found.append((1 - math.exp(gaps[star]) / sum(math.exp(gaps[m]) for m in around)) * gaps[star])
    assert method.score(TESTS[:1], task="fabric").image[0] == pytest.approx(max(found), rel=1e-3)


def test_earlier_tasks_are_untouched_by_later_ones() -> None:
    one = tiny()
    one.learn(LESSONS[0])
    before = one.score(TESTS, task="fabric")
    one.learn(LESSONS[1])
    np.testing.assert_array_equal(one.score(TESTS, task="fabric").image, before.image)


def test_an_unknown_task_and_a_task_twice_are_refused() -> None:
    method = tiny()
    method.learn(LESSONS[0])
    with pytest.raises(InputError, match="choose from: fabric"):
        method.score(TESTS, task="gear")
    with pytest.raises(InputError, match="already"):
        method.learn(LESSONS[0])
