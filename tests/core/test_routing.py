"""Which tasks are asked about an image."""

from __future__ import annotations

import numpy as np
import pytest
from core_helpers import Backend, examples, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core import routing
from dinosaur_ad.core.routing import prototype_distances, shortlist, undecided

Floats = NDArray[np.float64]
INFINITE = float("inf")


@st.composite
def distance_tables(draw: st.DrawFn) -> Floats:
    """Distances (N, T) with many ties and zeros."""
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 8)))
    return np.abs(draw(whole_numbers(shape, np.float64)))


@examples
@given(data=st.data())
def test_prototype_distances_equal_the_definition(backend: Backend, data: st.DataObject) -> None:
    images, tasks, channels = (data.draw(st.integers(1, most)) for most in (4, 5, 6))
    descriptor = data.draw(whole_numbers((images, channels), np.float32))
    prototype = data.draw(whole_numbers((tasks, channels), np.float32))
    result = backend.back(prototype_distances(backend.array(descriptor), backend.array(prototype)))
    expected = [[np.linalg.norm(d.astype(float) - p.astype(float)) for p in prototype] for d in descriptor]
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_close_prototypes_are_told_apart(backend: Backend) -> None:
    """A thousandth of a unit between long descriptors must survive float32."""
    prototype = np.full((3, 384), 50.0, np.float32)
    prototype[:, 0] += np.asarray([0.0, 0.001, 0.002], np.float32)
    result = backend.back(prototype_distances(backend.array(prototype), backend.array(prototype)))
    assert result.argmin(axis=1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("at_once", [1, 100, 10**9])
def test_many_prototypes_are_compared_a_few_at_a_time(
    backend: Backend, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    descriptor, prototype = (random.normal(size=(count, 16)).astype(np.float32) for count in (3, 50))
    monkeypatch.setattr(routing, "AT_ONCE", at_once)
    result = backend.back(prototype_distances(backend.array(descriptor), backend.array(prototype)))
    np.testing.assert_allclose(result, np.linalg.norm(descriptor[:, None] - prototype, axis=2), rtol=1e-6)


NAN = float("nan")


@pytest.mark.parametrize(
    ("scores", "exact", "expected"),
    [
        ({"a": 1.0, "b": 1.2}, {"a"}, []),  # b has lost
        ({"a": 1.0, "b": 1.04}, {"a"}, ["b"]),
        ({"a": 1.0, "b": 1.04}, {"a", "b"}, []),
        ({"a": 1.5, "b": 1.0}, {"a"}, ["b"]),  # the lowest score must be b's own
        ({"a": 1.3, "b": 1.35, "c": 5.0}, {"a"}, ["b"]),
        ({"a": 1.3, "b": 1.4, "c": 5.0}, {"a"}, ["b", "c"]),  # an alarm
        ({"a": 1.3, "b": 1.4, "c": 5.0}, {"a", "b", "c"}, []),
        ({"a": 1.0, "b": NAN}, {"a"}, ["b"]),  # what is no number has not lost
        ({"a": NAN, "b": 1.0}, {"b"}, ["a"]),
        ({"a": NAN, "b": NAN}, {"a"}, ["b"]),
        ({}, set(), []),
    ],
)
def test_a_rough_score_decides_only_that_a_task_has_lost_to_a_normal_part(
    scores: dict[str, float], exact: set[str], expected: list[str]
) -> None:
    assert undecided(scores, exact, dict.fromkeys("abc", 1.2)) == expected


@examples
@given(distance=distance_tables(), margin=st.sampled_from([1.0, 1.5, INFINITE]))
def test_one_task_is_the_nearest_and_the_older_one_in_a_tie(distance: Floats, margin: float) -> None:
    assert shortlist(distance, 1, margin) == [[int(np.argmin(row))] for row in distance]


@examples
@given(distance=distance_tables(), limit=st.integers(1, 9), margin=st.sampled_from([1.0, 1.5, 3.0, INFINITE]))
def test_exactly_the_nearest_within_limit_and_margin_are_asked(distance: Floats, limit: int, margin: float) -> None:
    for row, chosen in zip(distance, shortlist(distance, limit, margin), strict=True):
        nearest = min(row)
        within = [t for t in range(len(row)) if margin == INFINITE or row[t] <= margin * nearest]
        assert chosen == sorted(within, key=lambda t: (row[t], t))[:limit]


@examples
@given(distance=distance_tables())
def test_an_infinite_margin_asks_every_bank(distance: Floats) -> None:
    """Even of an image that lies on a prototype, where no multiple of the distance reaches any other."""
    assert [sorted(chosen) for chosen in shortlist(distance, distance.shape[1])] == [
        list(range(distance.shape[1]))
    ] * len(distance)


@pytest.mark.parametrize("scale", [0.1, 1000.0])
def test_the_margin_is_relative(scale: float) -> None:
    distance = np.asarray([[2.0, 2.9, 3.1]])
    assert shortlist(scale * distance, limit=3, margin=1.5) == [[0, 1]]
