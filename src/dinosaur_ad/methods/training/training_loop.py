"""The training loop: batches of photos, one optimizer per task, a checkpoint after each epoch.

A method provides a module and a loss. The order of the photos and all random numbers are seeded for every (seed, task,
epoch, step), so the same seed gives the same weights. A step whose loss or gradient is not finite is skipped without a
trace. After an epoch a checkpoint is written to ``workbench.scratch``; a training that was killed or interrupted
continues from it, and on a CPU ends with the same weights to the bit.

On a GPU a resumed training sees the same photos and random numbers, with deterministic convolutions and no TF32 unless
asked for, but some operations of torch add up in any order (the gradients of ``interpolate`` and ``index_add``, for
example): two runs differ in the last bits, resumed or not, and training makes such differences larger.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.contract import Photo, Workbench
from dinosaur_ad.methods.shared.precision import deterministic
from dinosaur_ad.methods.shared.torch_tools import import_torch
from dinosaur_ad.methods.training.training_checkpoint import TrainingCheckpoint, tensors_sha256
from dinosaur_ad.methods.training.training_data import BatchLoader, EpochLog, Schedule, Step

if TYPE_CHECKING:
    import torch

SAVE_SHARE = 0.05
"""Share of the time that writing checkpoints may take; where it would be more, some epochs get none."""
REPORT_EVERY = 5.0
"""Seconds between two progress messages."""


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

    ``parameters`` are those to train: by default all of ``module`` that require a gradient. Which parts are in train
    mode is the caller's choice (``module.train()``) and stays as it is.

    Callbacks: ``loss`` gets a :class:`Step` and returns a scalar. ``before_step`` is called after the backward pass,
    before gradients are clipped and applied; ``after_step`` after the weights have changed (not for a skipped step);
    ``after_epoch`` after all photos.

    ``extra`` are tensors that the callbacks change in place; they are part of the checkpoint, like the buffers of
    ``module``. ``stage`` separates several trainings of one task, ``settings`` (JSON, such as ``config.identity()``)
    are whatever else makes a checkpoint one of this training.
    """
    if not photos:
        raise InputError("A training needs at least one normal image, got none.")
    torch = import_torch("Training")
    trained = [each for each in (module.parameters() if parameters is None else parameters) if each.requires_grad]
    if not trained:
        raise InputError("There is nothing to train: none of the given parameters requires a gradient.")
    state = _named_tensors(module, trained, extra or {})
    checkpoint = None
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
            "start": tensors_sha256({name: each for name, each in state.items() if not name.startswith("extra/")}),
        }
        checkpoint = TrainingCheckpoint(workbench.scratch / f"task-{task:03d}-{stage}", identity, workbench.say)
    loop = _TrainingLoop(
        BatchLoader(photos, schedule, size, workbench, task),
        schedule,
        workbench.device,
        loss,
        before_step or _nothing,
        after_step or _nothing,
        after_epoch or (lambda epoch: {}),
        trained,
        state,
        checkpoint,
        lambda text: workbench.say(f"task {task + 1}: {text}"),
    )
    try:
        return loop.run()
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"Training on batches of {schedule.batch} images of {size} pixels needs more memory than "
            f"'{workbench.device}' has; use a smaller batch or another device."
        ) from error


def _named_tensors(
    module: torch.nn.Module, trained: Sequence[torch.nn.Parameter], extra: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """All tensors that training may change, except those of the optimizer; tied weights once."""
    named = dict(module.named_parameters())
    inside = {id(parameter) for parameter in named.values()}
    outside = [parameter for parameter in trained if id(parameter) not in inside]
    state = {f"parameter/{name}": parameter for name, parameter in named.items()}
    state |= {f"outside/{number}": parameter for number, parameter in enumerate(outside)}
    state |= {f"buffer/{name}": buffer for name, buffer in module.named_buffers()}
    return state | {f"extra/{name}": tensor for name, tensor in extra.items()}


def _nothing(_step: Step) -> None:
    """The default of a callback."""


@dataclass
class _TrainingLoop:
    loader: BatchLoader
    schedule: Schedule
    device: str
    loss: Callable[[Step], torch.Tensor]
    before_step: Callable[[Step], None]
    after_step: Callable[[Step], None]
    after_epoch: Callable[[int], Mapping[str, float]]
    trained: Sequence[torch.nn.Parameter]
    state: Mapping[str, torch.Tensor]
    checkpoint: TrainingCheckpoint | None
    say: Callable[[str], None]
    logs: list[EpochLog] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._optimizer = _build_optimizer(self.trained, self.schedule)
        self._next_save, self._next_report = 0.0, time.monotonic() + REPORT_EVERY

    def run(self) -> list[EpochLog]:
        """Train from the checkpoint, or from the beginning, to the last epoch."""
        self._resume()
        torch, cuda = import_torch(), self.device.startswith("cuda")
        saved = len(self.logs)
        with ExitStack() as contexts:
            contexts.enter_context(torch.random.fork_rng(devices=[torch.device(self.device)] if cuda else []))
            contexts.enter_context(deterministic(tf32=self.schedule.tf32) if cuda else nullcontext())
            steps = contexts.enter_context(closing(self.loader.steps(saved)))
            try:
                for epoch in range(saved, self.schedule.epochs):
                    self.logs.append(self._epoch(epoch, islice(steps, self.loader.steps_per_epoch)))
                    if self._save():
                        saved = epoch + 1
            except KeyboardInterrupt:
                if saved:
                    self.say(f"stopped; the training can continue after epoch {saved} of {self.schedule.epochs}")
                raise
        self._optimizer.zero_grad(set_to_none=True)  # frees as much memory as the weights take
        skipped = sum(log.skipped for log in self.logs)
        if skipped:
            steps_taken = self.schedule.epochs * self.loader.steps_per_epoch
            self.say(f"the loss or its gradient was not finite in {skipped} of {steps_taken} steps, which were skipped")
        return self.logs

    def _epoch(self, epoch: int, steps: Iterable[Step]) -> EpochLog:
        started, total, images, skipped = time.perf_counter(), 0.0, 0, 0
        for step in steps:
            value = self._step(step)
            if value is None:
                skipped += 1
            else:
                total += value * len(step.photos)
                images += len(step.photos)
            self._report(epoch, total / images if images else math.nan, skipped)
        self.loader.seed(epoch, self.loader.steps_per_epoch)
        extra = {name: float(value) for name, value in self.after_epoch(epoch).items()}
        mean = total / images if images else math.nan
        return EpochLog(epoch, mean, skipped, extra, time.perf_counter() - started)

    def _step(self, step: Step) -> float | None:
        """One optimizer step; returns the loss before it, or None for a skipped step, which changes nothing."""
        # A forward pass changes buffers (batch norm) and ``extra`` too.
        volatile = {name: each for name, each in self.state.items() if name.startswith(("buffer/", "extra/"))}
        before = {name: each.detach().clone() for name, each in volatile.items()}
        value = self._update(step)
        if value is None:
            self._restore(before)
        return value

    def _update(self, step: Step) -> float | None:
        schedule = self.schedule
        self._optimizer.zero_grad(set_to_none=True)
        with autocast(schedule, self.device):
            loss = self.loss(step)
        value = float(loss.detach())
        if not math.isfinite(value):
            return None
        loss.backward()
        self.before_step(step)
        if not math.isfinite(self._clip_gradient()):
            return None
        done = (step.epoch + step.index / self.loader.steps_per_epoch) / schedule.epochs
        for group in self._optimizer.param_groups:
            group["lr"] = schedule.rate_at(step.epoch, done)
        self._optimizer.step()
        self.after_step(step)
        return value

    def _clip_gradient(self) -> float:
        """The norm of the gradient before clipping."""
        utils = import_torch().nn.utils
        if self.schedule.clip is not None:
            return float(utils.clip_grad_norm_(self.trained, self.schedule.clip))
        # Without a limit it is only measured: scaling by 1 would read and write 5 GB a step in the largest network.
        return float(utils.get_total_norm([each.grad for each in self.trained if each.grad is not None]))

    def _report(self, epoch: int, loss: float, skipped: int) -> None:
        if time.monotonic() >= self._next_report:
            words = f", {skipped} steps skipped (not finite)" if skipped else ""
            self.say(f"epoch {epoch + 1} of {self.schedule.epochs}, loss {loss:.4g}{words}")
            self._next_report = time.monotonic() + REPORT_EVERY

    # --- checkpoints ---

    def _save(self) -> bool:
        started = time.monotonic()
        if self.checkpoint is None or started < self._next_save:
            return False
        moments = {
            f"optimizer/{number}/{name}": value
            for number, values in self._optimizer.state_dict()["state"].items()
            for name, value in values.items()
        }
        saved = self.checkpoint.save({**self.state, **moments}, {"logs": [asdict(log) for log in self.logs]})
        ended = time.monotonic()
        self._next_save = ended + (ended - started) / SAVE_SHARE
        return saved

    def _resume(self) -> None:
        found = None if self.checkpoint is None else self.checkpoint.load()
        if found is None:
            return
        tensors, notes = found
        self.logs = [EpochLog(**log) for log in notes["logs"]]
        moments: dict[int, dict[str, torch.Tensor]] = {}
        for key in [key for key in tensors if key.startswith("optimizer/")]:
            _, number, name = key.split("/", 2)
            moments.setdefault(int(number), {})[name] = _laid_out(tensors.pop(key), self.trained[int(number)])
        self._restore(tensors)
        self._optimizer.load_state_dict(self._optimizer.state_dict() | {"state": moments})
        done, epochs = len(self.logs), self.schedule.epochs
        self.say(f"continuing after epoch {done} of {epochs}" if done < epochs else "was trained to the end before")

    def _restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        with import_torch().no_grad():
            for name, value in tensors.items():
                self.state[name].copy_(value)


def autocast(schedule: Schedule, device: str) -> AbstractContextManager[object]:
    """bfloat16 where torch holds it safe, if the schedule says so and on a GPU only; float32 otherwise."""
    if not (schedule.mixed and device.startswith("cuda")):
        return nullcontext()
    torch = import_torch()
    context: AbstractContextManager[object] = torch.autocast("cuda", dtype=torch.bfloat16)
    return context


def _build_optimizer(parameters: Sequence[torch.nn.Parameter], schedule: Schedule) -> Any:
    torch = import_torch()
    if schedule.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=schedule.rate, weight_decay=schedule.decay)
    kind = torch.optim.AdamW if schedule.optimizer == "adamw" else torch.optim.Adam
    # Fused: one pass over weights, gradients and moments, which dominates the time of large networks on a GPU.
    fused = all(parameter.is_cuda for parameter in parameters)
    return kind(parameters, lr=schedule.rate, weight_decay=schedule.decay, eps=schedule.eps, fused=fused)


def _laid_out(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A moment in the memory layout of its parameter, which fused optimizers need; step counts stay as they are."""
    if value.shape != parameter.shape:
        return value
    laid_out: torch.Tensor = import_torch().empty_like(parameter, dtype=value.dtype, requires_grad=False)
    return laid_out.copy_(value)
