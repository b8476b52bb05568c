"""The shared training loop: what it computes, and what it makes of odd images and of losses that are not finite."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from method_helpers import grey
from numpy.typing import NDArray
from training_helpers import DEVICES, SCHEDULE, SIZE, STEPS, Trained, assert_same, network, noise, torch

from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Config, NoCache, Photo, Workbench
from dinosaur_ad.methods.training import Schedule, Step, train, training_data, training_loop


@pytest.mark.parametrize("device", DEVICES)
def test_the_loss_falls_and_the_frozen_stays(device: str) -> None:
    trained = Trained(Workbench(device=device), replace(SCHEDULE, epochs=30, mixed=True)).run()
    assert trained.logs[-1].loss < 0.8 * trained.logs[0].loss
    assert [log.epoch for log in trained.logs] == list(range(30))
    assert torch.equal(trained.module[4].weight.cpu(), network()[4].weight)
    assert not torch.equal(trained.module[1].weight.cpu(), network()[1].weight)
    assert all(log.seconds > 0 for log in trained.logs)


def test_a_step_is_the_textbook_one() -> None:
    """Adam with weight decay and a clipped gradient, on the same batches by hand."""
    schedule = replace(SCHEDULE, clip=0.3, decay=0.1)
    ours, theirs = torch.nn.Linear(3 * SIZE * SIZE, 1), torch.nn.Linear(3 * SIZE * SIZE, 1)
    theirs.load_state_dict(ours.state_dict())
    optimizer = torch.optim.Adam(theirs.parameters(), lr=1e-2, weight_decay=0.1)
    norms = []

    def loss(step: Step) -> Any:
        optimizer.zero_grad()
        (theirs(step.images.flatten(1)) ** 2).mean().backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.3)))
        optimizer.step()
        return (ours(step.images.flatten(1)) ** 2).mean()

    train(ours, noise(), schedule, Workbench(), task=0, size=SIZE, loss=loss)
    assert max(norms) > 0.3
    assert torch.equal(ours.weight, theirs.weight)


@pytest.mark.parametrize(("optimizer", "kind"), [("adamw", "AdamW"), ("sgd", "SGD")])
def test_other_optimizers_are_what_their_name_says(optimizer: Any, kind: str) -> None:
    ours, theirs = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
    theirs.load_state_dict(ours.state_dict())
    by_hand = getattr(torch.optim, kind)(theirs.parameters(), lr=1e-2, weight_decay=1e-4)

    def loss(step: Step) -> Any:
        colour_BC = step.images.mean(dim=(2, 3))
        by_hand.zero_grad()
        theirs(colour_BC).sum().backward()
        by_hand.step()
        return ours(colour_BC).sum()

    train(ours, noise(), replace(SCHEDULE, optimizer=optimizer), Workbench(), task=0, size=SIZE, loss=loss)
    assert torch.equal(ours.weight, theirs.weight)


def test_a_batch_is_what_the_step_says() -> None:
    steps: list[Step] = []

    def loss(step: Step) -> Any:
        steps.append(step)
        return module(step.images.mean(dim=(2, 3))).sum()

    module, photos = torch.nn.Linear(3, 1), noise()
    train(module, photos, SCHEDULE, Workbench(), task=0, size=SIZE, loss=loss)
    assert [(step.epoch, step.index, len(step.photos)) for step in steps[:4]] == [
        (0, 0, 4),
        (0, 1, 4),
        (0, 2, 2),
        (1, 0, 4),
    ]
    for start in (0, STEPS, 2 * STEPS):
        assert sorted(photo.key for step in steps[start : start + STEPS] for photo in step.photos) == sorted(
            photo.key for photo in photos
        )
    assert [photo.key for photo in steps[0].photos] != [photo.key for photo in steps[STEPS].photos]
    last = steps[-1]
    np.testing.assert_array_equal(last.pixels, [photo.pixels() for photo in last.photos])
    assert last.images.shape == (2, 3, SIZE, SIZE)
    assert last.images.dtype == torch.float32
    red = (last.pixels[..., 0] / 255 - 0.485) / 0.229
    np.testing.assert_allclose(last.images[:, 0].numpy(), red, rtol=1e-5, atol=1e-6)


def test_the_logged_loss_is_the_mean_over_the_images() -> None:
    values = []

    def loss(step: Step) -> Any:
        values.extend([float(step.index)] * len(step.photos))
        return step.index + 0 * module(torch.zeros(1, 3)).sum()

    module = torch.nn.Linear(3, 1)
    logs = train(module, noise(), replace(SCHEDULE, epochs=1), Workbench(), task=0, size=SIZE, loss=loss)
    assert logs[0].loss == pytest.approx(np.mean(values))


def test_the_same_seed_gives_the_same_weights_and_leaves_torch_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    one = Trained().run()
    assert torch.equal(torch.rand(3), expected)
    assert_same(Trained().run(), one)
    assert not torch.equal(Trained(Workbench(seed=1)).run().seen, one.seen)


def test_hooks_come_in_their_order() -> None:
    module = torch.nn.Linear(3, 1)
    calls = []

    def loss(step: Step) -> Any:
        calls.append("loss")
        return module(step.images.mean(dim=(2, 3))).sum()

    def before(step: Step) -> None:
        calls.append("before")
        assert module.weight.grad is not None
        module.weight.grad.zero_()

    weight = module.weight.detach().clone()
    train(
        module,
        noise(3),
        Schedule(epochs=2, decay=0.0),
        Workbench(),
        task=0,
        size=SIZE,
        loss=loss,
        before_step=before,
        after_step=lambda step: calls.append("after"),
        after_epoch=lambda epoch: calls.append(f"epoch {epoch}") or {},  # type: ignore[func-returns-value]
    )
    assert calls == ["loss", "before", "after", "epoch 0", "loss", "before", "after", "epoch 1"]
    assert torch.equal(module.weight, weight)  # the gradient that before_step took away was not applied


@pytest.mark.parametrize(
    ("course", "last"), [("constant", 1.0), ("drop", 0.1), ("cosine", (1 + math.cos(0.95 * math.pi)) / 2)]
)
def test_the_rate_follows_its_course(course: Any, last: float) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    fallen = []
    schedule = Schedule(epochs=20, rate=1.0, decay=0.0, optimizer="sgd", course=course)
    train(
        torch.nn.Identity(),
        noise(1),
        schedule,
        Workbench(),
        task=0,
        size=SIZE,
        loss=lambda step: weight.sum(),
        parameters=[weight],
        after_step=lambda step: fallen.append(-weight.item()),
    )
    assert fallen[0] == pytest.approx(1.0)
    assert fallen[-1] - fallen[-2] == pytest.approx(last, rel=1e-4)


class Watched(NoCache):
    """Notes who asks for what."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def prepared(self, photos: Sequence[Photo], size: int) -> NDArray[np.uint8]:
        self.asked.append((threading.current_thread().name, tuple(photo.key for photo in photos)))
        return super().prepared(photos, size)


@pytest.mark.parametrize(("room", "epochs"), [(training_data.CACHE_BYTES, 1), (0, SCHEDULE.epochs)])
def test_images_come_through_the_cache_ahead_of_time_and_once_where_there_is_room(
    room: int, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_data, "CACHE_BYTES", room)
    cache = Watched()
    Trained(Workbench(cache=cache)).run()
    assert len(cache.asked) == epochs * STEPS
    assert sorted(key for _, keys in cache.asked[:STEPS] for key in keys) == sorted(photo.key for photo in noise())
    assert all(thread.startswith("batch-loader") for thread, _ in cache.asked)


# --- odd tasks ---


@pytest.mark.parametrize("count", [1, 2, 5])
def test_fewer_images_than_a_batch(count: int) -> None:
    module = torch.nn.Linear(3, 3)
    logs = train(
        module,
        noise(count),
        replace(SCHEDULE, batch=12),
        Workbench(),
        task=0,
        size=SIZE,
        loss=lambda step: ((module(step.images.mean(dim=(2, 3))) - 1) ** 2).mean(),
    )
    assert logs[-1].loss < logs[0].loss
    assert [log.skipped for log in logs] == [0, 0, 0]


def test_constant_images() -> None:
    trained = Trained().run([grey(100, f"grey-{n}") for n in range(6)])
    assert all(math.isfinite(log.loss) for log in trained.logs)
    assert all(tensor.isfinite().all() for tensor in trained.module.state_dict().values())


def test_wrong_orders_are_refused() -> None:
    with pytest.raises(InputError, match="at least one normal image"):
        Trained().run([])
    frozen = torch.nn.Linear(1, 1).requires_grad_(False)
    with pytest.raises(InputError, match="nothing to train"):
        train(frozen, noise(), SCHEDULE, Workbench(), task=0, size=SIZE, loss=lambda step: step.images.sum())
    for wrong in ({"epochs": 0}, {"batch": 0}, {"rate": -1.0}, {"decay": -1.0}, {"clip": 0.0}):
        with pytest.raises(InputError, match=f"training's {next(iter(wrong))} must"):
            replace(SCHEDULE, **wrong)  # type: ignore[arg-type]


def test_a_schedule_takes_the_settings_that_a_method_shares_with_it() -> None:
    @dataclass(frozen=True)
    class OwnConfig(Config):
        epochs: int = 7
        rate: float = 0.5
        clip: float = 0.1
        width: int = 3

    assert Schedule.of(OwnConfig()) == Schedule(epochs=7, rate=0.5, clip=0.1)
    assert Schedule.of(OwnConfig(), clip=None, optimizer="sgd") == Schedule(epochs=7, rate=0.5, optimizer="sgd")


def test_out_of_memory_is_one_sentence() -> None:
    trained = Trained()
    trained.stop, trained.error = ("loss", 0, 1), torch.OutOfMemoryError
    with pytest.raises(InputError, match=r"batches of 4 images of 8 pixels needs more memory than 'cpu' has"):
        trained.run()


# --- what is not finite ---


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_that_is_not_finite_is_counted_and_leaves_no_trace(where: str) -> None:
    lines: list[str] = []
    module = network()
    before: dict[str, Any] = {}

    def loss(step: Step) -> Any:
        value = (module(step.images) ** 2).mean()
        if (step.epoch, step.index) != (1, 1):
            return value
        if where == "loss":
            return value * math.nan
        return value + module[1].bias.sub(module[1].bias.detach()).square().sum().sqrt()  # finite, its slope is not

    def after(step: Step) -> None:
        if (step.epoch, step.index) == (1, 0):
            before.update({name: tensor.clone() for name, tensor in module.state_dict().items()})
        assert (step.epoch, step.index) != (1, 1)

    def check(step: Step) -> Any:
        if (step.epoch, step.index) == (1, 2):
            assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
        return loss(step)

    workbench = Workbench(say=lines.append)
    logs = train(module, noise(), SCHEDULE, workbench, task=0, size=SIZE, loss=check, after_step=after)
    assert before
    assert [log.skipped for log in logs] == [0, 1, 0]
    assert all(math.isfinite(log.loss) for log in logs)
    assert lines == ["task 1: the loss or its gradient was not finite in 1 of 9 steps, which were skipped"]


def test_a_training_that_is_never_finite_ends_and_says_so() -> None:
    lines: list[str] = []
    module = network()
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    logs = train(
        module,
        noise(),
        SCHEDULE,
        Workbench(say=lines.append),
        task=2,
        size=SIZE,
        loss=lambda step: module(step.images).sum() * math.inf,
    )
    assert [(log.skipped, math.isnan(log.loss)) for log in logs] == [(STEPS, True)] * 3
    assert all(torch.equal(tensor, start[name]) for name, tensor in module.state_dict().items())
    assert lines == ["task 3: the loss or its gradient was not finite in 9 of 9 steps, which were skipped"]


# --- how far it is ---


def test_progress_is_said_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    trained = Trained(Workbench(say=lines.append)).run()
    assert lines == []  # it was over before anybody would ask
    monkeypatch.setattr(training_loop, "REPORT_EVERY", 0.0)
    Trained(Workbench(say=lines.append)).run()
    assert lines[-1] == f"task 2: epoch 3 of 3, loss {trained.logs[-1].loss:.4g}"
    assert lines[0].startswith("task 2: epoch 1 of 3, loss ")
