"""A method that trains, stopped in an epoch: the cell continues after the epoch before and ends in the same numbers."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cell_helpers import SCENARIO, Log, around, assert_equal, result_of

from dinosaur_ad.bench.cell import CellSpec
from dinosaur_ad.bench.results import CellResult
from dinosaur_ad.bench.runner import RunOptions, load_plugins, plan, run_local
from dinosaur_ad.methods import unregister
from dinosaur_ad.methods.training import training_loop

pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")

# Each task has 8 images, so 4 epochs are 12 steps. The trouble comes in the second task, once.
PLUGIN = """
import hashlib, os, signal
from dataclasses import dataclass, field
from pathlib import Path
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from dinosaur_ad.methods import Config, Method, Parameters, Scores, register
from dinosaur_ad.methods.training import Schedule, train

STEPS = []

@dataclass(frozen=True)
class WeakConfig(Config):
    trouble: str = field(default="none", metadata={"place": True})  # not what is computed, only whether it is disturbed

@register("weak", variants={"default": WeakConfig()}, summary="one linear layer, trained")
class Weak(Method):
    has_maps = False

    def __init__(self, config, workbench):
        super().__init__(config, workbench)
        self.tasks = 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(workbench.seed)
            self.module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.2), torch.nn.Linear(192, 192))

    def learn(self, lesson):
        self.module.train()
        train(self.module, lesson.train, Schedule(epochs=4, batch=3), self.workbench, task=self.tasks, size=8,
              loss=self.loss, settings=self.config.identity())
        self.tasks += 1

    def loss(self, step):
        STEPS.append((self.tasks, step.epoch, step.index))
        if STEPS[-1] == (1, 2, 1):
            if self.config.trouble == "raise":
                raise RuntimeError("step 1 is too much")
            if self.config.trouble == "interrupt":
                raise KeyboardInterrupt
            if self.config.trouble == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return self.errors(step.images).mean()

    def errors(self, images):
        return ((self.module(images) - images.flatten(1)) ** 2).mean(1)

    def score(self, photos, task=None):
        self.module.eval()
        pixels = self.workbench.cache.prepared(photos, 8)
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
        with torch.inference_mode():
            return Scores(np.concatenate([self.errors(image[None]).numpy() for image in images]))

    def save(self, folder):
        save_file(self.module.state_dict() | {"tasks": torch.tensor(self.tasks)}, folder / "weak.safetensors")

    def load(self, folder):
        state = load_file(folder / "weak.safetensors")
        self.tasks = int(state.pop("tasks"))
        self.module.load_state_dict(state)

    def storage_bytes(self):
        return 4 * 192 * 193

    def parameters(self):
        return Parameters(192 * 193, 192 * 193)

    def info(self):
        weights = hashlib.sha256(self.module[2].weight.detach().numpy().tobytes()).hexdigest()
        return {"description": "a linear layer", "weights_sha256": "", "weights_now": weights}
"""

RUN = """
import sys
from pathlib import Path
from dinosaur_ad.bench.runner import RunOptions, load_plugins, plan, run_local
from dinosaur_ad.methods.training import training_loop
training_loop.SAVE_SHARE = float("inf")  # a checkpoint after every epoch, however short
out, cache, plugin, trouble = sys.argv[1:]
where = RunOptions(out, cache=Path(cache), plugins=(Path(plugin),))
load_plugins(where.plugins)
run_local(plan(["weak"], ["synthetic-tiny"], [0], settings={"trouble": trouble}), where, print)
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("plugin") / "weak.py"
    path.write_text(PLUGIN)
    load_plugins([path])
    yield path
    unregister("weak")
    sys.modules.pop("dinosaur_plugin_weak", None)


@pytest.fixture
def steps(plugin: Path) -> list[tuple[int, int, int]]:
    """Every (task, epoch, step) whose loss was computed."""
    taken: list[tuple[int, int, int]] = sys.modules["dinosaur_plugin_weak"].STEPS
    taken.clear()
    return taken


@pytest.fixture(autouse=True)
def every_epoch_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_loop, "SAVE_SHARE", math.inf)


@pytest.fixture(scope="module")
def undisturbed(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> CellResult:
    (done,), _ = run_local([cell()], around(tmp_path_factory.mktemp("undisturbed"), plugins=(plugin,)), Log())
    return done


def cell(trouble: str = "none") -> CellSpec:
    return plan(["weak"], [SCENARIO], [0], settings={"trouble": trouble})[0]


def scratch(where: RunOptions) -> Path:
    return Path(where.out, cell().folder, "partial", "scratch")


def assert_same(result: CellResult, undisturbed: CellResult) -> None:
    """Weights and scores to the last bit."""
    assert result.info["weights_now"] == undisturbed.info["weights_now"]
    assert_equal(result, undisturbed)


def stop(trouble: str, where: RunOptions) -> None:
    if trouble == "interrupt":
        with pytest.raises(KeyboardInterrupt):
            run_local([cell(trouble)], where, Log())
    else:
        _, (failed,) = run_local([cell(trouble)], where, Log())
        assert failed.error == "RuntimeError: step 1 is too much"


@pytest.mark.parametrize("trouble", ["raise", "interrupt"])
def test_a_cell_stopped_in_an_epoch_continues_after_the_epoch_before(
    trouble: str, tmp_path: Path, plugin: Path, steps: list[tuple[int, int, int]], undisturbed: CellResult
) -> None:
    where, log = around(tmp_path, plugins=(plugin,)), Log()
    stop(trouble, where)
    assert scratch(where).is_dir()
    steps.clear()
    (done,), _ = run_local([cell()], where, log)
    assert "task 2: continuing after epoch 2 of 4" in log
    assert steps == [(1, 2, 0), (1, 2, 1), (1, 2, 2), (1, 3, 0), (1, 3, 1), (1, 3, 2)]
    assert_same(done, undisturbed)


@pytest.mark.slow
def test_kill_9_in_an_epoch_costs_that_epoch_only(
    tmp_path: Path, plugin: Path, steps: list[tuple[int, int, int]], undisturbed: CellResult
) -> None:
    where, log = around(tmp_path, plugins=(plugin,)), Log()
    command = [sys.executable, "-c", RUN, where.out, str(where.cache), str(plugin), "kill"]
    assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=120).returncode == -signal.SIGKILL
    assert (scratch(where) / "task-001-training" / "checkpoint.json").is_file()
    assert not (scratch(where) / "task-000-training").exists()  # its row is kept, so it was cleared
    run_local([cell()], where, log)
    assert "task 2: continuing after epoch 2 of 4" in log
    assert steps[0] == (1, 2, 0)
    assert_same(result_of(where, cell()), undisturbed)


def test_a_damaged_checkpoint_costs_the_task_and_no_number(
    tmp_path: Path, plugin: Path, steps: list[tuple[int, int, int]], undisturbed: CellResult
) -> None:
    where, log = around(tmp_path, plugins=(plugin,)), Log()
    stop("raise", where)
    (tensors,) = scratch(where).rglob("*.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:-1])
    steps.clear()
    (done,), _ = run_local([cell()], where, log)
    assert "is damaged" in log
    assert steps[0] == (1, 0, 0)
    assert_same(done, undisturbed)


def test_the_scratch_folder_is_empty_for_every_task_and_gone_at_the_end(
    tmp_path: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: CellResult
) -> None:
    where, found = around(tmp_path, plugins=(plugin,)), []
    weak = sys.modules["dinosaur_plugin_weak"].Weak
    learn = weak.learn

    def watched(self: Any, lesson: Any) -> None:
        assert self.workbench.scratch == scratch(where)
        found.append(scratch(where).exists())
        learn(self, lesson)
        found.append(scratch(where).exists())

    monkeypatch.setattr(weak, "learn", watched)
    (done,), _ = run_local([cell()], where, Log())
    assert found == [False, True, False, True]
    assert not scratch(where).parent.exists()
    assert_same(done, undisturbed)


def test_beside_an_object_store_the_scratch_folder_is_temporary(
    tmp_path: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: CellResult
) -> None:
    pytest.importorskip("fsspec")
    folders = []
    weak = sys.modules["dinosaur_plugin_weak"].Weak
    score = weak.score

    def watched(self: Any, photos: Any, task: str | None = None) -> Any:
        folders.append(self.workbench.scratch)
        assert list(self.workbench.scratch.rglob("checkpoint.json"))
        return score(self, photos, task)

    monkeypatch.setattr(weak, "score", watched)
    where = replace(around(tmp_path, plugins=(plugin,)), out=f"memory://bench-{time.time_ns()}")
    (done,), _ = run_local([cell()], where, Log())
    assert len(set(folders)) == 1
    assert not folders[0].parent.exists()
    assert_same(done, undisturbed)


def test_a_long_training_says_in_the_runs_own_words_how_far_it_is(
    tmp_path: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_loop, "REPORT_EVERY", 0.0)
    log = Log()
    run_local([cell()], around(tmp_path, plugins=(plugin,)), log)
    assert "[1/1] weak on synthetic-tiny, seed 0: task 2: epoch 4 of 4, loss " in log
