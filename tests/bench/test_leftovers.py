"""What a cell leaves behind when it is done or killed, and what it says is missing before it begins."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cell_helpers import PLUGIN, SCENARIO, Log, around, assert_equal, tiny_cells

from dinosaur_ad.bench import checkpoints
from dinosaur_ad.bench.checkpoints import Checkpoints, work_folder
from dinosaur_ad.bench.places import LocalPlace, open_place
from dinosaur_ad.bench.results import find_results
from dinosaur_ad.bench.runner import load_plugins, plan, run_local
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import photo as photo_module
from dinosaur_ad.methods import unregister


class Interrupted(BaseException):
    """Like a signal: nothing catches it."""


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- a finished cell keeps nothing unfinished ---


def test_a_cell_killed_after_its_result_was_written_is_cleaned_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: Checkpoints) -> None:
        raise Interrupted

    where, log = around(tmp_path), Log()
    folder = Path(where.out, tiny_cells()[0].folder)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "clear", killed)
        with pytest.raises(Interrupted):
            run_local(tiny_cells(), where, Log())
    assert "partial" in files(folder)
    (found,), _ = find_results([where.out])
    (done,), _ = run_local(tiny_cells(), where, log)
    assert "already done" in log
    assert "partial" not in files(folder)
    assert_equal(done, found)


def test_leftovers_that_cannot_be_removed_do_not_undo_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = LocalPlace.remove

    def refuse(self: LocalPlace, name: str) -> None:
        if not name:
            raise OSError(30, "Read-only file system")
        remove(self, name)

    monkeypatch.setattr(LocalPlace, "remove", refuse)
    done, failed = run_local(tiny_cells(), around(tmp_path), Log())
    assert (len(done), failed) == (1, [])


def test_what_lies_in_an_unfinished_state_is_no_result(tmp_path: Path) -> None:
    where = around(tmp_path)
    (done,), _ = run_local(tiny_cells(), where, Log())
    state = Path(where.out, done.folder, "partial", "state-000")
    state.mkdir(parents=True)
    for name in ("result.json", "error.json", "grid-a-b.json"):
        (state / name).write_text("a method may call its files as it likes")
    found, failed = find_results([where.out])
    assert (len(found), failed) == (1, [])


# --- nothing is left in the temporary folder ---

KILLED_WHILE_SAVING = PLUGIN.replace(
    "    def save(self, folder):\n",
    "    def save(self, folder):\n"
    "        if self.config.trouble == 'kill-saving' and not Path(self.config.marker).exists():\n"
    "            (folder / 'half.json').write_text('half')\n"
    "            Path(self.config.marker).touch()\n"
    "            os.kill(os.getpid(), signal.SIGKILL)\n",
)


def test_a_cell_killed_while_its_state_is_saved_leaves_nothing_behind(tmp_path: Path) -> None:
    plugin, temporary = tmp_path / "fragile.py", tmp_path / "tmp"
    plugin.write_text(KILLED_WHILE_SAVING)
    temporary.mkdir()
    command = [sys.executable, "-m", "dinosaur_ad.cli", "bench", "run", "--methods", "fragile", "--load", str(plugin)]
    command += ["--scenarios", SCENARIO, "--set", "trouble=kill-saving", "--set", f"marker={tmp_path / 'marker'}"]
    command += ["--out", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")]
    environment = os.environ | {"TMPDIR": str(temporary)}
    assert subprocess.run(command, env=environment, capture_output=True).returncode == -signal.SIGKILL
    folder = tmp_path / "results" / SCENARIO / "fragile" / "seed-0"
    assert (folder / "partial/work/half.json").exists()
    assert files(temporary) == []
    subprocess.run(command, env=environment, capture_output=True, check=True)
    assert files(folder) == [".lock", "arrays.npz", "cell.json", "result.json"]
    assert files(temporary) == []


def test_temporary_folders_of_killed_processes_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For results in an object store, which has no folder to put them into."""
    pytest.importorskip("fsspec")
    monkeypatch.setattr(checkpoints.tempfile, "tempdir", str(tmp_path))
    place = open_place("memory://leftovers")
    code = (
        "import sys, tempfile, time; tempfile.tempdir = sys.argv[1]\n"
        "from dinosaur_ad.bench.checkpoints import work_folder\n"
        "from dinosaur_ad.bench.places import open_place\n"
        "with work_folder(open_place('memory://leftovers'), 'work') as folder:\n"
        "    (folder / 'half').write_text('half'); print('here', flush=True); time.sleep(60)"
    )
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / ".lock").touch()
    (tmp_path / "dinosaur-work-link").symlink_to(tmp_path / "precious")
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "here\n"
        with work_folder(place, "work"):
            assert len(files(tmp_path)) == 4  # the other one is held
        assert len(files(tmp_path)) == 3
        other.kill()
        other.wait()
    with work_folder(place, "work"):
        pass
    assert files(tmp_path) == ["dinosaur-work-link", "precious"]
    assert files(tmp_path / "precious") == [".lock"]


def test_the_loaders_of_a_cell_are_released_with_it(tmp_path: Path) -> None:
    def held() -> int:
        gc.collect()
        loaders = photo_module._LOADERS()
        assert loaders is not None
        return len(loaders)

    before = held()
    run_local(tiny_cells(), around(tmp_path), Log())
    assert held() == before


# --- what is missing is said first ---


@pytest.fixture
def brightness(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "fragile.py"
    path.write_text(PLUGIN)
    load_plugins([path])
    yield path
    unregister("fragile")
    sys.modules.pop("dinosaur_plugin_fragile", None)


def test_missing_packages_are_named_together_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("scipy", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    log = Log()
    cells = [*tiny_cells(), *plan(["patchcore:vit"], [SCENARIO], [0])]
    with pytest.raises(InputError, match=r"needs scipy and torch, which are not installed; .*bench"):
        run_local(cells, around(tmp_path), log)
    assert log.lines == []
    assert not (tmp_path / "results").exists()


def test_a_method_without_maps_needs_no_scipy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brightness: Path
) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    done, failed = run_local(plan(["fragile"], [SCENARIO], [0]), around(tmp_path), Log())
    assert (len(done), failed) == (1, [])


def test_a_revision_that_is_none_is_refused_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dinosaur_ad.bench.environment._repository", lambda module: None)
    monkeypatch.setenv("DINOSAUR_REVISION", "yesterday")
    with pytest.raises(InputError, match="DINOSAUR_REVISION is 'yesterday'"):
        run_local(tiny_cells(), around(tmp_path), Log())
