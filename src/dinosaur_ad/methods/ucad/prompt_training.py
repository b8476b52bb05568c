"""The training of a task's prompt: the regions of its images, and the loss on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dinosaur_ad.methods.contract import Floats, Photo, Workbench
from dinosaur_ad.methods.shared.torch_tools import import_torch
from dinosaur_ad.methods.training import EpochLog, Schedule, Step, loss_record, train
from dinosaur_ad.methods.ucad import contrastive_loss as losses
from dinosaur_ad.methods.ucad.prompted_features import PromptedFeatures
from dinosaur_ad.methods.ucad.regions import RegionMaker

if TYPE_CHECKING:
    import torch

    from dinosaur_ad.methods.ucad import UCADConfig


def region_labels(
    maker: RegionMaker, photos: Sequence[Photo], workbench: Workbench, size: int, grid: tuple[int, int]
) -> dict[str, Floats]:
    """The region of each patch, (P,), by the photo's key; cached."""

    def compute(group: Sequence[Photo]) -> Floats:
        return maker(workbench.cache.prepared(group, size), grid).reshape(len(group), -1).astype(np.float32)

    recipe = f"{maker.recipe}-{size}-{grid[0]}x{grid[1]}"
    labels_NP = workbench.cache.features(recipe, photos, compute)
    return {photo.key: row_P for photo, row_P in zip(photos, labels_NP, strict=True)}


def train_prompt(
    features: PromptedFeatures,
    prompt: torch.nn.Parameter,
    photos: Sequence[Photo],
    labels: Mapping[str, Floats],
    config: UCADConfig,
    workbench: Workbench,
    *,
    task: int,
    settings: Mapping[str, Any],
) -> list[EpochLog]:
    """Train ``prompt`` in place so that features agree with the regions; nothing else changes."""
    measure = losses.contrast if config.loss == "cosine" else losses.exponential_contrast

    def loss(step: Step) -> torch.Tensor:
        label_NP = import_torch().from_numpy(np.stack([labels[photo.key] for photo in step.photos]))
        return measure(features(step.images, prompt), label_NP.to(step.images.device))

    schedule = Schedule.of(config)
    module = import_torch().nn.ParameterList([prompt])
    return train(module, photos, schedule, workbench, task=task, size=config.size, loss=loss, settings=settings)


def training_record(logs: Sequence[EpochLog], labels: Mapping[str, Floats]) -> dict[str, Any]:
    """The losses of training and the number of regions, as JSON; an image of one region adds nothing to the loss."""
    counts = [len(np.unique(row_P)) for row_P in labels.values()]
    return loss_record(logs) | {
        "regions_an_image": float(np.mean(counts)),
        "images_of_one_region": sum(count == 1 for count in counts),
    }
