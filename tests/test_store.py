"""The store keeps what it was given, whole, whatever happens to it meanwhile."""

from __future__ import annotations

import doctest
import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dinosaur_ad import _atomic, store
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.store import MemoryStore, Store, TaskStore, check_task_name

HEADER = {"encoder": "tiny", "preset": "default"}


def bank(value: float, size: int = 6) -> dict[str, dict[str, np.ndarray]]:
    return {"bank": {"patches": np.full((2, size), value, np.float32), "count": np.array(3, np.int32)}}


def teach(target: TaskStore, name: str, value: float, action: str = "learn") -> None:
    target.put(name, bank(value), {"value": value}, action=action, note={"images": 5})


def value_of(target: TaskStore, name: str) -> float:
    """The value a task was taught, after checking that its manifest, arrays and hashes agree on it."""
    record = target.record(name)
    target.verify(name)
    patches = target.arrays(record, "bank")["patches"]
    assert np.all(patches == record.manifest["value"])
    return float(patches[0, 0])


def contents(target: TaskStore) -> dict[str, float]:
    return {name: value_of(target, name) for name in target.names()}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test cannot cut the power, so waiting for the disk would prove nothing; processes below do wait."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(params=["folder", "memory"])
def tasks(request: pytest.FixtureRequest, tmp_path: Path) -> TaskStore:
    return Store.create(tmp_path / "store", HEADER) if request.param == "folder" else MemoryStore(HEADER)


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "store", HEADER, lock_timeout=0.2)


class TestTasks:
    def test_arrays_come_back_exact_and_cannot_be_written(self, tasks: TaskStore) -> None:
        files = {
            "bank": {
                "half": np.ones((2, 3), np.float16),
                "scalar": np.array(7, np.int32),
                "none": np.ones((0, 4)),
            },
            "reserve": {"bytes": np.arange(5, dtype=np.uint8), "turned": np.arange(6.0).reshape(2, 3).T},
        }
        tasks.put("screw", files, {}, action="learn")
        for file, arrays in files.items():
            loaded = tasks.arrays("screw", file)
            assert loaded.keys() == arrays.keys()
            for key, array in arrays.items():
                np.testing.assert_array_equal(loaded[key], array, strict=True)
                with pytest.raises(ValueError, match="read-only"):
                    loaded[key][...] = 0

    def test_later_changes_to_what_was_given_change_nothing(self, tasks: TaskStore) -> None:
        files, manifest = bank(1), {"value": 1.0, "layers": [6, 9]}
        tasks.put("screw", files, manifest, action="learn")
        files["bank"]["patches"][:] = 2
        manifest["layers"].append(12)
        assert value_of(tasks, "screw") == 1
        assert tasks.record("screw").manifest["layers"] == [6, 9]

    def test_names_keep_the_order_of_learning(self, tasks: TaskStore) -> None:
        for number, name in enumerate(["zip", "bottle", "metal_nut"]):
            teach(tasks, name, number)
        teach(tasks, "zip", 9, "update")
        assert tasks.names() == ["zip", "bottle", "metal_nut"]
        tasks.drop("zip")
        teach(tasks, "zip", 10)
        assert tasks.names() == ["bottle", "metal_nut", "zip"]
        tasks.undo("zip")
        tasks.undo("zip")
        assert tasks.names() == ["zip", "bottle", "metal_nut"]

    def test_a_record_says_what_happened(self, tasks: TaskStore) -> None:
        teach(tasks, "screw", 1)
        first = tasks.record("screw")
        teach(tasks, "screw", 2, "update")
        second = tasks.record("screw")
        assert (second.version, second.action, second.created) == (2, "update", first.created)
        assert second.id != first.id
        assert [(entry["action"], entry["version"], entry["images"]) for entry in second.history] == [
            ("learn", 1, 5),
            ("update", 2, 5),
        ]
        assert tasks.undo("screw") == "update"
        assert tasks.record("screw").id == first.id
        assert tasks.record("screw").history[-1]["action"] == "undo update"

    def test_undo_goes_back_step_by_step(self, tasks: TaskStore) -> None:
        teach(tasks, "screw", 1)
        teach(tasks, "screw", 2, "update")
        tasks.drop("screw")
        assert "screw" not in tasks
        with pytest.raises(InputError, match="forgotten, and undo brings it back"):
            tasks.record("screw")
        assert (tasks.undo("screw"), value_of(tasks, "screw")) == ("forget", 2)
        assert (tasks.undo("screw"), value_of(tasks, "screw")) == ("update", 1)
        assert (tasks.undo("screw"), tasks.names()) == ("learn", [])
        with pytest.raises(StoreError, match="nothing to undo"):
            tasks.undo("screw")

    def test_only_the_last_versions_are_kept(self, tasks: TaskStore) -> None:
        for value in range(6):
            teach(tasks, "screw", value)
        tasks.undo("screw")
        tasks.undo("screw")
        assert value_of(tasks, "screw") == 3
        with pytest.raises(StoreError, match="at the most 3 are kept"):
            tasks.undo("screw")
        assert value_of(tasks, "screw") == 3

    def test_a_record_never_gets_the_arrays_of_another_version(self, tasks: TaskStore) -> None:
        teach(tasks, "screw", 1)
        old = tasks.record("screw")
        teach(tasks, "screw", 2, "update")
        assert tasks.arrays(old, "bank")["patches"][0, 0] == 1
        tasks.undo("screw")
        tasks.undo("screw")
        teach(tasks, "screw", 3)  # version 1 once more, of the same size
        with pytest.raises(StoreError, match="read the record of the task again"):
            tasks.arrays(old, "bank")

    def test_prune_removes_forgotten_tasks_for_good(self, tasks: TaskStore) -> None:
        teach(tasks, "screw", 1)
        teach(tasks, "bottle", 2)
        tasks.drop("screw")
        assert tasks.prune() == ["screw"]
        assert contents(tasks) == {"bottle": 2}
        with pytest.raises(StoreError, match="nothing to undo"):
            tasks.undo("screw")

    def test_bytes_are_those_of_the_current_versions(self, tasks: TaskStore) -> None:
        teach(tasks, "screw", 1)
        teach(tasks, "screw", 2)
        teach(tasks, "bottle", 1)
        blob = len(_atomic.encode_arrays(bank(1)["bank"]))
        assert (tasks.bytes("screw"), tasks.bytes()) == (blob, 2 * blob)

    def test_stamp_changes_with_every_change_and_only_then(self, tasks: TaskStore) -> None:
        changes: list[Callable[[], object]] = [
            lambda: teach(tasks, "screw", 1),
            lambda: teach(tasks, "screw", 2),
            lambda: tasks.undo("screw"),
            lambda: tasks.drop("screw"),
            lambda: tasks.prune(),
        ]
        for change in changes:
            before = tasks.stamp()
            contents(tasks)
            assert tasks.stamp() == before
            change()
            assert tasks.stamp() != before

    def test_numbers_that_json_lacks_survive(self, tasks: TaskStore) -> None:
        manifest = {"threshold": math.inf, "low": -math.inf, "scores": [1.5, math.nan]}
        tasks.put("screw", bank(1), manifest, action="learn")
        loaded = tasks.record("screw").manifest
        assert (loaded["threshold"], loaded["low"], loaded["scores"][0]) == (math.inf, -math.inf, 1.5)
        assert math.isnan(loaded["scores"][1])

    @pytest.mark.parametrize("name", ["screw", "Screw"])
    def test_names_that_differ_in_case_only_are_refused(self, tasks: TaskStore, name: str) -> None:
        teach(tasks, "sCrew", 1)
        with pytest.raises(InputError, match="differs only in case"):
            teach(tasks, name, 2)
        assert contents(tasks) == {"sCrew": 1}

    def test_an_unknown_task_is_answered_with_the_nearest_ones(self, tasks: TaskStore) -> None:
        with pytest.raises(InputError, match="no task has been learned yet"):
            tasks.record("screw")
        teach(tasks, "screw", 1)
        for ask in (tasks.record, tasks.drop, tasks.verify):
            with pytest.raises(InputError, match=r"no task 'scerw' .* nearest names are screw"):
                ask("scerw")
        with pytest.raises(StoreError, match="no file 'reserve'; it has bank"):
            tasks.arrays("screw", "reserve")

    def test_what_cannot_be_stored_is_refused_before_anything_is_written(self, tasks: TaskStore) -> None:
        before = tasks.stamp()
        with pytest.raises(TypeError, match="cannot be stored"):
            tasks.put("screw", {"bank": {"a": np.array(["text"])}}, {}, action="learn")
        with pytest.raises(ValueError, match="lower-case"):
            tasks.put("screw", {"../bank": {}}, {}, action="learn")
        with pytest.raises(TypeError, match="serializable"):
            tasks.put("screw", bank(1), {"bad": object()}, action="learn")  # type: ignore[dict-item]
        assert tasks.stamp() == before


class TestNames:
    @pytest.mark.parametrize("name", ["screw", "metal_nut", "v1.2-b", "_x", "7", "a" * 64])
    def test_plain_names_are_taken(self, name: str) -> None:
        assert check_task_name(name) == name

    @pytest.mark.parametrize(
        ("name", "suggestion"),
        [
            ("metal nut", "metal-nut"),
            ("../../etc", "etc"),
            (".hidden", "hidden"),
            ("end.", "end"),
            ("--store", "store"),
            ("Prüfling/3", "Prufling-3"),
            ("con", "task-con"),
            ("nul.txt", "task-nul.txt"),
            ("", "task"),
            ("..", "task"),
            ("screw\n", "screw"),
            ("x" * 65, "x" * 64),
        ],
    )
    def test_others_are_refused_with_one_that_would_do(self, name: str, suggestion: str) -> None:
        with pytest.raises(InputError, match=f"for example '{suggestion}'"):
            check_task_name(name)

    @given(st.text(max_size=80))
    def test_every_suggestion_is_a_name(self, name: str) -> None:
        try:
            assert check_task_name(name) == name
        except InputError as error:
            suggestion = str(error).rsplit("'", 2)[1]
            assert check_task_name(suggestion) == suggestion

    @pytest.mark.parametrize("method", ["drop", "undo", "record", "verify"])
    def test_a_name_cannot_reach_outside_the_store(self, folder: Store, method: str) -> None:
        teach(folder, "screw", 1)
        for name in ("..", "../..", "../tasks/screw", "/"):
            with pytest.raises(InputError, match="cannot be called"):
                getattr(folder, method)(name)
        assert contents(Store.open(folder.path)) == {"screw": 1}


class TestArrayFiles:
    dtypes = st.sampled_from(["<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "i1", "<u2", "u1", "?", ">f4", ">i2"])
    arrays = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4)))

    @given(st.dictionaries(st.text(max_size=5).filter(lambda key: key != "__metadata__"), arrays, max_size=4))
    def test_every_array_survives(self, arrays: dict[str, np.ndarray]) -> None:
        loaded = _atomic.decode_arrays(np.frombuffer(_atomic.encode_arrays(arrays), np.uint8))
        assert loaded.keys() == arrays.keys()
        for key, array in arrays.items():
            np.testing.assert_array_equal(loaded[key], array, strict=array.dtype.isnative)

    @given(st.data())
    def test_damage_is_either_harmless_to_the_shape_or_refused(self, data: st.DataObject) -> None:
        blob = bytearray(_atomic.encode_arrays(bank(1)["bank"]))
        for _ in range(data.draw(st.integers(1, 3))):
            blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
        blob = blob[: data.draw(st.integers(0, len(blob)))]
        try:
            loaded = _atomic.decode_arrays(np.frombuffer(bytes(blob), np.uint8))
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
    def test_a_header_that_lies_is_refused(self, entry: Any, why: str) -> None:
        header = json.dumps({"a": entry}).encode()
        blob = len(header).to_bytes(8, "little") + header + b"1234"
        with pytest.raises(ValueError, match=why):
            _atomic.decode_arrays(np.frombuffer(blob, np.uint8))


class TestFolder:
    def test_everything_survives_reopening(self, folder: Store) -> None:
        teach(folder, "zip", 1)
        teach(folder, "bottle", 2)
        again = Store.open(str(folder.path))
        assert (again.header, again.path) == (HEADER, folder.path)
        assert list(contents(again).items()) == [("zip", 1), ("bottle", 2)]
        assert (again.undo("bottle"), again.names()) == ("learn", ["zip"])

    def test_the_same_arrays_give_the_same_file(self, folder: Store) -> None:
        teach(folder, "a", 1)
        teach(folder, "b", 1)
        one, two = ((folder.path / "tasks" / name / "v0001" / "bank.safetensors").read_bytes() for name in "ab")
        assert one == two

    def test_create_refuses_what_is_not_its_own(self, tmp_path: Path) -> None:
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
            (b'{"format": "dinosaur-store", "version": 2, "header": []}', "newer DINOSaur .*upgrade"),
            (b'{"format": "dinosaur-store", "version": "1", "header": {}}', "damaged"),
            (b'{"format": "dinosaur-store", "version": 1}', "damaged"),
            (None, "There is no store in"),
        ],
    )
    def test_open_refuses_in_one_sentence(self, folder: Store, content: bytes | None, sentence: str) -> None:
        file = folder.path / "store.json"
        file.unlink() if content is None else file.write_bytes(content)
        before = sorted(folder.path.iterdir())
        with pytest.raises(StoreError, match=sentence) as refusal:
            Store.open(folder.path)
        assert str(refusal.value).endswith(".")
        assert "\n" not in str(refusal.value)
        assert sorted(folder.path.iterdir()) == before

    def test_open_refuses_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="There is no store in"):
            Store.open(tmp_path / "nowhere")
        assert not (tmp_path / "nowhere").exists()

    @pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: data + b"x"])
    def test_a_bank_of_the_wrong_size_spoils_only_its_task(
        self, folder: Store, damage: Callable[[bytes], bytes]
    ) -> None:
        teach(folder, "screw", 1)
        teach(folder, "bottle", 2)
        file = folder.path / "tasks" / "screw" / "v0001" / "bank.safetensors"
        file.write_bytes(damage(file.read_bytes()))
        with pytest.raises(StoreError, match=r"screw/v0001/bank.safetensors .* other tasks are not affected"):
            folder.arrays("screw", "bank")
        assert folder.names() == ["screw", "bottle"]
        assert value_of(folder, "bottle") == 2

    def test_verify_finds_a_flipped_bit_anywhere(self, folder: Store) -> None:
        teach(folder, "screw", 1)
        for file in sorted((folder.path / "tasks" / "screw" / "v0001").iterdir()):
            sound = file.read_bytes()
            file.write_bytes(sound[:-9] + bytes([sound[-9] ^ 1]) + sound[-8:])
            with pytest.raises(StoreError, match=f"{file.name} .*sha256 is not the recorded one"):
                folder.verify("screw")
            file.write_bytes(sound)
        assert value_of(folder, "screw") == 1

    def test_a_missing_bank_is_named_and_undo_leads_back(self, folder: Store) -> None:
        teach(folder, "screw", 1)
        teach(folder, "screw", 2, "update")
        (folder.path / "tasks" / "screw" / "v0002" / "bank.safetensors").unlink()
        with pytest.raises(StoreError, match=r"v0002/bank.safetensors .*No such file"):
            folder.arrays("screw", "bank")
        folder.undo("screw")
        assert value_of(folder, "screw") == 1

    @pytest.mark.parametrize(
        ("field", "value"),
        [("version", "../../../etc"), ("version", -1), ("version", 99), ("version", True), ("ordinal", None)],
    )
    def test_a_pointer_that_leads_astray_is_refused(self, folder: Store, field: str, value: object) -> None:
        teach(folder, "screw", 1)
        teach(folder, "bottle", 2)
        pointer = folder.path / "tasks" / "screw" / "task.json"
        document = json.loads(pointer.read_bytes())
        document["states"][-1][field] = value
        pointer.write_text(json.dumps(document))
        for change in (folder.record, folder.drop, folder.undo, lambda name: teach(folder, name, 3)):
            with pytest.raises(StoreError, match=r"tasks/screw/task.json .* other tasks are not affected"):
                change("screw")
        assert folder.names() == ["bottle", "screw"]
        assert value_of(folder, "bottle") == 2
        assert json.loads(pointer.read_bytes()) == document

    def test_a_manifest_cannot_name_files_elsewhere(self, folder: Store) -> None:
        teach(folder, "screw", 1)
        manifest = folder.path / "tasks" / "screw" / "v0001" / "manifest.json"
        pointer = folder.path / "tasks" / "screw" / "task.json"
        forged = json.loads(manifest.read_bytes())
        forged["files"] = {"../../../secret": {"bytes": 1, "sha256": ""}}
        manifest.write_text(json.dumps(forged))
        document = json.loads(pointer.read_bytes())
        document["states"][-1]["sha256"] = store._sha256(manifest.read_bytes())
        pointer.write_text(json.dumps(document))
        with pytest.raises(StoreError, match="does not describe its files"):
            folder.verify("screw")

    def test_a_thousand_tasks_open_at_once(self, folder: Store) -> None:
        teach(folder, "task0", 1)
        for number in range(1, 1000):  # a task folder holds no name, so a copy of it is a task
            shutil.copytree(folder.path / "tasks" / "task0", folder.path / "tasks" / f"task{number}")
        for bank_file in folder.path.glob("tasks/*/v0001/bank.safetensors"):
            bank_file.unlink()  # so that reading one would be noticed
        start = time.perf_counter()
        again = Store.open(folder.path)
        records = [again.record(name) for name in again.names()]
        seconds = time.perf_counter() - start
        assert len(records) == 1000
        assert seconds < 1.5  # measured: 0.1 to 0.2; the rest is for a busy machine


class Died(BaseException):
    """The process is gone: nothing after this can touch the disk."""


class Faults:
    """Counts what reaches the disk, and raises at one of these steps (a write is first half done)."""

    def __init__(self, fail_at: int, error: BaseException) -> None:
        self.step, self.fail_at, self.error = 0, fail_at, error

    def __call__(self) -> None:
        self.step += 1
        if self.step == self.fail_at or (self.step > self.fail_at and isinstance(self.error, Died)):
            raise self.error

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module, name in [(os, "replace"), (os, "mkdir"), (os, "unlink"), (shutil, "rmtree")]:
                patch.setattr(module, name, self._before(getattr(module, name)))
            patch.setattr(os, "fsync", lambda descriptor: self())
            patch.setattr(Path, "open", self._open(Path.open))
            yield

    def _before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            self()
            return function(*args, **kwargs)

        return step

    def _open(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if "w" not in mode:
                return function(path, mode, *args, **kwargs)
            self()
            file = function(path, mode, *args, **kwargs)
            return HalfWriter(file, self)

        return step


class HalfWriter:
    def __init__(self, file: Any, faults: Faults) -> None:
        self.file, self.faults = file, faults

    def __enter__(self) -> HalfWriter:
        return self

    def __exit__(self, *details: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: Any) -> int:
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        self.faults()
        return int(self.file.write(data[len(data) // 2 :]))


CHANGES: dict[str, Callable[[Store], object]] = {
    "first learn": lambda target: teach(target, "new", 7),
    "update that drops an old version": lambda target: teach(target, "full", 7, "update"),
    "learn again after forgetting": lambda target: teach(target, "gone", 7),
    "forget": lambda target: target.drop("full"),
    "undo": lambda target: target.undo("full"),
    "undo of the first learn": lambda target: target.undo("once"),
    "prune": lambda target: target.prune(),
}


def expected_files(target: Store) -> set[str]:
    """Every file that a pointer of the store leads to; anything else would be rubbish."""
    files = set()
    for name, pointer in target._pointers().items():
        assert not isinstance(pointer, StoreError)
        files.add(f"{name}/task.json")
        files |= {f"{name}/v{v:04d}/{file}" for v in pointer.versions for file in ("manifest.json", "bank.safetensors")}
    return files


def actual_files(target: Store) -> set[str]:
    root = target.path / "tasks"
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()}


def whole(path: Path) -> tuple[dict[str, float], dict[str, list[int]]]:
    """All that a user can get out of a store: tasks with their values, and where undo leads."""
    target = Store.open(path)
    pointers = {name: store._sound(pointer) for name, pointer in target._pointers().items()}
    return contents(target), {name: [s.version for s in each.states] for name, each in pointers.items()}


class TestInterruptions:
    @pytest.fixture(scope="class")
    @classmethod
    def template(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        target = Store.create(tmp_path_factory.mktemp("template") / "store", HEADER)
        for value in range(3):
            teach(target, "full", value)
        teach(target, "once", 5)
        teach(target, "gone", 6)
        target.drop("gone")
        return target.path

    @pytest.mark.parametrize("change", CHANGES)
    @pytest.mark.parametrize(
        "error",
        [
            Died(),
            KeyboardInterrupt(),
            OSError(errno.ENOSPC, "No space left on device"),
        ],
        ids=["killed", "ctrl-c", "disk full"],
    )
    def test_at_any_step_the_store_is_the_old_or_the_new_one(
        self, template: Path, tmp_path: Path, change: str, error: BaseException
    ) -> None:
        before = whole(template)
        after = whole(self.changed(template, tmp_path / "after", change))
        assert before != after
        outcomes = []
        for step in range(1, 200):
            path = Path(shutil.copytree(template, tmp_path / "store", copy_function=os.link))
            faults = Faults(step, error)
            raised: BaseException | None = None
            try:
                with faults.installed():
                    CHANGES[change](Store.open(path))
            except (Died, KeyboardInterrupt, StoreError) as caught:
                raised = caught
            state = whole(path)
            assert state in (before, after)
            if raised is None:
                assert state == after
            elif isinstance(raised, StoreError) and "was left as it was" in str(raised):
                assert state == before
            self.tidied(path)
            shutil.rmtree(path)
            if faults.step < step:
                break
            if raised is not None:
                outcomes.append(state == after)
        assert faults.step < step, "the change never came to its end"
        assert outcomes == sorted(outcomes), "there is one moment of change"
        assert False in outcomes

    @staticmethod
    def changed(template: Path, path: Path, change: str) -> Path:
        shutil.copytree(template, path)
        CHANGES[change](Store.open(path))
        return path

    @staticmethod
    def tidied(path: Path) -> None:
        """The next writer, of whatever task, leaves no rubbish."""
        target = Store.open(path)
        teach(target, "next", 1)
        assert actual_files(target) == expected_files(target)

    @pytest.mark.parametrize("error", [Died(), OSError(errno.ENOSPC, "No space left on device")])
    def test_a_store_is_made_whole_or_can_be_made_again(self, tmp_path: Path, error: BaseException) -> None:
        for step in range(1, 50):
            faults = Faults(step, error)
            try:
                with faults.installed():
                    Store.create(tmp_path / str(step) / "store", HEADER)
            except (Died, StoreError):
                pass
            assert Store.create(tmp_path / str(step) / "store", HEADER, exist_ok=True).header == HEADER
            if faults.step < step:
                return
        pytest.fail("creating a store never came to its end")

    @pytest.mark.parametrize(
        ("code", "sentence"),
        [
            (errno.ENOSPC, "free some space"),
            (errno.EDQUOT, "free some space"),
            (errno.EROFS, "check its permissions or choose another folder"),
            (errno.EACCES, "check its permissions or choose another folder"),
            (errno.EIO, "check the disk"),
        ],
    )
    def test_a_refusing_disk_gets_a_sentence(
        self, folder: Store, monkeypatch: pytest.MonkeyPatch, code: int, sentence: str
    ) -> None:
        teach(folder, "screw", 1)

        def refuse(*_: object) -> None:
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", refuse)
            with pytest.raises(StoreError, match=sentence) as refusal:
                teach(folder, "screw", 2)
        assert os.strerror(code) in str(refusal.value)
        assert contents(folder) == {"screw": 1}

    def test_a_read_only_folder_gets_a_sentence_and_can_be_read(
        self, folder: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        teach(folder, "screw", 1)
        plain_open = os.open

        def read_only(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return plain_open(path, flags, *args, **kwargs)

        monkeypatch.setattr(os, "open", read_only)
        for change in (lambda: teach(folder, "screw", 2), lambda: folder.drop("screw"), folder.prune):
            with pytest.raises(StoreError, match="Read-only file system"):
                change()
        assert contents(Store.open(folder.path)) == {"screw": 1}

    def test_all_of_a_version_is_on_the_disk_before_the_pointer_names_it(
        self, folder: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: set[int] = set()
        missing: list[set[str]] = []
        replace = os.replace

        def check(source: Path, target: Path) -> None:
            task = folder.path / "tasks" / "screw"
            needed = [folder.path, task.parent, task, source, *task.glob("v*"), *task.glob("v*/*")]
            missing.append({path.name for path in needed if path.stat().st_ino not in synced})
            replace(source, target)

        monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
        monkeypatch.setattr(os, "replace", check)
        teach(folder, "screw", 1)
        assert missing == [set()]

    def test_an_error_of_the_caller_is_not_blamed_on_the_store(self, folder: Store) -> None:
        with pytest.raises(FileNotFoundError), folder.writer():
            Path("no-such-image.png").read_bytes()
        teach(folder, "screw", 1)


def python(code: str, *args: object) -> subprocess.Popen[str]:
    prelude = "import sys, numpy as np\nfrom dinosaur_ad.store import Store\n"
    return subprocess.Popen(
        [sys.executable, "-c", prelude + textwrap.dedent(code), *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def started(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Wait until the process says that it is ready; make sure that it ends."""
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class TestProcesses:
    def test_two_learn_at_once_and_both_succeed(self, folder: Store) -> None:
        code = """
            print("ready", flush=True)
            for number in range(5):
                store = Store.create(sys.argv[1], {}, exist_ok=True)
                files = {"bank": {"patches": np.full((2, 6), number, np.float32)}}
                store.put(sys.argv[2] + str(number), files, {"value": number}, action="learn")
            """
        with started(python(code, folder.path, "a")) as one, started(python(code, folder.path, "b")) as two:
            assert (one.wait(60), two.wait(60)) == (0, 0)
        assert contents(folder) == {f"{letter}{n}": n for letter in "ab" for n in range(5)}

    def test_a_second_writer_is_told_who_is_writing(self, folder: Store) -> None:
        teach(folder, "screw", 1)
        code = """
            with Store.open(sys.argv[1]).writer():
                print("ready", flush=True)
                import time; time.sleep(60)
            """
        with started(python(code, folder.path)) as other:
            with pytest.raises(StoreError, match=f"being written by process {other.pid};"):
                teach(folder, "screw", 2)
            assert contents(folder) == {"screw": 1}
        teach(folder, "screw", 3)  # the lock of a killed process is free
        assert contents(folder) == {"screw": 3}

    def test_one_writer_can_make_several_changes(self, folder: Store) -> None:
        with folder.writer():
            teach(folder, "screw", 1)
            with folder.writer():
                folder.drop("screw")
            with pytest.raises(StoreError, match="being written"):
                teach(Store.open(folder.path, lock_timeout=0), "bottle", 1)
            folder.undo("screw")
        assert contents(folder) == {"screw": 1}
        assert not (folder.path / ".writer").exists()

    def test_a_reader_keeps_its_version_and_notices_the_new_one(self, folder: Store) -> None:
        teach(folder, "screw", 1)
        reader = Store.open(folder.path)
        mapped, stamp = reader.arrays("screw", "bank")["patches"], reader.stamp()
        for value in range(2, 7):
            teach(folder, "screw", value, "update")
        assert not (folder.path / "tasks" / "screw" / "v0001").exists()
        assert np.all(mapped == 1)
        assert reader.stamp() != stamp
        assert value_of(reader, "screw") == 6

    def test_a_reader_racing_a_writer_never_sees_a_mixture(self, folder: Store) -> None:
        teach(folder, "screw", 0)
        code = """
            store = Store.open(sys.argv[1], keep=1)
            print("ready", flush=True)
            for number in range(10_000):
                files = {"bank": {"patches": np.full((2, 6), number, np.float32)}}
                store.put("screw", files, {"value": number}, action="update")
            """
        seen = set()
        with started(python(code, folder.path)):
            end = time.monotonic() + 0.7
            while time.monotonic() < end:
                patches = folder.arrays("screw", "bank")["patches"]
                assert np.all(patches == patches[0, 0])
                seen.add(float(patches[0, 0]))
        assert len(seen) > 1

    @pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9 on this system")
    def test_kill_9_in_the_middle_of_writing(self, folder: Store) -> None:
        teach(folder, "screw", 0)
        code = """
            store = Store.open(sys.argv[1])
            print("ready", flush=True)
            for number in range(10_000):
                files = {"bank": {"patches": np.full((2, 100_000), number, np.float32)}}
                store.put("screw", files, {"value": number}, action="update")
            """
        for milliseconds in (3, 20, 57, 101):
            with started(python(code, folder.path)) as process:
                time.sleep(milliseconds / 1000)
                process.send_signal(signal.SIGKILL)
            assert contents(Store.open(folder.path)).keys() == {"screw"}
        teach(folder, "bottle", 1)
        assert actual_files(folder) == expected_files(folder)


@pytest.mark.parametrize("module", [store, _atomic])
def test_examples_in_the_docstrings_run(module: Any) -> None:
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
