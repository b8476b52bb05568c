"""A task as one file: what arrives is what was sent, and whatever else is refused in a sentence, store unchanged."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from detector_helpers import TINY, product, spoil, tiny, tree_hash
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.transfer import export_task, import_task
from dinosaur_ad.errors import DinosaurError, InputError, StoreError
from dinosaur_ad.store import Store
from dinosaur_ad.store.bundle import read_bundle
from dinosaur_ad.store.codec import encode_arrays, seal, unseal
from dinosaur_ad.store.disk import Disk

Members = list[tuple[zipfile.ZipInfo, bytes]]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Dinosaur:
    """A store with a product that has a gallery and settings of its own."""
    detector = tiny(tmp_path_factory.mktemp("box-1") / "store")
    detector.learn("screw", product(0, 24))
    detector.add_defects("screw", [spoil(product(0, 1, seed=5)[0])])
    detector.set("screw", false_alarms=0.1, smallest_area=0)
    return detector


@pytest.fixture(scope="module")
def sent(taught: Dinosaur, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("stick") / "screw.zip"
    export_task(_store(taught), "screw", path)
    return path.read_bytes()


@pytest.fixture
def bundle(sent: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "screw.zip"
    path.write_bytes(sent)
    return path


@pytest.fixture(scope="module")
def _washer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("box-2") / "store"
    tiny(folder).learn("washer", product(1, 12))
    return folder


@pytest.fixture
def other(tmp_path: Path, _washer: Path) -> Dinosaur:
    """Another box with a product of its own."""
    return tiny(shutil.copytree(_washer, tmp_path / "box-2"))


def _store(detector: Dinosaur) -> Store:
    assert isinstance(detector.store, Store)
    return detector.store


def scores(detector: Dinosaur, task: str) -> list[tuple[Any, ...]]:
    images = [*product(0, 4, seed=9), spoil(product(0, 1, seed=7)[0])]
    found = detector.inspect(images, task=task)
    return [(each.score, each.threshold, each.p_value, each.verdict, each.map.tobytes()) for each in found]


def members(content: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(info, archive.read(info)) for info in archive.infolist()]


def packed(parts: Members, compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for info, content in parts:
            archive.writestr(info, content, compression)
    return buffer.getvalue()


def rewritten(content: bytes, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> bytes:
    """A bundle changed by somebody who knows how its hashes are made."""
    blobs = {info.filename: data for info, data in members(content)}
    document, _ = unseal(blobs.pop("bundle.json"))
    change(document, blobs)
    for name, data in blobs.items():
        if (entry := document["files"].get(name.removesuffix(".safetensors"))) is not None:
            entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    return packed(
        [(zipfile.ZipInfo("bundle.json"), seal(document)), *((zipfile.ZipInfo(n), b) for n, b in blobs.items())]
    )


def assert_refused(other: Dinosaur, bundle: Path, content: bytes, sentence: str) -> None:
    bundle.write_bytes(content)
    store = _store(other)
    before = tree_hash(store.path)
    with pytest.raises(DinosaurError) as caught:
        import_task(store, bundle)
    message = str(caught.value)
    assert sentence in message, message
    assert "\n" not in message
    assert message.endswith(".")
    assert tree_hash(store.path) == before


# --- what arrives ---


def test_an_imported_task_gives_the_same_scores_to_the_last_bit(
    taught: Dinosaur, other: Dinosaur, bundle: Path
) -> None:
    record = import_task(_store(other), bundle)
    assert record.manifest == taught.store.record("screw").manifest
    assert record.files == taught.store.record("screw").files
    assert scores(other, "screw") == scores(taught, "screw")
    assert other.settings("screw") == taught.settings("screw")
    assert other.defects("screw") == taught.defects("screw")
    assert [each["action"] for each in record.history] == ["import"]
    assert [each.name for each in other.tasks()] == ["washer", "screw"]
    other.verify("screw")


def test_the_same_version_gives_the_same_file(taught: Dinosaur, sent: bytes, tmp_path: Path) -> None:
    written = export_task(_store(taught), "screw", tmp_path / "new" / "again.zip")
    assert written.path.read_bytes() == sent
    assert (written.bytes, written.sha256) == (len(sent), hashlib.sha256(sent).hexdigest())
    assert [each.name for each in written.path.parent.iterdir()] == ["again.zip"]


def test_undo_takes_an_import_back(taught: Dinosaur, other: Dinosaur, bundle: Path) -> None:
    import_task(_store(other), bundle)
    assert other.undo("screw") == "import"
    assert "screw" not in other
    assert other.redo("screw") == "import"
    assert scores(other, "screw") == scores(taught, "screw")


def test_replacing_goes_over_the_whole_task_and_undo_brings_the_old_one_back(
    taught: Dinosaur, other: Dinosaur, bundle: Path
) -> None:
    other.learn("screw", product(2, 12))
    before = scores(other, "screw")
    with pytest.raises(InputError, match=r"There is a task 'screw' already; .*--name.*--replace"):
        import_task(_store(other), bundle)
    assert scores(other, "screw") == before
    import_task(_store(other), bundle, replace=True)
    assert scores(other, "screw") == scores(taught, "screw")
    assert other.undo("screw") == "import"
    assert scores(other, "screw") == before


def test_another_name(taught: Dinosaur, other: Dinosaur, bundle: Path) -> None:
    assert import_task(_store(other), bundle, name="screw M4").name == "screw M4"
    assert scores(other, "screw M4") == scores(taught, "screw")
    for name, sentence in (("../screw", "cannot be called"), ("Washer", "differs only in case")):
        with pytest.raises(InputError, match=sentence):
            import_task(_store(other), bundle, name=name)


def test_a_store_that_is_not_there_is_made(taught: Dinosaur, bundle: Path, tmp_path: Path) -> None:
    import_task(tmp_path / "box-3", bundle)
    assert scores(Dinosaur.load(tmp_path / "box-3"), "screw") == scores(taught, "screw")


def test_a_task_can_be_taught_further_after_its_move(other: Dinosaur, bundle: Path) -> None:
    import_task(_store(other), bundle)
    assert other.update("screw", product(0, 4, seed=77)).total_images == 28


def test_without_paths_no_folder_travels(tmp_path: Path) -> None:
    folder = tmp_path / "secret-customer" / "normals"
    folder.mkdir(parents=True)
    for number, pixels in enumerate(product(0, 12)):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    Image.fromarray(spoil(product(0, 1)[0])).save(folder.parent / "bad.png")
    detector = tiny(tmp_path / "store")
    detector.learn("screw", folder)
    detector.add_defects("screw", folder.parent / "bad.png")
    export_task(_store(detector), "screw", tmp_path / "all.zip")
    export_task(_store(detector), "screw", tmp_path / "less.zip", paths=False)
    assert b"secret-customer" in (tmp_path / "all.zip").read_bytes()
    assert b"secret-customer" not in (tmp_path / "less.zip").read_bytes()
    import_task(tmp_path / "there", tmp_path / "less.zip")
    there = Dinosaur.load(tmp_path / "there")
    assert there.tasks()[0].manifest["images"] == [f"{number}.png" for number in sorted(map(str, range(12)))]
    assert [each.image for each in there.defects("screw")] == ["bad.png"]
    assert scores(there, "screw") == scores(detector, "screw")


# --- exporting is refused ---


def test_exporting_leaves_files_and_the_store_alone(taught: Dinosaur, tmp_path: Path) -> None:
    store = _store(taught)
    taken = tmp_path / "taken.zip"
    taken.write_bytes(b"mine")
    for path, sentence in (
        (taken, "There is a file .*taken.zip already"),
        (tmp_path, "is a folder"),
        (store.path / "screw.zip", "lies in the store"),
        (taken / "below.zip", "could not be written"),
    ):
        with pytest.raises(InputError, match=sentence):
            export_task(store, "screw", path)
    with pytest.raises(InputError, match=r"There is no task 'scrw'.* did you mean screw"):
        export_task(store, "scrw", tmp_path / "new.zip")
    assert taken.read_bytes() == b"mine"
    assert [each.name for each in tmp_path.iterdir()] == ["taken.zip"]


def test_a_damaged_task_is_not_exported(taught: Dinosaur, tmp_path: Path) -> None:
    copy = shutil.copytree(_store(taught).path, tmp_path / "copy")
    bank = max(copy.glob("tasks/screw/v*/bank.safetensors"))
    bank.write_bytes(bank.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreError, match=r"bank\.safetensors"):
        export_task(Store.open(copy), "screw", tmp_path / "new.zip")
    assert not (tmp_path / "new.zip").exists()


# --- importing is refused ---


def test_another_encoder_other_weights_another_preset(bundle: Path, sent: bytes, tmp_path: Path) -> None:
    coarse = tiny(tmp_path / "coarse", preset=replace(TINY, name="coarser", size=56))
    coarse.learn("washer", product(1, 12))
    assert_refused(coarse, bundle, sent, "the preset 'tiny', and the store has 'coarser' (they differ in name, size)")
    other = tiny(tmp_path / "same")
    other.learn("washer", product(1, 12))

    def encoder(document: dict[str, Any], _: dict[str, bytes]) -> None:
        document["header"]["encoder"]["encoder"] = "dinov2s-focus"

    def weights(document: dict[str, Any], _: dict[str, bytes]) -> None:
        document["header"]["encoder"]["fingerprint"] = "0" * 16

    assert_refused(other, bundle, rewritten(sent, encoder), "the encoder 'dinov2s-focus', and the store has 'tiny-")
    assert_refused(other, bundle, rewritten(sent, weights), "other weights of 'tiny-dinov2' (fingerprint 0000000000")


@pytest.mark.parametrize(
    "name",
    ["../evil.safetensors", "/etc/cron.d/evil", "a/bank.safetensors", "..\\evil.safetensors", "bank.py", "bank/", ""],
)
def test_names_that_no_bundle_has(other: Dinosaur, bundle: Path, sent: bytes, name: str) -> None:
    content = packed([*members(sent), (zipfile.ZipInfo(name), b"x")])
    assert_refused(other, bundle, content, "which no bundle does")


def test_a_second_file_of_a_name(other: Dinosaur, bundle: Path, sent: bytes) -> None:
    parts = members(sent)
    with pytest.warns(UserWarning, match="Duplicate name"):
        content = packed([*parts, (zipfile.ZipInfo(parts[1][0].filename), b"x")])
    assert_refused(other, bundle, content, "twice")


def test_links_and_encrypted_files(other: Dinosaur, bundle: Path, sent: bytes) -> None:
    parts = members(sent)
    parts[1][0].external_attr = (stat.S_IFLNK | 0o777) << 16
    assert_refused(other, bundle, packed(parts), "is a link or a folder")
    encrypted = bytearray(sent)
    encrypted[sent.rindex(b"PK\x01\x02") + 8] |= 1
    assert_refused(other, bundle, bytes(encrypted), "packed or encrypted")


def test_a_bomb(other: Dinosaur, bundle: Path, sent: bytes) -> None:
    """A gigabyte of zeros in a megabyte, and an archive that declares more than it has."""
    zeros = (zipfile.ZipInfo("bomb.safetensors"), bytes(10**7))
    assert_refused(other, bundle, packed([*members(sent), zeros], zipfile.ZIP_DEFLATED), "packed or encrypted")
    entry = sent.rindex(b"PK\x01\x02")
    larger = bytearray(sent)
    larger[entry + 20 : entry + 28] = (2**31).to_bytes(4, "little") * 2
    assert_refused(other, bundle, bytes(larger), "declares more bytes than it has")
    many = [(zipfile.ZipInfo(f"file{n}.safetensors"), b"") for n in range(200)]
    assert_refused(other, bundle, packed([*members(sent), *many]), "at most 100")


def test_missing_and_superfluous_files(other: Dinosaur, bundle: Path, sent: bytes) -> None:
    parts = members(sent)
    assert_refused(other, bundle, packed(parts[:-1]), "exactly the files that it names")
    more = [*parts, (zipfile.ZipInfo("more.safetensors"), encode_arrays({"a": np.zeros(1)}))]
    assert_refused(other, bundle, packed(more), "exactly the files that it names")
    assert_refused(other, bundle, packed(parts[1:]), "has no bundle.json")


def test_what_is_no_bundle(other: Dinosaur, bundle: Path, tmp_path: Path) -> None:
    for content in (b"", b"PK", b"hello" * 1000, os.urandom(5000)):
        assert_refused(other, bundle, content, "File is not a zip file")
    with pytest.raises(InputError, match="is a folder"):
        import_task(_store(other), tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        import_task(_store(other), tmp_path / "nothing.zip")
    with pytest.raises(InputError, match="not a plain file"):
        import_task(_store(other), "/dev/null")


def _drop_prototype(document: dict[str, Any], blobs: dict[str, bytes]) -> None:
    del document["files"]["prototype"], blobs["prototype.safetensors"]


def _wrong_array(document: dict[str, Any], blobs: dict[str, bytes]) -> None:
    blobs["prototype.safetensors"] = encode_arrays({"prototype": np.zeros(3, np.float32)})


def _no_arrays(document: dict[str, Any], blobs: dict[str, bytes]) -> None:
    blobs["bank.safetensors"] = b"not arrays at all"


def _fewer_images(document: dict[str, Any], blobs: dict[str, bytes]) -> None:
    document["manifest"]["images"] = document["manifest"]["images"][:2]


def _wrong_type(document: dict[str, Any], blobs: dict[str, bytes]) -> None:
    document["manifest"]["members"] = "many"


def _newer(document: dict[str, Any], blobs: dict[str, bytes]) -> None:
    document["version"] = 2


def _path_name(document: dict[str, Any], blobs: dict[str, bytes]) -> None:
    document["task"] = "../../etc/passwd"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_drop_prototype, "has no file 'prototype'"),
        (_wrong_array, "which exposure it was taught with"),
        (_no_arrays, "its header"),
        (_fewer_images, "images that it does not name"),
        (_wrong_type, "'manifest.members' is 'many' instead of"),
        (_newer, "newer DINOSaur, in format 2"),
        (_path_name, "A task cannot be called"),
    ],
)
def test_content_that_a_detector_cannot_use(
    other: Dinosaur,
    bundle: Path,
    sent: bytes,
    change: Callable[[dict[str, Any], dict[str, bytes]], None],
    sentence: str,
) -> None:
    assert_refused(other, bundle, rewritten(sent, change), sentence)


def test_a_full_disk_leaves_the_store_as_it_was(other: Dinosaur, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Disk, path: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    before = tree_hash(_store(other).path / "tasks")
    with monkeypatch.context() as patch:
        patch.setattr(Disk, "write", full)
        with pytest.raises(StoreError, match="No space left"):
            import_task(_store(other), bundle)
    assert tree_hash(_store(other).path / "tasks") == before
    assert "screw" not in other


# --- damage anywhere ---


def _damaged(sent: bytes) -> Iterator[bytes]:
    chance = random.Random(16)
    structure = [*range(120), *range(sent.index(b"PK\x01\x02"), len(sent))]  # headers and the directory at the end
    for place in [*chance.sample(structure, 350), *chance.sample(range(len(sent)), 250)]:
        flipped = bytearray(sent)
        flipped[place] ^= 1 << chance.randrange(8) if chance.random() < 0.7 else chance.randrange(1, 256)
        yield bytes(flipped)
    for length in [0, 1, 21, 22, len(sent) - 1, *chance.sample(range(len(sent)), 60)]:
        yield sent[:length]
    for _ in range(40):
        start, end = sorted(chance.sample(range(len(sent)), 2))
        yield sent[:start] + sent[end:]


def test_damage_anywhere_is_refused_or_changes_nothing(bundle: Path, sent: bytes) -> None:
    sound = _described(bundle)
    tried = refused = 0
    for content in _damaged(sent):
        bundle.write_bytes(content)
        tried += 1
        try:
            found = _described(bundle)
        except InputError:
            refused += 1
            continue
        assert found == sound
    assert tried > 600
    assert refused > tried * 0.6


def _described(path: Path) -> Any:
    found = read_bundle(path)
    arrays = {(file, key): a.tobytes() for file, each in found.files.items() for key, a in each.items()}
    return found.task, found.header, found.manifest, found.learned, found.changed, arrays
