"""A training that was stopped or killed continues from its last checkpoint and ends with the same weights."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from training_helpers import DEVICES, SCHEDULE, SIZE, STEPS, Trained, assert_same, network, noise, timeless, torch

from dinosaur_ad.methods import Workbench
from dinosaur_ad.methods.training import EpochLog, Step, train, training_checkpoint, training_loop


@pytest.fixture(scope="module")
def undisturbed() -> Trained:
    return Trained().run()


@pytest.fixture(autouse=True)
def every_epoch_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_loop, "SAVE_SHARE", math.inf)


@pytest.mark.parametrize("place", ["loss", "before_step", "after_step"])
@pytest.mark.parametrize("at", [(0, 1), (1, 0), (1, 2), (2, 2)])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_stopped_training_continues_after_the_last_finished_epoch(
    place: str, at: tuple[int, int], error: type[BaseException], tmp_path: Path, undisturbed: Trained
) -> None:
    lines: list[str] = []
    workbench = Workbench(scratch=tmp_path / "scratch", say=lines.append)
    Trained(workbench).stopped_at(place, *at, error)
    resumed = Trained(workbench).run()
    assert resumed.steps == undisturbed.steps[undisturbed.steps.index((at[0], 0)) :]
    stopped = f"task 2: stopped; the training can continue after epoch {at[0]} of 3"
    interrupted = error is KeyboardInterrupt
    expected = [stopped] * interrupted + [f"task 2: continuing after epoch {at[0]} of 3"] if at[0] else []
    assert lines == expected
    assert_same(resumed, undisturbed)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_an_epoch_counts_when_its_last_callback_has_returned(optimizer: Any, tmp_path: Path) -> None:
    schedule = replace(SCHEDULE, optimizer=optimizer, clip=1.0, course="cosine")
    workbench = Workbench(scratch=tmp_path)
    Trained(workbench, schedule).stopped_at("after_epoch", 1, STEPS)
    resumed = Trained(workbench, schedule).run()
    assert resumed.steps[0] == (1, 0)
    assert_same(resumed, Trained(schedule=schedule).run())


def test_the_first_epoch_leaves_nothing_before_its_end(tmp_path: Path, undisturbed: Trained) -> None:
    workbench = Workbench(scratch=tmp_path)
    Trained(workbench).stopped_at("after_step", 0, 2)
    assert not list(tmp_path.rglob("*"))
    assert_same(Trained(workbench).run(), undisturbed)


def test_stopped_twice_and_trained_to_the_end(tmp_path: Path, undisturbed: Trained) -> None:
    workbench = Workbench(scratch=tmp_path)
    Trained(workbench).stopped_at("loss", 1, 2)
    Trained(workbench).stopped_at("loss", 2, 1)
    assert_same(Trained(workbench).run(), undisturbed)
    lines: list[str] = []
    again = Trained(replace(workbench, say=lines.append)).run()  # as when the testing after it was killed
    assert again.steps == []
    assert lines == ["task 2: was trained to the end before"]
    assert all(parameter.grad is None for parameter in again.module.parameters())
    assert_same(again, undisturbed)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1  # older files are removed


def test_large_tensors_are_written_in_parts(
    tmp_path: Path, undisturbed: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_checkpoint, "SHARD_BYTES", 1000)
    workbench = Workbench(scratch=tmp_path)
    Trained(workbench).stopped_at("loss", 1, 1)
    assert len(list(tmp_path.rglob("*.safetensors"))) > 3
    assert_same(Trained(workbench).run(), undisturbed)


@pytest.mark.parametrize("damage", ["cut", "flipped", "removed", "document", "notes"])
def test_a_damaged_checkpoint_is_reported_and_not_used(damage: str, tmp_path: Path, undisturbed: Trained) -> None:
    lines: list[str] = []
    workbench = Workbench(scratch=tmp_path)
    Trained(workbench).stopped_at("loss", 1, 1)
    (tensors,) = tmp_path.rglob("*.safetensors")
    (document,) = tmp_path.rglob("checkpoint.json")
    content = tensors.read_bytes()
    if damage == "cut":
        tensors.write_bytes(content[:-1])
    elif damage == "flipped":
        tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "removed":
        tensors.unlink()
    elif damage == "document":
        document.write_bytes(document.read_bytes()[:-10])
    else:
        changed = document.read_text().replace('"skipped": 0', '"skipped": 1', 1)
        assert changed != document.read_text()
        document.write_text(changed)
    resumed = Trained(replace(workbench, say=lines.append)).run()
    assert len(lines) == 1
    assert "is damaged" in lines[0]
    assert "starts from the beginning" in lines[0]
    assert resumed.steps == undisturbed.steps
    assert_same(resumed, undisturbed)


@pytest.mark.parametrize("other", ["seed", "schedule", "settings", "photos", "start"])
def test_the_checkpoint_of_another_training_is_reported_and_not_used(other: str, tmp_path: Path) -> None:
    lines: list[str] = []
    Trained(Workbench(scratch=tmp_path), settings={"weight": 1}).stopped_at("loss", 1, 1)
    workbench = Workbench(scratch=tmp_path, say=lines.append, seed=1 if other == "seed" else 0)
    schedule = replace(SCHEDULE, rate=2e-2) if other == "schedule" else SCHEDULE
    trained = Trained(workbench, schedule, settings={"weight": 2 if other == "settings" else 1})
    if other == "start":
        trained.module.load_state_dict(network(seed=1).state_dict())
    trained.run(noise(11) if other == "photos" else None)
    assert trained.steps[0] == (0, 0)
    assert len(lines) == 1
    assert "belongs to another training; training starts from the beginning" in lines[0]


def test_two_trainings_of_one_task_have_separate_checkpoints(tmp_path: Path, undisturbed: Trained) -> None:
    lines: list[str] = []
    workbench = Workbench(scratch=tmp_path)
    Trained(workbench, stage="first").stopped_at("loss", 1, 1)
    workbench = replace(workbench, say=lines.append)
    assert Trained(workbench, stage="second").run().steps == undisturbed.steps
    assert Trained(workbench, stage="first").run().steps[0] == (1, 0)
    assert len(lines) == 1


def test_a_full_disk_is_reported_and_training_continues(
    tmp_path: Path, undisturbed: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    lines: list[str] = []
    monkeypatch.setattr(training_checkpoint, "write_atomic", full)
    trained = Trained(Workbench(scratch=tmp_path, say=lines.append)).run()
    assert_same(trained, undisturbed)
    assert "could not be written" in lines[0]
    assert "No space left" in lines[0]


def test_skipped_steps_stay_counted_over_an_interruption(tmp_path: Path) -> None:
    def run(workbench: Workbench, stop: bool) -> list[EpochLog]:
        module = network()

        def loss(step: Step) -> Any:
            if stop and (step.epoch, step.index) == (1, 2):
                raise KeyboardInterrupt
            return module(step.images).square().mean() * (math.nan if step.index == 0 else 1.0)

        return train(module, noise(), SCHEDULE, workbench, task=0, size=SIZE, loss=loss)

    with pytest.raises(KeyboardInterrupt):
        run(Workbench(scratch=tmp_path), stop=True)
    assert timeless(run(Workbench(scratch=tmp_path), stop=False)) == timeless(run(Workbench(), stop=False))


def test_without_a_scratch_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Trained().stopped_at("loss", 1, 1)
    assert list(tmp_path.iterdir()) == []


def test_writing_takes_a_small_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(float(n) for n in range(10**6))  # every look at the clock takes a second, and so does every save
    saves = []
    monkeypatch.setattr(training_loop, "SAVE_SHARE", 0.05)
    fake = SimpleNamespace(monotonic=lambda: next(clock), perf_counter=time.perf_counter)
    monkeypatch.setattr(training_loop, "time", fake)

    def save(self: object, tensors: object, notes: dict[str, Any]) -> bool:
        saves.append(len(notes["logs"]))
        return True

    monkeypatch.setattr(training_checkpoint.TrainingCheckpoint, "save", save)
    Trained(Workbench(scratch=tmp_path), replace(SCHEDULE, epochs=50)).run()
    assert saves[0] == 1
    assert 3 <= len(saves) <= 50 * STEPS * 0.05 * 2


@pytest.mark.parametrize("device", DEVICES)
def test_a_resumed_training_on_any_device_is_close(device: str, tmp_path: Path) -> None:
    """Bit-equal on a CPU; on a GPU as equal as two undisturbed runs, which for this network is to rounding."""
    workbench = Workbench(device=device, scratch=tmp_path)
    Trained(workbench).stopped_at("loss", 1, 1)
    resumed, plain = Trained(workbench).run(), Trained(Workbench(device=device)).run()
    tolerance = {"rtol": 0.0, "atol": 0.0} if device == "cpu" else {"rtol": 1e-4, "atol": 1e-6}
    for name, tensor in resumed.module.state_dict().items():
        torch.testing.assert_close(tensor, plain.module.state_dict()[name], **tolerance)
