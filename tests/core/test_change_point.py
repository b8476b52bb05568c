"""Sums that notice a change: the definition, the bound on false warnings, and how soon a change is seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
from core_helpers import examples
from hypothesis import given
from hypothesis import strategies as st

from dinosaur_ad.core.change_point import (
    WORST_OF,
    ChangeSums,
    begin_sums,
    count_part,
    first_values,
    gap_of,
    mean_evidence,
)
from dinosaur_ad.core.drift import KEPT
from dinosaur_ad.errors import InputError


def brute_force(gaps: list[int], size: int, tolerance: float) -> float:
    """A bet of one unit begun with every part, each rank integrated by brute force; the mean over the bets."""
    total = 0.0
    for worst_of in WORST_OF:
        paid = []
        for t, gap in enumerate(gaps):
            urn = [1 + gaps[:t].count(j) for j in range(size)]
            low, high = (sum(urn[: gap + more]) / sum(urn) for more in (0, 1))
            u = low + (np.arange(4000) + 0.5) / 4000 * (high - low)
            density = worst_of * (1 - u) ** (worst_of - 1)
            paid.append((KEPT + (1 - KEPT) * density.mean()) / (1 + tolerance * (1 - KEPT) * worst_of))
        total += sum(math.prod(paid[begun:]) for begun in range(len(gaps)))
    return total / len(WORST_OF)


def summed(gaps: list[int], size: int, tolerance: float = 0.02) -> ChangeSums:
    state = begin_sums(size - 1)
    for gap in gaps:
        state = count_part(state, gap, tolerance)
    return state


@examples
@given(st.integers(2, 40), st.lists(st.floats(0, 0.999), min_size=1, max_size=10), st.sampled_from([0.0, 0.05]))
def test_the_sum_is_that_of_the_definition(size: int, places: list[float], tolerance: float) -> None:
    gaps = [int(place * size) for place in places]
    found = math.exp(summed(gaps, size, tolerance).log_evidence)
    assert found == pytest.approx(brute_force(gaps, size, tolerance), rel=1e-3)


@examples
@given(st.integers(2, 40), st.lists(st.floats(0, 0.999), max_size=10))
def test_the_next_part_adds_one_on_average_and_less_with_tolerance(size: int, places: list[float]) -> None:
    gaps = [int(place * size) for place in places]
    urn_G = (1 + np.bincount(gaps, minlength=size)) / (size + len(gaps))
    now = math.exp(summed(gaps, size, 0.0).log_evidence) if gaps else 0.0
    after_G = [math.exp(summed([*gaps, gap], size, 0.0).log_evidence) for gap in range(size)]
    assert urn_G @ after_G == pytest.approx(now + 1)
    elsewhere = count_part(summed(gaps, size), 0)  # a part from elsewhere, with the probability that is tolerated
    usual_G = [math.exp(count_part(summed(gaps, size), gap).log_evidence) for gap in range(size)]
    before = math.exp(summed(gaps, size).log_evidence) if gaps else 0.0
    assert 0.98 * urn_G @ usual_G + 0.02 * math.exp(elsewhere.log_evidence) <= before + 1 + 1e-9


def streams(count: int, parts: int, usual: int, shift: float = 0.0, seed: int = 0) -> np.ndarray:
    """After how many parts each stream reaches 1,000; infinite where it does not."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        reference = np.sort(rng.normal(size=usual))
        state, at = begin_sums(usual), math.inf
        for n, value in enumerate(rng.normal(shift, 1, parts), start=1):
            state = count_part(state, gap_of(float(value), reference))
            if state.log_evidence >= math.log(1000):
                at = n
                break
        found.append(at)
    return np.asarray(found)


def test_false_warnings_are_as_rare_as_promised() -> None:
    """1,000 means one in 1,000 parts at the most: 40 streams of 300 parts may have 12; chance alone gives fewer."""
    assert np.isfinite(streams(40, 300, 50)).sum() <= 12


@pytest.mark.parametrize(("shift", "median"), [(1.0, 25), (2.0, 9), (3.0, 6)])
def test_a_change_is_noticed_soon(shift: float, median: int) -> None:
    assert np.median(streams(20, 80, 100, shift, seed=1)) <= median


def test_first_values_ask_for_higher_lower_and_farther() -> None:
    rng = np.random.default_rng(2)
    reference = first_values(rng.normal(size=60).tolist())
    assert reference.usual_RQ.shape == (40, 3)
    high, low, middle = (reference.answers(value) for value in (9.0, -9.0, reference.centre))
    assert high == [0, 40, 0]
    assert low == [40, 0, 0]
    assert middle[2] == 40
    with pytest.raises(InputError, match="at least 6"):
        first_values([1.0, 2.0])
    with pytest.raises(InputError, match="learn more"):
        begin_sums(0)


def test_equal_values_are_no_sign() -> None:
    """Pictures of the same brightness to the last digit: nothing is higher, lower or farther than usual."""
    reference = first_values([1.0] * 60)
    sums = [begin_sums(40)] * 3
    for _ in range(500):
        sums = [count_part(each, gap) for each, gap in zip(sums, reference.answers(1.0), strict=True)]
    assert mean_evidence([each.log_evidence for each in sums]) < math.log(10)


def test_crepes_agrees_on_the_ranks() -> None:
    base = pytest.importorskip("crepes.base", reason="crepes is not installed")
    rng = np.random.default_rng(3)
    usual, values = np.sort(rng.normal(size=50)), rng.normal(size=30)
    theirs = base.p_values_batch(usual, values, smoothing=False)
    assert [(1 + gap_of(float(value), usual)) / 51 for value in values] == pytest.approx(theirs)


def test_river_needs_as_many_parts_for_the_same_change() -> None:
    drift = pytest.importorskip("river.drift", reason="river is not installed")

    def delay(seed: int) -> float:
        rng, detector = np.random.default_rng(seed), drift.PageHinkley(threshold=20)
        for n, value in enumerate(np.append(rng.normal(size=400), rng.normal(2, 1, 100))):
            detector.update(float(value))
            if detector.drift_detected and n >= 400:
                return n - 399
        return math.inf

    assert np.median(streams(10, 100, 400, 2.0)) <= 1.5 * np.median([delay(seed) for seed in range(10)])
