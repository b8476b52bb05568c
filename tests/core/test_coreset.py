"""Greedy k-centre: what is kept is a subset, covers ever better, and does not depend on how it is computed."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from core_helpers import DTYPES, Backend, examples, naive_coreset, naive_radius, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core.coreset import coreset_size, covering_radius, greedy_coreset, greedy_coresets

Points = NDArray[np.floating]


@st.composite
def crowds(draw: st.DrawFn, *, most: int = 12) -> Points:
    """Points (L, D, C) with many duplicates."""
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, most), st.integers(1, 4)))
    return draw(whole_numbers(shape, draw(DTYPES)))


def picks_of(backend: Backend, points: Points, size: int, **options: int) -> NDArray[np.int64]:
    return backend.back(greedy_coreset(backend.array(points), size, **options))


def radii(backend: Backend, points: Points, picks_LM: NDArray[np.int64]) -> NDArray[np.floating]:
    centres = np.take_along_axis(points, picks_LM[:, :, None], axis=1)
    return backend.back(covering_radius(backend.array(points), backend.array(centres)))


@examples
@given(points=crowds(), data=st.data())
def test_every_pick_is_another_of_the_given_vectors(backend: Backend, points: Points, data: st.DataObject) -> None:
    locations, count, _ = points.shape
    size = data.draw(st.integers(1, count))
    picks = picks_of(backend, points, size, seed=data.draw(st.integers(0, 9)))
    assert picks.shape == (locations, size)
    assert picks.min() >= 0
    assert picks.max() < count
    assert all(len(set(row)) == size for row in picks.tolist())


@examples
@given(points=crowds(), data=st.data())
def test_all_forms_equal_the_definition(backend: Backend, points: Points, data: st.DataObject) -> None:
    locations, count, _ = points.shape
    first, size = data.draw(st.integers(0, count - 1)), data.draw(st.integers(1, count))
    expected = [naive_coreset(points[lane], first, size) for lane in range(locations)]
    one_gram = count * count * points.itemsize
    forms = {"rows as needed": one_gram - 1, "one Gram": one_gram, "two Grams": 2 * one_gram, "all": 2**20}
    for form, gram_bytes in forms.items():
        assert picks_of(backend, points, size, first=first, gram_bytes=gram_bytes).tolist() == expected, form


@pytest.mark.parametrize("gram_bytes", [1, 2**20])
def test_real_numbers_are_picked_as_defined(backend: Backend, gram_bytes: int) -> None:
    points = np.random.default_rng(3).normal(size=(6, 40, 16))
    picks = picks_of(backend, points, 15, seed=5, gram_bytes=gram_bytes)
    assert picks.tolist() == [naive_coreset(points[lane], int(picks[lane, 0]), 15) for lane in range(6)]


@examples
@given(points=crowds(), data=st.data())
def test_each_part_keeps_what_it_would_keep_alone(backend: Backend, points: Points, data: st.DataObject) -> None:
    _, count, _ = points.shape
    part = st.lists(st.integers(0, count - 1), min_size=1, unique=True).map(sorted).map(np.asarray)
    parts, size = data.draw(st.lists(part, min_size=1, max_size=4)), data.draw(st.integers(1, count))
    gram_bytes = data.draw(st.sampled_from([1, count * count * points.itemsize, 2**20]))
    found = greedy_coresets(backend.array(points), size, parts, seed=3, gram_bytes=gram_bytes)
    for part_D, picks in zip(parts, found, strict=True):
        alone = picks_of(backend, points[:, part_D], min(size, len(part_D)), seed=3)
        np.testing.assert_array_equal(backend.back(picks), part_D[alone])


@pytest.mark.parametrize("count", [1, 27, 60, 131])
def test_real_parts_are_picked_as_defined(backend: Backend, count: int) -> None:
    """Sizes beside those of the blocks that Gram matrices are computed in."""
    points = np.random.default_rng(count).normal(size=(4, count, 400)).astype(np.float32)
    parts = [np.arange(count), np.arange(0, count, 2), np.arange(count // 2, count)]
    for part, picks in zip(parts, greedy_coresets(backend.array(points), 9, parts, first=0), strict=True):
        expected = [naive_coreset(points[lane, part], 0, min(9, len(part))) for lane in range(4)]
        assert backend.back(picks).tolist() == [part[row].tolist() for row in expected]


@examples
@given(points=crowds(), data=st.data())
def test_fewer_picks_are_the_first_of_more(backend: Backend, points: Points, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, points.shape[1]))
    everything = picks_of(backend, points, points.shape[1], seed=4)
    np.testing.assert_array_equal(picks_of(backend, points, size, seed=4), everything[:, :size])


@examples
@given(points=crowds())
def test_further_picks_never_cover_worse_and_all_cover_everything(backend: Backend, points: Points) -> None:
    picks = picks_of(backend, points, points.shape[1], seed=1)
    course = np.stack([radii(backend, points, picks[:, : size + 1]) for size in range(points.shape[1])])
    assert np.all(np.diff(course, axis=0) <= 0)
    assert np.all(course[-1] == 0)


@examples
@given(points=crowds(most=7), data=st.data())
def test_no_other_choice_covers_twice_as_well(backend: Backend, points: Points, data: st.DataObject) -> None:
    """The guarantee of greedy k-centre, against the best of all subsets."""
    size = data.draw(st.integers(1, min(3, points.shape[1])))
    reached = radii(backend, points, picks_of(backend, points, size))
    for lane, each in enumerate(points):
        best = min(naive_radius(each, each[list(chosen)]) for chosen in combinations(range(len(each)), size))
        assert reached[lane] <= 2 * best * (1 + 1e-6)


@examples
@given(points=crowds(), data=st.data())
def test_covering_radius_equals_the_definition(backend: Backend, points: Points, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, points.shape[1]))
    expected = [naive_radius(each, each[:size]) for each in points]
    result = backend.back(covering_radius(backend.array(points), backend.array(points[:, :size])))
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_the_seed_alone_decides_where_each_location_starts(backend: Backend) -> None:
    points = np.random.default_rng(0).normal(size=(64, 30, 8))
    picks = picks_of(backend, points, 5, seed=7)
    np.testing.assert_array_equal(picks, picks_of(backend, points, 5, seed=7))
    assert len(set(picks[:, 0].tolist())) > 10
    assert np.any(picks[:, 0] != picks_of(backend, points, 5, seed=8)[:, 0])
    np.testing.assert_array_equal(picks[:, 0], picks_of(Backend("numpy"), points, 5, seed=7)[:, 0])


def test_a_part_of_nothing_is_refused(backend: Backend) -> None:
    with pytest.raises(ValueError, match="at least one vector"):
        greedy_coresets(backend.array(np.zeros((2, 4, 3))), 2, [np.arange(0)])


@pytest.mark.parametrize("size", [0, 5])
def test_a_size_that_cannot_be_picked_is_refused(backend: Backend, size: int) -> None:
    with pytest.raises(ValueError, match=rf"coreset of {size} .* 4 vectors"):
        greedy_coreset(backend.array(np.zeros((2, 4, 3))), size)


@examples
@given(count=st.integers(1, 5000), percent=st.integers(1, 100), minimum=st.integers(1, 50))
def test_the_size_is_the_floor_of_the_share_within_its_bounds(count: int, percent: int, minimum: int) -> None:
    assert coreset_size(count, percent / 100, minimum) == min(count, max(minimum, percent * count // 100))
