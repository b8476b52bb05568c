"""EfficientAD with replay: a student imitates a frozen teacher on normal images, an autoencoder imitates it too.

What it is: a small convolutional network (PDN-S, the teacher), distilled beforehand from a large one, describes every
four by four pixels by 384 numbers. For each task a student of the same build learns to give the teacher's description
(first half of its output) and the autoencoder's (second half), from the new normals and replayed old ones. Where
student and teacher, or student and autoencoder, disagree, the image is anomalous. One model for all tasks, no routing.

| | original (Batzner et al. 2024; nelson1425/EfficientAD) | paper (this benchmark) | ours: default / ``original`` |
|---|---|---|---|
| teacher | PDN-S of WideResNet-101, Adam 1e-4 | PDN-S of ResNet-34, Adam 1e-3 | a file: ``dinosaur bench teacher`` |
| student, autoencoder | 4,267,392 and 1,096,320 parameters | 5.38 M together | 5,380,160 / 5,363,712 |
| grid at 256 pixels | 56x56, not padded | 64x64, padded | 64x64 / 56x56 and a margin of 4 |
| loss | hard 0.999 + autoencoder + both, + penalty | "three-part", penalty not mentioned | without / with penalty |
| autoencoder sees | jittered images | not mentioned | the image / the jittered image |
| maps | quantile-normalised on held-out normals, half each | half each | half each / normalised, half each |
| optimiser | Adam 1e-4, decay 1e-5, rate x 0.1 at 95 % | Adam 7.5e-4, decay 1e-4 | as each |
| steps | 70,000 of one image | 300 epochs of batches of 12 | 300 epochs / at most 70,000 steps |
| teacher's statistics | of the training images | not said | of the new and the replayed images, at every task |
| replay | none: one class a model | 100 images | 100 of each earlier task, all where there are fewer |

Deviations and doubts:

* **5.38 M.** Student and autoencoder have 5,363,712 parameters. The paper's 5.38 M needs 16,448 more: one convolution
  2x2 of stride 2 with 64 channels, which halves the decoder's last map (128 to 64) where the original resizes it. The
  default has it, without an activation, because the resize has none: 5,380,160 trainable, 8,074,304 with the teacher.
* **The authors' public code** trains with batches of one image in the order of the folder, replayed images last, and
  keeps one optimiser for all tasks. Here batches are shuffled, of 12 as the paper says, and each task has a fresh Adam;
  ``--set efficientad.batch=1`` comes closer.
* **Image score**: the largest cell of the combined map. The authors resize the map to 256 pixels first, which lowers
  every maximum a little and changes hardly any order.
* **Old tasks are scored with the newest statistics** of the teacher: that is how the paper's code does it, and one way
  in which it forgets.
* **Held-out normals** (``original``): those of the scenario (MVTec-LOCO), otherwise 10 % of all images of this task's
  training, replayed ones among them, drawn from the seed. Of a single image both are made.
* **Penalty** (``original``): needs a folder of images (``penalty_images``), ImageNet in the original. Without one there
  is no penalty, and ``info`` says so. As in the original they are resized to 512, cut to 256, three in ten made grey.
* **Quantiles over more than 2^24 values**, which a batch of 12 has, are taken by sorting only what lies above them; the
  originals' ``torch.quantile`` refuses such a batch.
* **Threshold**: 97.5th percentile of the scores of the images just learned from, so it is low.
* **Where one branch outweighs the other** shows in ``info()["tasks"]``: the mean of each map over the training images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.errors import InputError
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.methods.contract import Config, Lesson, Parameters, Photo, Scores, Workbench
from dinosaur_ad.methods.efficientad import distillation_losses as losses
from dinosaur_ad.methods.efficientad import pdn
from dinosaur_ad.methods.efficientad.model import (
    Networks,
    build_learners,
    epochs_within,
    training_record,
)
from dinosaur_ad.methods.method_registry import register
from dinosaur_ad.methods.shared.method_rules import require_normals, require_photos, training_threshold
from dinosaur_ad.methods.shared.precision import deterministic, precision_words, scoring_words, uses_tf32
from dinosaur_ad.methods.shared.state_files import Arrays, StatefulMethod
from dinosaur_ad.methods.shared.torch_tools import import_torch, to_images
from dinosaur_ad.methods.training import EpochLog, Schedule, train

if TYPE_CHECKING:
    import torch

BATCH = 16  # images scored at a time
HELD_OUT = 0.1


@dataclass(frozen=True)
class EfficientADConfig(Config):
    """The networks, the loss, the schedule and the replay.

    ``steps`` cuts the epochs to the first whole one with so many steps. ``slow_end`` makes the rate a tenth for the
    last 5 % of them. ``teacher`` is a safetensors file, ``random`` or empty for the usual place.
    """

    teacher: str = field(default="", metadata={"place": True})
    penalty_images: str = field(default="", metadata={"place": True})
    channels: int = pdn.CHANNELS
    pdn_widths: tuple[int, int] = pdn.PDN_WIDTHS
    ae_widths: tuple[int, int] = pdn.AE_WIDTHS
    size: int = 256
    padded: bool = True
    halving: bool = True
    hard: float = 0.999
    penalty: bool = False
    augment: bool = False
    normalise_maps: bool = False
    epochs: int = 300
    steps: int | None = None
    batch: int = 12
    rate: float = 7.5e-4
    decay: float = 1e-4
    slow_end: bool = False
    mixed: bool = False
    tf32: bool = False
    replay: int = 100
    replay_per: Literal["task", "total"] = "task"

    def __post_init__(self) -> None:
        if not 0 <= self.hard < 1:
            raise InputError(f"EfficientAD's share of easy features must be at least 0 and below 1, got {self.hard}.")
        if self.size < 64 or self.size % 32:
            raise InputError(f"EfficientAD's image size must be a multiple of 32 and at least 64, got {self.size}.")
        self.require_at_least("EfficientAD", {"channels": 1, "epochs": 1, "batch": 1, "replay": 0})


@register(
    "efficientad",
    variants={
        "default": EfficientADConfig(),
        "original": EfficientADConfig(
            padded=False,
            halving=False,
            penalty=True,
            augment=True,
            normalise_maps=True,
            epochs=2000,  # more than 70,000 steps of any task: the steps decide
            steps=70_000,
            batch=1,
            rate=1e-4,
            decay=1e-5,
            slow_end=True,
        ),
    },
    summary="student and autoencoder imitate a distilled teacher, one model for all tasks, replayed images",
    replay=True,
    tiny={
        **{"teacher": pdn.RANDOM, "channels": 8, "pdn_widths": (8, 8), "ae_widths": (4, 8), "size": 64},
        **{"epochs": 2, "batch": 4},
    },
)
class EfficientAD(StatefulMethod):
    """Student, autoencoder, the teacher's statistics, and the threshold."""

    title = "EfficientAD"
    needs = ("torch",)
    config: EfficientADConfig

    def __init__(self, config: EfficientADConfig, workbench: Workbench) -> None:
        super().__init__(config, workbench)
        self._networks = Networks(config, seed=workbench.seed, device=workbench.device)
        self._tasks: list[dict[str, Any]] = []
        self._quantiles_BQ: torch.Tensor | None = None
        self._threshold = 0.0

    @classmethod
    def summary_with(cls, config: EfficientADConfig) -> str:
        """How much is replayed."""
        scope = "each" if config.replay_per == "task" else "all together"
        return (
            "student and autoencoder imitate a distilled teacher, one model for all tasks, "
            f"{config.replay} replayed images of {scope}"
        )

    def learn(self, lesson: Lesson) -> None:
        """Train student and autoencoder on ``lesson.rehearse``; the teacher is standardised on the same images."""
        config = self.config
        photos = lesson.rehearse(config.replay, per=config.replay_per, seed=self.workbench.seed)
        require_normals(lesson.task, photos)
        taught, held_out = self._split(photos, lesson.held_out)
        self._networks.measure(self._images(taught))
        logs = self._train(taught)
        with import_torch().no_grad():
            maps_NBHW = self._maps(taught)
            if config.normalise_maps:
                self._quantiles_BQ = losses.map_quantiles(self._maps(held_out))
            image_N = losses.combine(maps_NBHW, self._quantiles_BQ).amax((1, 2))
            branches = maps_NBHW.mean((0, 2, 3)).tolist()
        self._threshold = training_threshold(image_N.cpu().numpy())
        self._tasks.append(training_record(lesson.task, len(taught), logs, branches))

    def _split(self, photos: Sequence[Photo], given: Sequence[Photo]) -> tuple[Sequence[Photo], Sequence[Photo]]:
        """The photos to train on, and those to measure the maps on."""
        if not self.config.normalise_maps or given or len(photos) < 2:
            return photos, given or photos
        order = np.random.default_rng([self.workbench.seed, len(self._tasks)]).permutation(len(photos))
        held_out = set(order[: max(1, round(HELD_OUT * len(photos)))].tolist())
        return (
            [photo for n, photo in enumerate(photos) if n not in held_out],
            [photo for n, photo in enumerate(photos) if n in held_out],
        )

    def _train(self, photos: Sequence[Photo]) -> list[EpochLog]:
        config = self.config
        epochs = epochs_within(config.epochs, config.steps, len(photos), config.batch)
        return train(
            self._networks.learners.train(),
            photos,
            Schedule.of(config, epochs=epochs, course="drop" if config.slow_end else "constant"),
            self.workbench,
            task=len(self._tasks),
            size=config.size,
            loss=self._networks.loss,
            settings=config.identity() | self._made_with(),
        )

    def score(self, photos: Sequence[Photo], task: str | None = None) -> Scores:
        """Scores, maps (N, 64, 64) at 256 pixels, and the one threshold of all tasks."""
        self._refuse_task(task)
        self._require_learned()
        require_photos(photos)
        torch = import_torch()
        margin = 0 if self.config.padded else pdn.UNPADDED_MARGIN
        with torch.inference_mode():
            map_NHW = losses.combine(self._maps(photos), self._quantiles_BQ)
            return Scores(
                image=map_NHW.amax((1, 2)).cpu().numpy(),
                maps=torch.nn.functional.pad(map_NHW, (margin,) * 4).cpu().numpy(),
                thresholds=np.full(len(photos), self._threshold, np.float32),
            )

    def _maps(self, photos: Sequence[Photo]) -> torch.Tensor:
        """Both maps (N, 2, H, W) of all photos."""
        torch = import_torch()
        with deterministic(tf32=uses_tf32(self.config, self.workbench.device)):
            return torch.cat([self._networks.maps(images) for images in self._images(photos)])

    def _images(self, photos: Sequence[Photo]) -> Iterator[torch.Tensor]:
        for group in batched(photos, BATCH):
            yield to_images(self.workbench.cache.prepared(group, self.config.size), self.workbench.device)

    # --- state ---

    def _has_learned(self) -> bool:
        return self._networks.statistics is not None

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        assert self._networks.statistics is not None
        mean_C, deviation_C = self._networks.statistics
        tensors = {**self._networks.learners.state_dict(), "teacher.mean": mean_C, "teacher.deviation": deviation_C}
        if self._quantiles_BQ is not None:
            tensors["maps.quantiles"] = self._quantiles_BQ
        facts = {"tasks": self._tasks, "threshold": self._threshold}
        return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}, facts

    def _restore(self, tensors: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        threshold, tasks, stored = float(facts["threshold"]), list(facts["tasks"]), self._on_device(tensors)
        self._quantiles_BQ = stored.pop("maps.quantiles", None)
        self._networks.statistics = stored.pop("teacher.mean"), stored.pop("teacher.deviation")
        self._networks.learners.load_state_dict(stored)
        self._threshold, self._tasks = threshold, tasks

    def _made_with(self) -> dict[str, Any]:
        penalty = self._networks.penalty
        settings = {name: getattr(self.config, name) for name in ("channels", "size", "padded", "halving")}
        widths = {"pdn_widths": list(self.config.pdn_widths), "ae_widths": list(self.config.ae_widths)}
        weights = {"teacher_sha256": self._networks.teacher.sha256, "penalty": penalty.sha256 if penalty else ""}
        return settings | widths | weights

    def storage_bytes(self) -> int:
        """Student, autoencoder and statistics: one set for all tasks; images kept for replay are not counted."""
        return sum(value.nbytes for value in self._state()[0].values()) if self._tasks else 0

    def parameters(self) -> Parameters:
        """With the published widths 8,074,304, of which student and autoencoder are 5,380,160."""
        with import_torch().device("meta"):
            learners = build_learners(self.config)
            teacher = pdn.build_pdn(self.config.channels, self.config.pdn_widths, padded=self.config.padded)
        trainable = sum(parameter.numel() for parameter in learners.parameters())
        return Parameters(trainable + sum(parameter.numel() for parameter in teacher.parameters()), trainable)

    def info(self) -> dict[str, Any]:
        """The description of the teacher, and the training of student and autoencoder."""
        config, teacher, penalty = self.config, self._networks.teacher, self._networks.penalty
        scope = "each earlier task" if config.replay_per == "task" else "all earlier tasks together"
        absent = "none: no folder was given with penalty_images" if config.penalty else "none"
        return {
            "description": f"PDN-S student and autoencoder, trained at every task, after: {teacher.description}",
            "weights_source": teacher.source,
            "weights_sha256": teacher.sha256,
            "penalty": absent if penalty is None else f"{len(penalty.paths)} images, {penalty.sha256}",
            "replay": f"up to {config.replay} images of {scope}, unless the scenario widens its drift instead",
            "storage": "student, autoencoder and statistics; the images kept for replay are not counted",
            "precision": precision_words(config, self.workbench.device),
            "scoring": scoring_words(config, self.workbench.device),
            "tasks": self._tasks,
        }
