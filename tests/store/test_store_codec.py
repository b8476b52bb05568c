"""Bytes on disk are read with suspicion: exact, or refused."""

from __future__ import annotations

import doctest
import importlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from store_helpers import bank

from dinosaur_ad.store.codec import decode_arrays, encode_arrays

DTYPES = st.sampled_from(["<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "i1", "<u2", "u1", "?", ">f4", ">i2"])
ARRAYS = DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4)))


@given(st.dictionaries(st.text(max_size=5).filter(lambda key: key != "__metadata__"), ARRAYS, max_size=4))
def test_every_array_survives(arrays: dict[str, np.ndarray]) -> None:
    loaded = decode_arrays(np.frombuffer(encode_arrays(arrays), np.uint8))
    assert loaded.keys() == arrays.keys()
    for key, array in arrays.items():
        np.testing.assert_array_equal(loaded[key], array, strict=array.dtype.isnative)


@given(st.data())
def test_damage_is_either_harmless_to_the_shape_or_refused(data: st.DataObject) -> None:
    blob = bytearray(encode_arrays(bank(1)["bank"]))
    for _ in range(data.draw(st.integers(1, 3))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    blob = blob[: data.draw(st.integers(0, len(blob)))]
    try:
        loaded = decode_arrays(np.frombuffer(bytes(blob), np.uint8))
    except ValueError:
        return
    assert sum(array.nbytes for array in loaded.values()) <= len(blob)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "does not fit its bytes"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "ends before"),
        ({"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, "goes on after"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}, "not counts"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}, "not counts"),
        ({"dtype": "F32", "shape": [0], "data_offsets": [4, 4]}, "does not begin"),
        ({"dtype": "O", "shape": [1], "data_offsets": [0, 4]}, "cannot be understood"),
        ("text", "cannot be understood"),
    ],
)
def test_a_header_that_lies_is_refused(entry: Any, why: str) -> None:
    header = json.dumps({"a": entry}).encode()
    blob = len(header).to_bytes(8, "little") + header + b"1234"
    with pytest.raises(ValueError, match=why):
        decode_arrays(np.frombuffer(blob, np.uint8))


@pytest.mark.parametrize("module", ["codec", "names", "store", "versions"])
def test_examples_in_the_docstrings_run(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"dinosaur_ad.store.{module}"))
    assert results.attempted > 0
    assert results.failed == 0
