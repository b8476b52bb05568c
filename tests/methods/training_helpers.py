"""A small training with everything that is awkward to resume, for tests of the training loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dinosaur_ad.methods import Photo, Workbench
from dinosaur_ad.methods.training import EpochLog, Schedule, Step, train

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")

SIZE = 8
SCHEDULE = Schedule(epochs=3, batch=4, rate=1e-2)
STEPS = 3  # of 10 photos
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")),
]


def noise(count: int = 10) -> list[Photo]:
    """Photos that differ."""

    def draw(seed: int) -> Callable[[], NDArray[np.uint8]]:
        return lambda: np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3), np.uint8)

    return [Photo(f"noise-{n}", draw(n)) for n in range(count)]


def network(seed: int = 0) -> Any:
    """A small autoencoder with everything that is awkward to resume: statistics, dropout, weights that do not train."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        nn, width = torch.nn, 3 * SIZE * SIZE
        module = nn.Sequential(
            nn.Flatten(), nn.Linear(width, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Linear(8, width)
        )
    module[4].requires_grad_(False)
    return module.train()


class Trained:
    """A training with all its hooks, which can be told to break off."""

    def __init__(self, workbench: Workbench | None = None, schedule: Schedule = SCHEDULE, **options: Any) -> None:
        self.workbench = workbench or Workbench()
        self.schedule = schedule
        self.options = options
        self.module = network().to(self.workbench.device)
        self.outside = torch.nn.Parameter(torch.zeros(1, device=self.workbench.device))
        self.seen = torch.zeros(2, device=self.workbench.device)
        self.steps: list[tuple[int, int]] = []
        self.stop: tuple[str, int, int] | None = None
        self.error: type[BaseException] = KeyboardInterrupt
        self.logs: list[EpochLog] = []

    def run(self, photos: Sequence[Photo] | None = None) -> Trained:
        self.logs = train(
            self.module,
            noise() if photos is None else photos,
            self.schedule,
            self.workbench,
            task=1,
            size=SIZE,
            loss=self.loss,
            parameters=[*self.module.parameters(), self.outside],
            before_step=lambda step: self.perhaps_stop("before_step", step.epoch, step.index),
            after_step=lambda step: self.perhaps_stop("after_step", step.epoch, step.index),
            after_epoch=self.after_epoch,
            extra={"seen": self.seen},
            **self.options,
        )
        return self

    def loss(self, step: Step) -> Any:
        self.steps.append((step.epoch, step.index))
        jitter = torch.rand(1, generator=step.generator).to(step.images.device)
        rebuilt = self.module(step.images + 0.1 * jitter)
        self.seen += torch.tensor([1.0, float(jitter)], device=step.images.device)
        self.perhaps_stop("loss", step.epoch, step.index)
        return ((rebuilt - step.images.flatten(1)) ** 2).mean() + (self.outside - 1).square().sum()

    def after_epoch(self, epoch: int) -> dict[str, float]:
        self.perhaps_stop("after_epoch", epoch, STEPS)
        return {"seen": float(self.seen[0]), "chance": float(torch.rand(1))}

    def perhaps_stop(self, place: str, epoch: int, index: int) -> None:
        if (place, epoch, index) == self.stop:
            raise self.error

    def stopped_at(self, place: str, epoch: int, index: int, error: type[BaseException] = KeyboardInterrupt) -> Trained:
        self.stop, self.error = (place, epoch, index), error
        with pytest.raises(error):
            self.run()
        return self


def assert_same(one: Trained, other: Trained) -> None:
    for name, tensor in one.module.state_dict().items():
        assert torch.equal(tensor, other.module.state_dict()[name]), name
    assert torch.equal(one.outside, other.outside)
    assert torch.equal(one.seen, other.seen)
    assert timeless(one.logs) == timeless(other.logs)


def timeless(logs: Sequence[EpochLog]) -> list[str]:
    return [str(replace(log, seconds=0.0)) for log in logs]
