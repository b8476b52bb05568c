"""DNE, Distribution of Normal Embeddings: a fine-tuned ViT and one Gaussian for the CLS tokens of all tasks.

What it is: a ViT-B/16 is fine-tuned as a two-class classifier, task after task. Of each task the mean and covariance of
its CLS tokens and their number are kept, no images. One normal distribution is made of all tasks' statistics, and an
image is as anomalous as it is far from it (Mahalanobis). One number an image: no maps, and nothing is routed.

| | original (Li et al. 2022) | paper (this benchmark) | ours: default |
|---|---|---|---|
| network | ViT-B/16, sharpness-aware weights | ViT-B/16, torchvision's weights | ViT-B/16 or a substitute |
| frozen | patch projection; head after task 1 | the same | the same |
| classes | 0 normal, 1 CutPaste of it | 0 only: normals and nothing else | as the paper |
| optimiser | Adam 1e-4, eps 4e-4, decay 3e-5, cosine | Adam 7.5e-4, decay 1e-4 | as the paper, new in every task |
| length | 50 epochs, batches of 32 | 300 epochs, batches of 12 | as the paper |
| embedding | CLS after the last norm, length 1 | not said; their code does not normalise | not normalised |
| of which view | jittered and turned by up to 90 degrees | not said | as it is |
| when taken | during the last epoch | during the last epoch (their code) | after training |
| covariance | Ledoit-Wolf | shrunk by 0.5 | shrunk by 0.5, divided by N |
| one for all | draws for past tasks, real current ones | "reconstructed" | closed form of the mixture, shrunk by 0.5 |
| threshold | none | 97.5 % of training scores | the same |

Variants: ``default`` is the paper as above. ``sampled`` draws embeddings from the stored full covariances instead of
the closed form, which is what many draws tend to. ``as-published`` is the code of the paper's authors: it draws every
channel by itself with its variance taken for its standard deviation, and takes the embeddings while the weights still
move. That it draws in single precision, torch's default, is our inference. ``original`` is the left column;
``original-plain-view`` is the same with the embeddings of the images as they are, which is what ``original`` did before
(``embed=plain``), to measure what the view changes.

Deviations and doubts:

* **Normals only.** With one class the loss has a trivial way down: the head's bias grows, and all embeddings move to
  one side of the head. Nothing keeps them informative. The original trains against CutPaste. How far the embeddings of
  a task's images are apart after each epoch is in ``info()["tasks"]`` (``spread``, beside their ``size``), with the
  share of training scores that tie or are not finite: whether a score of chance is a collapse, a tie or a NaN is to be
  read there.
* **A small spread alone is no tie.** Mahalanobis distances do not change when all embeddings shrink together. They do
  tie once single precision cannot tell the embeddings apart; with ``as-published`` much earlier, because a variance of
  1e-8 about a mean of 1, taken for a deviation, is rounded away when it is drawn. A distribution that is a point then
  measures nothing: every score is 0, never above a threshold, never an error. That is our choice (a pseudo-inverse):
  what the authors' code does with a singular covariance is not known to us.
* **Weights.** The original starts from Google's sharpness-aware ViT-B/16, the paper's authors from torchvision's;
  ``vit-base`` reads the hub's or torchvision's file (``weights=FILE``). Where neither is there, any registered token
  encoder stands in (``backbone=dinov2s-focus``), and the description says so.
* **Parameters.** The paper's 86.57 M and 85.98 M include the 1000-way classifier of the pretrained network, which is
  never used; they are counted so for ``vit-base``: 86,569,194, of which all but the patch projection train, 85,978,602.
* **Storage** is what is kept of each task: 2.36 MB (mean, covariance, count), as the paper counts. The fine-tuned
  network, another 344 MB whatever the number of tasks, comes on top of it.
* **One optimiser a task.** The paper's authors keep Adam's moments from task to task; here each task begins with new
  ones, so that a stored method learns on like one that never stopped.
* **Old statistics, new network.** Tasks learned before were described by a network that has since been trained on.
  Nothing corrects for that, here or there.
* **CutPaste**: of the image at the size the network sees, each view turned by its own angle of up to 90 degrees.
* The original's cosine falls over the epochs of a task (50, as there). Its published AUROC averages groups of tasks,
  ours averages tasks.

Bugs of a widespread port (IM-IAD) that are not repeated: softmax before cross-entropy; precisions stored as covariances
and drawn from; embeddings of all epochs and tasks kept in one list; no CutPaste although its settings ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.contract import Config, Lesson, Parameters, Photo, Scores, Workbench
from dinosaur_ad.methods.dne.gaussian import (
    Doubles,
    Estimator,
    Gaussian,
    Pooling,
    Singles,
    TaskStatistics,
    global_gaussian,
    ledoit_wolf,
    shrunk,
    task_statistics,
    tied_share,
    unit_length,
)
from dinosaur_ad.methods.method_registry import register
from dinosaur_ad.methods.shared.method_rules import require_normals, require_photos, training_threshold
from dinosaur_ad.methods.shared.precision import precision_words
from dinosaur_ad.methods.shared.state_files import Arrays, StatefulMethod
from dinosaur_ad.methods.shared.torch_tools import import_torch
from dinosaur_ad.methods.shared.vit_weights import PATCHES, ViTSpec, sized, vit_spec
from dinosaur_ad.methods.training import Schedule

if TYPE_CHECKING:
    from dinosaur_ad.methods.dne.classifier_training import FineTunedViT, Tuning


@dataclass(frozen=True)
class DNEConfig(Config):
    """How the network is trained, and how its embeddings become one distribution.

    ``embed`` says of which view the embeddings of a task are taken: the image as it is, or the jittered and turned
    normal view that training against CutPaste uses. ``probe`` is of how many training images the spread is measured
    after each epoch; it decides no result.
    """

    backbone: str = "vit-base"
    weights: str = field(default="", metadata={"place": True})
    size: int = 224
    anomalies: Literal["none", "cutpaste"] = "none"
    normalise: bool = False
    covariance: Literal["shrunk", "ledoit-wolf"] = "shrunk"
    shrink: float = 0.5
    pooling: Pooling = "closed-form"
    collect: Literal["after", "during"] = "after"
    embed: Literal["plain", "augmented"] = field(default="plain", metadata={"formerly": "plain"})
    epochs: int = 300
    batch: int = 12
    rate: float = 7.5e-4
    decay: float = 1e-4
    eps: float = 1e-8
    course: Literal["constant", "cosine"] = "constant"
    mixed: bool = False
    tf32: bool = False
    probe: int = 64

    def __post_init__(self) -> None:
        if not 0 <= self.shrink <= 1:
            raise InputError(f"DNE's shrink must be from 0 to 1, got {self.shrink}.")
        if self.embed == "augmented" and self.anomalies == "none":
            raise InputError("DNE's embed=augmented needs anomalies=cutpaste: without it no view is augmented.")
        if self.probe < 0:
            raise InputError(f"DNE's probe must not be negative, got {self.probe}.")
        self.schedule()  # validates its settings

    def schedule(self) -> Schedule:
        """The training schedule of a task."""
        return Schedule.of(self)

    def estimator(self) -> Estimator:
        """The estimator of mean and covariance."""
        return ledoit_wolf if self.covariance == "ledoit-wolf" else shrunk(self.shrink)


ORIGINAL = DNEConfig(
    anomalies="cutpaste",
    normalise=True,
    covariance="ledoit-wolf",
    pooling="sampled-past",
    collect="during",
    embed="augmented",
    epochs=50,
    batch=32,
    rate=1e-4,
    decay=3e-5,
    eps=4e-4,
    course="cosine",
)


@register(
    "dne",
    variants={
        "default": DNEConfig(),
        "sampled": DNEConfig(pooling="sampled"),
        "as-published": DNEConfig(pooling="sampled-diagonal", collect="during"),
        "original": ORIGINAL,
        "original-plain-view": replace(ORIGINAL, embed="plain"),
    },
    summary="fine-tuned ViT, mean and covariance of each task's CLS tokens, one Gaussian for all; image scores only",
    tiny={"backbone": "tiny-vit", "size": 32, "epochs": 2, "batch": 8},
)
class DNE(StatefulMethod):
    """The network, the statistics of each task, and the one Gaussian made of them."""

    title = "DNE"
    needs = ("torch", "transformers")
    has_maps = False
    config: DNEConfig

    def __init__(self, config: DNEConfig, workbench: Workbench) -> None:
        super().__init__(config, workbench)
        self._spec = sized(vit_spec(config.backbone), size=config.size)
        self._tasks: list[TaskStatistics] = []
        self._notes: dict[str, dict[str, Any]] = {}
        self._gaussian: Gaussian | None = None
        self._threshold = 0.0

    @cached_property
    def _network(self) -> FineTunedViT:
        import_torch()  # or raise an error that says what to install
        from dinosaur_ad.methods.dne.classifier_training import FineTunedViT

        return FineTunedViT(self.config, self.workbench)

    def learn(self, lesson: Lesson) -> None:
        """Fine-tune on the task, store its statistics, and recompute the Gaussian and the threshold."""
        require_normals(lesson.task, lesson.train)
        config, number = self.config, len(self._tasks)
        tuning = self._network.learn(lesson.train, number, config.schedule())
        z_NC = self._normalised(tuning.z_NC)
        self._tasks.append(task_statistics(z_NC, config.estimator()))
        self._gaussian = global_gaussian(
            self._tasks,
            z_NC,
            pooling=config.pooling,
            estimate=config.estimator(),
            share=config.shrink,
            normalise=config.normalise,
            seed=(self.workbench.seed, number),
        )
        score_N = self._distance(lesson.train)
        finite_N = score_N[np.isfinite(score_N)]
        self._threshold = training_threshold(finite_N) if len(finite_N) else 0.0
        self._notes[lesson.task] = {"images": len(lesson.train), **_training_notes(tuning), **_score_notes(score_N)}

    def score(self, photos: Sequence[Photo], task: str | None = None) -> Scores:
        """One score per image, and the one threshold of all tasks."""
        self._refuse_task(task)
        require_photos(photos)
        return Scores(image=self._distance(photos), thresholds=np.full(len(photos), self._threshold, np.float32))

    def _distance(self, photos: Sequence[Photo]) -> Singles:
        self._require_learned()
        assert self._gaussian is not None
        return self._gaussian.distance(self._normalised(self._network.embed(photos)))

    def _normalised(self, z_NC: Singles) -> Doubles:
        doubled_NC = z_NC.astype(np.float64)
        return unit_length(doubled_NC) if self.config.normalise else doubled_NC

    # --- state ---

    def _has_learned(self) -> bool:
        return self._gaussian is not None

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        assert self._gaussian is not None
        tensors: dict[str, Any] = self._network.state()
        tensors |= {"mean": self._gaussian.mean_C, "covariance": self._gaussian.covariance_CC}
        for number, task in enumerate(self._tasks):
            tensors |= {f"task.{number}.mean": task.mean_C, f"task.{number}.covariance": task.covariance_CC}
        counts = [task.count for task in self._tasks]
        return tensors, {"counts": counts, "threshold": self._threshold, "notes": self._notes}

    def _restore(self, tensors: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        threshold, notes = float(facts["threshold"]), dict(facts["notes"])
        gaussian = Gaussian(tensors["mean"], tensors["covariance"])
        tasks = [
            TaskStatistics(tensors[f"task.{n}.mean"], tensors[f"task.{n}.covariance"], int(count))
            for n, count in enumerate(facts["counts"])
        ]
        self._network.restore(tensors)
        self._gaussian, self._tasks, self._threshold, self._notes = gaussian, tasks, threshold, notes

    def _made_with(self) -> dict[str, Any]:
        sha256 = self._network.vit.weights_sha256
        return {"weights_sha256": sha256, "size": self.config.size, "normalise": self.config.normalise}

    def storage_bytes(self) -> int:
        """The statistics of each task, as the paper counts; the fine-tuned network is not counted."""
        return sum(task.nbytes for task in self._tasks)

    def parameters(self) -> Parameters:
        """Transformer and head, as the paper counts: with the classifier that ViT-B/16's checkpoint ends in."""
        spare = self._spec.spare if isinstance(self._spec, ViTSpec) else 0
        total = self._spec.parameters + spare + 2 * (self._spec.width + 1)
        shapes = self._spec.tensor_shapes().items()
        return Parameters(total, total - sum(int(np.prod(shape)) for name, shape in shapes if name.startswith(PATCHES)))

    def info(self) -> dict[str, Any]:
        """The network, its training, and the spread of its embeddings in each task."""
        config = self.config
        return self._network.vit.info() | {
            "trained": f"{config.epochs} epochs a task with Adam, rate {config.rate:g}, batches of {config.batch}, "
            + ("normals against CutPaste" if config.anomalies == "cutpaste" else "normals only, one class"),
            "precision": precision_words(config, self.workbench.device),
            "distribution": f"{config.covariance} covariances, {config.pooling}",
            "embeddings": f"taken {config.collect} "
            + ("training" if config.collect == "after" else "the last epoch")
            + (
                ", of the jittered and turned normal view" if config.embed == "augmented" else ", of images as they are"
            ),
            "directions": 0 if self._gaussian is None else self._gaussian.rank,
            "tasks": self._notes,
            "storage": "mean, covariance and count of each task; the fine-tuned network is not counted",
            "scoring": f"embeddings in float32 on {self.workbench.device}, distances in float64",
        }


def _training_notes(tuning: Tuning) -> dict[str, Any]:
    """Loss, spread and size before training and after each epoch, to four digits; None where not finite."""
    notes: dict[str, Any] = {"loss": [_four_digits(log.loss) for log in tuning.logs]}
    for name, value in tuning.before.items():
        notes[f"{name}_before"] = _four_digits(value)
        notes[name] = [_four_digits(log.extra[name]) for log in tuning.logs]
    return notes | {"skipped_steps": sum(log.skipped for log in tuning.logs)}


def _score_notes(score_N: Singles) -> dict[str, float]:
    return {"tied_scores": tied_share(score_N), "nonfinite_scores": float(1 - np.isfinite(score_N).mean())}


def _four_digits(value: float) -> float | None:
    return float(f"{value:.4g}") if np.isfinite(value) else None
