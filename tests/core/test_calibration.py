"""Thresholds keep the false-alarm rate that was asked for, and agree with the p-values shown beside them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from core_helpers import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core.calibration import conformal_threshold, folds, p_values, quantile_threshold

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]

RATES = st.sampled_from([0.01, 0.025, 0.05, 0.1, 0.2, 0.5])
SCORES = st.lists(st.floats(0.01, 100), min_size=1, max_size=120).map(np.asarray)
TIED_SCORES = st.lists(st.integers(1, 9).map(float), min_size=1, max_size=120).map(np.asarray)

DISTRIBUTIONS: dict[str, Draw] = {
    "log-normal": lambda rng, shape: rng.lognormal(sigma=0.3, size=shape),
    "heavy-tailed": lambda rng, shape: 1 + rng.pareto(1.5, size=shape),
    "two modes": lambda rng, shape: rng.normal(5, 0.1, size=shape) + 3 * rng.integers(0, 2, size=shape),
    "few values": lambda rng, shape: rng.integers(1, 5, size=shape).astype(float),
}


def enough_for(count: int, rate: float) -> bool:
    """Whether an observed score is high enough to be the threshold."""
    return math.ceil((count + 1) * (1 - rate)) <= count


@pytest.mark.parametrize("draw", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
@pytest.mark.parametrize(("count", "rate"), [(39, 0.025), (200, 0.025), (99, 0.1), (55, 0.05)])
def test_unseen_normals_exceed_the_threshold_as_often_as_asked(draw: Draw, count: int, rate: float) -> None:
    rounds = 4000
    scores = draw(np.random.default_rng(count), (rounds, count + 1))
    exceeded = np.mean([row[-1] > conformal_threshold(row[:-1], rate) for row in scores])
    # What chance alone adds in so many rounds: four standard deviations of a coin that shows `rate`.
    assert exceeded <= rate + 4 * math.sqrt(rate * (1 - rate) / rounds)


@examples
@given(scores=st.one_of(SCORES, TIED_SCORES), rate=RATES)
def test_of_any_scores_at_most_the_share_asked_for_exceeds_the_rest(scores: Floats, rate: float) -> None:
    """The guarantee without chance: let each of n + 1 scores be the new one, in turn."""
    assume(enough_for(len(scores) - 1, rate))
    rest = [np.delete(scores, i) for i in range(len(scores))]
    exceeded = sum(score > conformal_threshold(others, rate) for score, others in zip(scores, rest, strict=True))
    unlikely = sum(p_values(scores[i : i + 1], others)[0] <= rate for i, others in enumerate(rest))
    assert exceeded <= rate * len(scores) + 1e-9
    assert unlikely <= rate * len(scores) + 1e-9


@examples
@given(scores=st.one_of(SCORES, TIED_SCORES), rate=RATES, asked=st.floats(0, 101))
def test_a_score_above_the_threshold_is_one_with_a_small_p_value(scores: Floats, rate: float, asked: float) -> None:
    assume(enough_for(len(scores), rate))
    threshold = conformal_threshold(scores, rate)
    for score in (asked, threshold, np.nextafter(threshold, np.inf), *scores):
        assert (score > threshold) == (p_values(np.asarray([score]), scores)[0] <= rate)


@examples
@given(scores=st.one_of(SCORES, TIED_SCORES))
def test_p_values_count_the_scores_at_least_as_high(scores: Floats) -> None:
    asked = np.concatenate([[0.0, 1000.0], scores, scores + 0.5])
    expected = [(1 + sum(each >= score for each in scores)) / (len(scores) + 1) for score in asked]
    np.testing.assert_allclose(p_values(asked, scores), expected, rtol=1e-15)


@examples
@given(scores=SCORES, rate=RATES)
def test_too_few_scores_never_put_the_threshold_below_the_highest(scores: Floats, rate: float) -> None:
    assume(not enough_for(len(scores), rate))
    assert conformal_threshold(scores, rate) >= scores.max()


@pytest.mark.parametrize("count", [3, 5, 10, 20, 38])
def test_few_scores_keep_the_rate_by_reaching_beyond_the_highest(count: int) -> None:
    """For log-normal scores the extrapolation must be right: no more alarms than asked, no needlessly high limit."""
    rate, rounds = 0.025, 4000
    scores = np.random.default_rng(count).lognormal(sigma=0.2, size=(rounds, count + 1))
    thresholds = np.asarray([conformal_threshold(row[:-1], rate) for row in scores])
    assert np.mean(thresholds > scores[:, :-1].max(axis=1)) > 0.3
    # The series for Student's t is a little short for three scores.
    allowed = 0.03 if count == 3 else rate
    assert np.mean(scores[:, -1] > thresholds) <= allowed + 4 * math.sqrt(rate * (1 - rate) / rounds)
    assert np.median(thresholds) < 1.5 * math.exp(0.2 * 1.96)


@examples
@given(zeros=st.integers(1, 8), rate=st.sampled_from([0.025, 0.05]))
def test_repeated_training_images_do_not_blind_the_detector(zeros: int, rate: float) -> None:
    """Twins are at distance zero from each other; their zeros must not be read as an enormous spread."""
    scores = np.asarray([0.0] * zeros + [0.9, 1.0, 1.1])
    assert 1.1 <= conformal_threshold(scores, rate) < 11


@pytest.mark.parametrize("scores", [[0.0], [0.0, 0.0], [3.0], [3.0, 3.0, 3.0]])
def test_scores_without_spread_are_their_own_threshold(scores: list[float]) -> None:
    assert conformal_threshold(np.asarray(scores), 0.025) == pytest.approx(scores[0], rel=1e-12, abs=1e-30)


@examples
@given(scores=SCORES, rates=st.tuples(st.floats(0.001, 0.999), st.floats(0.001, 0.999)))
def test_fewer_false_alarms_never_take_a_lower_threshold(scores: Floats, rates: tuple[float, float]) -> None:
    strict, lenient = sorted(rates)
    for threshold_of in (conformal_threshold, quantile_threshold):
        assert threshold_of(scores, strict) >= threshold_of(scores, lenient) * (1 - 1e-12)


@examples
@given(scores=SCORES, rate=st.floats(0.001, 0.999))
def test_the_papers_threshold_is_the_plain_quantile(scores: Floats, rate: float) -> None:
    ordered, place = np.sort(scores), (1 - rate) * (len(scores) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    expected = low + (high - low) * (place - math.floor(place))
    assert quantile_threshold(scores, rate) == pytest.approx(expected, rel=1e-9)


@examples
@given(count=st.integers(1, 60), k=st.integers(1, 8), seed=st.integers(0, 9))
def test_folds_hold_every_image_out_once(count: int, k: int, seed: int) -> None:
    parts = folds(count, k, seed)
    sizes = [len(part) for part in parts]
    assert len(parts) == min(count, k)
    assert max(sizes) - min(sizes) <= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))
    assert all(np.array_equal(*pair) for pair in zip(parts, folds(count, k, seed), strict=True))
