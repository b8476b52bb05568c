"""The false-alarm rate comes back to its target whatever the scores do."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from core_helpers import examples
from hypothesis import given
from hypothesis import strategies as st

from dinosaur_ad.core.adaptive_threshold import (
    WINDOW,
    AdaptiveThreshold,
    begin_threshold,
    confirm_normal,
)
from dinosaur_ad.errors import InputError

CALIBRATION = np.exp(0.1 * np.random.default_rng(0).normal(size=100))


@examples
@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=80),
    st.sampled_from([0.01, 0.025, 0.2]),
    st.sampled_from([0.02, 0.2, 0.5]),
)
def test_the_share_of_alarms_is_bounded_for_any_scores(scores: list[float], target: float, rate: float) -> None:
    """The bound of Gibbs and Candès, against alarms counted and the working rate moved in a plain loop."""
    state, alarms, working = begin_threshold(CALIBRATION, target), 0, target
    for n, score in enumerate(scores, start=1):
        alarm = score > state.threshold
        alarms += alarm
        working += rate * (target - alarm)
        state = confirm_normal(state, score, rate)
        assert state.working == pytest.approx(working)
        assert abs(alarms / n - target) <= (max(target, 1 - target) + rate) / (rate * n) + 1e-9


@pytest.mark.parametrize("rate", [0.01, 0.05])
def test_the_rate_holds_while_normals_drift_away(rate: float) -> None:
    """Scores rise by six deviations within 2000 parts; a fixed threshold would flag most of them."""
    rng = np.random.default_rng(1)
    score_N = np.exp(0.1 * (rng.normal(size=2000) + np.linspace(0, 6, 2000)))
    state, alarms = begin_threshold(CALIBRATION, 0.05), []
    for score in score_N:
        alarms.append(score > state.threshold)
        state = confirm_normal(state, score, rate)
    assert np.mean(score_N > begin_threshold(CALIBRATION, 0.05).threshold) > 0.6
    assert np.mean(alarms) == pytest.approx(0.05, abs=0.03)
    assert np.mean(alarms[1000:]) == pytest.approx(0.05, abs=0.03)


def test_it_begins_with_the_alarm_level_and_stays_near_it_without_drift() -> None:
    state = begin_threshold(CALIBRATION, 0.05)
    conformal = np.sort(CALIBRATION)[math.ceil(101 * 0.95) - 1]
    assert state.threshold == conformal
    for score in np.exp(0.1 * np.random.default_rng(2).normal(size=1000)):
        state = confirm_normal(state, score)
    assert math.log(state.threshold) == pytest.approx(math.log(conformal), abs=0.1)
    assert len(state.scores) == WINDOW
    assert AdaptiveThreshold(**json.loads(json.dumps(state._asdict())))._replace(scores=state.scores) == state


def test_a_working_rate_without_a_threshold_is_infinite() -> None:
    state = begin_threshold(CALIBRATION, 0.05)
    assert state._replace(working=0.0).threshold == math.inf
    assert state._replace(working=1.0).threshold == -math.inf


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_refused(score: float) -> None:
    with pytest.raises(InputError, match="inspect it again"):
        confirm_normal(begin_threshold(CALIBRATION, 0.05), score)
    with pytest.raises(InputError, match="finite calibration scores"):
        begin_threshold(np.asarray([1.0, score]), 0.05)
    with pytest.raises(InputError, match="finite calibration scores"):
        begin_threshold(np.asarray([]), 0.05)
