"""Images that changed as a whole are noticed by their descriptors; defects and chance are not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dinosaur_ad.core.calibration import conformal_p_values
from dinosaur_ad.core.descriptor_drift import (
    begin_descriptor_watch,
    descriptor_notice,
    learned_descriptors,
    log_descriptor_evidence,
    watch_descriptor,
)
from dinosaur_ad.core.drift import begin_watch, watch_part
from dinosaur_ad.errors import InputError

Floats = NDArray[np.float64]
CHANNELS = 64
SPREAD_C = 0.7 ** np.arange(CHANNELS) + 0.02  # a few directions in which the images of a product differ


def images(count: int, seed: int, moved_C: Floats | float = 0.0) -> Floats:
    return 5 + SPREAD_C * np.random.default_rng(seed).normal(size=(count, CHANNELS)) + moved_C


def test_the_evidence_is_the_mean_of_one_watch_a_value() -> None:
    learned, later_NC = learned_descriptors(images(60, 0)), images(12, 1, 0.3)
    watches = begin_descriptor_watch(learned)
    for descriptor_C in later_NC:
        watches = watch_descriptor(watches, learned, descriptor_C)
    evidence = []
    for v in range(5):
        single = begin_watch(30)
        for descriptor_C in later_NC:
            rest_C = descriptor_C - learned.mean_C
            along = [float(rest_C @ axis_C) for axis_C in learned.axes_KC]
            for length, axis_C in zip(along, learned.axes_KC, strict=True):
                rest_C = rest_C - length * axis_C
            value = (*along, math.sqrt(rest_C @ rest_C))[v]
            p_value = conformal_p_values(np.asarray([value]), learned.usual_RV[:, v])[0]
            single = watch_part(single, p_value, tolerance=0.2, flagged=0)
        evidence.append(math.exp(single.log_evidence))
    assert math.exp(log_descriptor_evidence(watches)) == pytest.approx(np.mean(evidence))


@pytest.mark.parametrize("learned", [20, 200])
@pytest.mark.parametrize("defects", [0.0, 0.2])
def test_no_change_is_not_noticed_and_neither_are_defects(learned: int, defects: float) -> None:
    for seed in range(8):
        rng = np.random.default_rng([seed, 7])
        odd_N1 = rng.random((60, 1)) < defects
        later_NC = images(60, seed + 100) + np.where(odd_N1, 4 * SPREAD_C, 0)
        assert descriptor_notice(learned_descriptors(images(learned, seed)), later_NC) is None


def test_a_change_along_a_usual_direction_is_noticed_with_its_size_and_direction() -> None:
    """Three deviations along the first direction, like light that varies a little and then a lot."""
    moved_C = np.zeros(CHANNELS)
    moved_C[0] = -3 * SPREAD_C[0]
    for seed in range(10):
        notice = descriptor_notice(learned_descriptors(images(200, seed)), images(40, seed + 100, moved_C))
        assert notice is not None
        assert notice.noticed_at <= 20
        assert abs(notice.deviations_V[0]) == pytest.approx(3, abs=1)
        assert notice.direction_C[0] < -0.9


def test_a_change_that_no_learned_image_shows_is_noticed_by_the_rest() -> None:
    moved_C = np.zeros(CHANNELS)
    moved_C[-1] = 1.5
    for seed in range(10):
        notice = descriptor_notice(learned_descriptors(images(200, seed)), images(40, seed + 100, moved_C))
        assert notice is not None
        assert notice.noticed_at <= 20
        assert int(np.argmax(np.abs(notice.deviations_V))) == 4


def test_equal_images_are_no_change() -> None:
    same_NC = np.ones((30, 4))
    assert descriptor_notice(learned_descriptors(same_NC), same_NC) is None


def test_too_few_and_broken_descriptors_are_refused() -> None:
    with pytest.raises(InputError, match="at least 12"):
        learned_descriptors(images(11, 0))
    learned = learned_descriptors(images(20, 0))
    with pytest.raises(InputError, match="no numbers"):
        descriptor_notice(learned, np.full((1, CHANNELS), np.nan))
