"""A benchmark that is stopped, disturbed or misused: it goes on, says so, or refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cell_helpers import PLUGIN, SCENARIO, Log, around, assert_equal, result_of, tiny_cells

from dinosaur_ad.bench import runner
from dinosaur_ad.bench.cell import OtherConfigurationError
from dinosaur_ad.bench.checkpoints import Checkpoints
from dinosaur_ad.bench.metrics import ranked_auroc
from dinosaur_ad.bench.results import CellResult, FailedCell, find_results
from dinosaur_ad.bench.runner import RunOptions, load_plugins, plan, run_local, run_one
from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.datasets import Scenario
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Lesson, Method, MethodChoice, Workbench, unregister
from dinosaur_ad.methods.dinosaur import DinosaurMethod


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "fragile.py"
    path.write_text(PLUGIN)
    yield path
    unregister("fragile")
    sys.modules.pop("dinosaur_plugin_fragile", None)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunOptions, CellResult]:
    where = around(tmp_path_factory.mktemp("undisturbed"))
    done, failed = run_local(tiny_cells(), where, Log())
    assert not failed
    return where, done[0]


class Interrupted(BaseException):
    """Like a signal: nothing catches it."""


def interrupt_after(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Stop the next run right after it has kept so many rows."""
    keep = Checkpoints.keep

    def kept(self: Checkpoints, index: int, *rest: object) -> None:
        keep(self, index, *rest)  # type: ignore[arg-type]
        if index + 1 == rows:
            raise Interrupted

    monkeypatch.setattr(Checkpoints, "keep", kept)


def stop_half_way(monkeypatch: pytest.MonkeyPatch, where: RunOptions) -> None:
    with monkeypatch.context() as patch:
        interrupt_after(patch, rows=1)
        with pytest.raises(Interrupted):
            run_local(tiny_cells(), where, Log())


def test_the_result_on_disk_is_the_result(undisturbed: tuple[RunOptions, CellResult]) -> None:
    where, result = undisturbed
    assert_equal(result_of(where, tiny_cells()[0]), result)


def test_every_matrix_can_be_computed_from_the_stored_scores(undisturbed: tuple[RunOptions, CellResult]) -> None:
    result = result_of(undisturbed[0], tiny_cells()[0])
    for column, task in enumerate(result.final):
        assert task.history is not None
        recomputed = [ranked_auroc(row, task.labels).auroc for row in task.history]
        np.testing.assert_array_equal(recomputed, result.auroc[:, column])
        np.testing.assert_array_equal(task.history[-1], task.scores)


def test_nothing_temporary_is_left(undisturbed: tuple[RunOptions, CellResult]) -> None:
    where, result = undisturbed
    files = sorted(path.name for path in Path(where.out, result.folder).iterdir())
    assert files == [".lock", "arrays.npz", "cell.json", "result.json"]


def test_a_finished_cell_is_only_read(undisturbed: tuple[RunOptions, CellResult]) -> None:
    log = Log()
    done, _ = run_local(tiny_cells(), undisturbed[0], log)
    assert "already done" in log
    assert "learning" not in log
    assert_equal(done[0], undisturbed[1])


def test_a_finished_cell_builds_no_method(
    undisturbed: tuple[RunOptions, CellResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MethodChoice, "build", lambda *_: pytest.fail("a method was built"))
    (done,), failed = run_local(tiny_cells(), undisturbed[0], Log())
    assert not failed
    assert_equal(done, undisturbed[1])


def test_other_weights_of_a_finished_cell_are_refused_where_a_setting_names_a_file(
    undisturbed: tuple[RunOptions, CellResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = MethodChoice.build

    def other_weights(choice: MethodChoice, workbench: Workbench) -> Method:
        method = build(choice.with_settings({"weights": ""}), workbench)
        monkeypatch.setattr(method, "info", lambda: {"weights_sha256": "f" * 64})
        return method

    monkeypatch.setattr(MethodChoice, "build", other_weights)
    with pytest.raises(OtherConfigurationError, match="different: weights"):
        run_local(tiny_cells(weights="other.safetensors"), undisturbed[0], Log())


def test_a_scenario_is_built_once_for_all_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def counting(name: str, data: Path | None, seed: int) -> Scenario:
        built.append((name, seed))
        return open_scenario(name, data, seed)

    monkeypatch.setattr(runner, "open_scenario", counting)
    cells = tiny_cells(("dinosaur", "dinosaur:paper"))
    done, failed = run_local(cells, around(tmp_path), Log())
    assert (len(done), failed) == (2, [])
    assert built == [(SCENARIO, 0)]


def test_an_interrupted_cell_goes_on_and_ends_in_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: tuple[RunOptions, CellResult]
) -> None:
    where, log = around(tmp_path), Log()
    stop_half_way(monkeypatch, where)
    done, _ = run_local(tiny_cells(), where, log)
    assert "resuming after task 1 of 2" in log
    assert not any("learning fabric" in line for line in log.lines)
    assert_equal(done[0], undisturbed[1])


@pytest.mark.slow
def test_kill_9_in_the_middle_of_a_cell_loses_nothing(
    tmp_path: Path, undisturbed: tuple[RunOptions, CellResult]
) -> None:
    where, cell = around(tmp_path), tiny_cells()[0]
    options = ["--set", "encoder=tiny-dinov2", "--set", "layers=0+1", "--set", "size=70"]
    command = [
        sys.executable,
        "-m",
        "dinosaur_ad.cli",
        "bench",
        "run",
        "--methods",
        "dinosaur",
        "--scenarios",
        SCENARIO,
    ]
    command += [*options, "--out", where.out, "--cache", str(where.cache)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    for line in process.stderr:  # killed while the second task is being learned or tested
        if "task 2 of 2" in line:
            os.kill(process.pid, signal.SIGKILL)
            break
    process.stderr.close()
    assert process.wait(timeout=60) == -signal.SIGKILL
    assert not Path(where.out, cell.folder, "result.json").exists()
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "resuming after task 1 of 2" in again.stderr
    assert_equal(result_of(where, cell), undisturbed[1])


@pytest.mark.parametrize("file", ["state-000/store/store.json", "state-000/manifest.json", "row-000.npz"])
def test_a_damaged_checkpoint_is_noticed_and_made_again(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: tuple[RunOptions, CellResult]
) -> None:
    where, log = around(tmp_path), Log()
    stop_half_way(monkeypatch, where)
    damaged = Path(where.out, tiny_cells()[0].folder, "partial", file)
    damaged.write_bytes(b"{" + damaged.read_bytes()[:-20])
    done, _ = run_local(tiny_cells(), where, log)
    assert "damaged" in log
    assert "learning fabric" in log
    assert_equal(done[0], undisturbed[1])


def test_a_missing_state_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, log = around(tmp_path), Log()
    stop_half_way(monkeypatch, where)
    Path(where.out, tiny_cells()[0].folder, "partial/state-000/manifest.json").unlink()
    run_local(tiny_cells(), where, log)
    assert "manifest.json is missing" in log


def test_results_of_another_configuration_are_refused_and_kept(
    undisturbed: tuple[RunOptions, CellResult],
) -> None:
    where, result = undisturbed
    with pytest.raises(
        OtherConfigurationError, match=r"another configuration \(different: settings radius\).*another --out"
    ):
        run_local(tiny_cells(radius="2"), where, Log())
    assert_equal(result_of(where, tiny_cells()[0]), result)


def test_results_of_other_data_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = around(tmp_path)
    stop_half_way(monkeypatch, where)
    with monkeypatch.context() as patch:
        patch.setattr("dinosaur_ad.bench.cell.task_checksum", lambda task: "changed")
        with pytest.raises(OtherConfigurationError, match="different: data"):
            run_local(tiny_cells(), where, Log())


def test_without_checkpoints_nothing_is_written_before_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: tuple[RunOptions, CellResult]
) -> None:
    where, cell = around(tmp_path, checkpoints=False), tiny_cells()[0]
    folder, seen, scratch = Path(where.out, cell.folder), [], []
    learn = DinosaurMethod.learn

    def look(self: DinosaurMethod, lesson: Lesson) -> None:
        seen.append(sorted(path.name for path in folder.rglob("*") if path.is_file()))
        scratch.append(self.workbench.scratch)
        learn(self, lesson)

    monkeypatch.setattr(DinosaurMethod, "learn", look)
    result = run_one(cell, where, Log())
    assert isinstance(result, CellResult)
    assert seen == [[".lock", "cell.json"]] * len(result.tasks)
    assert scratch == [None] * len(result.tasks)
    assert not (folder / "partial").exists()
    assert_equal(result, undisturbed[1])


def test_what_a_run_with_checkpoints_has_left_is_resumed_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: tuple[RunOptions, CellResult]
) -> None:
    where, cell, log = around(tmp_path), tiny_cells()[0], Log()
    with monkeypatch.context() as patch:
        interrupt_after(patch, 1)
        with pytest.raises(Interrupted):
            run_one(cell, where, Log())
    result = run_one(cell, replace(where, checkpoints=False), log)
    assert "resuming after task 1 of 2" in log
    assert isinstance(result, CellResult)
    assert_equal(result, undisturbed[1])


def test_a_failing_cell_is_written_down_and_the_others_go_on(tmp_path: Path, plugin: Path) -> None:
    where, log = around(tmp_path, plugins=(plugin,)), Log()
    load_plugins(where.plugins)
    cells = [*plan(["fragile"], [SCENARIO], [0], settings={"trouble": "raise"}), *tiny_cells()]
    done, failed = run_local(cells, where, log)
    assert [result.method for result in done] == ["dinosaur"]
    assert failed[0].error == "RuntimeError: the second task is too much"
    assert "too much" in failed[0].details
    assert "failed: RuntimeError" in log
    finished, noted = find_results([where.out])
    assert [result.method for result in finished] == ["dinosaur"]
    assert noted == failed


def test_a_cell_that_failed_can_be_run_again(tmp_path: Path, plugin: Path) -> None:
    where = around(tmp_path, plugins=(plugin,))
    load_plugins(where.plugins)
    (cell,) = plan(["fragile"], [SCENARIO], [0], settings={"trouble": "raise"})
    assert isinstance(run_one(cell, where, Log()), FailedCell)
    folder = Path(where.out, cell.folder)
    assert (folder / "error.json").exists()
    (folder / "cell.json").write_text((folder / "cell.json").read_text().replace('"raise"', '"none"'))
    (healthy,) = plan(["fragile"], [SCENARIO], [0])
    assert isinstance(run_one(healthy, where, Log()), CellResult)
    assert not (folder / "error.json").exists()


def test_a_method_without_maps_and_routes_has_a_result(tmp_path: Path, plugin: Path) -> None:
    where = around(tmp_path, plugins=(plugin,))
    load_plugins(where.plugins)
    (done,), _ = run_local(plan(["fragile"], [SCENARIO], [0]), where, Log())
    assert done.pixel is None
    assert done.routing is None
    assert done.oracle_auroc is None
    assert_equal(result_of(where, plan(["fragile"], [SCENARIO], [0])[0]), done)


def test_two_runs_do_not_write_one_cell(tmp_path: Path) -> None:
    where, cell = around(tmp_path), tiny_cells()[0]
    hold = (
        "import filelock, sys, time, pathlib; p = pathlib.Path(sys.argv[1]); p.mkdir(parents=True);"
        "lock = filelock.FileLock(p / '.lock'); lock.acquire(); print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", hold, str(Path(where.out, cell.folder))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=r"Another run is working on dinosaur on synthetic-tiny, seed 0"):
            run_local(tiny_cells(), where, Log())
        other.kill()


def test_a_second_run_does_not_encode_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = around(tmp_path)
    (first,), _ = run_local(tiny_cells(), where, Log())
    monkeypatch.setattr("dinosaur_ad.encoders.base.Encoder.encode_prepared", None)
    (second,), _ = run_local(tiny_cells(), around(tmp_path, out=str(tmp_path / "again")), Log())
    assert_equal(first, second)


def test_a_cache_changes_no_number(tmp_path: Path) -> None:
    (cached,), _ = run_local(tiny_cells(), around(tmp_path), Log())
    (plain,), _ = run_local(tiny_cells(), around(tmp_path, out=str(tmp_path / "plain"), cache_limit=0), Log())
    assert_equal(cached, plain)


def test_seeds_differ_and_results_in_an_object_store_are_the_same(
    tmp_path: Path, undisturbed: tuple[RunOptions, CellResult]
) -> None:
    pytest.importorskip("fsspec")
    address = f"memory://bench-{time.time_ns()}"
    done, _ = run_local(tiny_cells(seeds=(0, 1)), around(tmp_path, out=address), Log())
    assert_equal(done[0], undisturbed[1])
    assert not np.array_equal(done[0].final[0].scores, done[1].final[0].scores)
    found, _ = find_results([address])
    assert_equal(found[0], undisturbed[1])


def test_compact_results_keep_what_tables_need(tmp_path: Path, undisturbed: tuple[RunOptions, CellResult]) -> None:
    from dinosaur_ad.bench.places import open_place

    _, result = undisturbed
    place = open_place(tmp_path / "compact").below(result.folder)
    result.save(place, compact=True)
    compact = CellResult.load(place)
    np.testing.assert_array_equal(compact.auroc, result.auroc)
    for mine, full in zip(compact.final, result.final, strict=True):
        np.testing.assert_array_equal(mine.scores, full.scores)
        assert mine.kinds == full.kinds
        assert mine.maps is None
        assert mine.names is None
        assert mine.history is None


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"format": 99}', b"not json"])
def test_a_damaged_result_is_named(damage: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "seed-0"
    folder.mkdir(parents=True)
    (folder / "result.json").write_bytes(damage)
    with pytest.raises(InputError, match="seed-0"):
        find_results([str(tmp_path)])


def test_an_empty_folder_says_how_results_are_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no results in .*dinosaur bench run"):
        find_results([str(tmp_path)])


@pytest.mark.parametrize(
    ("content", "sentence"), [("import no_such_module", "ModuleNotFoundError"), ("1 +", "SyntaxError")]
)
def test_a_plugin_that_does_not_load_gets_a_sentence(content: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(content)
    with pytest.raises(InputError, match=sentence):
        load_plugins([path])
    with pytest.raises(InputError, match="not a Python file"):
        load_plugins([tmp_path / "absent.py"])


def test_wrong_answers_of_a_method_are_errors_and_not_tables(tmp_path: Path, plugin: Path) -> None:
    plugin.write_text(PLUGIN.replace("has_maps = False", "has_maps = True"))
    where = around(tmp_path, plugins=(plugin,))
    load_plugins(where.plugins)
    _, (failed,) = run_local(plan(["fragile"], [SCENARIO], [0]), where, Log())
    assert "declares has_maps=True" in failed.error
    assert json.loads(Path(where.out, "synthetic-tiny/fragile/seed-0/error.json").read_text())["error"] == failed.error
