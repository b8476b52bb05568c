"""A store that somebody else has made is used or refused in a sentence: no traceback, no hang, no escape, no flood."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_helpers import HEADER, reseal, teach

from dinosaur_ad.errors import DinosaurError, StoreError
from dinosaur_ad.store import Store, documents
from dinosaur_ad.store.codec import decode_arrays, decode_json, encode_json, seal, unseal

LONG = "x" * 20_000
DEEP: Any = json.loads("[" * 50 + "]" * 50)
ODD: list[Any] = [None, True, -1, 10**30, 1.5, float("nan"), float("inf"), "", "../../x", LONG, [], [[]], {}, DEEP]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in leaves(item, (*path, key)))]


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    document = copy.deepcopy(document)
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return document


def without(document: Any, path: tuple[Any, ...]) -> Any:
    document = copy.deepcopy(document)
    target = document
    for key in path[:-1]:
        target = target[key]
    del target[path[-1]]
    return document


def use(path: Path) -> None:
    """All that is done with a store; refusals are sentences."""
    try:
        store = Store.open(path)
    except DinosaurError as error:
        assert_sentence(error)
        return
    snapshot = store.snapshot()
    for sentence in snapshot.damaged.values():
        assert_sentence(StoreError(sentence))
    for record in snapshot.records.values():
        assert record.manifest["images"] is not None
        for file in record.files:
            try:
                store.arrays(record, file)
            except DinosaurError as error:
                assert_sentence(error)


def assert_sentence(error: Exception) -> None:
    text = str(error)
    assert len(text) < 800
    assert text.isprintable()
    assert text.endswith(".")


def forge(folder: Store, file: str, document: Any) -> None:
    """Write a document with a right hash of its own, and make the pointer fit a manifest."""
    path = folder.path / file
    path.write_bytes(seal(document) if isinstance(document, dict) else encode_json(document))
    if path.name == "manifest.json":
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        reseal(path.parents[1] / "task.json", lambda pointer: pointer["states"][-1].update(sha256=sha256))


@pytest.mark.parametrize("file", ["store.json", "tasks/screw/task.json", "tasks/screw/v0001/manifest.json"])
def test_every_field_may_be_anything(folder: Store, file: str) -> None:
    bank = {"precision": "int8", "channels": 8, "width": 8, "whole": 2, "budget": None}
    task = {"images": ["1.png"], "members": 2, "bank": bank, "budgets": {"task": None, "store": 7}, "preset": "default"}
    task["encoder"] = HEADER["encoder"]
    folder.put("screw", {"bank": {"a": np.ones(3)}}, task, action="learn", note={"images": 1})
    teach(folder, "bottle", 1)
    pointer = (folder.path / "tasks/screw/task.json").read_bytes()
    document, _ = unseal((folder.path / file).read_bytes())
    for path in leaves(document):
        for value in ODD:
            forge(folder, file, changed(document, path, value))
            use(folder.path)
            (folder.path / "tasks/screw/task.json").write_bytes(pointer)
        if path and isinstance(path[-1], str):
            forge(folder, file, without(document, path))
            use(folder.path)
            (folder.path / "tasks/screw/task.json").write_bytes(pointer)
    forge(folder, file, document)
    assert set(Store.open(folder.path).snapshot().records) == {"screw", "bottle"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("preset", "radius"), 300),
        (("preset", "size"), 10**9),
        (("preset", "layers"), {"0": 1}),
        (("preset", "layers"), []),
        (("preset", "margin"), float("nan")),
        (("preset", "false_alarms"), "2.5 %"),
        (("preset",), "default"),
        (("encoder",), "tiny"),
        (("encoder", "fingerprint"), 7),
        (("seed",), "0"),
        (("seed",), 10**40),
        (("more",), DEEP),
    ],
)
def test_a_header_is_checked_when_it_is_written_and_when_it_is_read(
    folder: Store, tmp_path: Path, path: tuple[str, ...], value: object
) -> None:
    header = changed(HEADER, path, value)
    with pytest.raises(StoreError, match=f"cannot be made .*{path[-1]}"):
        Store.create(tmp_path / "new", header)
    reseal(folder.path / "store.json", lambda document: document.update(header=header))
    with pytest.raises(StoreError, match=rf"store.json .*{path[-1]}"):
        Store.open(folder.path)


@pytest.mark.parametrize("key", ["encoder", "preset"])
def test_a_header_must_say_what_made_the_banks(folder: Store, key: str) -> None:
    reseal(folder.path / "store.json", lambda document: document["header"].pop(key))
    with pytest.raises(StoreError, match=f"'header.{key}' is missing"):
        Store.open(folder.path)


KINDS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to("/dev/zero"),
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "loop": lambda path: path.symlink_to(path.name),
    "huge": lambda path: (path.touch(), os.truncate(path, 2**40)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", ["store.json", "task.json", "v0001", "v0001/manifest.json", "v0001/bank.safetensors"])
def test_what_is_no_plain_file_is_refused_at_once(folder: Store, kind: str, file: str) -> None:
    teach(folder, "screw", 1)
    teach(folder, "bottle", 1)
    task = folder.path / "tasks" / "screw"
    path = folder.path / file if file == "store.json" else task / file
    path.rename(folder.path.parent / "elsewhere")
    KINDS[kind](path)
    started = time.monotonic()
    if file == "store.json":
        for open_ in (Store.open, Store.find):
            with pytest.raises(StoreError, match=r"store\.json"):
                open_(folder.path)
    else:
        store = Store.open(folder.path)
        with pytest.raises(StoreError, match="tasks/screw/") as refusal:
            store.verify("screw")
        assert_sentence(refusal.value)
        store.verify("bottle")
        assert "bottle" in store.snapshot().records
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": ' * 100_000,
        b"\xff\xfe{\x00}\x00",
        b"",
        b"null",
    ],
)
def test_json_that_is_not_plain_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="JSON"):
        decode_json(data)


def test_names_that_are_no_text_survive() -> None:
    document = {"images": [os.fsdecode(b"caf\xe9.png"), "Prüfling.png"]}
    assert decode_json(encode_json(document)) == document


def arrays_blob(header: Any, data: bytes = b"12345678") -> Any:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return np.frombuffer(len(text).to_bytes(8, "little") + text + data, np.uint8)


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "header",
    [
        {"a": F32, "b": F32},
        {"a": F32, "b": {**F32, "shape": [1], "data_offsets": [4, 8]}},
        {"a": {**F32, "shape": [2**62, 4]}},
        {"a": {**F32, "shape": [2**64, 0]}},
        {"a": {**F32, "shape": [1] * 64 + [2]}},
        {"a": {**F32, "shape": [0, 2**63], "data_offsets": [0, 0]}, "b": F32},
        {"a": {**F32, "data_offsets": [0, 10**30]}},
        {"a": {**F32, "data_offsets": [0, 8, 16]}},
        {"a": {**F32, "data_offsets": {"0": 8}}},
        {"a": {**F32, "shape": {"2": 2}}},
        {"a": {**F32, "shape": "2"}},
        {"a": {**F32, "shape": [True, 2]}},
        {"a": {**F32, "dtype": ["F32"]}},
        {"a": {"$float": "inf"}},
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "a": 1}',
        b'{"a": ' * 50_000,
        b"[]",
        b"",
    ],
    ids=lambda header: str(header)[:50],
)
def test_array_headers_that_lie_are_refused(header: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode_arrays(arrays_blob(header))


@given(st.binary(max_size=200))
def test_any_bytes_are_arrays_or_refused(data: bytes) -> None:
    for blob in (np.frombuffer(data, np.uint8), arrays_blob(data, b"")):
        try:
            decode_arrays(blob)
        except ValueError:
            continue


def test_an_array_file_as_large_as_its_manifest_says_is_not_read_where_memory_is_short(folder: Store) -> None:
    teach(folder, "screw", 1)
    file = folder.path / "tasks" / "screw" / "v0001" / "manifest.json"
    document, _ = unseal(file.read_bytes())
    document["files"]["bank"]["bytes"] = 2**50
    forge(folder, "tasks/screw/v0001/manifest.json", document)
    with pytest.raises(StoreError, match=r"'files.bank.bytes' is"):
        Store.open(folder.path).record("screw")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    )
)
def test_shapes_refuse_with_a_value_error_only(value: Any) -> None:
    for shape in (documents.STORE, documents.POINTER, documents.POINTER_1, documents.MANIFEST, documents.HEADER):
        with pytest.raises(ValueError, match=r"\A[ -~]+\Z"):
            shape(value, "")
