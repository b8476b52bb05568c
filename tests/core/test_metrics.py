from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dinosaur_ad.core.metrics import auroc, forgetting

# Few distinct values, so that ties are common.
scored = st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 1)), min_size=2, max_size=40)
mixed = scored.filter(lambda rows: {label for _, label in rows} == {0, 1})


@given(mixed)
def test_auroc_is_the_share_of_pairs_in_the_right_order(rows: list[tuple[int, int]]) -> None:
    normal = [score for score, label in rows if label == 0]
    anomalous = [score for score, label in rows if label == 1]
    won = [1.0 if a > n else 0.5 if a == n else 0.0 for a, n in product(anomalous, normal)]
    assert auroc(*zip(*rows, strict=True)) == pytest.approx(np.mean(won))


@given(mixed)
def test_auroc_sees_only_the_order(rows: list[tuple[int, int]]) -> None:
    scores, labels = zip(*rows, strict=True)
    assert auroc(np.exp(scores), labels) == auroc(scores, labels)
    assert auroc(-np.asarray(scores), labels) == pytest.approx(1 - auroc(scores, labels))


def test_auroc_of_one_class_is_not_a_number() -> None:
    assert math.isnan(auroc([0.1, 0.2], [0, 0]))
    assert math.isnan(auroc([], []))


@pytest.mark.parametrize(("scores", "labels"), [([float("nan"), 1.0], [0, 1]), ([1.0, 2.0], [0]), ([1.0, 2.0], [0, 2])])
def test_auroc_refuses_what_has_no_answer(scores: list[float], labels: list[int]) -> None:
    with pytest.raises(ValueError, match="must"):
        auroc(scores, labels)


def test_forgetting_compares_the_best_before_with_the_last() -> None:
    nan = float("nan")
    matrix = [[0.9, nan, nan], [0.6, 0.8, nan], [0.7, 0.9, 0.5]]
    assert forgetting(matrix) == pytest.approx(((0.9 - 0.7) + (0.8 - 0.9)) / 2)


def test_forgetting_is_zero_when_nothing_changes_and_undefined_for_one_task() -> None:
    assert forgetting(np.tril(np.full((5, 5), 0.987))) == 0
    assert math.isnan(forgetting([[0.9]]))
    with pytest.raises(ValueError, match="square"):
        forgetting([[0.9, 0.8]])
