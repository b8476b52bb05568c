"""From a score to a verdict. Whatever cannot be judged is never called normal."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.calibration import conformal_threshold, quantile_threshold
from dinosaur_ad.errors import InputError
from dinosaur_ad.presets import Preset

Floats = NDArray[np.float32]

NORMAL, ANOMALOUS, NOT_READY = "normal", "anomalous", "not ready"
LEAST_RATE = 1e-6
"""A false-alarm rate that no set of normals is large enough to promise; smaller ones mean nothing."""


def check_rate(false_alarms: float) -> float:
    """The rate of false alarms, or a sentence that says which ones there are.

    >>> check_rate(0.025)
    0.025
    """
    if not LEAST_RATE <= false_alarms < 1:  # NaN is refused too
        raise InputError(
            f"The false-alarm rate must lie between 0 and 1 (at least {LEAST_RATE:g}), got {false_alarms}; 0.025 is "
            "usual."
        )
    return float(false_alarms)


def alarm_threshold(preset: Preset, scores: Floats, false_alarms: float) -> float:
    """The score above which an image is anomalous, from the ``scores`` a task's normals got when it was taught."""
    rule = quantile_threshold if preset.calibration == "in-sample" else conformal_threshold
    return rule(scores, check_rate(false_alarms))


def why_not_ready(task: str, threshold: float, foreign: Floats) -> str:
    """Why a task cannot judge at this threshold, as a sentence; empty if it can.

    A threshold that not even pictures of something else exceed would call everything normal. ``foreign`` are the
    scores of such pictures.

    >>> why_not_ready("screw", 0.4, np.float32([0.7, 1.1]))
    ''
    """
    reach = float(np.max(foreign)) if foreign.size else math.inf
    if threshold < reach:  # written so that a threshold that is no number is refused
        return ""
    return (
        f"The threshold of '{task}' ({threshold:.3g}) lies above what even pictures of something else score "
        f"({reach:.3g} at the most), so everything would be called normal; teach it more normal images, or allow more "
        "false alarms."
    )


def judge(score: float, threshold: float) -> str:
    """The verdict of a task that is ready; a score that is no number raises the alarm.

    >>> judge(0.5, 0.4), judge(0.3, 0.4), judge(float("nan"), 0.4)
    ('anomalous', 'normal', 'anomalous')
    """
    return NORMAL if score <= threshold else ANOMALOUS
