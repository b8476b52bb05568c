"""The benchmark measures the detector that ships."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from method_helpers import tiny
from numpy.typing import NDArray

from detector_helpers import product, spoil
from dinosaur_ad import Dinosaur
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Lesson, Photo, Workbench
from dinosaur_ad.methods.dinosaur import DinosaurConfig, DinosaurMethod
from dinosaur_ad.methods.dinosaur.photo_features import PhotoFeatures, array_mover
from dinosaur_ad.store import Store


def as_photos(images: Sequence[NDArray[np.uint8]], name: str) -> tuple[Photo, ...]:
    return tuple(Photo(f"{name}-{n}", lambda image=image: image) for n, image in enumerate(images))  # type: ignore[misc]


NORMALS = {f"product-{kind}": product(kind, 24) for kind in range(3)}
TESTS = [image for kind in range(3) for image in product(kind, 4, seed=9)]
TESTS += [spoil(image) for image in TESTS]


def teach(method: DinosaurMethod, **held_out: list[NDArray[np.uint8]]) -> DinosaurMethod:
    for name, images in NORMALS.items():
        method.learn(Lesson(name, as_photos(images, name), as_photos(held_out.get(name, []), "held-out")))
    return method


@pytest.fixture(params=["dinosaur", "dinosaur:fast", "dinosaur:paper"])
def method(request: pytest.FixtureRequest) -> DinosaurMethod:
    built = tiny(request.param).build(Workbench(seed=5))
    assert isinstance(built, DinosaurMethod)
    return teach(built)


def test_scores_routes_maps_and_thresholds_are_the_detectors(method: DinosaurMethod) -> None:
    detector = Dinosaur(encoder=method.encoder, preset=method.preset, seed=5)
    for name, images in NORMALS.items():
        detector.learn(name, images)
    inspections = detector.inspect(TESTS)
    scores = method.score(as_photos(TESTS, "test"))
    # |x|² - 2xy + |y|² in single precision: at a distance of .1 between tokens of length 1, processors differ by 2e-5.
    np.testing.assert_allclose(scores.image, [each.score for each in inspections], rtol=1e-4)
    assert scores.routes == tuple(each.task for each in inspections)
    assert scores.maps is not None
    assert scores.thresholds is not None
    np.testing.assert_allclose(scores.maps, [each.map for each in inspections], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(scores.thresholds, [each.threshold for each in inspections], rtol=1e-6)


def test_what_was_answered_before_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    method = tiny("dinosaur").build(Workbench())
    assert isinstance(method, DinosaurMethod)
    teach(method)
    photos = as_photos(TESTS, "test")
    before = method.score(photos)
    monkeypatch.setattr(PhotoFeatures, "_encode", None)  # there is no cache here: asking anything would encode
    again = method.score(photos[::-1])
    np.testing.assert_array_equal(again.image[::-1], before.image)
    with pytest.raises(TypeError):
        method.score(as_photos(product(0, 1, seed=77), "new"))


def test_without_a_cache_an_image_is_encoded_once_at_each_exposure(monkeypatch: pytest.MonkeyPatch) -> None:
    method = tiny("dinosaur").build(Workbench())
    assert isinstance(method, DinosaurMethod)
    teach(method)
    encoded: list[tuple[str, Any]] = []
    encode = PhotoFeatures._encode

    def watched(self: PhotoFeatures, photos: Sequence[Photo], exposure: Any, turn: Any) -> NDArray[np.float32]:
        encoded.extend((photo.key, exposure) for photo in photos)
        return encode(self, photos, exposure, turn)

    monkeypatch.setattr(PhotoFeatures, "_encode", watched)
    photos = as_photos(TESTS, "test")
    method.score(photos)
    assert len(encoded) == len(set(encoded))
    assert {key for key, _ in encoded} == {photo.key for photo in photos}
    assert len({exposure for _, exposure in encoded}) > 1


def test_held_out_normals_set_the_threshold_and_nothing_else() -> None:
    plain, informed = (tiny("dinosaur").build(Workbench()) for _ in range(2))
    assert isinstance(plain, DinosaurMethod)
    assert isinstance(informed, DinosaurMethod)
    teach(plain)
    teach(informed, **{"product-0": [spoil(image) for image in product(0, 45, seed=3)]})
    photos = as_photos(TESTS, "test")
    one, other = plain.score(photos), informed.score(photos)
    np.testing.assert_array_equal(one.image, other.image)
    assert one.thresholds is not None
    assert other.thresholds is not None
    assert other.thresholds[0] > one.thresholds[0]
    np.testing.assert_array_equal(one.thresholds[4:12], other.thresholds[4:12])


def test_arrays_of_torch_give_the_same_answers(
    method: DinosaurMethod, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    mover = array_mover("cpu:0")  # torch, where "cpu" is NumPy
    monkeypatch.setattr("dinosaur_ad.methods.dinosaur.photo_features.array_mover", lambda device: mover)
    twin = teach(DinosaurMethod(method.config, Workbench(seed=5)))
    photos = as_photos(TESTS, "test")
    one, learned_alike = method.score(photos), twin.score(photos)
    assert one.thresholds is not None
    assert learned_alike.thresholds is not None
    np.testing.assert_allclose(one.thresholds, learned_alike.thresholds, rtol=1e-2)
    method.save(tmp_path / "one")
    twin.save(tmp_path / "other")
    banks = [Store.open(tmp_path / name / "store") for name in ("one", "other")]
    for name in NORMALS:
        ours, theirs = (bank.arrays(bank.record(name), "bank") for bank in banks)
        for part in {"codes", "coarse_codes"} & ours.keys():
            steps = np.abs(ours[part].astype(np.int16) - theirs[part].astype(np.int16))
            # A value between two steps of int8 is rounded either way; all others are the same.
            assert steps.max() <= 1
            assert np.mean(steps > 0) < 0.002
    if not any("codes" in banks[0].arrays(banks[0].record(name), "bank") for name in NORMALS):
        np.testing.assert_allclose(one.image, learned_alike.image, rtol=1e-3)
    twin.load(tmp_path / "one")
    np.testing.assert_allclose(one.image, twin.score(photos).image, rtol=1e-3)


@pytest.mark.filterwarnings("error")
def test_an_array_that_is_not_writable_moves_to_a_device_without_a_warning() -> None:
    torch = pytest.importorskip("torch")
    bank_HWMC = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    bank_HWMC.flags.writeable = False  # as a store gives it
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # otherwise it warns once in a process
    try:
        moved_HWMC = array_mover("cpu:0")(bank_HWMC)
    finally:
        torch.set_warn_always(always)
    assert isinstance(moved_HWMC, torch.Tensor)
    assert moved_HWMC.dtype == torch.float32
    moved_HWMC += 1
    assert bank_HWMC.ravel().tolist() == list(range(24))


def test_settings_differ_from_the_preset_only_where_they_say_so() -> None:
    changed = DinosaurConfig(preset="paper", radius=2, ratio=0.05).to_preset()
    assert (changed.radius, changed.ratio, changed.top, changed.layers) == (2, 0.05, 0.0, ("final",))
    assert DinosaurConfig().to_preset().reserve == 0
    earlier = DinosaurConfig(folds=0, map_softness=1).to_preset()
    assert (earlier.folds, earlier.map_softness) == (0, 1)
    fused = DinosaurConfig(map_closing=0, map_relative=0).to_preset()
    assert fused == replace(DinosaurConfig().to_preset(), map_closing=0, map_relative=0)


def test_one_image_is_not_enough() -> None:
    built = tiny("dinosaur").build(Workbench())
    with pytest.raises(InputError, match="at least 2 normal images"):
        built.learn(Lesson("lonely", as_photos(product(0, 1), "one")))


def test_an_unknown_preset_is_answered_with_those_there_are() -> None:
    with pytest.raises(InputError, match="no preset 'papr'; choose one of: default, fast, best, paper"):
        DinosaurConfig(preset="papr").to_preset()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("ratio", 0), ("ratio", 1.5), ("radius", -1), ("minimum", 0), ("top", 2), ("limit", 0)),
        *(("folds", -1), ("map_softness", 0.5), ("map_closing", 1.1), ("map_relative", -0.1)),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting: str, value: float) -> None:
    with pytest.raises(InputError, match=f"DINOSaur's {setting} must"):
        DinosaurConfig(**{setting: value})  # type: ignore[arg-type]


def test_each_task_sees_an_image_at_its_own_exposure() -> None:
    config = tiny("dinosaur").config
    assert isinstance(config, DinosaurConfig)
    built = DinosaurMethod(replace(config, margin=1e9), Workbench(seed=5))  # so that both tasks are compared
    bright = product(0, 24)
    lit = {"bright": bright, "dark": [(image * 0.45).astype(np.uint8) for image in bright]}
    detector = Dinosaur(encoder=built.encoder, preset=built.preset, seed=5)
    for name, images in lit.items():
        detector.learn(name, images, force=True)  # the guard takes them for one product
        built.learn(Lesson(name, as_photos(images, name)))
    between = [(image * light).astype(np.uint8) for image in TESTS[:4] for light in (1.0, 0.7, 0.45)]
    inspections = detector.inspect(between)
    assert all(len(each.asked) == 2 for each in inspections)
    scores = built.score(as_photos(between, "test"))
    np.testing.assert_allclose(scores.image, [each.score for each in inspections], rtol=1e-5)
    assert scores.routes == tuple(each.task for each in inspections)
