from __future__ import annotations

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest

from dinosaur_ad.datasets.synthetic import PRODUCTS, SyntheticSample, synthetic_drift_scenario, synthetic_scenario
from dinosaur_ad.datasets.tasks import Sample
from dinosaur_ad.errors import InputError

KINDS = [(product.name, kind) for product in PRODUCTS.values() for kind in product.kinds]
ANY_KIND = [(product.name, kind) for product in PRODUCTS.values() for kind in ("good", *product.kinds)]
SIZE = 128


def difference_to_twin(sample: SyntheticSample) -> np.ndarray:
    twin = replace(sample, kind="good")
    return np.abs(sample.image().astype(int) - twin.image().astype(int)).max(axis=2)


@pytest.mark.parametrize(("product", "kind"), ANY_KIND)
def test_a_sample_is_a_pure_function_of_its_fields(product: str, kind: str) -> None:
    sample = SyntheticSample(product, kind, index=2, size=64)
    again = pickle.loads(pickle.dumps(sample))
    assert isinstance(sample, Sample)
    assert sample.image().shape == (64, 64, 3)
    assert sample.image().dtype == np.uint8
    assert sample.image().tobytes() == again.image().tobytes()
    assert sample.mask().tobytes() == again.mask().tobytes()
    assert sample.valid() is None


@pytest.mark.parametrize("product", PRODUCTS)
def test_normals_of_one_product_differ_as_on_a_real_line(product: str) -> None:
    shots = [SyntheticSample(product, index=i, size=SIZE) for i in range(4)]
    shots.append(SyntheticSample(product, index=0, seed=1, size=SIZE))
    images = [shot.image().astype(float) for shot in shots]
    for i, first in enumerate(images):
        for second in images[i + 1 :]:
            assert np.abs(first - second).mean() > 4  # clearly more than sensor noise alone would make
            assert abs(first.mean() - second.mean()) < 40  # and yet the same product under the same lamp


@pytest.mark.parametrize(("product", "kind"), KINDS)
def test_a_defect_changes_its_mask_and_almost_nothing_else(product: str, kind: str) -> None:
    for index in range(3):
        sample = SyntheticSample(product, kind, index=index, size=SIZE)
        mask, changed = sample.mask(), difference_to_twin(sample)
        assert mask.shape == (SIZE, SIZE)
        assert mask.dtype == np.bool_
        assert 0 < mask.mean() < 0.1
        assert changed[mask].max() >= 6, "visible in the mask"
        assert changed[mask].mean() > 8 * changed[~mask].mean()
        assert (changed[~mask] > 12).mean() < 0.005, "only soft shadows and blur outside it"


@pytest.mark.parametrize(("product", "kind"), KINDS)
@pytest.mark.parametrize("size", [64, 96])
def test_no_defect_vanishes_in_a_small_image(product: str, kind: str, size: int) -> None:
    for index in range(4):
        assert SyntheticSample(product, kind, index=index, seed=7, size=size).mask().any()


@pytest.mark.parametrize(("product", "kind"), KINDS)
def test_defects_of_a_kind_are_not_all_alike(product: str, kind: str) -> None:
    masks = {SyntheticSample(product, kind, index=i, size=64).mask().tobytes() for i in range(5)}
    assert len(masks) == 5


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_good_sample_is_normal_and_has_an_empty_mask(product: str) -> None:
    sample = SyntheticSample(product, size=64)
    assert (sample.label, sample.kind) == (0, "good")
    assert not sample.mask().any()


def test_a_missing_tablet_is_masked_where_the_tablet_was() -> None:
    sample = SyntheticSample("blister", "missing", index=1)
    twin = replace(sample, kind="good")
    mask = sample.mask()
    radius = np.sqrt(mask.sum() / np.pi)
    assert radius == pytest.approx(17.0, abs=0.5)
    # Twelve white or yellow tablets, but the floor of a dome is grey foil.
    assert np.ptp(sample.image()[mask].mean(axis=0)) < 12
    assert difference_to_twin(sample)[mask].mean() > 4 * difference_to_twin(twin).mean() + 20


def test_swapped_tablets_are_two_places_with_the_colours_exchanged() -> None:
    sample = SyntheticSample("blister", "swapped", index=1)
    mask = sample.mask()
    before, after = (s.image()[mask].astype(float).mean(axis=0) for s in (replace(sample, kind="good"), sample))
    assert mask.sum() == pytest.approx(2 * np.pi * 17.0**2, rel=0.03)
    np.testing.assert_allclose(before, after, atol=6)  # the same tablets in other places: the mean colour stays
    assert difference_to_twin(sample)[mask].mean() > 40


def test_the_scenario_teaches_normals_and_tests_every_kind() -> None:
    scenario = synthetic_scenario(seed=3, train=5, test_normal=4, test_per_kind=2, size=64)
    assert [task.name for task in scenario.tasks] == list(PRODUCTS)
    assert len(PRODUCTS) >= 5
    for task in scenario.tasks:
        kinds = PRODUCTS[task.name].kinds
        assert len(kinds) >= 4
        assert [s.kind for s in task.train] == ["good"] * 5
        assert [s.kind for s in task.test] == ["good"] * 4 + [kind for kind in kinds for _ in range(2)]
        assert all(s.label == (s.kind != "good") for s in task.test)


def test_no_test_image_has_its_twin_or_itself_among_the_others() -> None:
    scenario = synthetic_scenario(train=5, test_normal=4, test_per_kind=2, size=64)
    names = [s.name for task in scenario.tasks for s in (*task.train, *task.test)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_-]+", name) for name in names)
    for task in scenario.tasks:
        numbers = [s.name.rsplit("-", 1)[1] for s in (*task.train, *task.test)]
        assert len(set(numbers)) == len(numbers)


def test_products_can_be_chosen_and_come_in_the_order_asked_for() -> None:
    scenario = synthetic_scenario(train=1, test_normal=0, test_per_kind=0, products=["steel", "fabric"])
    assert [task.name for task in scenario.tasks] == ["steel", "fabric"]
    assert scenario.tasks[0].test == ()


def test_an_unknown_product_is_answered_with_those_there_are() -> None:
    with pytest.raises(InputError, match="bolt") as problem:
        synthetic_scenario(products=["gear", "bolt"])
    assert all(name in str(problem.value) for name in PRODUCTS)


def test_an_unknown_kind_is_answered_with_those_there_are() -> None:
    with pytest.raises(InputError, match="swapped") as problem:
        SyntheticSample("gear", "swapped")
    assert all(kind in str(problem.value) for kind in PRODUCTS["gear"].kinds)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"size": 8}, "64 to 1024"),
        ({"size": 5000}, "64 to 1024"),
        ({"seed": -1}, "negative"),
        ({"train": 0}, "at least 1"),
    ],
)
def test_impossible_scenarios_are_refused(arguments: dict[str, int], told: str) -> None:
    with pytest.raises(InputError, match=told):
        synthetic_scenario(**arguments)


def test_no_products_are_no_scenario() -> None:
    with pytest.raises(InputError):
        synthetic_scenario(products=[])


# One product under drift


def test_drifting_tasks_show_the_same_parts_under_growing_drift() -> None:
    scenario = synthetic_drift_scenario("color", 3, levels=(2, 9), train=3, test_normal=2, test_per_kind=1, size=64)
    mild, strong = scenario.tasks
    assert (scenario.name, scenario.same_images, scenario.replay) == ("synthetic-color", True, "widened")
    assert [sample.name for sample in mild.test] == [sample.name for sample in strong.test]
    assert [sample.kind for sample in mild.test] == ["good", "good", *PRODUCTS["fabric"].kinds]
    for weak, hard in zip(mild.train, strong.train, strict=True):
        assert 0.05 <= abs(weak.drift.factor - 1) <= 0.10
        assert 0.40 <= abs(hard.drift.factor - 1) <= 0.45
        assert weak.sample == hard.sample
    assert scenario == synthetic_drift_scenario(
        "color", 3, levels=(2, 9), train=3, test_normal=2, test_per_kind=1, size=64
    )


def test_replay_sees_the_training_parts_from_the_widened_range() -> None:
    scenario = synthetic_drift_scenario("geo", levels=(10,), train=20, test_normal=0, test_per_kind=0, size=64)
    (task,) = scenario.tasks
    assert [sample.sample for sample in task.widened] == [sample.sample for sample in task.train]
    assert len({sample.drift for sample in task.train}) == 1
    assert min(sample.drift.rotation for sample in task.widened) < 10  # the task itself is at 18 to 20 degrees


def test_what_drift_moves_out_of_the_picture_does_not_count() -> None:
    scenario = synthetic_drift_scenario("geo", levels=(10,), train=1, test_normal=1, test_per_kind=1, size=64)
    for sample in scenario.tasks[0].test:
        assert sample.image()[~sample.valid()].max() == 0
        assert 0.5 < sample.valid().mean() < 0.99
        assert not sample.mask()[~sample.valid()].any()


def test_equal_keys_are_equal_pixels_and_twins_have_different_ones() -> None:
    sample = SyntheticSample("gear", "chip", 3, size=64)
    assert sample.key() == SyntheticSample("gear", "chip", 3, size=64).key()
    others = [
        SyntheticSample("gear", "good", 3, size=64),
        SyntheticSample("gear", "chip", 4, size=64),
        SyntheticSample("gear", "chip", 3, seed=1, size=64),
        SyntheticSample("gear", "chip", 3, size=65),
    ]
    assert len({sample.key(), *(other.key() for other in others)}) == 5


def test_unknown_levels_and_drifts_are_refused() -> None:
    with pytest.raises(InputError, match="level 11 does not exist"):
        synthetic_drift_scenario("blur", levels=(11,))
    with pytest.raises(InputError, match="Drift 'fog' does not exist"):
        synthetic_drift_scenario("fog")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="has no tasks"):
        synthetic_drift_scenario("blur", levels=())
