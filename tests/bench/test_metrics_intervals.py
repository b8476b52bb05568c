from __future__ import annotations

import math

import numpy as np
import pytest

from dinosaur_ad.bench.metrics import Interval, bootstrap_mean_auroc, intervals, seed_spread
from dinosaur_ad.core.metrics import auroc

TRUE_AUROC = 0.5 * (1 + math.erf(0.5))  # of N(1, 1) against N(0, 1): the normal distribution function at 1 / sqrt(2)
LABELS = np.repeat([0, 1], [60, 50])

Task = tuple[np.ndarray, np.ndarray]


def photographed(seed: int) -> Task:
    return np.random.default_rng(seed).normal(LABELS, 1.0), LABELS


def width(interval: Interval) -> float:
    return interval.high - interval.low


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    found = [bootstrap_mean_auroc([photographed(seed)], paired=False, resamples=300) for seed in range(200)]
    covered = sum(interval.low <= TRUE_AUROC <= interval.high for interval in found)
    assert 180 <= covered <= 198  # 95 % of 200 is 190, give or take three standard deviations


def test_it_is_the_bootstrap_written_out() -> None:
    tasks = [photographed(1), photographed(2)]
    rng = np.random.default_rng(99)
    means = []
    for _ in range(2000):
        values = []
        for scores, _ in tasks:
            normal, anomalous = rng.choice(scores[:60], 60), rng.choice(scores[60:], 50)
            values.append(auroc(np.concatenate([normal, anomalous]), LABELS))
        means.append(np.mean(values))
    found = bootstrap_mean_auroc(tasks, paired=False, resamples=2000)
    assert [found.low, found.high] == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.006)


def test_the_same_images_in_every_task_do_not_make_the_mean_surer() -> None:
    once, ten_times = [photographed(0)], [photographed(0)] * 10
    alone = bootstrap_mean_auroc(once, paired=True)
    paired = bootstrap_mean_auroc(ten_times, paired=True)
    apart = bootstrap_mean_auroc(ten_times, paired=False)
    assert [paired.low, paired.high] == pytest.approx([alone.low, alone.high])
    assert width(apart) == pytest.approx(width(alone) / math.sqrt(10), rel=0.15)


def test_ties_and_nan_are_resampled_like_any_score() -> None:
    constant = bootstrap_mean_auroc([(np.full(110, 3.0), LABELS)], paired=False)
    assert constant == Interval(0.5, 0.5)
    lost = np.where(LABELS == 1, np.nan, 0.0)
    assert bootstrap_mean_auroc([(lost, LABELS)], paired=False) == Interval(0.0, 0.0)


def test_a_wider_level_gives_a_wider_interval_and_a_seed_the_same_one() -> None:
    tasks = [photographed(0)]
    narrow = bootstrap_mean_auroc(tasks, paired=False, level=0.5)
    wide = bootstrap_mean_auroc(tasks, paired=False, level=0.99)
    assert wide.low < narrow.low < auroc(*tasks[0]) < narrow.high < wide.high
    assert bootstrap_mean_auroc(tasks, paired=False) == bootstrap_mean_auroc(tasks, paired=False)
    assert bootstrap_mean_auroc(tasks, paired=False, seed=1) != bootstrap_mean_auroc(tasks, paired=False)


def test_many_images_are_resampled_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [photographed(0), photographed(1)]
    whole = bootstrap_mean_auroc(tasks, paired=True)
    monkeypatch.setattr(intervals, "_BLOCK", 7 * 110)  # 7 resamples at a time, the last block not full
    blocks = bootstrap_mean_auroc(tasks, paired=True)
    assert [blocks.low, blocks.high] == pytest.approx([whole.low, whole.high], abs=0.012)


def test_what_cannot_be_measured_is_not_a_number() -> None:
    for tasks in ([], [photographed(0), (np.zeros(3), np.zeros(3))]):
        found = bootstrap_mean_auroc(tasks, paired=False)
        assert math.isnan(found.low)
        assert math.isnan(found.high)


def test_pairing_tasks_of_other_images_is_refused() -> None:
    with pytest.raises(ValueError, match="same labels in the same order"):
        bootstrap_mean_auroc([photographed(0), (np.arange(110.0), LABELS[::-1])], paired=True)
    with pytest.raises(ValueError, match="level must be"):
        bootstrap_mean_auroc([photographed(0)], paired=False, level=95)


def test_the_spread_over_seeds_divides_by_one_less() -> None:
    assert seed_spread([1.0, 2.0, 6.0]) == (3.0, pytest.approx(math.sqrt((4 + 1 + 9) / 2)))
    mean, spread = seed_spread([0.9])
    assert mean == 0.9
    assert math.isnan(spread)
    assert all(math.isnan(value) for value in seed_spread([]))
