"""EfficientAD's three networks: the loss of a training step, and the two maps of a batch of images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD
from dinosaur_ad.methods.efficientad import distillation_losses as losses
from dinosaur_ad.methods.efficientad import pdn
from dinosaur_ad.methods.efficientad.penalty import PenaltyImages
from dinosaur_ad.methods.shared.torch_tools import adjust_colours, import_torch, to_images
from dinosaur_ad.methods.training import finite_or_none, loss_record

if TYPE_CHECKING:
    import torch

    from dinosaur_ad.methods.efficientad import EfficientADConfig
    from dinosaur_ad.methods.training import EpochLog, Step

JITTER = 0.2


class Networks:
    """The frozen teacher with its statistics, the student and the autoencoder; each is made when first needed."""

    def __init__(self, config: EfficientADConfig, *, seed: int, device: str) -> None:
        self.config = config
        self.device = device
        self._seed = seed
        self.statistics: tuple[torch.Tensor, torch.Tensor] | None = None

    @cached_property
    def teacher(self) -> pdn.Teacher:
        """The teacher that the settings name."""
        config = self.config
        return pdn.load_teacher(
            config.teacher,
            channels=config.channels,
            widths=config.pdn_widths,
            padded=config.padded,
            device=self.device,
        )

    @cached_property
    def learners(self) -> Any:
        """A ``ModuleDict`` of the student and the autoencoder, drawn from the seed."""
        return pdn.build_seeded(lambda: build_learners(self.config), self._seed, self.device)

    @cached_property
    def penalty(self) -> PenaltyImages | None:
        """The images of the penalty, if there are any."""
        config = self.config
        return PenaltyImages(config.penalty_images, config.size) if config.penalty and config.penalty_images else None

    def measure(self, batches: Iterable[torch.Tensor]) -> None:
        """Set the teacher's statistics to those of these images."""
        network = self.teacher.network  # first, because loading it may raise an error
        with import_torch().no_grad():
            self.statistics = pdn.channel_statistics(network(images) for images in batches)

    def describe(self, images: torch.Tensor) -> torch.Tensor:
        """The teacher's standardised features (N, C, H, W)."""
        assert self.statistics is not None, "measure comes first"
        with import_torch().no_grad():
            return pdn.standardise(self.teacher.network(images).float(), *self.statistics)

    def loss(self, step: Step) -> torch.Tensor:
        """The three-part loss of a step, and the penalty where there are images for it."""
        images, channels = step.images, self.config.channels
        teacher = teacher_ae = self.describe(images)
        if self.config.augment:
            seen = jittered(images, step.generator)
            teacher_ae = self.describe(seen)
            first, second = self._student(images, slice(channels)), self._student(seen, slice(channels, None))
        else:
            seen = images
            first, second = self._halves(images)
        rebuilt = self.learners["autoencoder"](seen).float()
        parts = losses.loss_parts(teacher, first, teacher_ae, second, rebuilt, self.config.hard)
        total = parts.student + parts.autoencoder + parts.both
        if self.penalty is not None:
            elsewhere = to_images(self.penalty.draw(len(images), step.generator), self.device)
            total = total + self._student(elsewhere, slice(channels)).square().mean()
        return total

    def maps(self, images: torch.Tensor) -> torch.Tensor:
        """Both maps (N, 2, H, W) of a batch."""
        teacher = self.describe(images)
        self.learners.eval()
        return losses.maps(teacher, *self._halves(images), self.learners["autoencoder"](images))

    def _halves(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The student's outputs: the imitation of the teacher, and that of the autoencoder."""
        described = self._student(images)
        return described[:, : self.config.channels], described[:, self.config.channels :]

    def _student(self, images: torch.Tensor, channels: slice = slice(None)) -> torch.Tensor:
        """These channels of the student's output; the others, half of its largest layer, are not computed."""
        student, conv2d = self.learners["student"], import_torch().nn.functional.conv2d
        described: torch.Tensor = conv2d(student[:-1](images), student[-1].weight[channels], student[-1].bias[channels])
        return described.float()


def build_learners(config: EfficientADConfig) -> torch.nn.Module:
    """The student and the autoencoder of these settings."""
    student = pdn.build_pdn(2 * config.channels, config.pdn_widths, padded=config.padded)
    autoencoder = pdn.build_autoencoder(
        config.channels, config.ae_widths, size=config.size, padded=config.padded, halving=config.halving
    )
    return import_torch().nn.ModuleDict({"student": student, "autoencoder": autoencoder})


def jittered(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Normalised images, each with another brightness, contrast or saturation, by up to a fifth."""
    torch = import_torch()
    mean, deviation = (torch.tensor(each, device=images.device)[:, None, None] for each in (IMAGE_MEAN, IMAGE_STD))
    kinds_N = torch.randint(3, (len(images),), generator=generator)
    factors_N = 1 + JITTER * (2 * torch.rand(len(images), generator=generator) - 1)
    return (adjust_colours(images * deviation + mean, kinds_N, factors_N) - mean) / deviation


def epochs_within(epochs: int, steps: int | None, images: int, batch: int) -> int:
    """The number of epochs: ``epochs``, but no more than needed for ``steps`` steps.

    >>> epochs_within(300, None, 209, 12), epochs_within(2000, 70_000, 209, 1), epochs_within(30, 70_000, 209, 1)
    (300, 335, 30)
    """
    return epochs if steps is None else min(epochs, math.ceil(steps / math.ceil(images / batch)))


def training_record(task: str, images: int, logs: Sequence[EpochLog], branches: Sequence[float]) -> dict[str, Any]:
    """The record of a task's training, as JSON; ``branches`` are the means of both maps over the training images."""
    return {
        "task": task,
        "images": images,
        **loss_record(logs),
        "mean_map_teacher_student": finite_or_none(branches[0]),
        "mean_map_autoencoder_student": finite_or_none(branches[1]),
    }
