"""What runs the encoder is free: a store taught with one provider is used with another, and the results say which."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from detector_helpers import TINY, grouped, product, spoil
from dinosaur_ad import Dinosaur
from dinosaur_ad.errors import EncoderError, InputError, StoreError
from dinosaur_ad.images.image_stream import prefetched, prepared_batches, stream_images
from dinosaur_ad.inspection import Inspection, Rejected
from dinosaur_ad.store import MemoryStore, Store


def tiny(store: Path | None = None, **options: Any) -> Dinosaur:
    named = {} if store is not None and (store / "store.json").exists() else {"encoder": "tiny-dinov2", "preset": TINY}
    return Dinosaur(store, **named, **grouped(options))


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("taught") / "store"
    tiny(store).learn("plate", product(0, 30))
    return store


def test_a_store_of_float32_works_in_int8(taught: Path) -> None:
    normal, bad = product(0, 1, seed=7)[0], spoil(product(0, 1, seed=7)[0])
    rounded = tiny(taught, provider="onnx-cpu", precision="int8")
    results = rounded.inspect([normal, bad])
    assert [each.verdict for each in results] == ["normal", "anomalous"]
    assert {(each.provider, each.precision, each.fallback) for each in results} == {("onnx-cpu", "int8", None)}
    exact = tiny(taught).inspect([normal, bad])
    assert [each.precision for each in exact] == ["float32"] * 2
    for near, true in zip(results, exact, strict=True):
        assert near.score == pytest.approx(true.score, rel=0.1)
        assert near.score != true.score


def test_a_task_remembers_what_taught_it(tmp_path: Path) -> None:
    detector = tiny(tmp_path / "store", provider="onnx-cpu", precision="int8")
    detector.learn("plate", product(0, 20))
    tiny(tmp_path / "store").learn("other", product(1, 20))
    made_by = {record.name: record.manifest["encoder"] for record in detector.tasks()}
    assert {name: (each["provider"], each["precision"]) for name, each in made_by.items()} == {
        "plate": ("onnx-cpu", "int8"),
        "other": ("onnx-cpu", "float32"),
    }
    assert made_by["plate"]["fingerprint"] == made_by["other"]["fingerprint"]


def test_a_fallback_reaches_the_result_and_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    detector = tiny(tmp_path / "store", provider="tensorrt", precision="float16")
    detector.learn("plate", product(0, 20))
    document = detector.inspect(product(0, 1)[0]).to_json()
    assert (document["provider"], document["precision"]) == ("onnx-cpu", "float32")
    assert document["fallback"].startswith("tensorrt cannot run in float16 here")
    assert detector.info()["fallback"] == document["fallback"]
    assert detector.tasks()[0].manifest["encoder"]["fallback"] == document["fallback"]
    assert capsys.readouterr().err.count("fallback: ") == 1


def test_strict_leaves_no_store_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(EncoderError, match="cuda cannot run"):
        tiny(tmp_path / "store", provider="cuda", strict=True).learn("plate", product(0, 20))
    assert not (tmp_path / "store").exists()


def test_two_who_make_the_same_store_may_run_it_differently(tmp_path: Path) -> None:
    """The second finds no store when it looks, and one of the first's when it writes."""
    first, second = tiny(tmp_path / "store"), tiny(tmp_path / "store", provider="onnx-cpu", precision="int8")
    first.learn("plate", product(0, 20))
    second.learn("other", product(1, 20))
    assert {record.name for record in first.tasks()} == {"plate", "other"}
    third = tiny(tmp_path / "another", seed=1)
    Store.create(tmp_path / "another", MemoryStore({**first.store.header, "seed": 2}).header)
    with pytest.raises(StoreError, match="with other settings"):
        third.learn("plate", product(0, 20))


# --- reading ahead ---


def write(folder: Path, images: list[Any]) -> list[Path]:
    folder.mkdir()
    paths = [folder / f"{n:03d}.png" for n in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        if image is None:
            path.write_bytes(b"\x89PNG")
        else:
            Image.fromarray(image).save(path)
    return paths


def test_many_files_give_what_each_gives_alone_in_their_order(taught: Path, tmp_path: Path) -> None:
    images: list[Any] = [*product(0, 20, seed=1), None, *map(spoil, product(0, 20, seed=2)), None]
    paths = write(tmp_path / "images", images)
    detector = tiny(taught)
    together = list(detector.stream(paths))
    assert [result.path for result in together] == [str(path) for path in paths]
    assert [n for n, result in enumerate(together) if isinstance(result, Rejected)] == [20, 41]
    for path, result in zip(paths, together, strict=True):
        if isinstance(result, Inspection):
            (alone,) = detector.stream(path)
            assert isinstance(alone, Inspection)
            assert result.score == pytest.approx(alone.score, abs=1e-5)
            assert result.worst.box == alone.worst.box
            assert result.ms["total"] == pytest.approx(sum(v for k, v in result.ms.items() if k != "total"), abs=0.01)


def test_learning_from_files_arrays_and_a_camera_is_the_same(tmp_path: Path) -> None:
    images = product(0, 40)
    paths = write(tmp_path / "images", list(images))
    stores = []
    for given in (paths, images, iter(images)):
        detector = tiny()
        learned = detector.learn("plate", given)
        assert learned.images == 40
        assert set(learned.seconds) == {"read", "encode", "memory", "calibrate", "store"}
        stores.append(detector.store.arrays("plate", "bank")["codes"])
    np.testing.assert_array_equal(stores[0], stores[1])
    np.testing.assert_array_equal(stores[0], stores[2])


def test_while_one_group_is_used_the_next_is_made() -> None:
    made, use = [threading.Event() for _ in range(3)], []

    def work() -> Iterator[int]:
        for n in range(3):
            made[n].set()
            yield n

    for n in prefetched(work()):
        if n < 2:
            assert made[n + 1].wait(10)  # without its being asked for
        use.append(n)
    assert use == [0, 1, 2]


def test_a_camera_is_not_read_ahead_of(taught: Path) -> None:
    taken = []

    def camera() -> Iterator[Any]:
        for n, image in enumerate(product(0, 40)):
            taken.append((n, threading.current_thread()))
            yield image

    stream = tiny(taught).stream(camera())
    next(stream)
    assert [n for n, _ in taken] == [0]  # the verdict is there before the next image is asked for
    next(stream)
    assert [n for n, _ in taken] == [0, 1]
    assert {thread for _, thread in taken} == {threading.current_thread()}


def test_what_goes_wrong_ahead_is_told_where_it_belongs(taught: Path) -> None:
    images: list[Any] = [*product(0, 20), np.zeros((30, 30, 5), np.uint8), *product(0, 20)]
    results = list(tiny(taught).stream(images))
    assert [n for n, result in enumerate(results) if isinstance(result, Rejected)] == [20]
    assert isinstance(results[20], Rejected)
    assert results[20].path == "image-000020"
    assert "'image-000020' has the shape (30, 30, 5)" in results[20].reason
    with pytest.raises(InputError, match="image-000020"):
        tiny(taught).inspect(images)


def test_time_that_nobody_waited_for_is_not_counted() -> None:
    _, stream = stream_images(product(0, 4))
    (group,) = prepared_batches(stream, None, 16, 28)
    spent = group.resize_ms + sum(each.decode_ms for each in group.images)
    assert sum(sum(group.ms(n, waited=spent).values()) for n in range(4)) == pytest.approx(spent)
    assert sum(sum(group.ms(n, waited=spent / 4).values()) for n in range(4)) == pytest.approx(spent / 4)
    assert sum(sum(group.ms(n, waited=9 * spent).values()) for n in range(4)) == pytest.approx(spent)


def test_a_store_is_used_with_an_export(taught: Path, tmp_path: Path) -> None:
    from dinosaur_ad.export.exporting import export

    export(tmp_path / "out", store=taught, progress=lambda _: None)
    image = spoil(product(0, 1, seed=3)[0])
    exported = tiny(taught, export=tmp_path / "out").inspect(image)
    usual = tiny(taught).inspect(image)
    assert exported.score == pytest.approx(usual.score, rel=1e-4)
    with pytest.raises(EncoderError, match="An export holds its own weights and precision"):
        tiny(taught, export=tmp_path / "out", precision="int8").inspect(image)
