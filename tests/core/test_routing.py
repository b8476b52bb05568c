"""Which tasks are asked about an image."""

from __future__ import annotations

import numpy as np
import pytest
from core_helpers import Backend, examples, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core.routing import prototype_distances, shortlist

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
