"""Registration against movements that are known: found within a pixel or so, or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dinosaur_ad.core.registration import (
    Movement,
    Reference,
    Transform,
    carried_back,
    edge_images,
    make_reference,
    patches_in_image,
    seen_patches,
    transform_of,
)
from moved_product import lying, moving_photos, plate

MOVEMENTS = st.builds(
    Movement,
    right=st.floats(-0.12, 0.12),
    down=st.floats(-0.12, 0.12),
    degrees=st.floats(-15, 15),
    scale=st.floats(0.96, 1.04),
    correlation=st.just(1.0),
    unmoved=st.just(0.0),
)


def found(reference: Reference, photo: np.ndarray) -> Movement:
    return reference.find(edge_images(photo[None], reference.aspect))[0]


@pytest.mark.parametrize(("height", "width"), [(210, 210), (150, 300)])
@settings(max_examples=25, deadline=None)
@given(wanted=MOVEMENTS)
def test_a_movement_is_found_again(height: int, width: int, wanted: Movement) -> None:
    photo = plate(height, width)
    reference = Reference(edge_images(photo[None], width / height)[0])
    movement = found(reference, lying(photo, wanted.right, wanted.down, wanted.degrees, wanted.scale))
    assert movement.confident
    assert abs(movement.right - wanted.right) < 0.015
    assert abs(movement.down - wanted.down) < 0.015 * max(1, width / height)
    assert abs(movement.degrees - wanted.degrees) < 1.5
    assert abs(movement.scale - wanted.scale) < 0.03


def test_light_and_noise_change_little() -> None:
    photo = plate()
    reference = Reference(edge_images(photo[None])[0])
    generator = np.random.default_rng(0)
    dark = np.clip(0.5 * lying(photo, 0.06, -0.04, 7.0) + generator.normal(0, 4, photo.shape), 0, 255).astype(np.uint8)
    movement = found(reference, dark)
    assert movement.counts
    assert (movement.right, movement.down) == pytest.approx((0.06, -0.04), abs=0.01)
    assert movement.degrees == pytest.approx(7.0, abs=1.5)


def test_a_part_that_lies_right_stays_as_it_is() -> None:
    reference = Reference(edge_images(plate()[None])[0])
    movement = found(reference, moving_photos(1, 0.0, 0.0)[0])
    assert movement.confident
    assert not movement.counts
    assert movement.reach() < 0.01


@pytest.mark.parametrize("kind", ["stripes", "noise", "blank", "black"])
def test_what_shows_something_else_has_no_estimate(kind: str) -> None:
    reference = make_reference(edge_images(np.stack(moving_photos(8, 0.03, 4.0))))
    generator = np.random.default_rng(1)
    photo = {
        "stripes": np.repeat(np.indices((210, 210)).sum(axis=0)[..., None] // 20 % 2 * 200, 3, axis=2).astype(np.uint8),
        "noise": generator.integers(0, 256, (210, 210, 3), np.uint8),
        "blank": np.full((210, 210, 3), 128, np.uint8),
        "black": np.zeros((210, 210, 3), np.uint8),
    }[kind]
    movement = found(reference, photo)
    assert not movement.counts
    assert movement.correlation < 1


def test_what_is_not_a_number_is_no_estimate() -> None:
    nothing = Movement(0.0, 0.0, 0.0, 1.0, float("nan"), 0.0)
    assert not nothing.confident
    assert not nothing.counts


def test_a_reference_of_moving_parts_is_sharper_than_their_mean() -> None:
    edges = edge_images(np.stack(moving_photos(12, 0.06, 8.0)))
    registered, blurred = make_reference(edges), Reference(edges.mean(axis=0))
    seen = edge_images(np.stack(moving_photos(6, 0.06, 8.0, seed=9)))
    better, worse = (np.median([each.correlation for each in one.find(seen)]) for one in (registered, blurred))
    assert better > worse + 0.1


@settings(max_examples=40, deadline=None)
@given(movement=MOVEMENTS, aspect=st.floats(0.3, 3.0))
def test_a_transform_and_its_inverse_undo_each_other(movement: Movement, aspect: float) -> None:
    transform = transform_of(movement, aspect)
    x, y = np.random.default_rng(0).uniform(0, 1, (2, 20))
    assert np.allclose(transform.inverse().at(*transform.at(x, y)), (x, y), atol=1e-9)
    assert transform.movement() == pytest.approx(
        {name: getattr(movement, name) for name in ("right", "down", "degrees", "scale")}, abs=1e-3
    )


@settings(max_examples=60, deadline=None)
@given(movement=MOVEMENTS, seed=st.integers(0, 1000))
def test_a_map_carried_back_keeps_every_value_that_stands_out(movement: Movement, seed: int) -> None:
    values = np.random.default_rng(seed).uniform(1, 2, (9, 12)).astype(np.float32)
    transform = transform_of(movement, 1.0)
    back = carried_back(values, transform)
    rows, columns = patches_in_image(9, 12, transform)
    assert back.max() == values.max()
    assert np.all(back[rows, columns] >= values)
    assert np.all((back == 0) | np.isin(back, values))
    assert seen_patches(np.ones((9, 12), bool), transform).mean() > 0.5


def test_a_map_that_did_not_move_is_the_same() -> None:
    values = np.random.default_rng(0).uniform(1, 2, (7, 5)).astype(np.float32)
    still = Transform(1, 0, 0, 0, 1, 0)
    assert np.array_equal(carried_back(values, still), values)
    assert seen_patches(np.eye(7, 5, dtype=bool), still).tolist() == np.eye(7, 5, dtype=bool).tolist()


def test_what_is_no_number_stays_none_in_a_map_carried_back() -> None:
    values = np.ones((6, 6), np.float32)
    values[2, 3] = np.nan
    assert np.isnan(carried_back(values, Transform(1, 0, 0.05, 0, 1, 0.05))).any()
