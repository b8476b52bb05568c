"""The benchmark on a real Ray cluster of two worker processes, one of which is killed."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dinosaur_ad.bench import ray_engine
from dinosaur_ad.bench.cell import CellSpec
from dinosaur_ad.bench.ray_engine import run_ray
from dinosaur_ad.bench.results import ARRAYS, ERROR, RESULT
from dinosaur_ad.bench.runner import RunOptions, load_plugins, plan, run_local
from dinosaur_ad.bench.suites import SUITES
from dinosaur_ad.cluster.connection import _Results
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import unregister

TIMINGS = {"learn_seconds", "score_seconds", "peak_memory_bytes", "peak_device_bytes", "environment"}

# Methods that cannot be trusted; they spare the process of the tests.
PLUGIN = """
import os, signal
from pathlib import Path
from dinosaur_ad.methods import register
from dinosaur_ad.methods.dinosaur import DinosaurConfig, DinosaurMethod

TINY = {{"default": DinosaurConfig(encoder="tiny-dinov2", layers=(0, 1), size=70)}}

def die():
    if os.getpid() != {pid}:
        os.kill(os.getpid(), signal.SIGKILL)

@register("fragile", variants=TINY, summary="kills its process once, before its second task")
class Fragile(DinosaurMethod):
    def learn(self, lesson):
        marker = Path({marker!r})
        if lesson.task == "gear" and not marker.exists():
            marker.write_text(str(os.getpid()))
            die()
        super().learn(lesson)

@register("doomed", variants=TINY, summary="kills every process")
class Doomed(DinosaurMethod):
    def learn(self, lesson):
        die()

@register("faulty", variants=TINY, summary="raises")
class Faulty(DinosaurMethod):
    def learn(self, lesson):
        raise RuntimeError("this method has a fault")
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "untrusted.py"
    path.write_text(PLUGIN.format(pid=os.getpid(), marker=str(tmp_path / "killed")))
    load_plugins([path])
    yield path
    for name in ("fragile", "doomed", "faulty"):
        unregister(name)
    del sys.modules["dinosaur_plugin_untrusted"]


def options_for(folder: Path, name: str, plugins: tuple[Path, ...] = ()) -> RunOptions:
    return RunOptions(str(folder / name), cache=folder / f"cache-{name}", plugins=plugins)


def outcome(folder: Path) -> dict[str, dict[str, Any]]:
    """Everything that the finished cells below a folder say, but for how long it took and on what."""
    found = {}
    for path in sorted(folder.rglob(RESULT)):
        document = json.loads(path.read_text())
        del document["environments"]
        document["rows"] = [{key: row[key] for key in row.keys() - TIMINGS} for row in document["rows"]]
        with np.load(path.parent / ARRAYS) as arrays:
            document["arrays"] = {key: (arrays[key].dtype.str, arrays[key].tolist()) for key in arrays.files}
        found[path.parent.relative_to(folder).as_posix()] = document
    return found


def tiny_cells(method: str, seeds: list[int], **changes: str) -> list[CellSpec]:
    own = {key: value for key, value in SUITES["tiny"].settings.items() if key.startswith(f"{method}.")}
    return plan(
        [method], ["synthetic-tiny"], seeds, settings=own | {f"{method}.{key}": changes[key] for key in changes}
    )


def test_an_address_where_nobody_answers_is_refused_soon(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (it comes with the extra 'ray')")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(InputError, match=f"no Ray cluster to be had at '{address}'"):
            run_ray(tiny_cells("dinosaur", [0]), options_for(tmp_path, "ray"), print, address=address)


@pytest.mark.slow
def test_results_are_those_of_a_local_run(cluster: Any, tmp_path: Path) -> None:
    cells = tiny_cells("dinosaur", [0, 1])
    if find_spec("torch"):
        cells += tiny_cells("patchcore", [0])
    lines: list[str] = []
    done, failed = run_ray(cells, options_for(tmp_path, "ray"), lines.append)
    here, _ = run_local(cells, options_for(tmp_path, "local"), lambda line: None)

    assert not failed
    assert [result.name for result in done] == [cell.name for cell in cells] == [result.name for result in here]
    on_ray = outcome(tmp_path / "ray")
    assert len(on_ray) == len(cells)
    assert on_ray == outcome(tmp_path / "local")
    assert f"[1/{len(cells)}] {cells[0].name}: task 2 of 2: testing all 2 tasks" in lines


@pytest.mark.slow
def test_what_is_done_is_kept_and_never_mixed(cluster: Any, tmp_path: Path) -> None:
    where = options_for(tmp_path, "ray")
    cells = tiny_cells("dinosaur", [0])
    run_local(cells, where, lambda line: None)
    lines: list[str] = []
    (result,), _ = run_ray(cells, where, lines.append)
    assert lines == [f"[1/1] {cells[0].name}: already done"]
    assert result.auroc.shape == (2, 2)
    with pytest.raises(InputError, match="another configuration"):
        run_ray(tiny_cells("dinosaur", [0], size="84"), where, lines.append)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["", "local://"])  # the second goes through fsspec, as an object store would
def test_a_killed_worker_loses_nothing(cluster: Any, tmp_path: Path, plugin: Path, protocol: str) -> None:
    cells = plan(["fragile"], ["synthetic-tiny"], [0, 1])
    where = options_for(tmp_path, "ray", (plugin,))
    lines: list[str] = []
    done, failed = run_ray(cells, replace(where, out=f"{protocol}{where.out}"), lines.append)

    assert int((tmp_path / "killed").read_text()) != os.getpid()
    assert (len(done), failed) == (2, [])
    resumed = [line for line in lines if "resuming after task 1 of 2" in line]
    assert len(resumed) == 1
    prefix = resumed[0].partition("resuming")[0]
    # Of the killed worker's lines the last may be lost on the way; what its successor did is all there.
    after = [line.removeprefix(prefix) for line in lines[lines.index(resumed[0]) :] if line.startswith(prefix)]
    assert after[:2] == ["resuming after task 1 of 2", "task 2 of 2: learning gear"]
    assert "task 1 of 2: learning fabric" not in after

    run_local(cells, options_for(tmp_path, "local", (plugin,)), lambda line: None)
    assert outcome(tmp_path / "ray") == outcome(tmp_path / "local")


@pytest.mark.slow
def test_a_failing_cell_is_recorded_and_the_others_go_on(
    cluster: Any, tmp_path: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "killed").touch()
    monkeypatch.setattr(ray_engine, "RETRIES", 0)
    cells = plan(["faulty", "doomed", "fragile"], ["synthetic-tiny"], [0])
    done, failed = run_ray(cells, options_for(tmp_path, "ray", (plugin,)), lambda line: None)

    assert [result.method for result in done] == ["fragile"]
    faulty, doomed = failed
    assert (faulty.method, faulty.error) == ("faulty", "RuntimeError: this method has a fault")
    assert "Traceback" in faulty.details
    assert doomed.method == "doomed"
    assert "Ray gave the cell up after 1 attempts" in doomed.error
    for name in ("faulty", "doomed"):
        note = json.loads((tmp_path / "ray" / "synthetic-tiny" / name / "seed-0" / ERROR).read_text())
        assert note["method"] == name


@pytest.mark.slow
def test_a_result_that_is_not_shared_is_missed(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,) = tiny_cells("dinosaur", [0])
    where = options_for(tmp_path, "ray")
    run_local([cell], where, lambda line: None)
    # What it is like when the worker wrote to a disk of its own.
    monkeypatch.setattr(ray_engine, "RESULT", "result-elsewhere.json")
    with pytest.raises(InputError, match="a folder that all machines share"):
        run_ray([cell], where, lambda line: None)


def test_more_than_the_cluster_has_is_refused(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    cells = plan(["dinosaur"], ["synthetic-tiny"], [0])
    with pytest.raises(
        InputError, match="A cell wants 64 CPU cores and 0 GPUs, and no machine of the Ray cluster has as many"
    ):
        run_ray(cells, options_for(tmp_path, "ray"), lambda line: None, cpus=64)
    with pytest.raises(InputError, match="write --device cuda instead of cuda:1"):
        run_ray(plan(["dinosaur"], ["synthetic-tiny"], [0], device="cuda:1"), options_for(tmp_path, "ray"), print)


def test_missing_data_is_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    cells = plan(["dinosaur"], [f"folder:{tmp_path / 'nothing'}"], [0])
    with pytest.raises(InputError, match="nothing"):
        run_ray(cells, options_for(tmp_path, "ray"), lambda line: None)


def test_without_ray_the_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    cells = plan(["dinosaur"], ["synthetic-tiny"], [0])
    with pytest.raises(InputError, match=r"pip install '\.\[ray\]'"):
        run_ray(cells, options_for(tmp_path, "ray"), lambda line: None)


def test_what_the_threads_of_ray_print_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    results = io.StringIO()
    stdout = _Results(results)
    stdout.write("a result\n")
    thread = threading.Thread(target=stdout.write, args=("a worker died\n",), name="ray_listen_error_messages")
    thread.start()
    thread.join()
    assert results.getvalue() == "a result\n"
    assert capsys.readouterr().err == "a worker died\n"
