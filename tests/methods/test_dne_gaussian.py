"""DNE's distribution against literal computations and scikit-learn's estimators."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dinosaur_ad.methods.dne.gaussian import (
    Gaussian,
    TaskStatistics,
    draw,
    draw_diagonal,
    empirical,
    global_gaussian,
    ledoit_wolf,
    pooled,
    shrink,
    shrunk,
    task_statistics,
    tied_share,
    unit_length,
)


def spread_out(rows: int, channels: int, seed: int = 0) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(rows, channels)) @ generator.normal(size=(channels, channels)) + 3


def test_mahalanobis_is_its_definition() -> None:
    mean_C, covariance_CC = shrunk(0.5)(spread_out(20, 5))
    points = spread_out(7, 5, seed=1)
    precision = np.linalg.inv(covariance_CC)
    expected = []
    for z in points:
        total = 0.0
        for i in range(5):
            for j in range(5):
                total += (z[i] - mean_C[i]) * precision[i, j] * (z[j] - mean_C[j])
        expected.append(math.sqrt(total))
    found = Gaussian(mean_C, covariance_CC).distance(points)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_what_never_varied_is_not_measured() -> None:
    flat = Gaussian(np.zeros(3), np.diag([4.0, 0.0, 1.0]))
    assert flat.rank == 2
    np.testing.assert_allclose(flat.distance(np.array([[2.0, 100.0, 1.0]])), [math.sqrt(2)])
    point = Gaussian(np.ones(3), np.zeros((3, 3)))
    assert point.rank == 0
    np.testing.assert_array_equal(point.distance(np.array([[1.0, 1, 1], [9, 9, 9]])), [0, 0])


def test_an_embedding_that_is_not_finite_has_no_distance() -> None:
    found = Gaussian(np.zeros(2), np.eye(2)).distance(np.array([[3.0, 4.0], [np.nan, 0], [np.inf, 0]]))
    np.testing.assert_array_equal(found, np.array([5, np.nan, np.nan], np.float32))


@pytest.mark.parametrize(("rows", "channels"), [(30, 6), (5, 12), (200, 3), (2, 4)])
def test_estimators_are_scikit_learns(rows: int, channels: int) -> None:
    reference = pytest.importorskip("sklearn.covariance")
    z_NC = spread_out(rows, channels)
    for estimate, theirs in (
        (ledoit_wolf, reference.LedoitWolf()),
        (shrunk(0.5), reference.ShrunkCovariance(shrinkage=0.5)),
    ):
        mean_C, covariance_CC = estimate(z_NC)
        theirs.fit(z_NC)
        np.testing.assert_allclose(mean_C, theirs.location_, rtol=1e-10)
        np.testing.assert_allclose(covariance_CC, theirs.covariance_, rtol=1e-8, atol=1e-12)


def test_shrinking_is_the_papers_formula() -> None:
    covariance_CC = empirical(spread_out(9, 4))[1]
    trace = sum(covariance_CC[i, i] for i in range(4))
    for i in range(4):
        for j in range(4):
            expected = 0.5 * covariance_CC[i, j] + (0.5 * trace / 4 if i == j else 0)
            assert shrink(covariance_CC, 0.5)[i, j] == pytest.approx(expected)


@pytest.mark.parametrize("estimate", [ledoit_wolf, shrunk(0.5)])
def test_one_image_and_none_give_a_point(estimate: Any) -> None:
    for rows in (1, 0):
        task = task_statistics(np.full((rows, 4), 2.5), estimate)
        assert task.count == rows
        assert not task.covariance_CC.any()
    assert task_statistics(np.array([[1.0, 2.0], [np.nan, 0.0]]), estimate).count == 1


def test_pooling_statistics_is_describing_everything_at_once() -> None:
    parts = [spread_out(rows, 4, seed=rows) + rows for rows in (5, 9, 14)]
    tasks = [task_statistics(part, empirical) for part in parts]
    mean_C, covariance_CC = pooled(tasks)
    for found, expected in zip((mean_C, covariance_CC), empirical(np.concatenate(parts)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    total = sum(task.count for task in tasks)
    literal = np.zeros((4, 4))
    for task in tasks:
        apart = task.mean_C - mean_C
        literal += task.count * (task.covariance_CC + np.outer(apart, apart)) / total
    np.testing.assert_allclose(covariance_CC, literal, rtol=1e-6)


def join(
    tasks: Sequence[TaskStatistics], pooling: Any, z_NC: NDArray[np.float64] | None = None, **options: Any
) -> Gaussian:
    defaults: dict[str, Any] = {"estimate": shrunk(0.5), "share": 0.5, "normalise": False, "seed": (0, 1)}
    real = np.zeros((1, len(tasks[0].mean_C))) if z_NC is None else z_NC
    return global_gaussian(tasks, real, pooling=pooling, **{**defaults, **options})


def test_many_draws_tend_to_the_closed_form() -> None:
    tasks = [task_statistics(spread_out(40, 3, seed=n) + 4 * n, shrunk(0.5)) for n in range(3)]
    many = [dataclasses.replace(task, count=100_000) for task in tasks]
    closed, sampled = join(many, "closed-form"), join(many, "sampled")
    np.testing.assert_allclose(sampled.mean_C, closed.mean_C, rtol=0.01, atol=0.02)
    np.testing.assert_allclose(sampled.covariance_CC, closed.covariance_CC, rtol=0.03, atol=0.1)
    assert not np.array_equal(sampled.mean_C, join(many, "sampled", seed=(1, 1)).mean_C)


def test_draws_have_the_tasks_mean_covariance_and_number() -> None:
    task = dataclasses.replace(task_statistics(spread_out(30, 3), empirical), count=50_000)
    drawn = draw(task, np.random.default_rng(0))
    assert drawn.shape == (50_000, 3)
    np.testing.assert_allclose(empirical(drawn)[1], task.covariance_CC, rtol=0.05, atol=0.1)


def test_the_published_code_takes_variances_for_deviations() -> None:
    covariance = np.array([[0.04, 0.03], [0.03, 0.09]], np.float32)
    drawn = draw_diagonal(TaskStatistics(np.zeros(2, np.float32), covariance, 100_000), np.random.default_rng(0))
    found = np.cov(drawn.T)
    np.testing.assert_allclose(np.sqrt(np.diag(found)), [0.04, 0.09], rtol=0.02)
    assert abs(found[0, 1]) < 1e-4  # and drops what lies off the diagonal


def test_the_published_code_makes_a_point_of_a_collapsed_task_and_the_others_do_not() -> None:
    z_NC = 1 + 1e-5 * spread_out(30, 4)  # apart by far more than single precision's step of 1e-7
    task = task_statistics(z_NC, shrunk(0.5))
    assert join([task], "sampled-diagonal").rank == 0
    assert not join([task], "sampled-diagonal").distance(z_NC).any()
    assert join([task], "closed-form").rank == 4
    assert tied_share(join([task], "closed-form").distance(z_NC)) == 0


def test_the_original_puts_the_real_embeddings_of_the_last_task_beside_draws_of_the_others() -> None:
    past, real = task_statistics(spread_out(50, 3), ledoit_wolf), unit_length(spread_out(20, 3, seed=2))
    last = task_statistics(real, ledoit_wolf)
    alone = join([last], "sampled-past", real, estimate=ledoit_wolf, normalise=True)
    for found, expected in zip((alone.mean_C, alone.covariance_CC), ledoit_wolf(real), strict=True):
        np.testing.assert_allclose(found, expected)
    both = join([past, last], "sampled-past", real, estimate=ledoit_wolf, normalise=True)
    drawn = draw(past, np.random.default_rng([0, 1, 0]))
    np.testing.assert_allclose(both.mean_C, ledoit_wolf(unit_length(np.concatenate([drawn, real])))[0])


def test_a_task_of_768_channels_takes_the_papers_megabytes() -> None:
    task = task_statistics(np.random.default_rng(0).normal(size=(3, 768)), shrunk(0.5))
    assert task.nbytes == 4 * (768 * 768 + 768 + 1) == 2_362_372
    assert task.covariance_CC.dtype == np.float32
