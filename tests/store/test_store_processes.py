"""Several processes share one store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from store_helpers import actual_files, contents, expected_files, teach, value_of

from dinosaur_ad.errors import StoreError, VersionGoneError
from dinosaur_ad.store import Store


def python(code: str, *args: object) -> subprocess.Popen[str]:
    prelude = "import sys, numpy as np\nfrom dinosaur_ad.store import Store\nfrom store_helpers import manifest\n"
    return subprocess.Popen(
        [sys.executable, "-c", prelude + textwrap.dedent(code), *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
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


def test_two_learn_at_once_and_both_succeed(folder: Store) -> None:
    code = """
        print("ready", flush=True)
        for number in range(5):
            store = Store.create(sys.argv[1], {}, exist_ok=True)
            files = {"bank": {"patches": np.full((2, 6), number, np.float32)}}
            store.put(sys.argv[2] + str(number), files, manifest(number), action="learn")
        """
    with started(python(code, folder.path, "a")) as one, started(python(code, folder.path, "b")) as two:
        assert (one.wait(60), two.wait(60)) == (0, 0)
    assert contents(folder) == {f"{letter}{n}": n for letter in "ab" for n in range(5)}


def test_a_second_writer_is_told_who_is_writing(folder: Store) -> None:
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


def test_one_writer_can_make_several_changes(folder: Store) -> None:
    with folder.writer():
        teach(folder, "screw", 1)
        with folder.writer():
            folder.drop("screw")
        with pytest.raises(StoreError, match="being written"):
            teach(Store.open(folder.path), "bottle", 1)
        folder.undo("screw")
    assert contents(folder) == {"screw": 1}
    assert not (folder.path / ".writer").exists()


def test_a_reader_keeps_its_version_and_notices_the_new_one(folder: Store) -> None:
    teach(folder, "screw", 1)
    reader = Store.open(folder.path)
    mapped, stamp = reader.arrays("screw", "bank")["patches"], reader.stamp()
    for value in range(2, 7):
        teach(folder, "screw", value, "update")
    assert not (folder.path / "tasks" / "screw" / "v0001").exists()
    assert np.all(mapped == 1)
    assert reader.stamp() != stamp
    assert value_of(reader, "screw") == 6


def test_a_reader_racing_a_writer_never_sees_a_mixture(folder: Store) -> None:
    teach(folder, "screw", 0)
    code = """
        from dinosaur_ad.store import versions
        versions.KEEP = 1  # so that what is being read disappears at once
        store = Store.open(sys.argv[1])
        print("ready", flush=True)
        for number in range(10_000):
            files = {"bank": {"patches": np.full((2, 6), number, np.float32)}}
            store.put("screw", files, manifest(number), action="update")
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
def test_kill_9_in_the_middle_of_writing(folder: Store) -> None:
    teach(folder, "screw", 0)
    code = """
        store = Store.open(sys.argv[1])
        print("ready", flush=True)
        for number in range(10_000):
            files = {"bank": {"patches": np.full((2, 100_000), number, np.float32)}}
            store.put("screw", files, manifest(number), action="update")
        """
    for milliseconds in (3, 20, 57, 101):
        with started(python(code, folder.path)) as process:
            time.sleep(milliseconds / 1000)
            process.send_signal(signal.SIGKILL)
        assert contents(Store.open(folder.path)).keys() == {"screw"}
    teach(folder, "bottle", 1)
    assert actual_files(folder) == expected_files(folder)


def test_readers_of_snapshots_survive_every_change(folder: Store) -> None:
    """Another process teaches, forgets, undoes and prunes; a reader gets whole versions or is told to look again."""
    teach(folder, "steady", 5)
    code = """
        from store_helpers import teach
        store = Store.open(sys.argv[1])
        print("ready", flush=True)
        for number in range(100_000):
            name = f"task{number % 3}"
            for value in range(5):
                teach(store, name, number + value, "update")
            store.drop(name)
            store.undo(name)
            store.drop(name)
            store.prune()
        """
    read, gone = 0, 0
    with started(python(code, folder.path)):
        end = time.monotonic() + 2
        while time.monotonic() < end:
            snapshot = folder.snapshot()
            assert snapshot.damaged == {}
            assert "steady" in snapshot.records
            for record in snapshot.records.values():
                try:
                    patches = folder.arrays(record, "bank")["patches"]
                except VersionGoneError:
                    gone += 1
                    continue
                assert np.all(patches == record.manifest["value"])
                read += 1
    assert read > 100
    assert gone < read
