"""Whatever a caller calls images: what is one image, what is many, and the sentence for what is neither."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from detector_helpers import product, tiny
from dinosaur_ad import Dinosaur
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.image_stream import stream_images
from dinosaur_ad.inspection import Inspection, Rejected

RGB = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
GREY = RGB[..., 0]
RGBA = np.dstack([RGB, np.full((48, 64), 255, np.uint8)])


@pytest.fixture(scope="module")
def taught() -> Dinosaur:
    detector = tiny()
    detector.learn("x", product(0, 30))
    return detector


def whole(images: Any) -> list[Any]:
    total, stream = stream_images(images)
    results = [each for _, each in stream]
    assert total in (None, len(results))
    return results


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (GREY, GREY),
        (GREY[..., None], GREY),
        (RGB, RGB),
        (RGBA, RGB),
        (RGB[::-1, ::2], RGB[::-1, ::2]),
        (Image.fromarray(RGB), RGB),
        (Image.fromarray(GREY), GREY),
        (Image.fromarray(RGBA), RGB),
        (Image.fromarray(RGB).convert("CMYK"), None),
    ],
)
def test_one_image_is_one_image(taught: Dinosaur, image: Any, expected: np.ndarray | None) -> None:
    (alone,) = whole(image)
    assert not isinstance(alone, InputError)
    if expected is not None:
        assert np.array_equal(alone, expected)
    for given in (image, [image], (image,), iter([image])):
        (result,) = taught.stream(given)
        assert isinstance(result, Inspection)
        assert result.path == "image-000000"


def test_alpha_is_laid_on_black_as_in_files(tmp_path: Path) -> None:
    rgba = np.random.default_rng(0).integers(0, 256, (48, 64, 4), dtype=np.uint8)
    Image.fromarray(rgba).save(tmp_path / "a.png")
    results = [whole(given)[0] for given in (rgba, Image.fromarray(rgba), tmp_path / "a.png")]
    assert np.array_equal(results[0], results[2])
    assert np.array_equal(results[1], results[2])


def test_a_pillow_image_is_read_as_its_file_would_be(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(RGB).save(tmp_path / "turned.png", exif=exif)
    Image.fromarray(np.full((20, 20), 65535, np.uint16)).save(tmp_path / "deep.png")
    for name in ("turned.png", "deep.png"):
        (of_file,), (of_image,) = whole(tmp_path / name), whole(Image.open(tmp_path / name))
        assert np.array_equal(of_file, of_image if of_image.ndim == 3 else np.stack([of_image] * 3, axis=2))
    (dark,) = whole([Image.fromarray(np.full((20, 20), 300, np.uint16))])
    assert "stay below 4096" in str(dark)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_stack_is_as_many_images_as_it_holds(taught: Dinosaur, channels: int) -> None:
    stack = np.random.default_rng(0).integers(0, 256, (5, 48, 64, channels), dtype=np.uint8)
    results = taught.inspect(stack)
    assert [each.path for each in results] == [f"image-{n:06d}" for n in range(5)]
    np.testing.assert_allclose(
        [each.score for each in results], [taught.inspect(image).score for image in stack], rtol=1e-4
    )


NOT_ONE_IMAGE = [
    (np.zeros((3, 48, 64), np.uint8), r"np\.transpose\(image, \(1, 2, 0\)\)"),
    (np.zeros((1, 48, 64), np.uint8), r"np\.transpose"),
    (np.zeros((4, 48, 64), np.uint8), r"np\.transpose"),
    (np.zeros((7, 48, 64), np.uint8), r"stack of grey images is given as \(N, H, W, 1\) or as a list"),
    (np.zeros((48, 64, 2), np.uint8), "which is no image"),
    (np.zeros((48, 64, 5), np.uint8), "which is no image"),
    (np.zeros((48, 64, 3), np.float32), r"array of float32, but uint8 .* times 255"),
    (np.zeros((48, 64, 3), np.float64), "array of float64, but uint8"),
    (np.zeros((48, 64), np.uint16), r"array of uint16, but uint8 .* image // 257, 12-bit values: image // 16"),
    (np.zeros((48, 64), np.int64), "array of int64, but uint8"),
    (np.zeros((48, 64), bool), "array of bool, but uint8"),
    (np.zeros((48, 64), complex), "array of complex128, but uint8"),
    (np.array([None, 3], dtype=object), "array of object, but uint8"),
    (np.zeros((0, 64, 3), np.uint8), "not one pixel"),
    (np.zeros((48, 0), np.uint8), "not one pixel"),
    (np.zeros((), np.uint8), r"has the shape \(\)"),
    (np.zeros(100, np.uint8), r"has the shape \(100,\)"),
]
OTHER_THINGS = [
    (None, "None"),
    (7, "an int"),
    (0.5, "a float"),
    (True, "a bool"),
    (b"\x89PNG", "a bytes"),
    ({"a.png": 1}, "a dict"),
    (object(), "an object"),
]


@pytest.mark.parametrize(("image", "words"), NOT_ONE_IMAGE)
def test_an_array_that_is_no_image_is_refused_as_a_whole_and_by_its_place_in_a_list(
    taught: Dinosaur, image: np.ndarray, words: str
) -> None:
    with pytest.raises(InputError, match=f"^The array given .*{words}"):
        stream_images(image)
    with pytest.raises(InputError, match=words):
        taught.inspect(image)
    check_place(taught, image, words)


@pytest.mark.parametrize(("thing", "words"), OTHER_THINGS)
def test_what_is_no_image_is_one_sentence(taught: Dinosaur, thing: Any, words: str) -> None:
    for act in (stream_images, taught.inspect, lambda images: tiny().learn("x", images)):
        with pytest.raises(InputError, match=f"Expected images, got {words}; give a path, a PIL image or a uint8"):
            act(thing)
    check_place(taught, thing, f"is {words}, not an image")


def check_place(taught: Dinosaur, bad: Any, words: str) -> None:
    """In a list and from a camera, only the bad one is lost, and it is called by its place."""
    images = [*product(0, 7), bad, *product(0, 3)]
    for given in (images, iter(images)):
        results = list(taught.stream(given))
        assert [type(each) for each in results] == [Inspection] * 7 + [Rejected] + [Inspection] * 3
        rejected = results[7]
        assert isinstance(rejected, Rejected)
        assert rejected.path == "image-000007"
        assert rejected.reason.startswith("'image-000007' ")
        assert re.search(words, rejected.reason)
        assert results[8].path == "image-000008"
    assert [each.path for each in tiny().learn("x", images).rejected] == ["image-000007"]


@pytest.mark.parametrize(
    ("stack", "words"),
    [
        (np.zeros((5, 3, 48, 64), np.uint8), r"np\.transpose\(images, \(0, 2, 3, 1\)\)"),
        (np.zeros((5, 48, 64, 2), np.uint8), r"stacked as \(N, H, W, 3\)"),
        (np.zeros((5, 48, 64, 3), np.float32), "float32"),
        (np.zeros((5, 0, 64, 3), np.uint8), "not one pixel"),
        (np.zeros((0, 48, 64, 3), np.uint8), "at least one image, got none"),
        (np.zeros((2, 2, 48, 64, 3), np.uint8), "which is no image"),
        ([], "at least one image, got none"),
        (iter([]), "at least one image, got none"),
        ((), "at least one image, got none"),
    ],
)
def test_stacks_that_are_no_images(taught: Dinosaur, stack: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        taught.inspect(stack)


def test_arrays_of_other_libraries_are_refused_in_one_sentence() -> None:
    class Tensor:
        def __array__(self) -> np.ndarray:
            return RGB

        def __iter__(self) -> Iterator[Any]:
            return iter(RGB)

    with pytest.raises(InputError, match="Expected images, got a Tensor"):
        stream_images(Tensor())  # type: ignore[arg-type]


def test_paths_arrays_and_pillow_images_may_be_mixed(taught: Dinosaur, tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "a.png")
    mixed = [RGB, tmp_path / "a.png", Image.fromarray(RGB), str(tmp_path / "a.png")]
    for given in (mixed, iter(mixed)):
        results = taught.inspect(given)
        labels = ["image-000000", str(tmp_path / "a.png"), "image-000002", str(tmp_path / "a.png")]
        assert [each.path for each in results] == labels
        assert np.ptp([each.score for each in results]) < 1e-4


def test_an_animation_in_memory_is_refused(tmp_path: Path) -> None:
    frames = [Image.fromarray(RGB), Image.fromarray(255 - RGB)]
    frames[0].save(tmp_path / "a.png", save_all=True, append_images=frames[1:])
    (refused,) = whole(Image.open(tmp_path / "a.png"))
    assert "several pages or frames" in str(refused)
    assert np.array_equal(whole(Image.open(tmp_path / "a.png").copy())[0], RGB)


def test_a_damaged_pillow_image_costs_only_itself(taught: Dinosaur, tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:3000])
    results = list(taught.stream([RGB, Image.open(tmp_path / "a.png"), RGB]))
    assert [type(each) for each in results] == [Inspection, Rejected, Inspection]


def test_a_dataset_that_loads_on_demand_is_not_loaded_at_once() -> None:
    class Dataset:
        loaded = 0

        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> np.ndarray:
            self.loaded += 1
            return RGB

    dataset = Dataset()
    total, stream = stream_images(dataset)  # type: ignore[arg-type]
    next(stream)
    assert total == 100
    assert dataset.loaded < 10
    assert len(list(stream)) == 99


# --- a camera ---


class CameraError(Exception):
    """What a driver raises."""


def test_every_frame_gets_its_verdict_before_the_next_is_taken(taught: Dinosaur) -> None:
    taken = 0

    def camera() -> Iterator[np.ndarray]:
        nonlocal taken
        for image in product(0, 40):
            taken += 1
            yield image

    for number, result in enumerate(taught.stream(camera())):
        assert taken == number + 1
        assert result.path == f"image-{number:06d}"


def test_frames_that_come_as_files_get_their_verdict_at_once_too(taught: Dinosaur, tmp_path: Path) -> None:
    def camera() -> Iterator[Path | str]:
        for number, image in enumerate(product(0, 6)):
            if number == 3:
                yield tmp_path / "lost.png"
            Image.fromarray(image).save(tmp_path / "latest.png")  # the same file, again and again
            yield tmp_path / "latest.png"

    results = list(taught.stream(camera()))
    assert [Path(each.path).name for each in results] == ["latest.png"] * 3 + ["lost.png"] + ["latest.png"] * 3
    assert isinstance(results[3], Rejected)
    scores = {each.score for each in results if isinstance(each, Inspection)}
    assert len(scores) == 6


def test_bad_frames_do_not_end_the_stream(taught: Dinosaur) -> None:
    def camera() -> Iterator[Any]:
        for number, image in enumerate(product(0, 40)):
            yield {7: None, 20: image.astype(float), 33: image[:2]}.get(number, image)

    results = list(taught.stream(camera()))
    assert len(results) == 40
    assert [each.path for each in results if isinstance(each, Rejected)] == [
        "image-000007",
        "image-000020",
        "image-000033",
    ]


def test_what_the_camera_raises_is_not_touched(taught: Dinosaur) -> None:
    def camera() -> Iterator[np.ndarray]:
        yield from product(0, 3)
        raise CameraError("the cable is loose")

    stream = taught.stream(camera())
    assert len([next(stream) for _ in range(3)]) == 3
    with pytest.raises(CameraError, match="the cable is loose"):
        next(stream)
    with pytest.raises(CameraError, match="the cable is loose"):
        tiny().learn("x", camera())
