from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dinosaur_ad.bench.metrics import PixelTally, mask_at, task_tally
from dinosaur_ad.datasets.synthetic import SyntheticSample
from dinosaur_ad.images.loading import Mask

sklearn = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed (it comes with the extra 'dev')")

LEVELS = 9  # as many bins as values, so that the tally is exact

Image = tuple[np.ndarray, Mask, Mask]


@dataclass(frozen=True)
class Photo:
    """A sample of which only the marks matter."""

    marks: Mask | None
    seen: Mask | None = None
    label: int = 1
    name: str = "photo"
    kind: str = "crack"

    def image(self) -> np.ndarray:
        raise AssertionError("pixel metrics have no business with the image")

    def mask(self) -> Mask | None:
        return self.marks

    def valid(self) -> Mask | None:
        return self.seen

    def regions(self) -> list[tuple[Mask, int]] | None:
        return None

    def key(self) -> str:
        return self.name


@dataclass(frozen=True)
class Itemised(Photo):
    """One that knows its defects one by one."""

    area: int = 1

    def regions(self) -> list[tuple[Mask, int]]:
        assert self.marks is not None
        return [(self.marks, self.area)]


def images(seed: int, count: int = 3, shape: tuple[int, int] = (7, 8)) -> list[Image]:
    """Maps of whole numbers below LEVELS, marks in blobs, and what counts; the first image is normal."""
    rng = np.random.default_rng(seed)
    drawn: list[Image] = []
    for n in range(count):
        mask = rng.random(shape) < (0.2 if n else 0)
        values = np.minimum(rng.integers(0, LEVELS, shape) + 2 * mask, LEVELS - 1)
        drawn.append((values.astype(np.float32), mask, rng.random(shape) < 0.9))
    return drawn


def components(mask: Mask) -> list[Mask]:
    """The connected parts of a mask, corners included, by walking from pixel to pixel."""
    left = {(int(r), int(c)) for r, c in np.argwhere(mask)}
    parts = []
    while left:
        part, border = np.zeros_like(mask), [left.pop()]
        while border:
            row, column = border.pop()
            part[row, column] = True
            near = {(row + dr, column + dc) for dr in (-1, 0, 1) for dc in (-1, 0, 1)} & left
            left -= near
            border += near
        parts.append(part)
    return parts


def literal_area(
    photos: list[Image], found_share: Callable[[np.ndarray, Mask, Mask], list[float]], limit: float
) -> float:
    """The area under (false-alarm rate, mean share found) up to ``limit``, threshold by threshold."""
    rates, shares = [0.0], [0.0]
    for threshold in range(LEVELS - 1, -1, -1):
        alarms = [(values >= threshold)[valid & ~mask] for values, mask, valid in photos]
        rates.append(float(np.concatenate(alarms).mean()))
        shares.append(float(np.mean([s for v, m, k in photos for s in found_share(v >= threshold, m, k)])))
    # Many points on the curve, so that its end at the limit needs no special case.
    x = np.unique(np.concatenate([np.linspace(0, limit, 20_001), [rate for rate in rates if rate <= limit]]))
    # Where the curve jumps, np.interp takes one end of the jump; just beside it both agree.
    middle = (x[1:] + x[:-1]) / 2
    return float((np.interp(middle, rates, shares) * np.diff(x)).sum() / limit)


def tally_of(photos: list[Image], areas: bool = False) -> PixelTally:
    tally = PixelTally(0, LEVELS - 1, bins=8 * LEVELS)
    for values, mask, valid in photos:
        tally.add(
            values, mask, valid, [(part, 1 + n % 4) for n, part in enumerate(components(mask))] if areas else None
        )
    return tally


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.sampled_from([3, 16, 1000, 2**16]))
def test_the_auroc_is_scikit_learns_within_its_bound(seed: int, bins: int) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random((20, 20)) < 0.3
    values = (rng.normal(size=(20, 20)) + mask).astype(np.float32)
    tally = PixelTally(values.min(), values.max(), bins=bins)
    tally.add(values, mask)
    found = tally.auroc()
    exact = sklearn.roc_auc_score(mask.ravel(), values.ravel())
    assert abs(found.value - exact) <= found.bound + 1e-12
    assert found.bound < (0.001 if bins == 2**16 else 0.5)  # of use only while it is small


def test_one_bin_tells_nothing_and_says_so() -> None:
    tally = PixelTally(0, 1, bins=1)
    tally.add(np.array([[0.0, 0.2, 1.0]]), np.array([[False, False, True]]))
    assert (tally.auroc().value, tally.auroc().bound) == (0.5, 0.5)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32))
def test_pixels_of_all_images_are_pooled_and_the_invalid_left_out(seed: int) -> None:
    photos = images(seed)
    labels = np.concatenate([mask[valid] for _, mask, valid in photos])
    values = np.concatenate([values[valid] for values, _, valid in photos])
    if labels.any():
        assert tally_of(photos).auroc().value == pytest.approx(sklearn.roc_auc_score(labels, values))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([0.05, 0.3, 1.0]))
def test_aupro_is_the_mean_share_of_every_region(seed: int, limit: float) -> None:
    def shares(alarm: Mask, mask: Mask, valid: Mask) -> list[float]:
        return [float(alarm[part & valid].mean()) for part in components(mask) if (part & valid).any()]

    photos = images(seed)
    tally = tally_of(photos)
    regions = [part & valid for _, mask, valid in photos for part in components(mask)]
    assert tally.regions == sum(part.any() for part in regions)
    assert tally.vanished == sum(not part.any() for part in regions)
    if tally.regions:
        assert tally.aupro(limit) == pytest.approx(literal_area(photos, shares, limit), abs=2e-4)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([0.05, 0.3, 1.0]))
def test_au_spro_is_the_definition_with_its_minimum(seed: int, limit: float) -> None:
    def shares(alarm: Mask, mask: Mask, valid: Mask) -> list[float]:
        found = []
        for n, part in enumerate(components(mask)):
            size = int((part & valid).sum())
            if size:
                saturation = min(1 + n % 4, size)
                found.append(min(float(alarm[part & valid].sum()) / saturation, 1.0))
        return found

    photos = images(seed)
    tally = tally_of(photos, areas=True)
    assert tally.saturated_regions == tally.regions
    assert tally.saturated_vanished == tally.vanished
    if tally.regions:
        assert tally.au_spro(limit) == pytest.approx(literal_area(photos, shares, limit), abs=2e-4)


def test_regions_weigh_the_same_whatever_their_size() -> None:
    mask = np.zeros((20, 20), bool)
    mask[2:12, 2:12] = True  # found
    mask[18, 18] = True  # missed
    tally = PixelTally(0, 1)
    tally.add((mask & (np.arange(20) < 15)).astype(float), mask)
    # 0.5 from the first threshold on; the other half only comes with everything else, along a straight line.
    assert tally.aupro(limit=0.3) == pytest.approx(0.5 + 0.5 * 0.3 / 2)


def test_saturated_means_found() -> None:
    mask = np.zeros((10, 10), bool)
    mask[:, :5] = True
    found = np.zeros((10, 10))
    found[:2, :5] = 1  # 10 of 50 pixels
    tally = PixelTally(0, 1)
    tally.add(found, mask, regions=[(mask, 10)])
    assert tally.au_spro() == 1
    assert tally.aupro(limit=0.05) == pytest.approx(0.2 + 0.8 * 0.05 / 2)
    with pytest.raises(ValueError, match="at least one pixel"):
        tally.add(found, mask, regions=[(mask, 0)])


def test_a_region_outside_what_counts_vanishes_and_is_counted() -> None:
    mask = np.zeros((6, 6), bool)
    mask[0, 0] = mask[4:, 4:] = True
    valid = np.ones((6, 6), bool)
    valid[:2] = False
    tally = PixelTally(0, 1)
    tally.add(mask.astype(float), mask, valid, [(mask, 2), (mask & ~valid, 1)])
    assert (tally.regions, tally.vanished, tally.saturated_regions, tally.saturated_vanished) == (1, 1, 1, 1)
    assert (tally.normal_B.sum(), tally.anomalous_B.sum()) == (20, 4)


def test_a_constant_map_knows_nothing_for_sure() -> None:
    mask = np.eye(5, dtype=bool)
    tally = PixelTally(3.0, 3.0)
    tally.add(np.full((5, 5), 3.0), mask)
    assert (tally.auroc().value, tally.auroc().bound) == (0.5, 0)
    assert tally.aupro() == pytest.approx(0.15)  # the diagonal: half of 0.3


def test_nan_pixels_stand_below_all_others_and_are_counted() -> None:
    tally = PixelTally(0.0, 0.0)
    tally.add(np.array([[np.nan, 0.0]]), np.array([[False, True]]))
    assert (tally.nan, tally.auroc().value, tally.auroc().bound) == (1, 1.0, 0.0)
    tally.add(np.array([[np.nan, 0.0]]), np.array([[True, False]]), np.array([[False, True]]))
    assert tally.nan == 1  # the second NaN does not count at all


def test_values_outside_the_range_count_as_its_ends() -> None:
    tally = PixelTally(0.0, 1.0)
    tally.add(np.array([[-np.inf, -5.0, 0.5, 7.0, np.inf]]), np.array([[False, False, False, True, True]]))
    assert tally.auroc().value == 1


def test_without_anything_to_measure_there_is_no_value() -> None:
    normal_only, defects_only = PixelTally(0, 1), PixelTally(0, 1)
    normal_only.add(np.zeros((3, 3)), np.zeros((3, 3), bool))
    defects_only.add(np.zeros((3, 3)), np.ones((3, 3), bool))
    for tally in (PixelTally(0, 1), normal_only, defects_only):
        assert all(math.isnan(value) for value in (tally.auroc().value, tally.auroc().bound, tally.aupro()))
        assert math.isnan(tally.au_spro())


def test_two_tallies_make_one() -> None:
    photos = images(5, count=6)
    apart, whole = tally_of(photos[:2], areas=True) + tally_of(photos[2:], areas=True), tally_of(photos, areas=True)
    assert vars(apart).keys() == vars(whole).keys()
    for name, value in vars(whole).items():
        np.testing.assert_allclose(getattr(apart, name), value)
    with pytest.raises(ValueError, match="same range"):
        whole + PixelTally(0, 5)


def test_what_does_not_fit_is_refused() -> None:
    for low, high in ((1, 0), (0, np.inf), (np.nan, 1)):
        with pytest.raises(ValueError, match="finite"):
            PixelTally(low, high)
    with pytest.raises(ValueError, match="one shape"):
        PixelTally(0, 1).add(np.zeros((3, 3)), np.zeros((3, 3), bool), np.zeros((2, 3), bool))
    for limit in (0, 1.5):
        with pytest.raises(ValueError, match="limit"):
            tally_of(images(0)).aupro(limit)


def test_a_task_is_measured_at_one_size_whatever_the_photographs_have() -> None:
    samples = [SyntheticSample("gear", "extra_hole", 3), SyntheticSample("gear", index=4)]
    mask = samples[0].mask()
    assert mask is not None
    maps = np.stack([mask_at(mask, 28), np.zeros((28, 28), bool)]).astype(np.float32)
    tally = task_tally(maps, samples, size=112)
    assert tally.images == 2
    assert tally.normal_B.sum() + tally.anomalous_B.sum() == 2 * 112 * 112
    assert tally.auroc().value > 0.98
    assert tally.aupro() > 0.9
    assert task_tally(-maps, samples, size=112).auroc().value < 0.02


def test_a_task_at_native_size_takes_the_defects_one_by_one() -> None:
    mask = np.zeros((30, 40), bool)
    mask[10:20, 8:16] = True
    maps = np.zeros((2, 15, 20), np.float32)
    maps[0, 5:7, 4:8] = 1
    samples = [Itemised(mask, area=10), Photo(np.zeros((50, 20), bool))]
    native, square = task_tally(maps, samples, size=None), task_tally(maps, samples, size=30)
    assert native.normal_B.sum() + native.anomalous_B.sum() == 30 * 40 + 50 * 20
    assert native.saturated_regions == 1
    assert native.au_spro() > native.aupro(limit=0.05)
    assert square.saturated_regions == 0
    assert square.regions == 1


def test_what_a_task_leaves_out_is_counted() -> None:
    speck = np.zeros((200, 200), bool)
    speck[0, 0] = True
    half = np.arange(200) < np.full((200, 1), 100)
    samples = [Photo(None), Photo(speck), Photo(np.zeros_like(speck), half), Photo(half)]
    maps = np.random.default_rng(0).random((4, 5, 5))
    maps[2, 0, 0] = np.inf
    tally = task_tally(maps, samples, size=20)
    assert (tally.unmarked, tally.vanished, tally.images, tally.nan) == (1, 1, 3, 0)
    assert tally.normal_B.sum() + tally.anomalous_B.sum() == 400 + 200 + 400
    assert tally.high == maps[np.isfinite(maps)].max()
    with pytest.raises(ValueError, match="one map a sample"):
        task_tally(maps[:3], samples)


def test_maps_that_hold_no_number_at_all_are_chance_and_counted() -> None:
    tally = task_tally(np.full((1, 4, 4), np.nan), [Photo(np.eye(8, dtype=bool))], size=8)
    assert (tally.auroc().value, tally.nan) == (0.5, 64)


def test_memory_does_not_grow_with_the_images() -> None:
    rng = np.random.default_rng(0)
    maps = rng.random((60, 14, 14), dtype=np.float32)
    samples = [Photo(np.eye(300, dtype=bool))] * 60
    task_tally(maps[:2], samples[:2])  # what is loaded and cached once

    def peak(count: int) -> int:
        tracemalloc.start()
        task_tally(maps[:count], samples[:count])
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    one_map = 224 * 224 * 4
    assert abs(peak(60) - peak(3)) < one_map / 4
