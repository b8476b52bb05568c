"""The training loop of the methods that train: batches of photos, one optimiser a task, and a way back in.

What a method brings is a module and a loss. What it gets: the same numbers whenever the seed is the same, stopped and
resumed or not, because the order of the photos and everything random is drawn anew for every (seed, task, epoch, step);
a step whose loss or gradient is not finite is counted and leaves no trace; and a position in ``workbench.scratch`` from
which a killed training goes on in the middle of its epoch.

On a CPU a resumed training ends in the same bits. On a GPU it sees the same photos and the same random numbers, with
deterministic convolutions and no TF32 unless asked for, but some operations of torch add up in any order there
(``interpolate`` and ``index_add`` going backwards, for example): two runs differ in the last bits, resumed or not, and
training makes such differences larger. A resumed run agrees with an undisturbed one as well as two undisturbed ones do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.contract import Photo, Workbench
from dinosaur_ad.methods.training.training_scratch import Scratch, digest
from dinosaur_ad.methods.training.training_steps import (
    EpochLog,
    Feed,
    Position,
    Schedule,
    Step,
    autocast,
    build_optimiser,
    import_torch,
    reproducible,
)

if TYPE_CHECKING:
    import torch

__all__ = ["EpochLog", "Schedule", "Step", "train"]

# Seconds between two positions on disk, and the share of the time that writing them may take at most.
SAVE_EVERY, SAVE_SHARE = 60.0, 0.05
# Seconds between two lines about how far training has come.
PATIENCE = 5.0


def train(
    module: torch.nn.Module,
    photos: Sequence[Photo],
    schedule: Schedule,
    workbench: Workbench,
    *,
    task: int,
    size: int,
    loss: Callable[[Step], torch.Tensor],
    parameters: Iterable[torch.nn.Parameter] | None = None,
    before_step: Callable[[Step], None] | None = None,
    after_step: Callable[[Step], None] | None = None,
    after_epoch: Callable[[int], Mapping[str, float]] | None = None,
    extra: Mapping[str, torch.Tensor] | None = None,
    stage: str = "training",
    settings: Mapping[str, Any] | None = None,
) -> list[EpochLog]:
    """Train ``module`` on ``photos`` at ``size`` pixels, all of them in every epoch; returns a log of each epoch.

    ``parameters`` are those to train: all of ``module`` that require a gradient unless told. Which parts are in train
    mode is the caller's choice (``module.train()``) and stays as it is.

    ``loss`` gets a :class:`Step` and returns a scalar. ``before_step`` comes when the gradients are there and before
    they are clipped and applied, ``after_step`` when the weights have changed (not when the step was skipped),
    ``after_epoch`` when all photos were seen.

    ``extra`` are tensors that these callables change in place and that must survive an interruption; buffers of
    ``module`` survive anyway. What is constant during the task needs no place there: a resumed task begins with the
    method as it was before it. ``stage`` tells two trainings of one task apart, ``settings`` is anything else (JSON)
    that makes a half-done training this one and no other, such as ``config.identity()``.
    """
    if not photos:
        raise InputError("A training needs at least one normal image, got none.")
    torch = import_torch()
    trained = [each for each in (module.parameters() if parameters is None else parameters) if each.requires_grad]
    if not trained:
        raise InputError("There is nothing to train: none of the given parameters requires a gradient.")
    state = _live_tensors(module, trained, extra or {})
    scratch = None
    if workbench.scratch is not None:
        identity = {
            "task": task,
            "stage": stage,
            "schedule": asdict(schedule),
            "settings": settings,
            "seed": workbench.seed,
            "device": torch.device(workbench.device).type,
            "size": size,
            "photos": [photo.key for photo in photos],
            "tensors": {name: [str(tensor.dtype), *tensor.shape] for name, tensor in state.items()},
            "start": digest({name: tensor for name, tensor in state.items() if not name.startswith("extra/")}),
        }
        scratch = Scratch(workbench.scratch / f"task-{task:03d}-{stage}", identity, workbench.say)
    feed = Feed(photos, schedule, size, workbench, task)
    hooks = _Hooks(loss, before_step, after_step, after_epoch)
    try:
        return _Training(feed, schedule, hooks, trained, state, scratch).finish()
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"Training on batches of {schedule.batch} images of {size} pixels needs more memory than "
            f"'{workbench.device}' has; use a smaller batch or another device."
        ) from error


def _live_tensors(
    module: torch.nn.Module, trained: Sequence[torch.nn.Parameter], extra: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Everything that training may change but the optimiser, by name; tied weights once."""
    named = dict(module.named_parameters())
    inside = {id(parameter) for parameter in named.values()}
    outside = [parameter for parameter in trained if id(parameter) not in inside]
    state = {f"parameter/{name}": parameter for name, parameter in named.items()}
    state |= {f"outside/{number}": parameter for number, parameter in enumerate(outside)}
    state |= {f"buffer/{name}": buffer for name, buffer in module.named_buffers()}
    return state | {f"extra/{name}": tensor for name, tensor in extra.items()}


@dataclass(frozen=True)
class _Hooks:
    loss: Callable[[Step], torch.Tensor]
    before_step: Callable[[Step], None] | None
    after_step: Callable[[Step], None] | None
    after_epoch: Callable[[int], Mapping[str, float]] | None


class _Training:
    """One training on its way."""

    def __init__(
        self,
        feed: Feed,
        schedule: Schedule,
        hooks: _Hooks,
        trained: Sequence[torch.nn.Parameter],
        state: Mapping[str, torch.Tensor],
        scratch: Scratch | None,
    ) -> None:
        self._feed, self._schedule, self._hooks, self._trained = feed, schedule, hooks, trained
        self._state, self._scratch = state, scratch
        self._optimiser = build_optimiser(trained, schedule)
        self._position = Position()
        # What a forward pass may change besides weights, as it was before the step in progress.
        self._before: dict[str, torch.Tensor] = {}
        self._whole = True  # whether weights, optimiser and position belong together
        self._kept = (0, 0)
        self._next_save = time.monotonic() + SAVE_EVERY
        self._next_word = time.monotonic() + PATIENCE

    def finish(self) -> list[EpochLog]:
        """Train from the start, or from the position on disk, to the end."""
        self._resume()
        position = self._position
        with ExitStack() as around:
            for context in (self._feed, *reproducible(self._feed.workbench.device, tf32=self._schedule.tf32)):
                around.enter_context(context)
            try:
                while position.epoch < self._schedule.epochs:
                    while position.index < self._feed.steps:
                        self._step()
                    self._end_epoch()
            except BaseException:
                # In the middle of an update nothing fits together: then the last position on disk stands.
                if self._whole:
                    self._save()
                raise
        self._optimiser.zero_grad(set_to_none=True)  # as large as the weights, and of no use any more
        skipped = sum(log.nan for log in position.logs)
        if skipped:
            steps = self._schedule.epochs * self._feed.steps
            self._say(f"the loss or its gradient was not finite in {skipped} of {steps} steps, which were skipped")
        return position.logs

    def _step(self) -> None:
        position, started = self._position, time.perf_counter()
        step = self._feed.take(position.epoch, position.index)
        volatile = ((name, value) for name, value in self._state.items() if name.startswith(("buffer/", "extra/")))
        self._before = {name: value.detach().clone() for name, value in volatile}
        value = self._update(step)
        self._whole = False
        if value is None:
            self._restore(self._before)
            position.nan += 1
        else:
            position.loss += value * len(step.photos)
            position.images += len(step.photos)
        position.seconds += time.perf_counter() - started
        position.index += 1
        self._before = {}
        self._whole = True
        self._pause()

    def _update(self, step: Step) -> float | None:
        """Take one step downhill and return the loss before it; None, and nothing done, when it is not finite."""
        hooks, schedule = self._hooks, self._schedule
        self._optimiser.zero_grad(set_to_none=True)
        with autocast(schedule, self._feed.workbench.device):
            loss = hooks.loss(step)
        value = float(loss.detach())
        if not math.isfinite(value):
            return None
        loss.backward()
        if hooks.before_step:
            hooks.before_step(step)
        if not math.isfinite(self._gradient_norm()):
            return None
        self._whole = False
        done = (step.epoch + step.index / self._feed.steps) / schedule.epochs
        for group in self._optimiser.param_groups:
            group["lr"] = schedule.rate_at(step.epoch, done)
        self._optimiser.step()
        if hooks.after_step:
            hooks.after_step(step)
        return value

    def _gradient_norm(self) -> float:
        """The length of the whole gradient, which is then cut to the limit of the schedule where there is one."""
        utils = import_torch().nn.utils
        if self._schedule.clip is not None:
            return float(utils.clip_grad_norm_(self._trained, self._schedule.clip))
        # Only measured: multiplying it by 1 would read and write it once more, 5 GB a step in the largest network.
        return float(utils.get_total_norm([each.grad for each in self._trained if each.grad is not None]))

    def _end_epoch(self) -> None:
        position, started = self._position, time.perf_counter()
        self._whole = False
        self._feed.seed(position.epoch, position.index)
        found = self._hooks.after_epoch(position.epoch) if self._hooks.after_epoch else {}
        extra = {name: float(value) for name, value in found.items()}
        seconds = position.seconds + time.perf_counter() - started
        position.logs.append(EpochLog(position.epoch, position.mean, position.nan, extra, seconds))
        position.epoch, position.index = position.epoch + 1, 0
        position.loss, position.images, position.nan, position.seconds = 0.0, 0, 0, 0.0
        self._whole = True
        self._pause()

    # --- telling, keeping and coming back ---

    def _pause(self) -> None:
        """Between two steps: say how far it is and keep it, when it is time for that."""
        now = time.monotonic()
        if now >= self._next_word:
            position = self._position
            # Right after an epoch the next one has nothing to tell yet.
            log = position if position.index or not position.logs else position.logs[-1]
            loss = log.mean if isinstance(log, Position) else log.loss
            skipped = f", {log.nan} steps skipped (not finite)" if log.nan else ""
            self._say(f"epoch {log.epoch + 1} of {self._schedule.epochs}, loss {loss:.4g}{skipped}")
            self._next_word = now + PATIENCE
        if now >= self._next_save:
            self._save()
            cost = time.monotonic() - now
            self._next_save = time.monotonic() + max(SAVE_EVERY, cost / SAVE_SHARE)

    def _say(self, text: str) -> None:
        self._feed.workbench.say(f"task {self._feed.task + 1}: {text}")

    def _save(self) -> None:
        where = (self._position.epoch, self._position.index)
        if self._scratch is None or where == self._kept:
            return
        moments = {
            f"optimiser/{number}/{name}": value
            for number, values in self._optimiser.state_dict()["state"].items()
            for name, value in values.items()
        }
        if self._scratch.save({**self._state, **self._before, **moments}, asdict(self._position)):
            self._kept = where

    def _resume(self) -> None:
        found = None if self._scratch is None else self._scratch.load()
        if found is None:
            return
        tensors, notes = found
        self._position = position = Position.read(notes)
        self._kept = (position.epoch, position.index)
        moments: dict[int, dict[str, torch.Tensor]] = {}
        for key in [key for key in tensors if key.startswith("optimiser/")]:
            _, number, name = key.split("/", 2)
            moments.setdefault(int(number), {})[name] = _laid_out(tensors.pop(key), self._trained[int(number)])
        self._restore(tensors)
        self._optimiser.load_state_dict(self._optimiser.state_dict() | {"state": moments})
        epochs, steps = self._schedule.epochs, self._feed.steps
        where = f"going on in epoch {position.epoch + 1} of {epochs}, after {position.index} of {steps} steps"
        self._say(where if position.epoch < epochs else "was trained to its end before")

    def _restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        with import_torch().no_grad():
            for name, value in tensors.items():
                self._state[name].copy_(value)


def _laid_out(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A moment in memory as its parameter is, which an update in one pass asks for; a count of steps as it is."""
    if value.shape != parameter.shape:
        return value
    laid_out: torch.Tensor = import_torch().empty_like(parameter, dtype=value.dtype, requires_grad=False)
    return laid_out.copy_(value)
