"""PatchCore with replay: one flat memory of patch features for all tasks, thinned and filled up at every task.

What it is: feature maps of a frozen network, averaged 3x3, side by side, projected at random to 512 channels; a greedy
coreset of the old memory and of the patches of the new task and of replayed old images; a patch is as anomalous as
it is far from the nearest remembered one. Memory and threshold know no tasks, so nothing is routed.

| | original (Roth et al. 2022) | paper (this benchmark) | ours |
|---|---|---|---|
| network | WideResNet-50, stages 2+3 | "ResNet-18" in the text | ResNet-50 (below); variant ``resnet18`` |
| input | resize 256, crop 224 | resize to 224 | resize to 224, aspect not kept |
| features | 3x3 patches, pooled to 1024 | 3x3 average, random projection to 512 | as the paper |
| grid | 28x28, stage 3 bilinear | 28x28 | as the paper |
| memory | 10 % coreset | 5 % of what has accumulated, at least 500 | as the paper |
| coreset | approximate: 10 anchors, 128 channels | greedy | greedy and exact, first vector drawn from the seed |
| score | max; Eq. 7 re-weights it, their code does not | re-weighted by 3 neighbours | every patch re-weighted |
| image score | largest patch | largest patch | re-weighted score of the patch of largest plain distance |
| map | Gaussian blur, sigma 4 | not said | 28x28, not blurred |
| replay | none: one class a model | 100 images | 100 of each earlier task, all where there are fewer |

Deviations and doubts:

* **ResNet-18 or ResNet-50.** The paper's text says ResNet-18, its tables say 9.33 M parameters, 0.79 M of them
  trainable. ResNet-18 up to stage 3 with the projection 384 -> 512 has 2.98 M and 0.20 M; ResNet-50 with the projection
  1536 -> 512 has 9,330,240 and 786,944. The tables are ResNet-50's, so that is the default. "Trainable" is the random
  projection: nothing in this method is ever optimised, here or there.
* **Weights.** The authors use torchvision's first ImageNet weights; ``resnet50`` fetches the hub's, which need not be
  the same. ``dinosaur weights add resnet50 resnet50-0676ba61.pth`` uses torchvision's.
* **Old vectors are thinned again at every task.** The memory after task t is 5 % of (the memory before + all patches of
  the new and the replayed images): of an old task's vectors hardly any survive two tasks by themselves. What is
  retained is retained by replay, that is by keeping images.
* **How much is replayed.** The text says 100 of each previous task, the appendix 100 of previous tasks
  (``replay_per="total"``). Over MVTec's 15 tasks 100 a task gives 65,814 vectors, 8.57 MiB a task; the printed 5.0 MB
  are met by 50 a task (38,688 vectors, 5.04 MiB): variant ``replay50``. Drift scenarios replay nothing but widen the
  range of drift; that is the scenario's rule, see ``Lesson.rehearse``.
* **"Equivalent to PatchCoreCL"**, as the paper calls it, is loose: that method keeps a memory for each task within a
  fixed total, and chooses one by the smallest mean distance.
* **Storage** counts the memory's vectors, as the paper does. The images kept for replay come on top of it.
* **Threshold**: 97.5th percentile of the scores of the images just learned from. They are in the memory, so it is low.
* Variant ``tuned`` has the settings that are best of 360 combinations on nine sets, as many as DINOSaur's were chosen
  among and on (docs/methods/patchcore.md).
* Variant ``original-resnet50`` has the authors' features (``compress="pool"``), their coreset of 10 % chosen in 128
  random directions and their plain score; ``original-resnet50-1percent`` keeps 1 %. Only the network is another,
  because WideResNet-50's weights are not at hand, and images are not cropped.
* Variant ``vit`` puts the tokens of two blocks of a token encoder in place of the two stages, each of length one as in
  DINOSaur, so that the two differ in the memory and not in the features. It keeps the encoder's own grid (16x16 at 224
  pixels): interpolated tokens would fill the memory with mixtures. It needs no download beyond the embedded encoder.
  ``vit-points`` is the same without the 3x3 average, which DINOSaur has not either: the two tell what the average does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.coreset import coreset_size, greedy_coreset
from dinosaur_ad.encoders import ResNetSpec, get_spec
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.methods.contract import Config, Floats, Lesson, Parameters, Photo, Scores, Workbench
from dinosaur_ad.methods.method_registry import register
from dinosaur_ad.methods.patchcore.patch_features import PatchFeatures
from dinosaur_ad.methods.shared.flat_memory import FlatMemory, build_memory
from dinosaur_ad.methods.shared.method_rules import require_normals, require_photos, training_threshold
from dinosaur_ad.methods.shared.state_files import Arrays, StatefulMethod
from dinosaur_ad.methods.shared.torch_tools import import_torch

if TYPE_CHECKING:
    import torch

BATCH = 32  # images; their stacked maps are 5 MB each


@dataclass(frozen=True)
class PatchCoreConfig(Config):
    """What the memory is made of, and how much of it is kept; ``layers`` is only for token encoders.

    ``average`` is the side of the square over which each feature map is averaged, 1 for none. ``compress`` says how
    the maps become ``dim`` numbers: by a random projection, or by averaging as PatchCore's authors do. The coreset is
    chosen in a random projection to ``coreset_dim`` numbers, None for the features themselves. ``image_share`` is the
    share of an image's largest patch scores whose mean is its score, 0 for the largest alone.
    """

    backbone: str = "resnet50"
    weights: str = field(default="", metadata={"place": True})
    layers: tuple[int, ...] = (5, 8)
    size: int = 224
    dim: int = 512
    average: int = field(default=3, metadata={"formerly": 3})
    compress: Literal["project", "pool"] = field(default="project", metadata={"formerly": "project"})
    ratio: float = 0.05
    minimum: int = 500
    coreset_dim: int | None = field(default=None, metadata={"formerly": None})
    neighbours: int = 3
    reweight: bool = True
    image_share: float = field(default=0.0, metadata={"formerly": 0.0})
    replay: int = 100
    replay_per: Literal["task", "total"] = "task"

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise InputError(f"PatchCore's ratio must be above 0 and at most 1, got {self.ratio}.")
        if not 0 <= self.image_share <= 1:
            raise InputError(f"PatchCore's image_share must be from 0 to 1, got {self.image_share}.")
        least = {"size": 1, "dim": 1, "minimum": 1, "neighbours": 1, "replay": 0}
        self.require_at_least("PatchCore", least | ({} if self.coreset_dim is None else {"coreset_dim": 1}))
        if self.average < 1 or self.average % 2 == 0:
            raise InputError(f"PatchCore's average must be an odd number of places, got {self.average}.")


_ON_TOKENS = ("vit", "vit-points", "tuned")

# The authors' features, coreset and score; only the network is another, because its weights are not at hand.
ORIGINAL = PatchCoreConfig(
    backbone="resnet50-v1",
    dim=1024,
    compress="pool",
    ratio=0.1,
    minimum=1,
    coreset_dim=128,
    neighbours=1,
    reweight=False,
    replay=0,
)

# Chosen by a search like the one DINOSaur's settings had: ``python -m benchmarks.patchcore_tuned``.
TUNED = PatchCoreConfig(
    backbone="dinov2s-focus", average=1, ratio=0.01, coreset_dim=128, neighbours=9, image_share=0.01
)


@register(
    "patchcore",
    variants={
        "default": PatchCoreConfig(),
        "resnet18": PatchCoreConfig(backbone="resnet18"),
        "resnet50-v1": PatchCoreConfig(backbone="resnet50-v1"),
        "replay50": PatchCoreConfig(replay=50),
        "vit": PatchCoreConfig(backbone="dinov2s-focus"),
        "vit-points": PatchCoreConfig(backbone="dinov2s-focus", average=1),
        "tuned": TUNED,
        "original-resnet50": ORIGINAL,
        "original-resnet50-1percent": replace(ORIGINAL, ratio=0.01),
    },
    summary="frozen network, one flat coreset memory for all tasks, replayed images; nothing is trained",
    replay=True,
    tiny={"backbone": "tiny-resnet", "size": 64, "dim": 16, "minimum": 50},
    tiny_variants={name: {"backbone": "tiny-dinov2", "layers": (0, 2), "size": 70} for name in _ON_TOKENS},
    chosen_on={"tuned": ("mvtec-ad", "mvtec-ad-bottle", "mvtec-loco", "mtd-color", "mtd-blur", "mtd-geo")},
)
class PatchCore(StatefulMethod):
    """The flat memory, its random projection and its threshold."""

    title = "PatchCore"
    needs = ("torch",)
    config: PatchCoreConfig

    def __init__(self, config: PatchCoreConfig, workbench: Workbench) -> None:
        super().__init__(config, workbench)
        self._features = PatchFeatures(config, workbench)
        self._tasks: list[str] = []
        self._memory: FlatMemory | None = None
        self._threshold = 0.0

    @classmethod
    def summary_with(cls, config: PatchCoreConfig) -> str:
        """Which kind of network, and how much is replayed."""
        network = "ResNet" if isinstance(get_spec(config.backbone), ResNetSpec) else "ViT"
        points = "" if config.average > 1 else " without averaging"
        scope = "each" if config.replay_per == "task" else "all together"
        return (
            f"frozen {network}{points}, one flat coreset memory for all tasks, {config.replay} replayed images of "
            f"{scope}; nothing is trained"
        )

    def learn(self, lesson: Lesson) -> None:
        """Select a coreset of the old memory and of all patches of ``lesson.rehearse``, and set the threshold."""
        config, seed = self.config, self.workbench.seed
        photos = lesson.rehearse(config.replay, per=config.replay_per, seed=seed)
        require_normals(lesson.task, photos)
        torch = import_torch()
        with torch.inference_mode():
            points_PC, old = self._gather(photos)
            size = coreset_size(len(points_PC), config.ratio, config.minimum)
            first = int(np.random.default_rng([seed, len(self._tasks)]).integers(len(points_PC)))
            picks_M = greedy_coreset(self._features.for_coreset(points_PC)[None], size, first=first)[0]
            self._memory = build_memory(points_PC[picks_M], config.neighbours)
            image_N, _ = self._patch_scores(points_PC[old:], len(photos))
        self._threshold = training_threshold(image_N.cpu().numpy())
        self._tasks.append(lesson.task)

    def score(self, photos: Sequence[Photo], task: str | None = None) -> Scores:
        """Scores and maps (N, 28, 28) on the grid of the features, and the one threshold of all tasks."""
        self._refuse_task(task)
        require_photos(photos)
        torch = import_torch()
        images, maps = [], []
        with torch.inference_mode():
            for group in batched(photos, BATCH):
                image_N, map_NP = self._patch_scores(self._patches(group), len(group))
                images.append(image_N.cpu().numpy())
                maps.append(map_NP.cpu().numpy())
        map_NP = np.concatenate(maps)
        side = int(map_NP.shape[1] ** 0.5)
        return Scores(
            image=np.concatenate(images),
            maps=map_NP.reshape(len(photos), side, side),
            thresholds=np.full(len(photos), self._threshold, np.float32),
        )

    def _patch_scores(self, points_PC: torch.Tensor, images: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Image scores (N,) and patch scores (N, H * W) of the patches of ``images`` images."""
        self._require_learned()
        assert self._memory is not None
        raw_P, reweighted_P = self._memory.distances(points_PC)
        raw_NP = raw_P.reshape(images, -1)
        map_NP = reweighted_P.reshape(images, -1) if self.config.reweight else raw_NP
        if self.config.image_share:
            count = max(1, round(self.config.image_share * map_NP.shape[1]))
            return map_NP.topk(count).values.mean(1), map_NP
        return map_NP.gather(1, raw_NP.argmax(1, keepdim=True))[:, 0], map_NP

    def _patches(self, photos: Sequence[Photo]) -> torch.Tensor:
        """Features (N * H * W, dim); without a GPU from the cache, because encoding takes longer than reading."""
        if self.workbench.device != "cpu":
            return self._features(self.workbench.cache.prepared(photos, self.config.size))
        recipe = f"patchcore-{self._made_with()}-{self.workbench.seed}"
        features_NPC = self.workbench.cache.features(recipe, photos, self._encode)
        return import_torch().from_numpy(features_NPC).flatten(0, 1)

    def _encode(self, photos: Sequence[Photo]) -> Floats:
        pixels = self.workbench.cache.prepared(photos, self.config.size)
        features_PC: Floats = self._features(pixels).numpy()
        return features_PC.reshape(len(photos), -1, self.config.dim)

    def _gather(self, photos: Sequence[Photo]) -> tuple[torch.Tensor, int]:
        """The old memory followed by the patches of all photos, and the number of vectors of the old memory.

        They are written into one tensor allocated beforehand: it can take gigabytes and must not exist twice.
        """
        torch = import_torch()
        old = 0 if self._memory is None else len(self._memory.bank_MC)
        points_PC = torch.empty(0)
        position = old
        for group in batched(photos, BATCH):
            patches_PC = self._patches(group)
            if position == old:
                count = old + len(patches_PC) // len(group) * len(photos)
                points_PC = patches_PC.new_empty((count, patches_PC.shape[1]))
            points_PC[position : position + len(patches_PC)] = patches_PC
            position += len(patches_PC)
        if self._memory is not None:
            points_PC[:old] = self._memory.bank_MC
        return points_PC, old

    # --- state ---

    def _has_learned(self) -> bool:
        return self._memory is not None

    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        assert self._memory is not None
        tensors = {"bank": self._memory.bank_MC, "neighbours": self._memory.neighbours_MB}
        if self._projects:
            weight, bias = self._features.projection
            tensors |= {"projection.weight": weight, "projection.bias": bias}
        facts = {"tasks": self._tasks, "threshold": self._threshold}
        return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}, facts

    def _restore(self, tensors: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        threshold, tasks, moved = float(facts["threshold"]), list(facts["tasks"]), self._on_device(tensors)
        self._memory = FlatMemory(moved["bank"], moved["neighbours"])
        if self._projects:
            self._features.projection = moved["projection.weight"], moved["projection.bias"]
        self._threshold, self._tasks = threshold, tasks

    def _made_with(self) -> dict[str, Any]:
        config, sha256 = self.config, self._features.maps.network.info()["weights_sha256"]
        sizes = {name: getattr(config, name) for name in ("size", "dim", "average")}
        pooled = {} if self._projects else {"compress": config.compress}  # named only where states of old differ
        return {"weights_sha256": sha256, "layers": list(config.layers)} | sizes | pooled

    @property
    def _projects(self) -> bool:
        return self.config.compress == "project"

    def storage_bytes(self) -> int:
        """The memory's vectors, as the paper counts; neither the projection nor the images kept for replay."""
        return 0 if self._memory is None else self._memory.bank_MC.nbytes

    def parameters(self) -> Parameters:
        """As the paper counts: the network up to the last map used, and the random projection as "trainable"."""
        projection = self.config.dim * (self._features.maps.channels + 1) if self._projects else 0
        return Parameters(self._features.maps.spec.parameters + projection, projection)

    def info(self) -> dict[str, Any]:
        """The description of the backbone, and of the memory."""
        scope = "each earlier task" if self.config.replay_per == "task" else "all earlier tasks together"
        return self._features.maps.network.info() | {
            "memory_vectors": 0 if self._memory is None else len(self._memory.bank_MC),
            "memory_channels": self.config.dim,
            "optimised": "nothing"
            + (": the projection counted as trainable is random and stays so" if self._projects else ""),
            "replay": f"up to {self.config.replay} images of {scope}, unless the scenario widens its drift instead",
            "storage": "the memory's vectors; the images kept for replay are not counted",
            "scoring": f"float32 on {self.workbench.device}",
        }
