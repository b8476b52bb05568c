"""What the two networks of IUF have in common while they are taught and asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dinosaur_ad.encoders.backends.torch_backend import check_device
from dinosaur_ad.methods.contract import Parameters, Photo, Workbench
from dinosaur_ad.methods.shared.precision import deterministic, uses_tf32

if TYPE_CHECKING:
    from dinosaur_ad.methods.iuf.config import IUFConfig
    from dinosaur_ad.methods.training import Step

PARTS = ("reconstruction", "discrimination", "compression", "variety")


class Learner(ABC):
    """A network, what it keeps of earlier tasks, and how one task is learned.

    ``begin`` a task, hand ``loss``, ``before_step``, ``after_step`` and ``after_epoch`` to the training loop, ``end``
    it. ``extra`` are tensors that change in place during training and have to survive an interruption; the loop puts
    them back when it skips a step whose loss is not finite.
    """

    def __init__(self, config: IUFConfig, workbench: Workbench) -> None:
        check_device(workbench.device)
        self.config = config
        self.workbench = workbench
        self.device = torch.device(workbench.device)
        self.task = 0
        self.extra: dict[str, torch.Tensor] = {}
        self._module: torch.nn.Module | None = None

    # --- the network ---

    @abstractmethod
    def build(self) -> torch.nn.Module:
        """A new network, on the device that is the default just now."""

    @property
    def module(self) -> torch.nn.Module:
        """The network; the first time its weights are drawn from the seed, on the CPU: the same for every device."""
        if self._module is None:
            with seeded(self.workbench.seed, self.device):
                self._module = self.build().to(self.device)
        return self._module

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the weights, and what is :meth:`kept`, from what :meth:`state` gave."""
        with torch.device("meta"):  # no time for drawing weights that are then overwritten
            self._module = self.build()
        self._module.to_empty(device=self.device)
        self._module.load_state_dict(
            {name[8:]: value for name, value in tensors.items() if name.startswith("network.")}
        )
        self.recall({name[5:]: value for name, value in tensors.items() if name.startswith("kept.")})

    def state(self) -> dict[str, torch.Tensor]:
        """All that was learned, by name."""
        weights = {f"network.{name}": value for name, value in self.module.state_dict().items()}
        return weights | {f"kept.{name}": value for name, value in self.kept().items()}

    @abstractmethod
    def kept(self) -> dict[str, torch.Tensor]:
        """What is remembered of earlier tasks besides the weights."""

    @abstractmethod
    def recall(self, kept: Mapping[str, torch.Tensor]) -> None:
        """Take back what :meth:`kept` gave."""

    def trainable(self) -> int:
        """How many parameters are trained; counted without any memory for them."""
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in self.build().parameters())

    @abstractmethod
    def parameters(self) -> Parameters:
        """All parameters, and those trained."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """What it is, in words."""

    # --- learning ---

    def begin(self, task: int, photos: Sequence[Photo]) -> None:
        """Get ready for a task, counted from 0."""
        self.task = task
        self.extra = {"parts": torch.zeros(len(PARTS) + 1, device=self.device)}

    @abstractmethod
    def loss(self, step: Step) -> torch.Tensor:
        """The loss of one batch."""

    @abstractmethod
    def before_step(self, step: Step) -> None:
        """Change the gradients, if they are to be changed."""

    @abstractmethod
    def after_step(self, step: Step) -> None:
        """Change the weights, if they are to be changed."""

    def after_epoch(self, epoch: int) -> dict[str, float]:
        """The means of the parts of the loss over the epoch."""
        *sums, count = self.extra["parts"].tolist()
        self.extra["parts"].zero_()
        return {name: value / count for name, value in zip(PARTS, sums, strict=True)} if count else {}

    @abstractmethod
    def end(self, photos: Sequence[Photo]) -> None:
        """Keep what later tasks need of this one."""

    def note(self, *parts: torch.Tensor) -> None:
        """Add the parts of one loss to those of the epoch; without waiting for the device."""
        one = torch.ones((), device=self.device)
        self.extra["parts"].add_(torch.stack([*(part.detach().float() for part in parts), one]))

    # --- judging ---

    def asking(self) -> AbstractContextManager[None]:
        """The precision in which the network answers when it is not trained."""
        return deterministic(tf32=uses_tf32(self.config, self.workbench.device))

    @abstractmethod
    def judge(self, pixels: NDArray[np.uint8]) -> tuple[torch.Tensor, torch.Tensor]:
        """Image scores (N,) and maps (N, H, W) of prepared images (N, S, S, 3)."""


def variety(made: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """How much what was made differs between the images of a batch, as a share of how much they differ themselves.

    0: the same for every image, the mean image at best. 1: as different as they are. A single image gives 0.
    """
    made, given = (each.detach().float().std(dim=0, correction=0).mean() for each in (made, given))
    return made / given.clamp_min(1e-6)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Chance on the CPU and on ``device`` comes from ``seed`` inside, and is as before afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
