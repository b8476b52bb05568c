"""Thresholds keep the false-alarm rate that was asked for, and agree with the p-values shown beside them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from core_helpers import examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dinosaur_ad.core.calibration import (
    BLOCK,
    LOG_SPREAD,
    LOG_SPREAD_WEIGHT,
    TWIN_SHARE,
    alarm_level,
    folds,
    images_needed,
    p_values,
    promised_rate,
    quantile_threshold,
    student_tail,
    usual_exceedance,
    without_defects,
)

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]

RATES = st.sampled_from([0.001, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5])
SCORES = st.lists(st.floats(0.01, 100), min_size=1, max_size=120).map(np.asarray)
TIED_SCORES = st.lists(st.integers(1, 9).map(float), min_size=1, max_size=120).map(np.asarray)

DISTRIBUTIONS: dict[str, Draw] = {
    "log-normal": lambda rng, count: rng.lognormal(sigma=0.3, size=count),
    "heavy-tailed": lambda rng, count: 1 + rng.pareto(1.5, size=count),
    "two modes": lambda rng, count: rng.normal(5, 0.1, size=count) + 3 * rng.integers(0, 2, size=count),
    "few values": lambda rng, count: rng.integers(1, 5, size=count).astype(float),
}


def false_alarm_rate(draw: Draw, count: int, rate: float, rounds: int = 400, new: int = 200) -> float:
    """How often new normal images have a p-value up to ``rate``, over many sets of ``count`` calibration images."""
    rng = np.random.default_rng(count)
    shares = []
    for _ in range(rounds):
        scores = draw(rng, count + new)
        shares.append(np.mean(p_values(scores[count:], scores[:count]) <= rate))
    return float(np.mean(shares))


# --- the rate that was asked for ---


@pytest.mark.parametrize("draw", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
@pytest.mark.parametrize(("count", "rate"), [(39, 0.025), (200, 0.025), (99, 0.1), (55, 0.05)])
def test_unseen_normals_exceed_the_threshold_as_often_as_asked(draw: Draw, count: int, rate: float) -> None:
    # The normal tail falls short of a heavy one where no calibration image lies above the score: with 39 images, and
    # by less than a factor of two. Otherwise only what chance adds in four thousand rounds is allowed.
    falls_short = draw is DISTRIBUTIONS["heavy-tailed"] and count == 39
    allowed = 2 * rate if falls_short else rate + 4 * math.sqrt(rate * (1 - rate) / 4000)
    assert false_alarm_rate(draw, count, rate) <= allowed


@pytest.mark.parametrize("deviation", [0.04, 0.08, 0.12])
@pytest.mark.parametrize("count", [2, 5, 10, 20, 50, 200])
def test_any_number_of_images_keeps_the_rate_near(count: int, deviation: float) -> None:
    """For the deviations that the logarithms of scores have on real images."""
    rate = false_alarm_rate(lambda rng, size: rng.lognormal(sigma=deviation, size=size), count, 0.025, rounds=600)
    assert rate <= 0.09
    if count >= 50:
        assert 0.004 <= rate <= 0.04


@pytest.mark.parametrize("count", [3, 5, 10, 20, 38])
def test_few_scores_keep_the_rate_by_reaching_beyond_the_highest(count: int) -> None:
    """With the usual deviation the extrapolation must be right: no more alarms than asked, no needlessly high limit."""
    rng, rate, rounds = np.random.default_rng(count), 0.025, 100
    scores = rng.lognormal(sigma=LOG_SPREAD, size=(rounds, count))
    thresholds = np.asarray([alarm_level(row, rate) for row in scores])
    assert np.mean(thresholds > scores.max(axis=1)) > 0.3
    alarms = np.mean(rng.lognormal(sigma=LOG_SPREAD, size=(1000, 1)) > thresholds)
    assert 0.2 * rate <= alarms <= rate + 4 * math.sqrt(rate * (1 - rate) / 4000)
    assert np.median(thresholds) < 1.1 * math.exp(1.96 * LOG_SPREAD)


@pytest.mark.parametrize("draw", [lambda rng: rng.gamma(20, size=4000), lambda rng: rng.normal(10, 1, size=4000)])
def test_the_share_counts_where_there_are_many_scores(draw: Callable[[np.random.Generator], Floats]) -> None:
    scores = draw(np.random.default_rng(0))
    asked = np.quantile(scores, [0.5, 0.9, 0.975, 0.99])
    shares = [(1 + np.sum(scores >= score)) / (len(scores) + 1) for score in asked]
    np.testing.assert_allclose(p_values(asked, scores), shares, rtol=0.02)
    assert alarm_level(scores, 0.025) == pytest.approx(np.quantile(scores, 0.975), rel=0.002)


# --- p-values and thresholds ---


def naive_p_value(score: float, calibration: Floats) -> float:
    """As it is defined: the blend of order statistics and Student's tail, and never less than a higher score has."""
    ordered = np.sort(calibration)
    logs = np.log(np.maximum(ordered, TWIN_SHARE * ordered[-1]))
    freedom = len(ordered) - 1 + LOG_SPREAD_WEIGHT
    variance = (((logs - logs.mean()) ** 2).sum() + LOG_SPREAD_WEIGHT * LOG_SPREAD**2) / freedom
    spread = math.sqrt(variance * (1 + 1 / len(ordered)))

    def blend(value: float, above: int) -> float:
        tail = float(stats.t.sf((math.log(value) - logs.mean()) / spread, freedom))
        share, weight = (1 + above) / (len(ordered) + 1), above / (above + 1)
        return float(min(share, share**weight * tail ** (1 - weight)))

    own = blend(score, int(np.sum(ordered >= score)))
    return max([own, *(blend(each, int(np.sum(ordered > each))) for each in ordered if each >= score)])


@examples
@given(scores=st.one_of(SCORES, TIED_SCORES), asked=st.lists(st.floats(0.005, 200), max_size=5))
def test_p_values_blend_shares_with_a_tail(scores: Floats, asked: list[float]) -> None:
    wanted = np.asarray([*asked, *scores[:5]])
    expected = np.asarray([naive_p_value(each, scores) for each in wanted])
    likely = expected > 0.005  # for less, the approximation of the tail is a little off
    np.testing.assert_allclose(p_values(wanted, scores)[likely], expected[likely], rtol=0.01)
    assert np.all(p_values(wanted, scores)[~likely] < 0.0051)


@examples
@given(scores=st.one_of(SCORES, TIED_SCORES), rate=RATES, asked=st.floats(0, 101))
def test_a_score_above_the_threshold_is_one_with_a_small_p_value(scores: Floats, rate: float, asked: float) -> None:
    threshold = alarm_level(scores, rate)
    tried = np.asarray([asked, threshold, np.nextafter(threshold, np.inf), *scores])
    np.testing.assert_array_equal(tried > threshold, p_values(tried, scores) <= rate)


@examples
@given(scores=st.one_of(SCORES, TIED_SCORES), asked=st.lists(st.floats(0, 200), min_size=2, max_size=20))
def test_a_higher_score_never_has_a_higher_p_value(scores: Floats, asked: list[float]) -> None:
    ordered = np.sort(np.concatenate([asked, scores, np.nextafter(scores, np.inf)]))
    p = p_values(ordered, scores)
    assert np.all(np.diff(p) <= 1e-12)
    assert np.all((p >= 0) & (p <= 1))


@examples
@given(scores=st.one_of(SCORES, TIED_SCORES))
def test_a_score_that_is_no_number_is_never_normal(scores: Floats) -> None:
    assert p_values(np.asarray([np.nan, 1.0]), scores)[0] == 0


@examples
@given(scores=SCORES, factor=st.floats(0.01, 100))
def test_the_unit_of_the_scores_does_not_matter(scores: Floats, factor: float) -> None:
    asked = np.asarray([0.02, 1.0, 150.0])
    np.testing.assert_allclose(p_values(factor * asked, factor * scores), p_values(asked, scores), rtol=1e-6)
    assert alarm_level(factor * scores, 0.025) == pytest.approx(factor * alarm_level(scores, 0.025), rel=1e-9)


@examples
@given(zeros=st.integers(1, 8), rate=st.sampled_from([0.025, 0.05]))
def test_repeated_training_images_do_not_blind_the_detector(zeros: int, rate: float) -> None:
    """Twins are at distance zero from each other; their zeros must not be read as an enormous spread."""
    scores = np.asarray([0.0] * zeros + [0.9, 1.0, 1.1])
    assert 1.1 <= alarm_level(scores, rate) < 11


@pytest.mark.parametrize("scores", [[0.0], [0.0, 0.0], [0.0] * 50])
def test_scores_of_zero_keep_the_threshold_at_nothing(scores: list[float]) -> None:
    assert 0 <= alarm_level(np.asarray(scores), 0.025) < 1e-30


@pytest.mark.parametrize("count", [1, 3, 30])
def test_scores_without_spread_leave_room_for_the_usual_one(count: int) -> None:
    level = alarm_level(np.full(count, 3.0), 0.025)
    assert 3.0 < level < 3.0 * math.exp(4 * LOG_SPREAD)


def test_enough_scores_need_no_model() -> None:
    """Two groups of normals far apart: the model would put the threshold far above both."""
    random = np.random.default_rng(0)
    scores = np.exp(0.04 * random.normal(size=200) + 0.5 * (random.random(200) < 0.4))
    assert alarm_level(scores, 0.025) <= scores.max()
    assert alarm_level(np.full(50, 3.0), 0.025) == pytest.approx(3.0)


@examples
@given(scores=SCORES, rates=st.tuples(st.floats(0.001, 0.999), st.floats(0.001, 0.999)))
def test_fewer_false_alarms_never_take_a_lower_threshold(scores: Floats, rates: tuple[float, float]) -> None:
    strict, lenient = sorted(rates)
    for threshold_of in (alarm_level, quantile_threshold):
        assert threshold_of(scores, strict) >= threshold_of(scores, lenient) * (1 - 1e-12)


# --- what can be promised ---


@examples
@given(freedom=st.integers(10, 300))
def test_the_tail_is_that_of_student(freedom: int) -> None:
    for farthest, allowed in ((3.5, 0.01), (6.0, 0.05)):
        deviation = np.linspace(-6, farthest, 200)
        np.testing.assert_allclose(student_tail(deviation, freedom), stats.t.sf(deviation, freedom), rtol=allowed)


@examples
@given(images=st.integers(1, 300), above=st.integers(0, 5), confidence=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_what_is_promised_is_the_quantile_of_the_beta_distribution(images: int, above: int, confidence: float) -> None:
    above = min(above, images - 1)
    expected = float(stats.beta.ppf(confidence, above + 1, images - above))
    assert promised_rate(images, above, confidence) == pytest.approx(expected, rel=1e-6)


@examples
@given(rate=st.floats(0.005, 0.5), confidence=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_so_many_images_are_needed_and_no_fewer(rate: float, confidence: float) -> None:
    needed = images_needed(rate, confidence)
    assert promised_rate(needed, 0, confidence) <= rate * (1 + 1e-9)
    assert needed == 1 or promised_rate(needed - 1, 0, confidence) > rate * (1 - 1e-9)


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


@given(SCORES | TIED_SCORES)
def test_without_defects_no_score_rises_and_three_quarters_stay(scores: Floats) -> None:
    found = without_defects(scores)
    assert (found <= scores).all()
    lowest = np.argsort(scores, kind="stable")[: round(0.75 * len(scores))]
    np.testing.assert_array_equal(found[lowest], scores[lowest])
    assert (np.diff(found[np.argsort(scores, kind="stable")]) >= 0).all()


@pytest.mark.parametrize("count", [20, 100])
@pytest.mark.parametrize("defects", [0.0, 0.05, 0.1])
def test_without_defects_the_rate_is_nearly_what_was_asked_for(count: int, defects: float) -> None:
    """As they are, the scores of a tenth of defects leave no false alarms at all."""
    rng, rates = np.random.default_rng(0), []
    for _ in range(100):
        bad = round(defects * count)
        scores = np.exp(np.append(rng.normal(0, 0.1, count - bad), rng.uniform(0, 0.8, bad)))
        rates.append(np.mean(np.exp(rng.normal(0, 0.1, 1000)) > alarm_level(without_defects(scores), 0.025)))
    assert 0.005 < np.mean(rates) < 0.05


@pytest.mark.parametrize("wider", [1.0, 1.5, 1.8])
def test_without_defects_normals_may_reach_farther_up_than_down(wider: float) -> None:
    """Scores of magnetic tiles do. Where the lower half said how far up they reach, more were flagged."""
    rng, rates = np.random.default_rng(1), []

    def normals(count: int) -> Floats:
        log_N = rng.normal(0, 0.07, count)
        return np.exp(np.where(log_N > 0, wider * log_N, log_N))

    for _ in range(100):
        rates.append(np.mean(normals(1000) > alarm_level(without_defects(normals(100)), 0.025)))
    assert np.mean(rates) < 0.05


@examples
@given(seed=st.integers(0, 99), count=st.integers(60, 200), share=st.floats(0, 0.4))
def test_a_run_of_defects_is_no_reason_for_another_threshold(seed: int, count: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    scores = np.exp(rng.normal(0, 0.1, count))
    blocks = count // BLOCK
    run = int(share * blocks) * BLOCK  # whole blocks, fewer than half of them
    begin = BLOCK * int(rng.integers(0, blocks - run // BLOCK))
    with_run = scores.copy()
    with_run[begin : begin + run] = 5.0
    level = math.exp(1.96 * 0.1)
    assert usual_exceedance(with_run[: blocks * BLOCK], level) < 0.15
    assert usual_exceedance(scores, 1.2 * level) <= usual_exceedance(scores, level)
    assert usual_exceedance(1.3 * scores, level) > usual_exceedance(scores, level)


def test_scattered_defects_are_no_reason_for_another_threshold() -> None:
    rng = np.random.default_rng(0)
    level = math.exp(1.96 * 0.1)
    rates = []
    for _ in range(50):
        scores = np.exp(rng.normal(0, 0.1, 200))
        scores[rng.random(200) < 0.1] = 5.0
        rates.append(usual_exceedance(scores, level))
    assert np.median(rates) < 0.05
    assert usual_exceedance(np.exp(rng.normal(0.15, 0.1, 200)), level) > 0.2
