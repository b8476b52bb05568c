"""What the judge makes of pictures: a verdict, or "not ready" with the reason, and never an exception."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from detector_helpers import product, spoil, tiny

pytest.importorskip("sqlalchemy", reason="the station needs the extra 'station'")

from dinosaur_ad import Dinosaur
from dinosaur_ad.station.judge import Judge
from dinosaur_ad.station.part import Picture

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def taught() -> Dinosaur:
    detector = tiny()
    detector.learn("part", product(0, 12))
    return detector


def picture(pixels: Any = None, path: Path | None = None, **fields: Any) -> Picture:
    return Picture(fields.pop("key", "camera:1"), "camera", NOW, path, pixels, **fields)


def test_pixels_and_files_get_the_same_verdict(taught: Dinosaur, tmp_path: Path) -> None:
    defect = spoil(product(0, 1, seed=5)[0])
    Image.fromarray(defect).save(tmp_path / "defect.png")
    judge = Judge(taught)
    from_pixels = judge.judge(picture(defect))
    from_file = judge.judge(picture(path=tmp_path / "defect.png"))
    assert from_pixels.verdict == from_file.verdict == "anomalous"
    assert from_pixels.inspection
    assert from_file.inspection
    assert from_pixels.inspection.score == from_file.inspection.score
    assert from_file.inspection.path == str(tmp_path / "defect.png")
    assert from_pixels.inspection.path == "camera:1"
    assert {"read", "encode", "score", "total"} <= from_file.ms.keys()


def large(pixels: Any, times: int) -> Any:
    return np.asarray(Image.fromarray(pixels).resize((pixels.shape[1] * times, pixels.shape[0] * times)))


@pytest.mark.parametrize(("name", "times"), [("part.jpg", 20), ("part.png", 7), ("part.webp", 1), ("grey.jpg", 9)])
def test_the_result_is_that_of_inspecting_the_file(taught: Dinosaur, tmp_path: Path, name: str, times: int) -> None:
    image = Image.fromarray(large(spoil(product(0, 1, seed=5)[0]), times)[:, : 66 * times])
    (image.convert("L") if "grey" in name else image).save(tmp_path / name)
    found = Judge(taught).judge(picture(path=tmp_path / name)).inspection
    expected = taught.inspect(tmp_path / name)
    assert found
    assert (found.map == expected.map).all()
    without_times = replace(found, ms=expected.ms)
    assert without_times.to_json() == expected.to_json()  # scores, worst patch and regions in pixels of the file


def test_a_product_in_tiles_sees_all_pixels(tmp_path: Path) -> None:
    detector = tiny(tmp_path / "store")
    detector.learn("part", [large(each, 3) for each in product(0, 12)], tiles=(2, 2))
    Image.fromarray(large(product(0, 1, seed=5)[0], 3)).save(tmp_path / "a.png")
    found = Judge(detector).judge(picture(path=tmp_path / "a.png"))
    expected = detector.inspect(tmp_path / "a.png")
    assert found.inspection
    assert found.inspection.score == expected.score
    assert "pixels" in Judge(detector).judge(picture(product(0, 1)[0])).reason  # of another size than its photos


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n cut"])
def test_a_file_that_cannot_be_read_is_not_ready(taught: Dinosaur, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.png").write_bytes(content)
    view = Judge(taught).judge(picture(path=tmp_path / "bad.png"))
    assert (view.verdict, view.inspection) == ("not ready", None)
    assert "bad.png" in view.reason


def test_a_file_that_is_gone_a_tiny_picture_and_an_unknown_product_are_not_ready(
    taught: Dinosaur, tmp_path: Path
) -> None:
    judge = Judge(taught)
    assert "does not exist" in judge.judge(picture(path=tmp_path / "gone.png")).reason
    assert "pixels" in judge.judge(picture(np.zeros((4, 4, 3), np.uint8))).reason
    assert "no task 'other'" in judge.judge(picture(product(0, 1)[0], task="other")).reason
    assert "neither" in judge.judge(picture()).reason
    assert judge.failures == 0


def test_an_error_of_the_program_is_a_view_and_is_counted(taught: Dinosaur, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(taught)

    def fails(*_: object, **__: object) -> object:
        raise ZeroDivisionError("oh")

    with monkeypatch.context() as patch:
        patch.setattr(taught, "stream", fails)
        view = judge.judge(picture(product(0, 1)[0]))
    assert (view.verdict, judge.failures) == ("not ready", 1)
    assert "ZeroDivisionError: oh" in view.error
    assert judge.judge(picture(product(0, 1)[0])).inspection


def test_a_product_taught_by_another_detector_is_used_at_once(tmp_path: Path) -> None:
    judge = Judge(tiny(tmp_path / "store"))
    judge.prepare()
    normal = product(0, 1, seed=5)[0]
    before = judge.judge(picture(normal))
    assert before.verdict == "not ready"
    assert "no task has been taught yet" in before.reason
    tiny(tmp_path / "store").learn("part", product(0, 12))
    after = judge.judge(picture(normal))
    assert after.inspection
    assert after.inspection.task == "part"
