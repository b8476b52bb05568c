"""A task's memory: right sources, grown in pieces as well as at once, scored only against what it has not seen."""

from __future__ import annotations

import numpy as np
import pytest
from core_helpers import DTYPES, Backend, examples, unseen_distances, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core.coreset import coreset_size, covering_radius
from dinosaur_ad.core.memory import Coreset, remember, remember_parts, unseen_parts
from dinosaur_ad.core.scoring import patch_distances
from dinosaur_ad.presets import FAST

Floats = NDArray[np.floating]


@st.composite
def patches_of_images(draw: st.DrawFn) -> Floats:
    """Patches (N, H, W, C) with many duplicates."""
    shape = draw(st.tuples(st.integers(2, 8), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)))
    return draw(whole_numbers(shape, draw(DTYPES)))


def taught(backend: Backend, patches: Floats, start: int, size: int, known: Coreset | None = None) -> Coreset:
    source = np.arange(start, start + len(patches))
    return remember(backend.array(patches), backend.array(source), size, known=known, seed=2)


def assert_remembers(backend: Backend, memory: Coreset, patches: Floats) -> None:
    """Every member is the patch of its source image at its own location, and no image is there twice."""
    vectors, source = backend.back(memory.vectors_HWMC), backend.back(memory.source_HWM)
    rows, columns = np.indices(source.shape[:2])
    np.testing.assert_array_equal(vectors, patches[source, rows[..., None], columns[..., None]])
    assert np.all(np.diff(np.sort(source, axis=2), axis=2) > 0)


@examples
@given(patches=patches_of_images(), size=st.integers(1, 10))
def test_members_are_patches_of_their_sources(backend: Backend, patches: Floats, size: int) -> None:
    memory = taught(backend, patches, 0, size)
    assert memory.members == min(size, len(patches))
    assert_remembers(backend, memory, patches)


@examples
@given(patches=patches_of_images(), data=st.data())
def test_memories_of_parts_are_those_made_of_each_part_alone(
    backend: Backend, patches: Floats, data: st.DataObject
) -> None:
    cut, size = data.draw(st.integers(0, len(patches) - 1)), data.draw(st.integers(1, 9))
    known = taught(backend, patches[:cut], 0, 3) if cut else None
    new, source = patches[cut:], np.arange(cut, len(patches))
    parts = [np.arange(len(new)), np.arange(0, len(new), 2)]
    found = remember_parts(backend.array(new), backend.array(source), size, parts, known=known, seed=2)
    for part, memory in zip(parts, found, strict=True):
        rows = backend.array(new[part]), backend.array(source[part])
        for one, other in zip(memory, remember(*rows, size, known=known, seed=2), strict=True):
            np.testing.assert_array_equal(backend.back(one), backend.back(other))


@examples
@given(patches=patches_of_images(), data=st.data())
def test_a_grown_memory_keeps_its_first_pick_and_its_sources(
    backend: Backend, patches: Floats, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(patches) - 1))
    known = taught(backend, patches[:cut], 0, data.draw(st.integers(1, 6)))
    grown = taught(backend, patches[cut:], cut, data.draw(st.integers(1, 9)), known)
    assert_remembers(backend, grown, patches)
    for before, after in zip(known, grown, strict=True):
        np.testing.assert_array_equal(backend.back(after)[:, :, 0], backend.back(before)[:, :, 0])


@examples
@given(patches=patches_of_images(), data=st.data())
def test_the_first_members_are_the_smaller_memory(backend: Backend, patches: Floats, data: st.DataObject) -> None:
    members = data.draw(st.integers(1, len(patches)))
    first, small = taught(backend, patches, 0, len(patches)).first(members), taught(backend, patches, 0, members)
    assert first.members == members
    for part, whole in zip(first, small, strict=True):
        np.testing.assert_array_equal(backend.back(part), backend.back(whole))


def normals(seed: int, images: int = 240) -> Floats:
    """Patches (N, 4, 4, 32) as encoders give them: a few modes per location, of unequal frequency and spread."""
    rng = np.random.default_rng(seed)
    modes = rng.normal(size=(6, 4, 4, 32))
    mode_N = rng.choice(6, size=images, p=[0.4, 0.25, 0.15, 0.1, 0.07, 0.03])
    spread_N = rng.lognormal(-1.2, 0.4, size=(images, 1, 1, 1))
    patches = modes[mode_N] + spread_N * rng.normal(size=(images, 4, 4, 32))
    return (patches / np.linalg.norm(patches, axis=-1, keepdims=True)).astype(np.float32)


def grown_in(backend: Backend, patches: Floats, chunk: int) -> Coreset:
    """The memory that the preset fast ends with when images come ``chunk`` at a time."""
    memory, members = None, 0
    for start in range(0, len(patches), chunk):
        members = coreset_size(start + chunk, FAST.ratio, FAST.minimum)
        memory = taught(backend, patches[start : start + chunk], start, round(members * (1 + FAST.reserve)), memory)
    assert memory is not None
    return memory.first(members)


def coverage(backend: Backend, patches: Floats, memory: Coreset) -> float:
    """Mean over the locations of the distance of the worst-covered patch."""
    images, height, width, channels = patches.shape
    points = backend.array(np.ascontiguousarray(patches.reshape(images, -1, channels).swapaxes(0, 1)))
    centres = memory.vectors_HWMC.reshape(height * width, memory.members, channels)
    return float(backend.back(covering_radius(points, centres)).mean())


@pytest.mark.parametrize("chunk", [10, 30, 120])
def test_feeding_in_pieces_covers_as_well_as_feeding_at_once(backend: Backend, chunk: int) -> None:
    """With the candidates that the preset fast keeps beside the bank, and in whatever order images come."""
    for seed in range(3):
        patches = normals(seed)
        for order in (np.arange(len(patches)), np.argsort(patches[:, 0, 0, 0])):
            at_once, pieces = (grown_in(backend, patches[order], count) for count in (len(patches), chunk))
            assert pieces.members == at_once.members
            ratio = coverage(backend, patches, pieces) / coverage(backend, patches, at_once)
            assert ratio < 1.07


def unlike_images(images: int) -> Floats:
    """Images of which each has one patch that nothing else resembles: patches (N, 3, 3, C)."""
    patches = np.random.default_rng(0).normal(scale=0.01, size=(images, 3, 3, images)).astype(np.float32)
    patches[np.arange(images), np.arange(images) % 3, np.arange(images) // 3 % 3, np.arange(images)] = 10
    return patches


@pytest.mark.parametrize("parts", [2, 5, 10, 40])
@pytest.mark.parametrize("images", [2, 7, 20])
def test_no_image_is_compared_with_itself(backend: Backend, images: int, parts: int) -> None:
    patches = unlike_images(images)
    own = patch_distances(backend.array(patches), taught(backend, patches, 0, images).vectors_HWMC, 1)
    unseen = unseen_distances(backend.array(patches), images, 1, at_least=images, parts=parts)
    assert backend.back(own).max() < 0.1
    assert unseen.shape == (images, 3, 3)
    assert np.all(backend.back(unseen).max(axis=(1, 2)) > 9)


def test_all_other_images_may_vouch_for_one(backend: Backend) -> None:
    """Five times every image: five folds cannot hold all its twins out, so each finds one."""
    patches = np.concatenate([unlike_images(4)] * 6)
    unseen = backend.back(unseen_distances(backend.array(patches), len(patches), 1, at_least=len(patches)))
    assert unseen.max() < 0.1


def test_what_was_known_before_may_vouch_for_new_images(backend: Backend) -> None:
    patches = unlike_images(5)
    known = taught(backend, patches, 0, 5)
    unseen = unseen_distances(backend.array(patches), 10, 1, at_least=5, known=known)
    assert backend.back(unseen).max() < 0.1
    alone = unseen_distances(backend.array(patches[:1]), 10, 1, at_least=5, known=known)
    assert alone.shape == (1, 3, 3)


@pytest.mark.parametrize(("at_least", "scored"), [(1, 6), (6, 6), (7, 12), (24, 24), (100, 30)])
def test_no_more_images_are_scored_than_needed(backend: Backend, at_least: int, scored: int) -> None:
    patches = np.random.default_rng(0).normal(size=(30, 2, 2, 4))
    assert unseen_distances(backend.array(patches), 5, 1, at_least=at_least).shape == (scored, 2, 2)


@examples
@given(count=st.integers(1, 60), at_least=st.integers(1, 80), parts=st.integers(1, 40), seed=st.integers(0, 5))
def test_every_image_is_held_out_once_or_not_at_all(count: int, at_least: int, parts: int, seed: int) -> None:
    held_out: list[int] = []
    for held, rest in unseen_parts(count, at_least=at_least, parts=parts, seed=seed):
        assert len(held_out) < at_least, "more parts than were asked for"
        assert sorted([*held.tolist(), *rest.tolist()]) == list(range(count))
        held_out += held.tolist()
    assert len(held_out) == len(set(held_out)) >= min(count, at_least)
