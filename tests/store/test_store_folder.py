"""A store in a folder survives reopening and tells what is damaged in it."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from store_helpers import HEADER, contents, reseal, teach, value_of

from dinosaur_ad.errors import StoreError
from dinosaur_ad.store import Store


def test_everything_survives_reopening(folder: Store) -> None:
    teach(folder, "zip", 1)
    teach(folder, "bottle", 2)
    again = Store.open(str(folder.path))
    assert (again.header, again.path) == (HEADER, folder.path)
    assert list(contents(again).items()) == [("zip", 1), ("bottle", 2)]
    assert (again.undo("bottle"), again.names()) == ("learn", ["zip"])


def test_the_same_arrays_give_the_same_file(folder: Store) -> None:
    teach(folder, "a", 1)
    teach(folder, "b", 1)
    one, two = ((folder.path / "tasks" / name / "v0001" / "bank.safetensors").read_bytes() for name in "ab")
    assert one == two


def test_create_refuses_what_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.png").touch()
    with pytest.raises(StoreError, match="holds other files"):
        Store.create(tmp_path / "photos", {})
    with pytest.raises(StoreError, match="is a file"):
        Store.create(tmp_path / "photos" / "me.png", {})
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["me.png"]
    teach(Store.create(tmp_path / "deep" / "store", HEADER), "screw", 1)
    with pytest.raises(StoreError, match="already"):
        Store.create(tmp_path / "deep" / "store", {})
    assert contents(Store.create(tmp_path / "deep" / "store", {}, exist_ok=True)) == {"screw": 1}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\x00\xff\x13garbage", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "does not hold a JSON object"),
        (b"{}", "not a DINOSaur store"),
        (b'{"format": "dinosaur-store", "version": 3, "header": []}', "newer DINOSaur .*upgrade"),
        (b'{"format": "dinosaur-store", "version": "1", "header": {}}', "does not carry its sha256"),
        (b'{"format": "dinosaur-store", "version": 2, "header": {}}', "does not carry its sha256"),
        (b'{"format": "dinosaur-store", "version": 1}', "'created' is missing"),
        (None, "There is no store in"),
    ],
)
def test_open_refuses_in_one_sentence(folder: Store, content: bytes | None, sentence: str) -> None:
    file = folder.path / "store.json"
    file.unlink() if content is None else file.write_bytes(content)
    before = sorted(folder.path.iterdir())
    with pytest.raises(StoreError, match=sentence) as refusal:
        Store.open(folder.path)
    assert str(refusal.value).endswith(".")
    assert "\n" not in str(refusal.value)
    assert sorted(folder.path.iterdir()) == before


def test_open_refuses_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no store in"):
        Store.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: data + b"x"])
def test_a_bank_of_the_wrong_size_spoils_only_its_task(folder: Store, damage: Callable[[bytes], bytes]) -> None:
    teach(folder, "screw", 1)
    teach(folder, "bottle", 2)
    file = folder.path / "tasks" / "screw" / "v0001" / "bank.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(StoreError, match=r"screw/v0001/bank.safetensors .* other tasks are not affected"):
        folder.arrays("screw", "bank")
    assert folder.names() == ["screw", "bottle"]
    assert value_of(folder, "bottle") == 2


def test_verify_finds_a_flipped_bit_anywhere(folder: Store) -> None:
    teach(folder, "screw", 1)
    for file in sorted((folder.path / "tasks" / "screw" / "v0001").iterdir()):
        sound = file.read_bytes()
        file.write_bytes(sound[:-9] + bytes([sound[-9] ^ 1]) + sound[-8:])
        with pytest.raises(StoreError, match=f"{file.name} .*sha256 is not the recorded one"):
            folder.verify("screw")
        file.write_bytes(sound)
    assert value_of(folder, "screw") == 1


def test_a_missing_bank_is_named_and_undo_leads_back(folder: Store) -> None:
    teach(folder, "screw", 1)
    teach(folder, "screw", 2, "update")
    (folder.path / "tasks" / "screw" / "v0002" / "bank.safetensors").unlink()
    with pytest.raises(StoreError, match=r"v0002/bank.safetensors .*No such file"):
        folder.arrays("screw", "bank")
    folder.undo("screw")
    assert value_of(folder, "screw") == 1


def test_a_manifest_cannot_name_files_elsewhere(folder: Store) -> None:
    teach(folder, "screw", 1)
    manifest = folder.path / "tasks" / "screw" / "v0001" / "manifest.json"
    secret = {"../../../secret": {"bytes": 1, "sha256": "0" * 64}}
    reseal(manifest, lambda document: document.update(files=secret))
    sha256 = hashlib.sha256(manifest.read_bytes()).hexdigest()
    pointer = folder.path / "tasks" / "screw" / "task.json"
    reseal(pointer, lambda document: document["states"][-1].update(sha256=sha256))
    with pytest.raises(StoreError, match="does not describe its files"):
        folder.verify("screw")


def test_a_thousand_tasks_open_at_once(folder: Store) -> None:
    teach(folder, "task0", 1)
    (folder.path / "tasks" / "task0" / "v0001" / "bank.safetensors").unlink()  # so that reading it would be noticed
    for number in range(1, 1000):  # a task folder holds no name, so a copy of it is a task
        shutil.copytree(folder.path / "tasks" / "task0", folder.path / "tasks" / f"task{number}")
    seconds = []
    for _ in range(3):  # the quickest: in the others, the machine may have had other work
        start = time.perf_counter()
        again = Store.open(folder.path)
        records = [again.record(name) for name in again.names()]
        seconds.append(time.perf_counter() - start)
        assert len(records) == 1000
    assert min(seconds) < 1.5  # measured: 0.1 to 0.2; the rest is for a busy machine
