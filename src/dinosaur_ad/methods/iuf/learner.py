"""The base class of the two forms of IUF: a network, its losses, and what it keeps of earlier tasks."""

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
    from dinosaur_ad.methods.iuf.iuf_config import IUFConfig
    from dinosaur_ad.methods.training import Step

PARTS = ("reconstruction", "discrimination", "compression", "variety")


class Learner(ABC):
    """A network, what it keeps of earlier tasks, and how one task is learned.

    A task: :meth:`begin`, then the training loop with the callbacks ``loss``, ``before_step``, ``after_step`` and
    ``after_epoch``, then :meth:`end`. ``extra`` are the tensors that the callbacks change in place; they are part of
    the training loop's checkpoint.
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
        """A new network on torch's current default device."""

    @property
    def module(self) -> torch.nn.Module:
        """The network; its first weights are drawn from the seed on the CPU, so they are the same on every device."""
        if self._module is None:
            with seeded(self.workbench.seed, self.device):
                self._module = self.build().to(self.device)
        return self._module

    def state(self) -> dict[str, torch.Tensor]:
        """Weights and :meth:`kept` by name."""
        weights = {f"network.{name}": value for name, value in self.module.state_dict().items()}
        return weights | {f"kept.{name}": value for name, value in self.kept().items()}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take over what :meth:`state` returned."""
        with torch.device("meta"):  # initialising weights that are then overwritten takes time
            self._module = self.build()
        self._module.to_empty(device=self.device)
        self._module.load_state_dict(
            {name[8:]: value for name, value in tensors.items() if name.startswith("network.")}
        )
        self.restore_kept({name[5:]: value for name, value in tensors.items() if name.startswith("kept.")})

    @abstractmethod
    def kept(self) -> dict[str, torch.Tensor]:
        """What is kept of earlier tasks besides the weights."""

    @abstractmethod
    def restore_kept(self, kept: Mapping[str, torch.Tensor]) -> None:
        """Take over what :meth:`kept` returned."""

    def trainable(self) -> int:
        """The number of trained parameters, counted without allocating them."""
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in self.build().parameters())

    @abstractmethod
    def parameters(self) -> Parameters:
        """All parameters, and the trained ones."""

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """A description of the network, as JSON."""

    # --- training ---

    def begin(self, task: int, photos: Sequence[Photo]) -> None:
        """Prepare for a task, counted from 0."""
        self.task = task
        self.extra = {"parts": torch.zeros(len(PARTS) + 1, device=self.device)}

    @abstractmethod
    def loss(self, step: Step) -> torch.Tensor:
        """The loss of one batch."""

    @abstractmethod
    def before_step(self, step: Step) -> None:
        """Change the gradients."""

    def after_step(self, step: Step) -> None:  # noqa: B027
        """Change the weights; by default nothing."""

    def after_epoch(self, epoch: int) -> dict[str, float]:
        """The means of the parts of the loss over the epoch."""
        *sums, count = self.extra["parts"].tolist()
        self.extra["parts"].zero_()
        return {name: value / count for name, value in zip(PARTS, sums, strict=True)} if count else {}

    @abstractmethod
    def end(self, photos: Sequence[Photo]) -> None:
        """Keep what later tasks need of this one."""

    def log_parts(self, *parts: torch.Tensor) -> None:
        """Add the parts of one loss to the sums of the epoch, without synchronising with the device."""
        one = torch.ones((), device=self.device)
        self.extra["parts"].add_(torch.stack([*(part.detach().float() for part in parts), one]))

    # --- scoring ---

    def scoring_precision(self) -> AbstractContextManager[None]:
        """The context in which the network scores."""
        return deterministic(tf32=uses_tf32(self.config, self.workbench.device))

    @abstractmethod
    def score(self, pixels: NDArray[np.uint8]) -> tuple[torch.Tensor, torch.Tensor]:
        """Image scores (N,) and maps (N, H, W) of resized images (N, S, S, 3)."""


def variety(made: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """The standard deviation of reconstructions over a batch, as a share of that of the images.

    0: the same reconstruction for every image. 1: as different as the images. A single image gives 0.
    """
    made, given = (each.detach().float().std(dim=0, correction=0).mean() for each in (made, given))
    return made / given.clamp_min(1e-6)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators on the CPU and on ``device``; restored afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
