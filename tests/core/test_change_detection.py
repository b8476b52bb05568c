"""Evidence of drift: exact without it whatever is looked at, quick with it, and not impressed by defects."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from core_helpers import examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core.calibration import conformal_p_values
from dinosaur_ad.core.drift import (
    FLAGGED,
    KEPT,
    TOLERANCE,
    Watch,
    begin_watch,
    cause_of_change,
    shift_notice,
    shift_size,
    watch_part,
)
from dinosaur_ad.errors import InputError

ALPHA = 0.01

# Direction, worst of, whether flagged parts count, share of the capital: as in the docstring, written down once more.
BETS = [(1, 3, True, 0.2), (1, 8, True, 0.2), (1, 32, True, 0.2), (1, 3, False, 0.1), (1, 8, False, 0.1)]
BETS += [(-1, 3, False, 0.2)]


def stream(
    seed: int, images: int, *, calibrated: int = 200, shift: float = 0.0, defects: float = 0.0, begins: int = 0
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """p-values and scores of parts and calibration scores: Gaussian log scores, defects far above."""
    rng = np.random.default_rng([seed, images, calibrated])
    calibration = np.exp(0.1 * rng.normal(size=calibrated))
    deviation_N = rng.normal(size=images) + shift * (np.arange(images) >= begins)
    deviation_N = np.where(rng.random(images) < defects, rng.uniform(6, 20, images), deviation_N)
    score_N = np.exp(0.1 * deviation_N)
    return conformal_p_values(score_N, calibration), score_N, calibration


def watched(p_value_N: NDArray[Any], calibrated: int, **options: float) -> Watch:
    state = begin_watch(calibrated)
    for p_value in p_value_N:
        state = watch_part(state, p_value, **options)
    return state


def delays(streams: int, images: int = 60, **options: Any) -> NDArray[Any]:
    """When each stream was noticed; infinite where it was not."""
    calibrated = options.get("calibrated", 200)
    notices = [shift_notice(stream(seed, images, **options)[0], calibrated) for seed in range(streams)]
    return np.asarray([notice.noticed_at if notice else np.inf for notice in notices])


def naive_evidence(gaps: list[int], size: int, defects: float, tolerance: float) -> float:
    """The definition: every bet, begun with every image, each rank integrated by brute force."""
    first = max(1, int(FLAGGED * size))
    paid: list[list[float]] = []
    for t, gap in enumerate(gaps):
        urn = [1 + gaps[:t].count(j) for j in range(size)]
        normal = sum(urn[:first]) / sum(urn)
        null = normal + (1 - normal) * defects
        row = []
        for direction, worst_of, counts_flagged, _ in BETS:
            drifted = 1 - (1 - null) * (1 - normal) ** (worst_of - 1)
            if gap < first:
                row.append(drifted / null if counts_flagged else 1.0)
                continue
            low, high = (sum(urn[first : gap + more]) / sum(urn[first:]) for more in (0, 1))
            u = low + (np.arange(2000) + 0.5) / 2000 * (high - low)
            density = worst_of * ((1 - u) if direction > 0 else u) ** (worst_of - 1)
            staked = (KEPT + (1 - KEPT) * density.mean()) / (1 + tolerance * (1 - KEPT) * worst_of)
            row.append(staked * (1 - drifted) / (1 - null) if counts_flagged else staked)
        paid.append(row)
    evidence = 1 / (len(gaps) + 1)
    for begun in range(len(gaps)):
        for b, (*_, share) in enumerate(BETS):
            evidence += share / ((begun + 1) * (begun + 2)) * math.prod(row[b] for row in paid[begun:])
    return evidence


@examples
@given(st.integers(2, 60), st.lists(st.floats(0, 0.999), max_size=12), st.sampled_from([0.0, 0.2, 0.5]))
def test_the_evidence_is_that_of_the_definition(size: int, places: list[float], defects: float) -> None:
    gaps = [int(place * size) for place in places]
    state = watched((np.asarray(gaps) + 1) / size, size - 1, defects=defects, tolerance=0.05)
    assert math.exp(state.log_evidence) == pytest.approx(naive_evidence(gaps, size, defects, 0.05), rel=1e-4)


@examples
@given(st.integers(2, 50), st.lists(st.floats(0, 0.999), max_size=15), st.sampled_from([0.0, 0.1, 0.2, 0.6]))
def test_the_next_part_cannot_raise_the_evidence_on_average(size: int, places: list[float], defects: float) -> None:
    """A martingale for exchangeable parts; not more with defects up to the stated share and parts from elsewhere."""
    before = watched(np.asarray([int(place * size) + 1 for place in places]) / size, size - 1)
    urn_G = (np.asarray(before.gaps) + 1) / (size + len(places))

    def after(**options: float) -> NDArray[Any]:
        states = [watch_part(before, (gap + 1) / size, **options) for gap in range(size)]
        return np.exp([state.log_evidence for state in states])

    now = math.exp(before.log_evidence)
    assert urn_G @ after(defects=0, tolerance=0) == pytest.approx(now)
    with_defects = (1 - defects) * urn_G @ after(defects=defects, tolerance=0) + defects * after(defects=defects)[0]
    assert with_defects <= now * (1 + 1e-9)
    assert 0.95 * urn_G @ after(tolerance=0.05, flagged=0) + 0.05 * after(tolerance=0.05, flagged=0).max() <= now + 1e-9


@pytest.mark.parametrize(("calibrated", "defects"), [(20, 0.2), (200, 0.2), (60, 0.0)])
def test_without_drift_a_warning_is_rare(calibrated: int, defects: float) -> None:
    """At most 1 % of the streams are allowed; three of 50 would be chance once in 70 draws."""
    found = delays(50, 300, calibrated=calibrated, defects=defects)
    assert np.isfinite(found).sum() <= 2


@pytest.mark.parametrize("defects", [0.0, 0.2])
@pytest.mark.parametrize(("shift", "median"), [(1.0, 30), (2.0, 12), (3.0, 8)])
def test_a_shift_is_noticed_soon_also_among_defects(shift: float, median: int, defects: float) -> None:
    found = delays(100, shift=shift, defects=defects)
    assert np.median(found) <= median
    if shift >= 2:
        assert np.quantile(found, 0.95) <= 2.5 * median


def test_with_twenty_calibration_images_a_large_shift_is_noticed() -> None:
    assert np.median(delays(100, calibrated=20, shift=2, defects=0.2)) <= 18
    assert np.median(delays(100, calibrated=20, shift=3, defects=0.2)) <= 8


def test_a_change_after_a_long_time_is_noticed() -> None:
    found = delays(30, 460, shift=2, defects=0.1, begins=400)
    assert np.median(found) <= 400 + 35
    assert (found > 400).mean() >= 0.95


def test_many_clear_defects_are_no_shift_of_the_parts_that_pass() -> None:
    """A folder made for a test: three quarters defects, and the normals as they were learned."""
    for seed in range(30):
        p_value_N, *_ = stream(seed, 80, defects=0.75)
        assert shift_notice(p_value_N, 200, defects=1.0) is None
        notice = shift_notice(p_value_N, 200)
        assert notice is None or not notice.passing
    shifted_N, *_ = stream(0, 120, defects=0.5, shift=1.5)
    notice = shift_notice(shifted_N, 200, defects=1.0)
    assert notice is not None
    assert notice.passing


def test_lower_scores_are_noticed_and_named() -> None:
    """Blurred images score lower, and defects in them too."""
    p_value_N, score_N, calibration = stream(1, 60, shift=-2)
    notice = shift_notice(p_value_N, 200, score_N=score_N, calibration=calibration)
    assert notice is not None
    assert notice.direction == "lower"
    assert notice.deviations == pytest.approx(-2, abs=0.5)
    assert not notice.passing


def test_a_notice_says_when_and_how_much() -> None:
    p_value_N, score_N, calibration = stream(0, 60, shift=2, defects=0.2)
    notice = shift_notice(p_value_N, 200, score_N=score_N, calibration=calibration)
    assert notice is not None
    assert notice.evidence >= 100
    assert notice.direction == "higher"
    assert notice.deviations == pytest.approx(2, abs=0.6)
    assert shift_notice(p_value_N[: notice.noticed_at], 200) is not None
    assert shift_notice(p_value_N[: notice.noticed_at - 1], 200) is None
    assert shift_notice(p_value_N, 200, alpha=1e-300) is None
    assert shift_notice(p_value_N[:0], 200) is None


def test_a_watch_goes_on_from_its_stored_state() -> None:
    p_value_N, *_ = stream(3, 50, shift=0.5, defects=0.2)
    stored = json.dumps(watched(p_value_N[:20], 200)._asdict(), allow_nan=False)
    state = Watch(**json.loads(stored))
    for p_value in p_value_N[20:]:
        state = watch_part(state, p_value)
    whole = watched(p_value_N, 200)
    assert state == whole
    assert len(whole.gaps) == len(begin_watch(200).gaps)  # memory does not grow with the stream
    json.dumps(begin_watch(3)._asdict(), allow_nan=False)


def test_evidence_beyond_the_largest_float_is_still_a_number() -> None:
    notice = shift_notice(np.full(1200, 1 / 6001), 6000)
    assert notice is not None
    assert math.exp(699) < notice.evidence < math.inf


@pytest.mark.parametrize("p_value", [0.0, 1.1, 0.123, math.nan, -0.1])
def test_a_p_value_of_other_scores_is_refused(p_value: float) -> None:
    with pytest.raises(InputError, match="multiple of 1/21"):
        watch_part(begin_watch(20), p_value)


def test_no_calibration_is_refused() -> None:
    with pytest.raises(InputError, match="learn more normal images"):
        begin_watch(0)


@examples
@given(st.integers(0, 10_000), st.floats(-2, 4), st.floats(0, 0.25), st.floats(0.01, 100))
def test_the_size_of_a_shift_does_not_see_defects_and_units(
    seed: int, shift: float, defects: float, unit: float
) -> None:
    _, score_N, calibration = stream(seed, 80, shift=shift, defects=defects)
    size = shift_size(score_N, calibration)
    assert size == pytest.approx(shift, abs=0.75)
    assert shift_size(unit * score_N, unit * calibration) == pytest.approx(size, abs=1e-6)


def test_calibration_scores_without_spread_have_a_size_too() -> None:
    assert shift_size(np.ones(5), np.ones(9)) == 0
    assert math.isfinite(shift_size(np.asarray([3.0]), np.ones(9)))


def test_a_change_of_one_product_is_told_from_one_of_all() -> None:
    names = [f"task {n}" for n in range(6)]
    calm = dict.fromkeys(names, 0.3)
    assert cause_of_change(calm) == ("none", (), None)
    assert cause_of_change(calm | {"task 2": 8.0}) == ("task", ("task 2",), None)
    assert cause_of_change(calm | {"task 2": 8.0, "task 3": 7.0}).kind == "task"
    assert cause_of_change(calm | {"task 2": 8.0, "task 3": 3.0, "task 4": 2.5}).kind == "shared"
    # Evidence of 100 is enough for one task, not for the most of six.
    assert cause_of_change({"task 1": 4.7}).kind == "task"
    assert cause_of_change(calm | {"task 1": 4.7}).kind == "none"
    assert cause_of_change({}).kind == "none"


def test_gains_tell_the_light_from_the_camera() -> None:
    evidence = {"bolt": 9.0, "nut": 8.0, "washer": 0.0}
    same, darker, brighter = np.full(5, 1.01), np.asarray([0.8, 0.82, 0.79, 1.0, 0.81]), np.full(5, 1.2)
    cause = cause_of_change(evidence, {"bolt": darker, "nut": darker, "washer": same})
    assert cause == ("light", ("bolt", "nut"), 0.81)
    assert cause_of_change(evidence, {"bolt": darker, "nut": brighter, "washer": same}).kind == "shared"
    assert cause_of_change(evidence, {"bolt": same, "nut": same, "washer": same}).kind == "shared"
    assert cause_of_change({"bolt": 0.0}, {"bolt": darker}).kind == "none"


def test_crepes_agrees_on_p_values_and_its_jumper_does_not_survive_defects() -> None:
    base = pytest.importorskip("crepes.base", reason="crepes is not installed")
    martingales = pytest.importorskip("crepes.martingales", reason="crepes is not installed")
    jumper = martingales.SimpleJumper()
    ours, theirs, wrong = [], [], 0
    for seed in range(20):
        p_value_N, score_N, calibration = stream(seed, 80, shift=1.5)
        assert base.p_values_batch(calibration, score_N, smoothing=False) == pytest.approx(p_value_N)
        smoothed_N = base.p_values_batch(calibration, score_N, seed=seed)
        assert (smoothed_N <= p_value_N).all()
        notice = shift_notice(p_value_N, 200)
        ours.append(notice.noticed_at if notice else 80)
        theirs.append(jumper.apply(smoothed_N, c=100) + 1)
        _, score_N, calibration = stream(seed, 200, defects=0.2)
        wrong += jumper.apply(base.p_values_batch(calibration, score_N, seed=seed), c=100) < 200
    assert np.median(ours) <= np.median(theirs)
    assert wrong >= 10  # defects alone are drift to a bet on all p-values


def test_river_is_hardly_quicker_and_takes_defects_for_drift() -> None:
    """ADWIN and Page-Hinkley see the log scores themselves, and 400 normal ones before the change."""
    drift = pytest.importorskip("river.drift", reason="river is not installed")

    def delay(detector: Any, score_N: NDArray[Any], calibration: NDArray[Any]) -> float:
        for n, score in enumerate(np.log(np.concatenate([calibration, calibration, score_N])) / 0.1):
            detector.update(score)
            if detector.drift_detected and n >= 400:
                return n - 399
        return math.inf

    ours = np.median(delays(10, 100, shift=2))
    shifted = [stream(seed, 100, shift=2)[1:] for seed in range(10)]
    with_defects = [stream(seed, 100, defects=0.2)[1:] for seed in range(10)]
    for make in (drift.ADWIN, lambda: drift.PageHinkley(threshold=20)):
        assert ours <= 2.5 * np.median([delay(make(), *each) for each in shifted])
        assert np.isfinite([delay(make(), *each) for each in with_defects]).sum() >= 8
    assert not np.isfinite(delays(10, 100, defects=0.2)).any()


def test_the_tolerance_covers_parts_that_are_almost_exchangeable() -> None:
    """A shift of a twentieth of a deviation is within the tolerance, and never noticed."""
    assert 0.05 / math.sqrt(2 * math.pi) <= TOLERANCE
    assert not np.isfinite(delays(10, 1500, shift=0.05)).any()
