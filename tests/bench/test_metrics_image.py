from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dinosaur_ad.bench.metrics import (
    Confusion,
    auroc_by_kind,
    confusion,
    rank_correlation,
    ranked_auroc,
    roc_curve,
    routing_accuracy,
    train_threshold,
)

sklearn = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed (it comes with the extra 'dev')")

NAN, INF = float("nan"), float("inf")
Rows = list[tuple[float, int]]

# Few distinct values, so that ties are common.
scored = st.lists(st.tuples(st.integers(-4, 4).map(float), st.integers(0, 1)), min_size=2, max_size=40)
mixed = scored.filter(lambda rows: {label for _, label in rows} == {0, 1})


@given(mixed)
def test_the_auroc_is_scikit_learns(rows: Rows) -> None:
    scores, labels = zip(*rows, strict=True)
    ranked = ranked_auroc(scores, labels)
    assert ranked.auroc == pytest.approx(sklearn.roc_auc_score(labels, scores))
    assert ranked.nan == 0


@given(mixed)
def test_ties_are_the_share_of_equal_pairs(rows: Rows) -> None:
    scores, labels = zip(*rows, strict=True)
    normal = np.array([score for score, label in rows if label == 0])
    anomalous = np.array([score for score, label in rows if label == 1])
    assert ranked_auroc(scores, labels).ties == pytest.approx((normal[:, None] == anomalous).mean())


@given(mixed, st.sets(st.integers(0, 39)))
def test_a_nan_counts_as_lower_than_every_number_and_is_reported(rows: Rows, lost: set[int]) -> None:
    scores = np.array([NAN if n in lost else score for n, (score, _) in enumerate(rows)])
    labels = [label for _, label in rows]
    ranked = ranked_auroc(scores, labels)
    assert ranked.nan == np.isnan(scores).sum()
    assert ranked.auroc == pytest.approx(sklearn.roc_auc_score(labels, np.nan_to_num(scores, nan=-100.0)))


def test_a_nan_is_below_minus_infinity_and_equal_to_another_nan() -> None:
    assert ranked_auroc([NAN, -INF], [0, 1]).auroc == 1
    assert ranked_auroc([-INF, INF], [0, 1]).auroc == 1
    assert ranked_auroc([NAN, NAN], [0, 1]).auroc == 0.5
    assert ranked_auroc([NAN, NAN], [0, 1]).ties == 1


def test_worse_than_chance_is_not_flipped() -> None:
    assert ranked_auroc([0.9, 0.8, 0.1, 0.2], [0, 0, 1, 1]).auroc == 0


def test_one_class_has_no_auroc_but_its_nan_are_still_counted() -> None:
    ranked = ranked_auroc([0.1, NAN], [0, 0])
    assert math.isnan(ranked.auroc)
    assert math.isnan(ranked.ties)
    assert ranked.nan == 1


@pytest.mark.parametrize(("scores", "labels"), [([1.0, 2.0], [0]), ([1.0, 2.0], [0, 2]), ([[1.0]], [[1]])])
def test_what_has_no_answer_is_refused(scores: list[float], labels: list[int]) -> None:
    for measure in (ranked_auroc, roc_curve, lambda s, n: confusion(s, n, 0.5)):
        with pytest.raises(ValueError, match="must"):
            measure(scores, labels)


@given(mixed)
def test_the_roc_curve_has_scikit_learns_corners(rows: Rows) -> None:
    scores, labels = zip(*rows, strict=True)
    fpr, tpr = roc_curve(scores, labels)
    every_fpr, every_tpr, _ = sklearn.roc_curve(labels, scores, drop_intermediate=False)
    assert sklearn.auc(fpr, tpr) == pytest.approx(sklearn.roc_auc_score(labels, scores))
    corners = set(zip(every_fpr.round(9), every_tpr.round(9), strict=True))
    assert set(zip(fpr.round(9), tpr.round(9), strict=True)) <= corners
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)


def test_a_long_curve_is_thinned_and_keeps_its_shape() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 5000)
    scores = rng.normal(labels, 1.0)
    whole_fpr, whole_tpr = roc_curve(scores, labels, points=10_000)
    fpr, tpr = roc_curve(scores, labels, points=100)
    assert len(fpr) == len(tpr) <= 100 < len(whole_fpr)
    assert sklearn.auc(fpr, tpr) == pytest.approx(sklearn.roc_auc_score(labels, scores), abs=0.002)
    # Every point of the whole curve is within a step (2 / 99) of the thinned one, along x + y.
    drawn_x = np.interp(whole_fpr + whole_tpr, fpr + tpr, fpr)
    assert np.abs(drawn_x - whole_fpr).max() < 2 / 99


def test_a_curve_of_one_class_is_empty_and_one_of_a_single_point_refused() -> None:
    assert [len(axis) for axis in roc_curve([0.1, 0.2], [1, 1])] == [0, 0]
    with pytest.raises(ValueError, match="at least 2"):
        roc_curve([0.1, 0.2], [0, 1], points=1)


@given(scored, st.integers(-5, 5))
def test_the_confusion_is_scikit_learns(rows: Rows, threshold: int) -> None:
    scores, labels = zip(*rows, strict=True)
    alarms = [int(score > threshold) for score in scores]
    (tn, fp), (fn, tp) = sklearn.confusion_matrix(labels, alarms, labels=[0, 1])
    found = confusion(scores, labels, threshold)
    assert found == Confusion(tp=tp, fp=fp, tn=tn, fn=fn)
    assert found.accuracy == pytest.approx(sklearn.accuracy_score(labels, alarms))
    if tp + fn:
        assert found.recall == pytest.approx(sklearn.recall_score(labels, alarms))
    if tp + fp:
        assert found.precision == pytest.approx(sklearn.precision_score(labels, alarms))
    if fp + tn:
        assert found.false_alarm_rate == pytest.approx(fp / (fp + tn))


def test_every_image_can_have_its_own_threshold_and_equal_is_not_above() -> None:
    assert confusion([1, 1, 1, 1], [0, 0, 1, 1], [0.5, 1, 0.5, 1]) == Confusion(tp=1, fp=1, tn=1, fn=1)


def test_nothing_rises_above_nan_and_nan_rises_above_nothing() -> None:
    assert confusion([NAN, 5.0, INF], [1, 1, 1], [0.0, NAN, NAN]) == Confusion(fn=3)


def test_rates_of_nothing_are_not_a_number_and_confusions_add_up() -> None:
    nothing = Confusion()
    rates = (nothing.accuracy, nothing.recall, nothing.precision, nothing.false_alarm_rate)
    assert all(math.isnan(rate) for rate in rates)
    assert Confusion(1, 2, 3, 4) + Confusion(10, 20, 30, 40) == Confusion(11, 22, 33, 44)


def test_the_threshold_is_the_linear_quantile() -> None:
    scores = np.random.default_rng(0).random(443)
    assert train_threshold(scores) == np.quantile(scores, 0.975)
    assert (scores > train_threshold(scores)).sum() == 12  # 0.975 * 442 = 430.95: 12 lie above
    assert train_threshold([*scores, NAN], share=0.5) == np.quantile(scores, 0.5)


def test_thresholds_of_broken_scores_never_break_the_verdict() -> None:
    assert math.isnan(train_threshold([NAN, NAN]))
    assert math.isnan(train_threshold([]))
    assert train_threshold([0.0, INF]) == train_threshold([0.0, INF, INF]) == INF
    assert train_threshold([-INF, -INF]) == -INF


def test_kinds_are_measured_apart_against_all_normals() -> None:
    scores = [0.1, 0.5, 0.3, 0.9, 0.05]
    kinds = ["good", "good", "logical", "structural", "logical"]
    found = auroc_by_kind(scores, [0, 0, 1, 1, 1], kinds)
    assert found == {"logical": 0.25, "structural": 1.0}
    assert math.isnan(auroc_by_kind([0.3], [1], ["crack"])["crack"])
    with pytest.raises(ValueError, match="one kind an image"):
        auroc_by_kind(scores, [0, 0, 1, 1, 1], kinds[:2])


def test_routing_accuracy_of_no_images_is_not_a_number() -> None:
    assert routing_accuracy(["a", "b", "a"], "a") == pytest.approx(2 / 3)
    assert math.isnan(routing_accuracy([], "a"))


# --- how alike two rankings are ---

pairs = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=30)


@given(pairs)
def test_the_rank_correlation_is_scipys(rows: list[tuple[int, int]]) -> None:
    spearmanr = pytest.importorskip("scipy.stats", reason="scipy comes with the extra 'bench'").spearmanr
    one, other = (np.array(column, np.float32) for column in zip(*rows, strict=True))
    found = rank_correlation(one, other)
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(spearmanr(one, other).statistic)


def test_a_score_that_is_no_number_ranks_below_all_that_are() -> None:
    assert rank_correlation([NAN, -INF, 0, INF], [1, 2, 3, 4]) == 1
