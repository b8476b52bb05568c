from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from detector_helpers import TINY, TINY_PAPER, product, spoil
from dinosaur_ad import Dinosaur
from dinosaur_ad.core.coreset import covering_radius
from dinosaur_ad.encoders import load_encoder
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.inspection import Inspection, Rejected


def tiny(store: Path | None = None, preset=TINY, **options) -> Dinosaur:
    return Dinosaur(store, encoder="tiny-dinov2", preset=preset, **options)


def tree_hash(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in files)).hexdigest()


@pytest.fixture(scope="module")
def taught() -> Dinosaur:
    detector = tiny()
    for kind in range(3):
        detector.learn(f"product-{kind}", product(kind, 30))
    return detector


def test_products_are_told_apart_and_defects_found_without_naming_the_task(taught: Dinosaur) -> None:
    for kind in range(3):
        normal = taught.inspect(product(kind, 8, seed=99))
        spoiled = taught.inspect([spoil(image) for image in product(kind, 8, seed=99)])
        assert {each.task for each in normal + spoiled} == {f"product-{kind}"}
        assert min(each.score for each in spoiled) > max(each.score for each in normal)
        assert all(each.anomalous for each in spoiled)


def test_the_paper_preset_is_the_paper_to_the_letter() -> None:
    """Eq. 4-9 written out with loops: final-norm tokens as they come, k-centre, window, maximum, nearest prototype."""
    encoder = load_encoder("tiny-dinov2", layers=("final",), size=70)
    detector = Dinosaur(encoder=encoder, preset=replace(TINY_PAPER, minimum=6))
    train = [product(kind, 40) for kind in range(2)]
    test = [*product(0, 3, seed=5), *(spoil(image) for image in product(1, 3, seed=6))]
    for kind in range(2):
        detector.learn(f"product-{kind}", train[kind])
    results = detector.inspect(test)

    train_tokens, test_tokens = [encoder.encode(images) for images in train], encoder.encode(test)
    banks, thresholds = [], []
    for tokens in train_tokens:
        firsts = np.random.default_rng(0).integers(0, 40, size=25)
        banks.append({divmod(k, 5): literal_coreset(tokens.patches[:, k // 5, k % 5], 6, firsts[k]) for k in range(25)})
        in_sample = [literal_map(patches, banks[-1], radius=3).max() for patches in tokens.patches]
        thresholds.append(np.quantile(in_sample, 0.975))
    for n, result in enumerate(results):
        away = [np.linalg.norm(test_tokens.cls[n] - tokens.cls.mean(axis=0)) for tokens in train_tokens]
        routed = int(np.argmin(away))
        distances = literal_map(test_tokens.patches[n], banks[routed], radius=3)
        assert result.task == f"product-{routed}"
        np.testing.assert_allclose(result.map, distances, rtol=1e-3, atol=1e-3)
        assert result.score == pytest.approx(distances.max(), rel=1e-4)
        assert result.threshold == pytest.approx(thresholds[routed], rel=1e-3)
        assert result.anomalous == (distances.max() > thresholds[routed])


def literal_coreset(points: np.ndarray, size: int, first: int) -> np.ndarray:
    chosen = [int(first)]
    while len(chosen) < size:
        nearest = [min(np.linalg.norm(point - points[k]) for k in chosen) for point in points]
        chosen.append(int(np.argmax(nearest)))
    return points[chosen]


def literal_map(patches: np.ndarray, bank: dict[tuple[int, int], np.ndarray], radius: int) -> np.ndarray:
    result = np.empty(patches.shape[:2])
    for i, j in np.ndindex(result.shape):
        near = [members for (a, b), members in bank.items() if abs(a - i) <= radius and abs(b - j) <= radius]
        result[i, j] = min(np.linalg.norm(member - patches[i, j]) for members in near for member in members)
    return result


def test_an_inspection_says_where_and_compared_with_what(taught: Dinosaur) -> None:
    image = spoil(product(1, 1, seed=5)[0], row=30, column=40)
    result = taught.inspect(image)[0]
    left, top, right, bottom = result.worst.box
    assert left < 52
    assert right > 40
    assert top < 42
    assert bottom > 30
    assert result.worst.distance == pytest.approx(float(result.map.max()), rel=1e-3)
    assert result.worst.like_image.startswith("image-")
    assert abs(result.worst.like_row - result.worst.row) <= TINY.radius
    assert result.map.shape == (5, 5)
    assert result.normal_level < result.threshold < result.score
    assert result.p_value <= 1 / 30
    assert set(result.ms) == {"decode", "resize", "encode", "route", "score", "total"}
    assert result.encoder == "tiny-dinov2"


def test_learning_a_new_task_changes_nothing_about_the_old_ones() -> None:
    images = [*product(0, 6, seed=3), *(spoil(image) for image in product(0, 6, seed=4))]
    detector = tiny()
    detector.learn("first", product(0, 30))
    before = detector.inspect(images)
    for kind in range(1, 5):
        detector.learn(f"later-{kind}", product(kind, 30))
    after = detector.inspect(images)
    assert [each.score for each in after] == [each.score for each in before]
    assert [each.verdict for each in after] == [each.verdict for each in before]


def test_order_of_learning_does_not_matter() -> None:
    forward, backward = tiny(), tiny()
    for kind in range(3):
        forward.learn(f"product-{kind}", product(kind, 24))
        backward.learn(f"product-{2 - kind}", product(2 - kind, 24))
    images = [spoil(product(kind, 1, seed=8)[0]) for kind in range(3)]
    assert [each.score for each in forward.inspect(images)] == [each.score for each in backward.inspect(images)]


def test_same_images_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        tiny(tmp_path / name).learn("x", product(0, 25))
    banks = [(tmp_path / name / "tasks" / "x" / "v0001" / "bank.safetensors").read_bytes() for name in ("a", "b")]
    assert banks[0] == banks[1]


def test_batch_and_single_inspection_agree(taught: Dinosaur) -> None:
    images = [product(kind, 1, seed=20 + kind)[0] for kind in range(3)] * 7
    together = taught.inspect(images)
    alone = [taught.inspect(image)[0] for image in images]
    assert [each.task for each in together] == [each.task for each in alone]
    np.testing.assert_allclose([e.score for e in together], [e.score for e in alone], rtol=2e-5)


def test_naming_the_task_skips_the_routing(taught: Dinosaur) -> None:
    result = taught.inspect(product(0, 1)[0], task="product-2")[0]
    assert result.task == "product-2"
    assert list(result.asked) == ["product-2"]
    assert result.anomalous


def test_the_shortlist_decides_by_the_banks() -> None:
    """Close prototypes are no reason to guess: the bank that knows the image must win."""
    detector = tiny(preset=replace(TINY, margin=float("inf")))
    for kind in range(3):
        detector.learn(f"product-{kind}", product(kind, 24))
    result = detector.inspect(product(2, 1, seed=77)[0])[0]
    assert set(result.asked) == {"product-0", "product-1", "product-2"}
    assert result.task == min(result.asked, key=result.asked.__getitem__) == "product-2"


def test_a_lower_false_alarm_rate_means_a_higher_threshold(taught: Dinosaur) -> None:
    image = product(0, 1)[0]
    strict, usual, loose = (taught.inspect(image, false_alarms=rate)[0].threshold for rate in (0.001, 0.025, 0.3))
    assert strict > usual > loose


def test_unseen_normals_stay_below_the_threshold_at_about_the_rate_asked_for() -> None:
    detector = tiny()
    detector.learn("x", product(0, 120))
    flagged = [each.anomalous for each in detector.inspect(product(0, 200, seed=50), false_alarms=0.1)]
    assert np.mean(flagged) <= 0.2


def test_held_out_normals_set_the_threshold_and_nothing_else() -> None:
    images = product(0, 30)
    usual, apart = tiny(), tiny()
    usual.learn("x", images)
    noisy = [
        np.clip(image + np.random.default_rng(k).normal(0, 25, image.shape), 0, 255) for k, image in enumerate(images)
    ]
    report = apart.learn("x", images, held_out=[image.astype(np.uint8) for image in noisy])
    assert report.images == 30
    np.testing.assert_array_equal(*(each.store.arrays("x", "bank")["vectors"] for each in (usual, apart)))
    assert apart.threshold("x") > usual.threshold("x")
    assert apart.tasks()[0].manifest["calibration"] == {"kind": "held-out", "scores": 30}
    assert apart.learn("one", images[:1], held_out=images[1:9]).members == 1


def test_update_accepts_what_was_wrongly_flagged() -> None:
    detector = tiny()
    detector.learn("x", product(0, 30))
    odd = [spoil(image) for image in product(0, 3, seed=60)]
    assert all(each.anomalous for each in detector.inspect(odd))
    report = detector.update("x", odd)
    assert (report.images, report.total_images) == (3, 33)
    again = detector.inspect([spoil(image) for image in product(0, 3, seed=61)])
    assert not any(each.anomalous for each in again)
    elsewhere = [spoil(image, row=5, column=5) for image in product(0, 3, seed=62)]
    assert all(each.anomalous for each in detector.inspect(elsewhere))


def test_feeding_in_chunks_covers_as_well_as_feeding_at_once() -> None:
    images = product(0, 150)
    at_once, in_chunks = tiny(), tiny()
    at_once.learn("x", images)
    in_chunks.learn("x", images[:40])
    for start in range(40, 150, 22):
        in_chunks.update("x", images[start : start + 22])
    patches, _ = at_once._combine(at_once.encoder.encode(images))
    points_LDC = patches.reshape(150, 25, -1).transpose(1, 0, 2)

    def radius(detector: Dinosaur) -> float:
        vectors = np.asarray(detector.store.arrays("x", "bank")["vectors"], np.float32)
        assert vectors.shape[2] == 30
        return float(covering_radius(points_LDC, vectors.reshape(25, 30, -1)).mean())

    assert radius(in_chunks) <= 1.05 * radius(at_once)
    one, other = (each.tasks()[0].manifest["images"] for each in (at_once, in_chunks))
    assert len(one) == len(other) == 150


def test_many_images_are_learned_in_bounded_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dinosaur_ad.detector.LEARN_AT_ONCE", 20)
    detector = tiny()
    report = detector.learn("x", iter(product(0, 50)))
    assert (report.total_images, report.members) == (50, 20)
    assert not detector.inspect(product(0, 1, seed=9)[0])[0].anomalous
    assert detector.inspect(spoil(product(0, 1, seed=9)[0]))[0].anomalous


def test_forget_and_undo(tmp_path: Path) -> None:
    detector = tiny(tmp_path / "store")
    detector.learn("a", product(0, 20))
    detector.learn("b", product(1, 20))
    image = product(0, 1, seed=3)[0]
    known = detector.inspect(image)[0]
    detector.forget("a")
    assert [record.name for record in detector.tasks()] == ["b"]
    assert detector.inspect(image)[0].task == "b"
    assert detector.undo("a") == "forget"
    assert detector.inspect(image)[0].score == known.score
    detector.update("a", product(0, 5, seed=30))
    assert detector.undo("a") == "update"
    assert detector.inspect(image)[0].score == known.score
    assert detector.undo("b") == "learn"
    assert [record.name for record in detector.tasks()] == ["a"]


def test_save_and_load_keep_every_score(tmp_path: Path, taught: Dinosaur) -> None:
    images = [spoil(product(kind, 1, seed=12)[0]) for kind in range(3)]
    taught.save(tmp_path / "copy")
    loaded = Dinosaur.load(tmp_path / "copy")
    assert [record.name for record in loaded.tasks()] == [record.name for record in taught.tasks()]
    assert [each.score for each in loaded.inspect(images)] == [each.score for each in taught.inspect(images)]


def test_a_running_detector_sees_what_another_process_teaches(tmp_path: Path) -> None:
    teacher = tiny(tmp_path / "store")
    teacher.learn("a", product(0, 20))
    watcher = Dinosaur.load(tmp_path / "store")
    image = product(1, 1, seed=4)[0]
    assert watcher.inspect(image)[0].task == "a"
    teacher.learn("b", product(1, 20))
    assert watcher.inspect(image)[0].task == "b"


def test_banks_are_loaded_within_the_byte_budget(tmp_path: Path, taught: Dinosaur) -> None:
    taught.save(tmp_path / "copy")
    images = [product(kind, 1, seed=12)[0] for kind in range(3)]
    one_bank = 5 * 5 * 20 * 17 * 4
    detector = Dinosaur.load(tmp_path / "copy", cache_bytes=one_bank + 1)
    assert [each.task for each in detector.inspect(images)] == ["product-0", "product-1", "product-2"]
    assert len(detector._banks.cache) == 1
    assert detector._banks.cache.nbytes <= one_bank


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_bank_precision(tmp_path: Path, precision: str) -> None:
    detector = tiny(tmp_path / "store", preset=replace(TINY, precision=precision))
    detector.learn("x", product(0, 20))
    assert detector.store.arrays("x", "bank")["vectors"].dtype == precision


# --- wrong input: one sentence, nothing lost ---


def test_a_bad_file_is_skipped_and_reported(tmp_path: Path) -> None:
    for index, image in enumerate(product(0, 20)):
        Image.fromarray(image).save(tmp_path / f"{index:02d}.png")
    (tmp_path / "07b.png").write_bytes(b"not an image")
    detector = tiny()
    report = detector.learn("x", tmp_path)
    assert report.images == 20
    assert [Path(each.path).name for each in report.rejected] == ["07b.png"]
    results = list(detector.stream(tmp_path))
    assert [type(each) for each in results].count(Rejected) == 1
    assert isinstance(results[8], Rejected)
    assert sum(isinstance(each, Inspection) for each in results) == 20
    with pytest.raises(InputError, match=r"07b\.png"):
        detector.inspect(tmp_path)


def test_worst_patch_names_the_training_file(tmp_path: Path) -> None:
    for index, image in enumerate(product(0, 5)):
        Image.fromarray(image).save(tmp_path / f"{index:02d}.png")
    detector = tiny()
    detector.learn("x", tmp_path)
    assert Path(detector.inspect(product(0, 1)[0])[0].worst.like_image).is_file()


@pytest.mark.parametrize(
    ("images", "match"),
    [
        ([], "at least one image"),
        (product(0, 1), "at least 2 normal images"),
        ([np.zeros((70, 70, 3), np.float32)] * 3, "uint8"),
        ([np.zeros((70, 70, 4), np.uint8)] * 3, "shape|channels"),
        (Path("no-such-folder"), "no-such-folder"),
    ],
)
def test_unusable_images_are_refused_and_nothing_changes(tmp_path: Path, images, match: str) -> None:
    detector = tiny(tmp_path / "store")
    detector.learn("good", product(0, 20))
    before = tree_hash(tmp_path)
    with pytest.raises(InputError, match=match):
        detector.learn("bad", images)
    assert tree_hash(tmp_path) == before


def test_few_images_and_mixed_sizes_are_fine() -> None:
    detector = tiny()
    images = product(0, 4)
    images[1] = np.asarray(Image.fromarray(images[1]).resize((140, 90)))
    assert detector.learn("x", images).members == 4
    assert detector.inspect(spoil(product(0, 1, seed=9)[0]))[0].anomalous


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "", "x" * 65, "con"])
def test_bad_names(name: str) -> None:
    with pytest.raises(InputError, match="cannot be called"):
        tiny().learn(name, product(0, 5))


def test_a_taken_name_is_refused_unless_replaced(tmp_path: Path) -> None:
    detector = tiny(tmp_path / "store")
    detector.learn("x", product(0, 20))
    before = tree_hash(tmp_path)
    with pytest.raises(InputError, match="already"):
        detector.learn("x", product(1, 20))
    assert tree_hash(tmp_path) == before
    detector.learn("x", product(1, 20), replace=True)
    assert not detector.inspect(product(1, 1, seed=5)[0])[0].anomalous


@pytest.mark.parametrize(
    "act",
    [
        lambda detector: detector.update("nothing", product(0, 2)),
        lambda detector: detector.forget("nothing"),
        lambda detector: detector.inspect(product(0, 1)[0], task="nothing"),
    ],
)
def test_unknown_tasks(taught: Dinosaur, act) -> None:
    with pytest.raises(InputError, match="nothing"):
        act(taught)
    with pytest.raises(InputError, match="taught yet"):
        act(tiny())


@pytest.mark.parametrize("rate", [0, 1, -0.1, 2, float("nan")])
def test_impossible_false_alarm_rates(taught: Dinosaur, rate: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        taught.inspect(product(0, 1)[0], false_alarms=rate)


def test_a_store_refuses_another_encoder_or_preset(tmp_path: Path) -> None:
    tiny(tmp_path / "store").learn("x", product(0, 20))
    before = tree_hash(tmp_path)
    with pytest.raises(StoreError, match="tiny-dinov2"):
        Dinosaur(tmp_path / "store", encoder="tiny-dinov3")
    with pytest.raises(StoreError, match="preset"):
        Dinosaur(tmp_path / "store", preset="paper")
    with pytest.raises(InputError, match="layers"):
        Dinosaur(tmp_path / "store", encoder=load_encoder("tiny-dinov2", layers=(0,), size=70))
    assert tree_hash(tmp_path) == before


def test_a_store_refuses_other_weights_of_the_same_name(tmp_path: Path) -> None:
    tiny(tmp_path / "store").learn("x", product(0, 20))
    other = load_encoder("tiny-dinov2", layers=TINY.layers, size=TINY.size)
    other.fingerprint = "0123456789abcdef"
    with pytest.raises(StoreError, match="other weights"):
        Dinosaur(tmp_path / "store", encoder=other)


def test_a_folder_that_is_not_a_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.txt").write_text("mine")
    with pytest.raises(StoreError):
        tiny(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.txt"]


def test_a_store_whose_making_was_interrupted_can_be_used(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    tiny(tmp_path).learn("x", product(0, 5))
    assert [record.name for record in Dinosaur.load(tmp_path).tasks()] == ["x"]


def test_a_task_learned_or_changed_by_someone_else_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def meanwhile(act):
        yield from product(0, 5)
        act()
        yield from product(0, 5, seed=1)

    tiny(tmp_path).learn("before", product(1, 5))
    one, other = Dinosaur.load(tmp_path), Dinosaur.load(tmp_path)
    with pytest.raises(InputError, match="already"):
        one.learn("x", meanwhile(lambda: other.learn("x", product(2, 7))))
    assert len(one.tasks()[1].manifest["images"]) == 7
    with pytest.raises(StoreError, match="meantime"):
        one.update("x", meanwhile(lambda: other.update("x", product(2, 1, seed=2))))
    assert len(one.tasks()[1].manifest["images"]) == 8


def test_a_mistyped_store_is_not_created_by_inspecting(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="taught yet"):
        tiny(tmp_path / "typo").inspect(product(0, 1)[0])
    with pytest.raises(StoreError):
        Dinosaur.load(tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_interrupting_learning_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    detector = tiny(tmp_path / "store")
    detector.learn("x", product(0, 20))
    before = tree_hash(tmp_path)

    def interrupted():
        yield from product(1, 40)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        detector.learn("y", interrupted())
    assert tree_hash(tmp_path) == before
    assert [record.name for record in detector.tasks()] == ["x"]
