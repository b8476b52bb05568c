from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dinosaur_ad.bench.metrics import bwt, final_average, fm_diagonal, fm_paper, fm_std, fwt
from dinosaur_ad.core.metrics import forgetting

NAN = float("nan")
MEASURES = (fm_paper, fm_std, fm_diagonal, bwt, fwt, final_average)

matrices = st.integers(2, 6).flatmap(
    lambda tasks: arrays(np.float64, (tasks, tasks), elements=st.floats(0, 1, width=32))
)

# Task 1 (second column) was best before it was learned, and gained at the end; task 0 was best in between.
WORKED = np.array(
    [
        [0.80, 0.90, 0.40],
        [0.86, 0.70, 0.55],
        [0.77, 0.72, 0.95],
    ]
)


def test_the_worked_example() -> None:
    assert fm_paper(WORKED) == pytest.approx(((0.86 - 0.77) + (0.90 - 0.72)) / 2)
    assert fm_std(WORKED) == pytest.approx(((0.86 - 0.77) + (0.70 - 0.72)) / 2)
    assert fm_diagonal(WORKED) == pytest.approx(((0.80 - 0.77) + (0.70 - 0.72)) / 2)
    assert bwt(WORKED) == -fm_diagonal(WORKED)
    assert fwt(WORKED) == pytest.approx(((0.90 - 0.5) + (0.55 - 0.5)) / 2)
    assert fwt(WORKED, chance=0.0) == pytest.approx((0.90 + 0.55) / 2)
    assert final_average(WORKED) == pytest.approx((0.77 + 0.72 + 0.95) / 3)


@given(matrices)
def test_the_definitions_written_out(a: np.ndarray) -> None:
    last = len(a) - 1
    paper = [max(a[t, j] for t in range(last)) - a[last, j] for j in range(last)]
    assert fm_paper(a) == pytest.approx(np.mean(paper), abs=1e-11)
    assert fm_std(a) == forgetting(a)
    assert fm_paper(a) >= fm_std(a) >= fm_diagonal(a)
    assert fm_diagonal(a) == -bwt(a)


def test_nothing_changed_is_exactly_zero() -> None:
    same = np.tile(np.random.default_rng(0).random(7), (7, 1))
    assert fm_paper(same) == fm_std(same) == fm_diagonal(same) == bwt(same) == 0


def test_a_nan_that_is_read_is_passed_on_and_one_that_is_not_is_not() -> None:
    above = WORKED.copy()
    above[0, 1] = NAN
    assert math.isnan(fm_paper(above))
    assert math.isnan(fwt(above))
    assert fm_std(above) == fm_std(WORKED)
    assert fm_diagonal(above) == fm_diagonal(WORKED)
    last = WORKED.copy()
    last[2, 0] = NAN
    assert all(math.isnan(measure(last)) for measure in (fm_paper, fm_std, fm_diagonal, bwt, final_average))


def test_a_single_task_can_neither_be_forgotten_nor_foreseen() -> None:
    assert all(math.isnan(measure([[0.9]])) for measure in (fm_paper, fm_std, fm_diagonal, bwt, fwt))
    assert final_average([[0.9]]) == 0.9


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("matrix", [[[0.9, 0.8]], [0.9, 0.8]])
def test_only_square_matrices_are_read(measure: object, matrix: list[object]) -> None:
    assert callable(measure)
    with pytest.raises(ValueError, match="square"):
        measure(matrix)
