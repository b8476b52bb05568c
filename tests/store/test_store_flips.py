"""No flipped bit in any file of a store passes unnoticed, and no file that changes under a reader kills it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_helpers import HEADER, bank, manifest, teach, value_of

from dinosaur_ad.errors import DinosaurError, StoreError
from dinosaur_ad.store import MemoryStore, Store, codec
from dinosaur_ad.store.codec import seal, unseal


def everything(path: Path) -> Any:
    """All that a reader can get out of a store."""
    store = Store.open(path)
    snapshot = store.snapshot()
    assert not snapshot.damaged, snapshot.damaged
    arrays = {
        (name, file, key): array.tobytes()
        for name, record in snapshot.records.items()
        for file in record.files
        for key, array in store.arrays(record, file).items()
    }
    return store.header, snapshot.records, arrays


def test_every_bit_of_every_file_counts(folder: Store) -> None:
    teach(folder, "screw", 1)
    teach(folder, "screw", 2, "update")
    teach(folder, "bottle", 2)
    sound, tried = everything(folder.path), 0
    current = ["store.json", "tasks/screw/task.json", "tasks/screw/v0002", "tasks/bottle"]
    files = [each for place in current for each in _files(folder.path / place)]
    assert len(files) == 1 + 1 + 2 + 3
    for file in files:
        content = file.read_bytes()
        for place in random.Random(file.name).sample(range(8 * len(content)), 150):
            flipped = bytearray(content)
            flipped[place // 8] ^= 1 << place % 8
            file.write_bytes(flipped)
            with pytest.raises((DinosaurError, AssertionError)):
                assert everything(folder.path) is None
            tried += 1
        file.write_bytes(content)
    assert everything(folder.path) == sound
    assert tried == 150 * len(files)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())


def test_every_single_bit_of_a_sealed_document_counts() -> None:
    data = seal({"format": 2, "name": "screw", "threshold": float("inf")})
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        try:
            assert unseal(bytes(flipped))[1] is False, "it no longer begins with its hash, and the caller refuses it"
        except ValueError:
            continue
    for more in (data + b" ", data + b"\n", data[:-1], data[:-2] + b" " + data[-2:]):
        with pytest.raises(ValueError, match=r"sha256|JSON"):
            unseal(more)


def test_version_0_does_not_make_a_task_disappear(folder: Store) -> None:
    teach(folder, "screw", 1)
    pointer = folder.path / "tasks" / "screw" / "task.json"
    content = pointer.read_bytes()
    pointer.write_bytes(content.replace(b'"version": 1', b'"version": 0', 1))
    damaged = Store.open(folder.path)
    assert damaged.names() == ["screw"]
    assert list(damaged.snapshot().damaged) == ["screw"]
    with pytest.raises(StoreError, match=r"task\.json"):
        damaged.verify("screw")
    teach(damaged, "bottle", 2)  # sweeps
    pointer.write_bytes(content)
    assert value_of(Store.open(folder.path), "screw") == 1


@pytest.mark.parametrize("place", ["vectors", "scores"])
def test_a_flipped_bit_in_a_bank_is_not_read(folder: Store, place: str) -> None:
    arrays = {"bank": {"vectors": np.ones(50, np.float16), "scores": np.full(8, 0.5, np.float32)}}
    folder.put("screw", arrays, manifest(1), action="learn")
    file = folder.path / "tasks" / "screw" / "v0001" / "bank.safetensors"
    content = bytearray(file.read_bytes())
    content[-3 if place == "vectors" else 130] ^= 0x40
    file.write_bytes(content)
    for _ in range(2):  # every time it is read
        with pytest.raises(StoreError, match=r"bank.safetensors .*sha256 is not the recorded one"):
            folder.arrays("screw", "bank")


def test_memory_is_checked_like_a_disk() -> None:
    store = MemoryStore(HEADER)
    teach(store, "screw", 1)
    stored: Any = store._files
    number, content = stored._files["tasks/screw/v0001/bank.safetensors"]
    stored._files["tasks/screw/v0001/bank.safetensors"] = (number, content[:-1] + b"x")
    with pytest.raises(StoreError, match="sha256 is not the recorded one"):
        store.arrays("screw", "bank")


def test_what_was_read_stays_when_the_file_shrinks(folder: Store) -> None:
    code = """
        import sys, os, numpy as np
        from dinosaur_ad.store import Store
        store = Store.open(sys.argv[1])
        patches = store.arrays("screw", "bank")["patches"]
        os.truncate(sys.argv[1] + "/tasks/screw/v0001/bank.safetensors", 0)
        print(patches.sum())
        """
    files = {"bank": {"patches": np.ones((100, 1000), np.float32)}}
    folder.put("screw", files, manifest(1), action="learn")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(folder.path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout) == (0, "100000.0\n"), done.stderr


def test_a_file_that_shrinks_while_it_is_read_gets_a_sentence(folder: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    teach(folder, "screw", 1)
    file, fstat = folder.path / "tasks" / "screw" / "v0001" / "bank.safetensors", os.fstat

    def shrink(descriptor: int) -> os.stat_result:
        status = fstat(descriptor)
        if status.st_ino == file.stat().st_ino:
            os.truncate(file, 10)
        return status

    monkeypatch.setattr(os, "fstat", shrink)
    with pytest.raises(StoreError, match="became shorter while it was read"):
        folder.arrays("screw", "bank")


def test_a_small_array_does_not_keep_a_large_one_in_memory() -> None:
    blob = codec.encode_arrays({"vectors": np.ones(10_000, np.float32), "scores": np.ones(5, np.float32)})
    arrays = codec.decode_arrays(np.frombuffer(blob, np.uint8))
    assert arrays["scores"].base is None
    assert arrays["vectors"].base is not None


def test_bank_is_hashed_as_it_is_written(folder: Store) -> None:
    folder.put("screw", bank(1), manifest(1), action="learn")
    assert value_of(folder, "screw") == 1
