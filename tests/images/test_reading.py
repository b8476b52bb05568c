"""Images read ahead: large ones decoded small, bytes bounded, results as before."""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
import time
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dinosaur_ad.encoders import prepare
from dinosaur_ad.encoders.base import prepare_one
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.image_stream import prepared_batches, stream_images
from dinosaur_ad.images.loading import ImageFile, find_images, read_image
from dinosaur_ad.images.prefetching import SizedImage, SizedImages, read_many

SIZE = 28

# Grey and colour JPEG 2000 files of 9999 x 9999 pixels and 226 and 2190 bytes, made by Pillow from one plain colour.
GREY_BOMB = (
    "c-muNVBpCLP*C9IYUg5LU=T?wsVvAUFj4@r8KAT-kj?<oVwo8!MGOq;{9w$;&JI$;z@MC-Q^W{n3Ig#|pyK5J{{I6RG(kd8#c+VeXJlt&{2#=?"
    "17b3;vam2P{*Pf0c5v|U2tY>vQy5ek7@dn!6H8K46p|_x{0ma^yaHU^70ObJiZk=`6pZvt^-TUxVBi89D*`lUaswFrzX<?ba4lE"
)
COLOUR_BOMB = (
    "c-muNVBpCLP*C9IYUg5LU=T?wsVvAUFj4@r8KAT-kj?<oVwo8!MGOq;{9w$?&JI$;z@MC-Q^W{n3NSEmI06+X|M&kN$e<4rf+~gsG(IysBO?U;"
    "4`Sc}3NSLTvam2P{*Pf0c5v|U2tY>vQy5ek7@dn!6H8K46p|_x{0ma^yaHU^70ObJiZk=`6pZvt^-TUxU;z1qfqfUyoXJ1`U6_AM7)<<+68-H|"
    "pW*+O^Y23YE!rSL9ZJM+QUBHgR`lCxKbQq3{w{P73<z2OzkXkH13||BYG(Vvrh4uvPJ)aS#sBp`|6QDa%NR`jk23!4R-bYHt>oXu_FK}?h;Kb$"
    "ML-o`7MS?E=mFdTQ~MgAQOnrUvj2ZQ)g^#_<79V$rJqAi@ieew)N<l22PPvGS$KBl<gBNGM2h0SS8h;oHX$KUa=qk#%M(oekMjQQX`iY7R^{)K"
    "`CF!gh{;f5|CY($Ce?uy{r0Q}v%tjPC5Ze|o`PiEAICFDcF<qV|7xaplaRvxA7dJ3Sd2P))X{hxJ@*vHE)S%vQp1F45IxlZvu<__lA3C^14wRe"
    "Kn4GA0sv7h@tp"
)


def photo(width: int, height: int, seed: int = 0) -> Image.Image:
    """Something with edges, shades and texture."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 12, 3), np.uint8)).resize(
        (width, height), Image.Resampling.NEAREST
    )
    fine = Image.fromarray(rng.integers(0, 256, (height // 4, width // 4, 3), np.uint8)).resize((width, height))
    return Image.blend(coarse, fine, 0.3)


def sized(path: Path, size: int = SIZE) -> SizedImage:
    """What the stream makes of a file for an encoder."""
    _, stream = stream_images([path])
    ((_, result),) = stream.sized(size, partial(prepare_one, size=size))
    assert isinstance(result, SizedImage), result
    return result


def decoded_size(path: Path, size: int = SIZE) -> tuple[int, int]:
    with ImageFile.opened(path) as file:
        file.reduce(size)
        return file.decoded().size


@pytest.mark.parametrize("extension", ["png", "jpg", "tif", "webp", "jp2", "bmp"])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "CMYK"])
def test_ordinary_images_are_what_decoding_and_resizing_gives(tmp_path: Path, extension: str, mode: str) -> None:
    path = tmp_path / f"a.{extension}"
    try:
        photo(7 * SIZE, 5 * SIZE).convert(mode).save(path)
    except (OSError, KeyError):
        pytest.skip(f"{extension} has no {mode}")
    result = sized(path)
    assert result.shape == (5 * SIZE, 7 * SIZE)
    assert np.array_equal(result.pixels, prepare([read_image(path)], SIZE)[0])


def test_a_deep_image_is_too(tmp_path: Path) -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (90, 80)).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "a.tif")
    assert np.array_equal(sized(tmp_path / "a.tif").pixels, prepare([read_image(tmp_path / "a.tif")], SIZE)[0])


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_eight_times_as_large_is_decoded_small_and_looks_the_same(
    tmp_path: Path, mode: str, progressive: bool
) -> None:
    path = tmp_path / "a.jpg"
    photo(17 * SIZE, 9 * SIZE).convert(mode).save(path, quality=90, progressive=progressive)
    assert decoded_size(path) == (17 * SIZE // 2, 9 * SIZE // 2)
    full = prepare([read_image(path)], SIZE)[0]
    result = sized(path)
    assert result.shape == (9 * SIZE, 17 * SIZE)
    assert np.abs(result.pixels.astype(int) - full).max() <= 3
    below = tmp_path / "below.jpg"
    photo(17 * SIZE, 8 * SIZE - 1).save(below)
    assert decoded_size(below) == (17 * SIZE, 8 * SIZE - 1)


def test_a_jpeg_2000_sixteen_times_as_large_is_decoded_small_and_looks_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.jp2"
    photo(17 * SIZE, 16 * SIZE).save(path)
    assert decoded_size(path) == (17 * SIZE // 2, 8 * SIZE)
    full = prepare([read_image(path)], SIZE)[0]
    assert np.abs(sized(path).pixels.astype(int) - full).mean() < 1.5
    photo(16 * SIZE, 16 * SIZE - 1).save(path)
    assert decoded_size(path) == (16 * SIZE, 16 * SIZE - 1)


def test_a_jpeg_2000_without_small_versions_is_decoded_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jp2"
    photo(17 * SIZE, 16 * SIZE).save(path, num_resolutions=1)
    full = prepare([read_image(path)], SIZE)[0]
    assert np.array_equal(sized(path).pixels, full)
    monkeypatch.setattr(
        "dinosaur_ad.images.loading.halvings", lambda image: 5
    )  # a header that promises what is not there
    assert np.array_equal(sized(path).pixels, full)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_of_a_jpeg_decoded_small(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "a.jpg"
    photo(20 * SIZE, 10 * SIZE).save(path, exif=exif, quality=95)
    assert min(decoded_size(path)) == 5 * SIZE
    full = read_image(path)
    result = sized(path)
    assert result.shape == full.shape[:2]
    assert np.abs(result.pixels.astype(int) - prepare([full], SIZE)[0]).max() <= 3


def test_a_large_jpeg_cut_short_is_refused(tmp_path: Path) -> None:
    photo(20 * SIZE, 20 * SIZE).save(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:-2000])
    ((_, result),) = stream_images([tmp_path])[1].sized(SIZE, partial(prepare_one, size=SIZE))
    assert "damaged or cut short" in str(result)


def test_groups_keep_the_original_size(tmp_path: Path) -> None:
    photo(20 * SIZE, 30 * SIZE).save(tmp_path / "a.jpg")
    total, stream = stream_images(tmp_path)
    (group,) = prepared_batches(stream, total, 16, SIZE)
    assert group.pixels.shape == (1, SIZE, SIZE, 3)
    assert group.images[0].shape[:2] == (30 * SIZE, 20 * SIZE)


# --- bytes ---


@pytest.mark.parametrize("extension", ["png", "jpg", "tif", "bmp", "jp2"])
def test_no_pixel_is_decoded_before_there_is_room_for_it(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"a.{extension}"
    photo(300, 300).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])  # its header is whole, its pixels are not
    with ImageFile.opened(path) as file:
        SizedImages(SIZE, partial(prepare_one, size=SIZE)).reduce(file)
        assert file.bytes_needed() >= 300 * 300
        with pytest.raises(InputError, match="damaged or cut short"):
            file.decoded()


class Gauge:
    """How many images are being decoded, or wait decoded, at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = 0
        self._lock, decoded = threading.Lock(), ImageFile.decoded

        def counted(file: ImageFile) -> Image.Image:
            with self._lock:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(0.02)
            try:
                return decoded(file)
            finally:
                with self._lock:
                    self.now -= 1

        monkeypatch.setattr(ImageFile, "decoded", counted)


@pytest.mark.parametrize(("room", "most"), [(1, 1), (3.5, 2)])
def test_only_so_many_bytes_are_decoded_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: float, most: int
) -> None:
    for n in range(8):
        photo(100, 100, seed=n).save(tmp_path / f"{n}.png")
    monkeypatch.setattr("dinosaur_ad.images.prefetching.MAX_BYTES", int(room * 100 * 100 * 4))
    gauge = Gauge(monkeypatch)
    results = list(stream_images(tmp_path)[1].sized(SIZE, partial(prepare_one, size=SIZE)))
    assert len(results) == 8
    assert gauge.most == most


def test_whole_images_that_wait_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"{n}.png" for n in range(8)]
    for path in paths:
        photo(100, 100).save(path)
    monkeypatch.setattr("dinosaur_ad.images.prefetching.MAX_BYTES", 2 * 100 * 100 * 4)
    started: list[str] = []
    decoded = ImageFile.decoded
    monkeypatch.setattr(ImageFile, "decoded", lambda file: (started.append(file.name), decoded(file))[1])
    reader = read_many(paths, threads=2)
    next(reader)
    time.sleep(0.3)
    assert len(started) == 3  # one handed over, two waiting, although four might
    assert len(list(reader)) == 7


def test_readers_that_are_left_alone_leave_nothing_open(tmp_path: Path) -> None:
    for n in range(20):
        photo(300, 300).save(tmp_path / f"{n}.png")
    before = len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0
    for _ in range(5):
        stream = stream_images(tmp_path)[1].sized(SIZE, partial(prepare_one, size=SIZE))
        next(stream)
        stream.close()  # type: ignore[attr-defined]
    time.sleep(0.5)
    if sys.platform == "linux":
        assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_many_streams_at_once_give_what_one_gives(tmp_path: Path) -> None:
    for n in range(12):
        photo(200 + n, 150, seed=n).save(tmp_path / f"{n:02d}.{'jpg' if n % 2 else 'png'}")
    found = find_images([tmp_path])

    def read() -> list[bytes]:
        results = stream_images(found)[1].sized(SIZE, partial(prepare_one, size=SIZE))
        return [each.pixels.tobytes() for _, each in results if not isinstance(each, InputError)]

    expected, answers = read(), []
    threads = [threading.Thread(target=lambda: answers.append(read())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 6


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory as Linux counts it")
@pytest.mark.parametrize("bomb", [GREY_BOMB, COLOUR_BOMB], ids=["grey", "colour"])
def test_twenty_files_that_swell_to_9999_by_9999_fit_into_a_gigabyte(tmp_path: Path, bomb: str) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    data = zlib.decompress(base64.b85decode(bomb))
    for n in range(20):
        (folder / f"{n:02d}.jp2").write_bytes(data)
    photo(200, 150, seed=1).save(folder / "another.png")  # equal images are learned once, and one is too few
    code = (
        "import sys, warnings; sys.path.insert(0, sys.argv[2]); warnings.simplefilter('ignore')\n"
        "from detector_helpers import tiny\n"
        "detector = tiny(); learned = detector.learn('x', sys.argv[1], force=True)\n"
        "results = detector.inspect(sys.argv[1])\n"
        "assert (learned.images, len(learned.duplicates), len(results)) == (2, 19, 21), learned\n"
        "assert max(each.worst.box[2] for each in results) > 1000\n"
        "from dinosaur_ad._memory import peak_memory_bytes\n"
        "print(peak_memory_bytes() // 2**20)"
    )
    tests = str(Path(__file__).parents[1])
    child = subprocess.run(
        [sys.executable, "-c", code, str(folder), tests], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    assert int(child.stdout) < 1000
