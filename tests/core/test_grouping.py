"""Pictures that show the same are one group, whatever their order."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dinosaur_ad.core.grouping import belongs, groups

CONTROLS = np.float32([[100, 0, 0], [0, 100, 0]])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 12))
def test_products_far_apart_are_groups_in_any_order(seed: int, products: int, pictures: int) -> None:
    random = np.random.default_rng(seed)
    kind_N = random.permutation(np.repeat(np.arange(products), pictures))
    centre_TC = 60 * np.float32([[0, 0, 1], [0, 0, 3], [0, 0, -1], [0, 0, -3]])
    descriptor_NC = (centre_TC[kind_N] + random.uniform(-1, 1, (len(kind_N), 3))).astype(np.float32)
    found = groups(descriptor_NC, CONTROLS)
    assert sorted(n for group in found for n in group) == list(range(len(kind_N)))
    assert [set(kind_N[group]) for group in found] == [{kind_N[group[0]]} for group in found]
    assert len(found) == products


def test_pictures_that_all_differ_are_no_group() -> None:
    descriptor_NC = np.float32(90 * np.eye(3)[[0, 1, 2]] * [[-1], [-1], [-1]])
    assert groups(descriptor_NC, CONTROLS) == [[0], [1], [2]]
    assert not belongs(descriptor_NC[0], descriptor_NC[1:], CONTROLS)


def test_copies_of_a_picture_that_shows_nothing_are_one_group() -> None:
    assert groups(np.repeat(CONTROLS[:1], 3, axis=0), CONTROLS) == [[0, 1, 2]]


def test_none_are_no_groups() -> None:
    assert groups(np.empty((0, 3), np.float32), CONTROLS) == []
