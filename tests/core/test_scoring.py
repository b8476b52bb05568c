"""Neighbourhood-restricted distances equal their definition, however the work is tiled."""

from __future__ import annotations

import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from core_helpers import DTYPES, Backend, examples, naive_distances, whole_numbers
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dinosaur_ad.core import scoring
from dinosaur_ad.core.arrays import squared_norms
from dinosaur_ad.core.quantise import quantise
from dinosaur_ad.core.scoring import WORK_BYTES, nearest_patch, patch_distances
from dinosaur_ad.core.threads import MOST_THREADS

Floats = NDArray[np.floating]


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Floats, Floats, int]:
    """Tokens (N, H, W, C), a bank (H, W, M, C), and a radius from none to beyond the grid."""
    images, height, width, members, channels = (draw(st.integers(1, most)) for most in (4, 5, 6, 4, 3))
    dtype = draw(DTYPES)
    tokens = draw(whole_numbers((images, height, width, channels), dtype))
    bank = draw(whole_numbers((height, width, members, channels), dtype))
    return tokens, bank, draw(st.integers(0, 7))


def distances(backend: Backend, tokens: Floats, bank: Floats, radius: int, **options: Any) -> Floats:
    return backend.back(patch_distances(backend.array(tokens), backend.array(bank), radius, **options))


@examples
@given(
    scene=scenes(),
    work_bytes=st.sampled_from([1, 300, 5000, WORK_BYTES]),
    quiet_product=st.sampled_from([1, 30, scoring.QUIET_PRODUCT]),
)
def test_distances_equal_the_definition(
    backend: Backend, scene: tuple[Floats, Floats, int], work_bytes: int, quiet_product: int
) -> None:
    tokens, bank, radius = scene
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "QUIET_PRODUCT", quiet_product)
        result = distances(backend, tokens, bank, radius, work_bytes=work_bytes)
    assert result.dtype == tokens.dtype
    np.testing.assert_allclose(result, naive_distances(tokens, bank, radius), rtol=1e-6)


@examples
@given(scene=scenes())
def test_where_places_do_not_count_every_patch_is_compared_with_all(
    backend: Backend, scene: tuple[Floats, Floats, int]
) -> None:
    tokens, bank, _ = scene
    result = distances(backend, tokens, bank, scoring.ANYWHERE)
    assert result.dtype == tokens.dtype
    np.testing.assert_allclose(result, naive_distances(tokens, bank, max(bank.shape[:2])), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.float16])
def test_where_places_do_not_count_packed_banks_give_the_same(dtype: type) -> None:
    rng = np.random.default_rng(0)
    tokens, bank = rng.normal(size=(2, 4, 5, 8)).astype(np.float32), rng.normal(size=(4, 5, 3, 8)).astype(np.float32)
    packed, scale = quantise(bank) if dtype is np.int8 else (bank.astype(np.float16), None)
    assert packed.dtype == dtype
    result = patch_distances(tokens, packed, scoring.ANYWHERE, scale_HW=scale)
    np.testing.assert_allclose(result, patch_distances(tokens, packed, 5, scale_HW=scale), rtol=1e-4)
    one, two = (patch_distances(tokens, packed, scoring.ANYWHERE, scale_HW=scale, threads=n) for n in (1, 2))
    assert np.array_equal(one, two)


@pytest.mark.parametrize("radius", [0, 1, 3])
@pytest.mark.parametrize("length", [1.0, 40.0], ids=["unit tokens", "raw tokens"])
def test_real_tokens_are_as_near_as_float32_allows(backend: Backend, radius: int, length: float) -> None:
    """Of the lengths real tokens have, and with twins in the bank, where rounding hurts most."""
    rng = np.random.default_rng(0)
    tokens, bank = rng.normal(size=(2, 5, 7, 96)), rng.normal(size=(5, 7, 6, 96))
    tokens, bank = (length * x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (tokens, bank))
    bank[2, 3, 1] = tokens[1, 2, 3]
    expected = naive_distances(tokens.astype(np.float32), bank.astype(np.float32), radius)
    result = distances(backend, tokens.astype(np.float32), bank.astype(np.float32), radius)
    np.testing.assert_allclose(result.astype(np.float64) ** 2, expected**2, rtol=0, atol=8e-7 * length**2)


@examples
@given(scene=scenes())
def test_half_norms_kept_by_the_caller_change_nothing(backend: Backend, scene: tuple[Floats, Floats, int]) -> None:
    tokens, bank, radius = scene
    half_norm = squared_norms(backend.array(bank)) / 2
    np.testing.assert_array_equal(
        distances(backend, tokens, bank, radius, half_norm_HWM=half_norm), distances(backend, tokens, bank, radius)
    )


@examples
@given(scene=scenes())
def test_a_batch_is_scored_as_its_images_alone(backend: Backend, scene: tuple[Floats, Floats, int]) -> None:
    tokens, bank, radius = scene
    alone = [distances(backend, image[None], bank, radius)[0] for image in tokens]
    np.testing.assert_array_equal(distances(backend, tokens, bank, radius), np.stack(alone))


@examples
@given(scene=scenes())
def test_a_wider_neighbourhood_only_brings_patches_nearer(backend: Backend, scene: tuple[Floats, Floats, int]) -> None:
    tokens, bank, radius = scene
    assert np.all(distances(backend, tokens, bank, radius + 1) <= distances(backend, tokens, bank, radius))


@examples
@given(scene=scenes(), data=st.data())
def test_a_remembered_image_is_at_distance_zero(
    backend: Backend, scene: tuple[Floats, Floats, int], data: st.DataObject
) -> None:
    tokens, bank, radius = scene
    bank[:, :, data.draw(st.integers(0, bank.shape[2] - 1))] = tokens[0]
    assert np.all(distances(backend, tokens, bank, radius)[0] == 0)


@examples
@given(scene=scenes(), data=st.data())
def test_the_nearest_patch_explains_the_distance(
    backend: Backend, scene: tuple[Floats, Floats, int], data: st.DataObject
) -> None:
    tokens, bank, radius = scene
    images, height, width, _ = tokens.shape
    n, row, column = (data.draw(st.integers(0, most - 1)) for most in (images, height, width))
    found = nearest_patch(backend.array(tokens[n, row, column]), backend.array(bank), row, column, radius)
    assert abs(found.row - row) <= radius
    assert abs(found.column - column) <= radius
    remembered = bank[found.row, found.column, found.member].astype(np.float64)
    assert found.distance == pytest.approx(np.linalg.norm(remembered - tokens[n, row, column]), rel=1e-6)
    assert found.distance == pytest.approx(distances(backend, tokens, bank, radius)[n, row, column], rel=1e-6)


def test_more_images_need_no_more_memory_at_a_time() -> None:
    """NumPy reports its memory, so it can be seen."""
    rng = np.random.default_rng(0)
    bank = rng.normal(size=(8, 8, 10, 64)).astype(np.float32)
    work_bytes, peaks = 2**20, []
    for images in (32, 32, 256):  # the first run also pays for what is allocated only once
        tokens = rng.normal(size=(images, 8, 8, 64)).astype(np.float32)
        tracemalloc.start()
        try:
            result = patch_distances(tokens, bank, 2, work_bytes=work_bytes)
            peaks.append(tracemalloc.get_traced_memory()[1] - 2 * result.nbytes)
        finally:
            tracemalloc.stop()
    assert peaks[2] <= 1.05 * peaks[1] < 3 * work_bytes


# --- threads ---


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Any work is worth a thread; how many threads each part of it was given."""
    given: list[int] = []
    shared = scoring.in_threads

    def in_threads(work: Any, pieces: Any, threads: int) -> None:
        given.append(threads)
        shared(work, pieces, threads)

    monkeypatch.setattr(scoring, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(scoring, "in_threads", in_threads)
    return given


def kept(precision: str, images: int = 1, side: int = 9) -> tuple[Floats, NDArray[Any], NDArray[Any] | None]:
    """Tokens and a bank in a precision, with its scales where it has any."""
    rng = np.random.default_rng(images)
    tokens = rng.normal(size=(images, side, side - 2, 48)).astype(np.float32)
    bank = rng.normal(size=(side, side - 2, 11, 48)).astype(np.float32)
    return (tokens, *quantise(bank)) if precision == "int8" else (tokens, bank.astype(precision), None)


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
@pytest.mark.parametrize("images", [1, 2, 7])
@pytest.mark.parametrize("radius", [0, 1, 2])
@pytest.mark.parametrize("work_bytes", [None, 2**18])
def test_any_number_of_threads_gives_the_same_distances(
    precision: str, images: int, radius: int, work_bytes: int | None, asked: list[int]
) -> None:
    tokens, bank, scale = kept(precision, images)
    alone, *shared = (
        patch_distances(tokens, bank, radius, scale_HW=scale, work_bytes=work_bytes, threads=threads)
        for threads in (1, 2, 3)
    )
    assert set(asked) == {1, 2, 3}
    for distances in shared:
        np.testing.assert_array_equal(distances, alone)
    vectors = bank.astype(np.float64) if scale is None else bank * scale[:, :, None, None].astype(np.float64)
    np.testing.assert_allclose(alone, naive_distances(tokens, vectors, radius), rtol=1e-4)


def test_threads_are_those_a_scheduler_gives_and_none_for_little_work(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, bank, _ = kept("float32")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(3)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    patch_distances(tokens, bank, 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    patch_distances(tokens, bank, 1)
    patch_distances(tokens, bank, 1, threads=4)  # whoever asks knows better, as with the encoder's threads
    monkeypatch.setattr(scoring, "WORTH_A_THREAD", 2**23)
    patch_distances(tokens, bank, 1, threads=4)
    assert asked == [3, 2, 4, 1]


def test_torch_keeps_to_its_own_threads(asked: list[int]) -> None:
    torch = pytest.importorskip("torch")
    tokens, bank, _ = kept("float32")
    patch_distances(torch.from_numpy(tokens), torch.from_numpy(bank), 1, threads=3)
    assert asked == [1]


@pytest.mark.usefixtures("asked")
def test_several_callers_at_once_get_what_each_gets_alone() -> None:
    scenes = [kept(precision, images) for precision in ("float32", "float16", "int8") for images in (1, 3)]

    def score(scene: tuple[Floats, NDArray[Any], NDArray[Any] | None], threads: int = 3) -> Floats:
        tokens, bank, scale = scene
        result: Floats = patch_distances(tokens, bank, 1, scale_HW=scale, threads=threads)
        return result

    alone = [score(scene, threads=1) for scene in scenes]
    with ThreadPoolExecutor(len(scenes)) as callers:
        for _ in range(5):
            for together, expected in zip(callers.map(score, scenes), alone, strict=True):
                np.testing.assert_array_equal(together, expected)


@pytest.mark.usefixtures("asked")
def test_an_error_on_another_thread_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    caller, both, compute = threading.current_thread(), threading.Barrier(2), scoring.products

    def products(*arrays: Any) -> Any:
        if threading.current_thread() is not caller:
            both.wait(timeout=60)
            raise MemoryError("no room for the products")
        if not waited:  # for the other to begin: otherwise this thread might do it all
            waited.append(both.wait(timeout=60))
        return compute(*arrays)

    waited: list[int] = []
    monkeypatch.setattr(scoring, "products", products)
    tokens, bank, _ = kept("float32")
    with pytest.raises(MemoryError, match="no room for the products"):
        patch_distances(tokens, bank, 1, threads=2)


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_all_threads_together_keep_within_the_memory(precision: str) -> None:
    """All of what they gather and multiply, and beside it one copy of the images; not as much for every thread."""
    tokens, bank, _ = kept(precision, images=40, side=24)
    work_bytes = 2**22
    patch_distances(tokens[:1], bank, 1, threads=MOST_THREADS)  # the threads are there
    half_norm = squared_norms(bank.astype(np.float32)) / 2
    tracemalloc.start()
    try:
        patch_distances(tokens, bank, 1, half_norm_HWM=half_norm, work_bytes=work_bytes, threads=MOST_THREADS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * work_bytes
