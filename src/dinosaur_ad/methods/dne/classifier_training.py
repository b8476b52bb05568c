"""DNE's network: a vision transformer and a two-way head, fine-tuned from task to task.

The loss is cross-entropy. With normals only, every label is 0 and the loss does not depend on what an image shows; with
CutPaste the second half of a batch has label 1. torch is imported when a network is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.methods.contract import Photo, Workbench
from dinosaur_ad.methods.dne.cutpaste import two_views
from dinosaur_ad.methods.dne.gaussian import Singles
from dinosaur_ad.methods.shared.precision import deterministic
from dinosaur_ad.methods.shared.torch_tools import to_images
from dinosaur_ad.methods.shared.vit_base import load_vit
from dinosaur_ad.methods.training import EpochLog, Schedule, Step, train

if TYPE_CHECKING:
    from dinosaur_ad.methods.dne import DNEConfig

BATCH = 32  # images at once where nothing is trained
VIEWS = 7_000_000  # the seeds of views drawn after training begin here, apart from those of training


@dataclass(frozen=True)
class Tuning:
    """The result of fine-tuning on a task: the embeddings (N, C) for its statistics, and the logs of training.

    ``before`` is the :meth:`FineTunedViT.spread` of the embeddings before training; each log has it after its epoch.
    """

    z_NC: Singles
    before: Mapping[str, float]
    logs: list[EpochLog]


class FineTunedViT:
    """The network. ``module`` holds all of it: the transformer as ``vit``, the head as ``head``."""

    def __init__(self, config: DNEConfig, workbench: Workbench) -> None:
        self.config, self.workbench = config, workbench
        self.vit = load_vit(
            config.backbone, size=config.size, weights=config.weights or None, device=workbench.device, train=True
        )
        self.head = torch.nn.Linear(self.vit.width, 2)
        # The distribution of nn.Linear's own initialisation, but seeded, and the same on every device.
        generator, bound = np.random.default_rng([workbench.seed, 0]), self.vit.width**-0.5
        for parameter in self.head.parameters():
            drawn = generator.uniform(-bound, bound, tuple(parameter.shape)).astype(np.float32)
            parameter.data.copy_(torch.from_numpy(drawn))
        self.module = torch.nn.ModuleDict({"vit": self.vit.module, "head": self.head}).to(workbench.device)

    def embed(self, photos: Sequence[Photo], generator: torch.Generator | None = None) -> Singles:
        """The CLS tokens (N, C) of images, as they are or, with a ``generator``, of the augmented normal view."""
        rows = []
        with torch.inference_mode(), deterministic():
            for group in batched(photos, BATCH):
                pixels = self.workbench.cache.prepared(group, self.config.size)
                images = (
                    to_images(pixels, self.workbench.device)
                    if generator is None
                    else normalised(two_views(self._from_0_to_1(pixels), generator)[0])
                )
                rows.append(self.vit.cls(images).cpu().numpy())
        return np.concatenate(rows)

    def _from_0_to_1(self, pixels_NHWC: NDArray[np.uint8]) -> torch.Tensor:
        """Prepared pixels as images (N, 3, H, W) from 0 to 1 on the device."""
        pixels = torch.from_numpy(np.ascontiguousarray(pixels_NHWC)).to(self.workbench.device)
        return pixels.permute(0, 3, 1, 2).float() / 255

    def learn(self, photos: Sequence[Photo], task: int, schedule: Schedule) -> Tuning:
        """Fine-tune on a task.

        From the second task on the head is frozen. The embeddings are computed after training, or with
        ``collect="during"`` in the last epoch, each with the weights of its step; those of a skipped step are then
        computed after training too. With ``embed="augmented"`` they are those of the jittered and turned normal view:
        in the last epoch the one the step trains on, otherwise one that is drawn for the purpose.
        """
        self.head.requires_grad_(task == 0)
        rows: dict[str, list[int]] = {}
        for row, photo in enumerate(photos):
            rows.setdefault(photo.key, []).append(row)
        collected_NC = torch.full((len(photos), self.vit.width), torch.nan)
        probe = [photos[n] for n in _evenly(len(photos), self.config.probe)]
        before = self.spread(probe)

        def loss(step: Step) -> torch.Tensor:
            if self.config.collect == "during" and step.epoch == schedule.epochs - 1:
                seen = self.normal_view(step) if self.config.embed == "augmented" else step.images
                # In the precision of scoring, because embeddings may differ by very little.
                with torch.no_grad(), torch.autocast(step.images.device.type, enabled=False), deterministic():
                    z_BC = self.vit.cls(seen).cpu()
                for photo, z_C in zip(step.photos, z_BC, strict=True):
                    collected_NC[rows[photo.key]] = z_C
            return self.loss(step)

        logs = train(
            self.module,
            photos,
            schedule,
            self.workbench,
            task=task,
            size=self.config.size,
            loss=loss,
            after_epoch=lambda epoch: self.spread(probe),
            extra={"collected": collected_NC},
            settings=self.config.identity(),
        )
        z_NC: Singles = collected_NC.numpy()
        missing = np.flatnonzero(np.isnan(z_NC).any(axis=1)).tolist()
        if missing:
            generator = None
            if self.config.embed == "augmented":
                generator = torch.Generator().manual_seed(VIEWS + 1000 * self.workbench.seed + task)
            z_NC[missing] = self.embed([photos[row] for row in missing], generator)
        return Tuning(z_NC, before, logs)

    def loss(self, step: Step) -> torch.Tensor:
        """Cross-entropy of the two-way head: normals are class 0, their CutPaste views, if any, class 1."""
        images, classes = step.images, [0] * len(step.images)
        if self.config.anomalies == "cutpaste":
            plain, pasted = two_views(self._from_0_to_1(step.pixels), step.generator)
            images = normalised(torch.cat([plain, pasted]))
            classes += [1] * len(pasted)
        target = torch.tensor(classes, device=images.device)
        return torch.nn.functional.cross_entropy(self.head(self.vit.cls(images)), target)

    def normal_view(self, step: Step) -> torch.Tensor:
        """The jittered and turned normals that :meth:`loss` is going to draw for this step, normalised."""
        same = torch.Generator()
        same.set_state(step.generator.get_state())
        return normalised(two_views(self._from_0_to_1(step.pixels), same)[0])

    def spread(self, photos: Sequence[Photo]) -> Mapping[str, float]:
        """How far the embeddings of some images are apart, and their size.

        ``spread`` is the standard deviation over the images, ``size`` the root mean square, both the mean of all
        channels.
        """
        if not photos:
            return {}
        z_NC = self.embed(photos).astype(np.float64)
        return {"spread": float(z_NC.std(axis=0).mean()), "size": float(np.sqrt((z_NC**2).mean(axis=0)).mean())}

    # --- state ---

    def state(self) -> dict[str, Singles]:
        """All weights by name."""
        return {f"network.{name}": value.cpu().numpy() for name, value in self.module.state_dict().items()}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` returned."""
        for name, value in self.module.state_dict().items():
            key = f"network.{name}"
            if key not in stored or stored[key].shape != tuple(value.shape):
                raise InputError(f"The stored DNE has no '{key}' of shape {tuple(value.shape)}; learn it again.")
            value.copy_(torch.from_numpy(np.array(stored[key])))


def normalised(images: torch.Tensor) -> torch.Tensor:
    """Images (B, 3, H, W) from 0 to 1 with ImageNet's mean and deviation taken out."""
    mean_3, std_3 = (images.new_tensor(values)[:, None, None] for values in (IMAGE_MEAN, IMAGE_STD))
    return (images - mean_3) / std_3


def _evenly(count: int, most: int) -> list[int]:
    """Up to ``most`` numbers below ``count``, evenly spaced."""
    return [n * count // min(count, most) for n in range(min(count, most))]
