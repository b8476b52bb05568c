"""A memory of an endless stream: bounded, nearly as good as seeing everything at once, and robust to single defects."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from core_helpers import Backend, examples, naive_coreset, naive_radius, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core.stream_memory import StreamMemory, begin_stream, follow_stream, stream_distances

Patches = NDArray[np.floating]


@st.composite
def streams(draw: st.DrawFn, *, most: int = 14) -> Patches:
    """Images (N, H, W, C) with many equal patches."""
    shape = draw(st.tuples(st.integers(1, most), st.integers(1, 2), st.integers(1, 2), st.integers(1, 3)))
    return draw(whole_numbers(shape, np.float64, largest=8))


def followed(backend: Backend, patches: Patches, members: int, **options: int) -> StreamMemory:
    begun = begin_stream(backend.array(patches[0]), members)
    return follow_stream(begun, backend.array(patches), **options)


def kept(memory: StreamMemory, location: int) -> Patches:
    arrays = memory.arrays()
    return arrays["vectors_LKC"][location][arrays["support_LK"][location] > 0]


def same_bytes(one: StreamMemory, other: StreamMemory) -> bool:
    ours, theirs = one.arrays(), other.arrays()
    return all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


@examples
@given(patches=streams(), members=st.integers(1, 4))
def test_it_covers_within_eight_times_what_any_choice_and_the_greedy_one_reach(
    backend: Backend, patches: Patches, members: int
) -> None:
    memory = followed(backend, patches, members)
    points_LNC = patches.reshape(len(patches), -1, patches.shape[-1]).transpose(1, 0, 2)
    for location, points in enumerate(points_LNC):
        reached = naive_radius(points, kept(memory, location))
        size = min(members, len(points))
        greedy = naive_radius(points, points[naive_coreset(points, 0, size)])
        assert reached <= 8 * greedy * (1 + 1e-9)
        unique = np.unique(points, axis=0)
        if len(unique) <= 8:
            choices = combinations(range(len(unique)), min(members, len(unique)))
            best = min(naive_radius(points, unique[list(chosen)]) for chosen in choices)
            assert reached <= 8 * best * (1 + 1e-9)


@examples
@given(patches=streams(most=30), members=st.integers(1, 4))
def test_members_are_patches_of_the_stream_and_their_support_counts_every_image_once(
    backend: Backend, patches: Patches, members: int
) -> None:
    memory = followed(backend, patches, members)
    points_LNC = patches.reshape(len(patches), -1, patches.shape[-1]).transpose(1, 0, 2)
    arrays = memory.arrays()
    assert (arrays["support_LK"].sum(axis=1) == len(patches)).all()
    for location, points in enumerate(points_LNC):
        found = {tuple(each) for each in kept(memory, location).tolist()}
        assert 1 <= len(found) == len(kept(memory, location)) <= members
        assert found <= {tuple(each) for each in points.tolist()}


@examples
@given(patches=streams(most=30), data=st.data())
def test_any_split_into_batches_gives_the_same_bytes(backend: Backend, patches: Patches, data: st.DataObject) -> None:
    options = {"patience": data.draw(st.integers(1, 20)), "probation": data.draw(st.integers(1, 20))}
    whole = followed(backend, patches, 3, **options)
    memory, rest = begin_stream(backend.array(patches[0]), 3), patches
    while len(rest):
        count = data.draw(st.integers(1, len(rest)))
        memory, rest = follow_stream(memory, backend.array(rest[:count]), **options), rest[count:]
    assert same_bytes(memory, whole)


def test_real_numbers_give_the_same_bytes_in_any_split_and_after_a_file() -> None:
    patches = np.random.default_rng(0).normal(size=(200, 3, 3, 24)).astype(np.float32)
    whole = follow_stream(begin_stream(patches[0], 8), patches, patience=50)
    half = follow_stream(begin_stream(patches[0], 8), patches[:77], patience=50)
    again = StreamMemory.of({name: values.copy() for name, values in half.arrays().items()})
    assert same_bytes(follow_stream(again, patches[77:], patience=50), whole)


def test_following_leaves_the_memory_it_began_with(backend: Backend) -> None:
    patches = np.random.default_rng(0).normal(size=(9, 2, 2, 3))
    begun = followed(backend, patches, 3)
    before = {name: values.copy() for name, values in begun.arrays().items()}
    follow_stream(begun, backend.array(patches + 1))
    assert all((before[name] == values).all() for name, values in begun.arrays().items())


def test_real_numbers_are_covered_about_as_well_as_by_the_offline_selection() -> None:
    points = np.random.default_rng(1).normal(size=(500, 16)).astype(np.float32)
    memory = follow_stream(begin_stream(points[0][None, None], 20), points[:, None, None])
    greedy = naive_radius(points, points[naive_coreset(points, 0, 20)])
    assert naive_radius(points, kept(memory, 0)) <= 8 * greedy


def test_its_size_does_not_grow() -> None:
    rng = np.random.default_rng(2)
    memory = begin_stream(np.zeros((2, 2, 4), np.float32), 5)
    size = memory.nbytes
    for turn in range(40):  # ever further away: nothing can be covered for good
        memory = follow_stream(memory, rng.normal(turn * 10, 1, size=(25, 2, 2, 4)).astype(np.float32))
        assert memory.nbytes == size
    assert memory.images == 1000


def test_a_patch_of_one_image_is_not_normal_until_a_second_image_has_it() -> None:
    begun = begin_stream(np.zeros((1, 1, 1)), 4, resolution=1.0)
    patches = np.asarray([0.0, 0.2, 9.0]).reshape(3, 1, 1, 1)
    memory = follow_stream(begun, patches)
    asked = np.full((1, 1, 1, 1), 9.1)
    assert stream_distances(memory, asked)[0, 0, 0] == pytest.approx(9.1)
    memory = follow_stream(memory, asked)
    assert stream_distances(memory, asked)[0, 0, 0] == pytest.approx(0.1)


def test_nothing_is_normal_before_a_second_image() -> None:
    memory = follow_stream(begin_stream(np.zeros((1, 1, 1)), 4, resolution=1.0), np.zeros((1, 1, 1, 1)))
    assert np.isinf(stream_distances(memory, np.zeros((1, 1, 1, 1)))).all()


@pytest.mark.parametrize("share", [0.0, 0.02, 0.05, 0.1])
def test_defects_that_each_look_different_do_not_become_normal(share: float) -> None:
    """Ten per cent of the images with a defect of its own: new defects are as far away as without them."""
    rng = np.random.default_rng(3)
    normal = rng.normal(size=(400, 2, 2, 16))
    bad = rng.random(400) < share
    stream = normal.copy()
    stream[bad] += rng.normal(size=(int(bad.sum()), 1, 1, 16)) * 6
    memory = follow_stream(begin_stream(stream[0], 20, resolution=6.0), stream, probation=60)
    clean = follow_stream(begin_stream(stream[0], 20, resolution=6.0), normal, probation=60)
    defects = rng.normal(size=(50, 2, 2, 16)) + rng.normal(size=(50, 1, 1, 16)) * 6
    goods = rng.normal(size=(50, 2, 2, 16))
    ours = stream_distances(memory, defects).max(axis=(1, 2))
    theirs = stream_distances(clean, defects).max(axis=(1, 2))
    alarm, clean_alarm = (np.quantile(stream_distances(each, goods).max(axis=(1, 2)), 0.98) for each in (memory, clean))
    assert (ours > alarm).mean() >= (theirs > clean_alarm).mean() - 0.05


def test_what_was_not_seen_for_long_leaves_and_what_is_seen_stays() -> None:
    yesterday, today = np.zeros((30, 1, 1, 2)), np.full((30, 1, 1, 2), 5.0)
    begun = begin_stream(yesterday[0], 6, resolution=1.0)
    memory = follow_stream(begun, np.concatenate([yesterday, today[:20]]), patience=20)
    assert len(kept(memory, 0)) == 2
    memory = follow_stream(memory, today[20:], patience=20)
    assert kept(memory, 0).tolist() == [[5.0, 5.0]]
    both = np.concatenate([yesterday[:1], today[:9]])
    for _ in range(8):  # once in ten images is often enough
        memory = follow_stream(memory, both, patience=20)
    assert len(kept(memory, 0)) == 2


def test_a_slow_drift_is_followed_without_the_memory_of_the_beginning() -> None:
    rng = np.random.default_rng(4)
    level = np.linspace(0, 40, 2000)[:, None, None, None]
    stream = level + rng.normal(0, 0.5, size=(2000, 1, 1, 8))
    memory = follow_stream(begin_stream(stream[0], 20, resolution=3.0), stream, patience=200)
    assert stream_distances(memory, stream[-50:]).max() <= 4 * np.sqrt(memory.spacing_L[0]) + 1e-9
    assert stream_distances(memory, stream[:50]).min() > 60  # 40 in each of 8 channels is 113 away


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"support_LK": None}, "lacks support_LK"),
        ({"support_LK": np.zeros((1, 9), np.int64)}, "do not fit"),
        ({"spacing_L": np.zeros(7)}, "cannot be"),
        ({"vectors_LKC": np.full((1, 3, 1), np.nan)}, "cannot be"),
    ],
)
def test_arrays_that_are_no_memory_are_refused(change: dict[str, np.ndarray | None], sentence: str) -> None:
    arrays = follow_stream(begin_stream(np.zeros((1, 1, 1)), 2), np.zeros((2, 1, 1, 1))).arrays()
    wrong = {name: values for name, values in (arrays | change).items() if values is not None}
    with pytest.raises(ValueError, match=sentence):
        StreamMemory.of(wrong)


@pytest.mark.parametrize("options", [{"patience": 0}, {"probation": 0}])
def test_a_patience_of_no_images_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1 image"):
        follow_stream(begin_stream(np.zeros((1, 1, 1)), 2), np.zeros((1, 1, 1, 1)), **options)
