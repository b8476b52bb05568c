"""The AUROC among images of equal brightness: what it must be for scores that are only brightness, and literally."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.bench.metrics import equal_light_auroc, ranked_auroc
from dinosaur_ad.bench.metrics.equal_light import FEWEST, NEAR

Numbers = NDArray[np.float64]


@st.composite
def images(draw: st.DrawFn) -> tuple[Numbers, Numbers, NDArray[np.int_]]:
    """Scores, brightness (from few values, so that ties are frequent, or from many) and labels."""
    count = draw(st.integers(2, 80))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    light = rng.integers(0, 12, count) if draw(st.booleans()) else rng.normal(size=count)
    labels = rng.integers(0, 2, count)
    scores = rng.normal(size=count).round(draw(st.integers(0, 4))) + draw(st.sampled_from([0, 1])) * labels
    return scores, light.astype(np.float64) + draw(st.sampled_from([0.0, 0.7])) * labels, labels


def literal(scores: Numbers, light: Numbers, labels: NDArray[np.int_]) -> tuple[float, int]:
    """Pair by pair, as the sentence says it."""
    normals = sorted((float(light[n]), float(scores[n])) for n in range(len(labels)) if labels[n] == 0)
    shares = []
    for n in np.flatnonzero(labels == 1):
        own = float(light[n])
        darker = [score for its, score in normals if its < own]
        brighter = [score for its, score in normals if its > own]
        near = [score for its, score in normals if its == own]
        if not near:
            # Among normals of one brightness, which of them is taken does not matter to the rule, but must be one of
            # them: the stable order is that of the file.
            count = min(NEAR, len(darker), len(brighter))
            near = [*darker[len(darker) - count :], *brighter[:count]]
        if near:
            shares.append(np.mean([1.0 if scores[n] > each else 0.5 if scores[n] == each else 0.0 for each in near]))
    return (float(np.mean(shares)) if shares else math.nan), len(shares)


@given(images(), st.sampled_from([1.0, -1.0]), st.sampled_from([np.tanh, np.exp, np.float64]))
def test_a_score_that_is_only_brightness_has_a_half(
    drawn: tuple[Numbers, Numbers, NDArray[np.int_]], sign: float, bend: np.ufunc
) -> None:
    _, light, labels = drawn
    found = equal_light_auroc(sign * bend(light / 16), labels, light)
    assert math.isnan(found.auroc) if found.compared < FEWEST else found.auroc == pytest.approx(0.5, abs=1e-12)


@given(images())
def test_it_is_what_the_sentence_says(drawn: tuple[Numbers, Numbers, NDArray[np.int_]]) -> None:
    scores, light, labels = drawn
    light = light + np.linspace(0, 1e-6, len(light)) * (labels == 0)  # no two normals equally bright
    expected, compared = literal(scores, light, labels)
    found = equal_light_auroc(scores, labels, light)
    assert (found.compared, found.anomalous) == (compared, int(labels.sum()))
    if compared >= FEWEST:
        assert found.auroc == pytest.approx(expected, abs=1e-12)


@given(images())
def test_it_depends_on_the_order_of_scores_alone(drawn: tuple[Numbers, Numbers, NDArray[np.int_]]) -> None:
    scores, light, labels = drawn
    one, other = equal_light_auroc(scores, labels, light), equal_light_auroc(np.arctan(scores), labels, 3 * light - 1)
    assert one == other or math.isnan(one.auroc)


def test_a_perfect_score_stays_perfect_and_where_light_says_nothing_it_is_near_the_auroc() -> None:
    rng = np.random.default_rng(0)
    labels, light = np.repeat([0, 1], 400), rng.normal(size=800)
    assert equal_light_auroc(labels + light / 100, labels, light).auroc == 1
    scores = labels + rng.normal(size=800)
    assert equal_light_auroc(scores, labels, light).auroc == pytest.approx(ranked_auroc(scores, labels).auroc, abs=0.03)


def test_what_brightness_gave_is_gone_and_what_else_there_is_stays() -> None:
    """Defects are brighter, and one score is brightness: its AUROC flatters, not the one at equal light."""
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1], 1000)
    light = labels + rng.normal(size=2000)
    blind, seeing = light + rng.normal(size=2000) / 100, light + 3 * labels
    assert ranked_auroc(blind, labels).auroc > 0.7
    assert equal_light_auroc(blind, labels, light).auroc == pytest.approx(0.5, abs=0.02)
    assert equal_light_auroc(seeing, labels, light).auroc > 0.99


def test_defects_brighter_than_every_normal_have_no_equals() -> None:
    labels, light = np.repeat([0, 1], 20), np.arange(40)
    found = equal_light_auroc(light, labels, light)
    assert math.isnan(found.auroc)
    assert (found.compared, found.anomalous) == (0, 20)


def test_nan_scores_never_win() -> None:
    labels, light = np.repeat([0, 1], [20, 12]), np.concatenate([np.arange(20), np.arange(12) + 2.5])
    assert equal_light_auroc(np.where(labels == 1, np.nan, 1.0), labels, light).auroc == 0


def test_lists_of_unlike_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one brightness a score"):
        equal_light_auroc([1.0, 2.0], [0, 1], [1.0])
