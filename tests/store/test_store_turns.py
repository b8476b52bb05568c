"""One teacher at a time for each task: the others wait, and nobody else does."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from store_helpers import manifest, teach
from test_store_processes import python, started

from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.store import Store, TaskStore, task_lock

HOLD = """
    with Store.open(sys.argv[1]).teaching(sys.argv[2]):
        print("ready", flush=True)
        import time; time.sleep(float(sys.argv[3]))
    """


def test_threads_take_turns(tasks: TaskStore) -> None:
    inside, most = [], []

    def work(number: int) -> None:
        with tasks.teaching("screw"):
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.02)
            inside.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most == [1, 1, 1, 1]


def test_a_process_waits_for_another_and_says_so_once(folder: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_lock, "NOTICE_AFTER", 0.1)
    said: list[str] = []
    with started(python(HOLD, folder.path, "screw", 0.6)) as other:
        with folder.teaching("bottle", said.append):  # another task does not wait
            assert other.poll() is None
        teach(folder, "screw", 1)  # nor does the writing of a change
        with folder.teaching("screw", said.append):
            assert other.wait(10) == 0
    assert len(said) == 1
    assert "'screw'" in said[0]
    assert not (folder.path / ".locks").exists()


def test_the_turn_of_a_killed_process_is_free(folder: Store) -> None:
    with started(python(HOLD, folder.path, "screw", 60)) as other:
        other.kill()
        other.wait()
        assert (folder.path / ".locks" / "screw.lock").exists()
        with folder.teaching("screw"):
            pass
    assert not (folder.path / ".locks").exists()


def test_four_processes_lose_no_update(folder: Store) -> None:
    teach(folder, "screw", 0)
    code = """
        store = Store.open(sys.argv[1])
        print("ready", flush=True)
        for _ in range(5):
            with store.teaching("screw"):
                value = store.record("screw").manifest["value"] + 1
                files = {"bank": {"patches": np.full((2, 6), value, np.float32)}}
                store.put("screw", files, manifest(value), action="update")
        """
    with ExitStack() as stack:
        others = [stack.enter_context(started(python(code, folder.path))) for _ in range(4)]
        assert [each.wait(60) for each in others] == [0, 0, 0, 0]
    assert folder.record("screw").manifest == manifest(20)


def test_who_has_the_turn_may_ask_again_through_any_store(folder: Store) -> None:
    with folder.teaching("screw"), folder.teaching("screw"), Store.open(folder.path).teaching("screw"):
        teach(folder, "screw", 1)
    assert not (folder.path / ".locks").exists()


def test_an_error_gives_the_turn_on(tasks: TaskStore) -> None:
    for _ in range(2):
        with pytest.raises(KeyError), tasks.teaching("screw"):
            raise KeyError


def test_a_name_cannot_lead_elsewhere(folder: Store) -> None:
    with pytest.raises(InputError, match="cannot be called"), folder.teaching("../../x"):
        pass


@pytest.mark.parametrize("kind", ["link", "folder", "fifo", "linked folder"])
def test_a_lock_that_is_no_file_is_refused(folder: Store, tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious") if kind != "linked folder" else victim.mkdir()
    locks = folder.path / ".locks"
    if kind == "linked folder":
        locks.symlink_to(victim)
    else:
        locks.mkdir()
        lock = locks / "screw.lock"
        {"link": lambda: lock.symlink_to(victim), "folder": lock.mkdir, "fifo": lambda: os.mkfifo(lock)}[kind]()
    with pytest.raises(StoreError, match=r"\.locks|directory"), folder.teaching("screw"):
        pass
    assert list(victim.iterdir()) == [] if kind == "linked folder" else victim.read_text() == "precious"
