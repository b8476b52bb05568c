"""The published IUF: features are reconstructed; later updates are damped and mixed with the old weights.

The first task is the base stage, every later one an incremental stage; they differ in optimizer and loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.methods.contract import Parameters, Photo, Workbench
from dinosaur_ad.methods.iuf.aligned_features import AlignedFeatures
from dinosaur_ad.methods.iuf.iuf_networks import FeatureNetwork
from dinosaur_ad.methods.iuf.learner import Learner, variety
from dinosaur_ad.methods.iuf.rules import (
    damping_matrix,
    damping_weights,
    directions_of_gram,
    share_of_small_singular_values,
)
from dinosaur_ad.methods.shared.precision import precision_words
from dinosaur_ad.methods.shared.torch_tools import to_images

if TYPE_CHECKING:
    from dinosaur_ad.methods.iuf.iuf_config import FeatureIUFConfig
    from dinosaur_ad.methods.training import Step

AT_ONCE = 24  # images whose features are computed together, always in the same groups
HISTORY = 768  # images of the running epoch whose features the compression looks at
SMALL = 0.1  # a singular value is small below this share over the number of channels
POOL = 16  # pixels: the window of which the image score "max" takes the largest mean


class FeatureLearner(Learner):
    """The published networks with their losses, damped updates and mixing of weights."""

    config: FeatureIUFConfig

    def __init__(self, config: FeatureIUFConfig, workbench: Workbench) -> None:
        super().__init__(config, workbench)
        self.backbone = AlignedFeatures(
            config.backbone, weights=config.weights, blocks=config.blocks, size=config.size, device=self.device
        )
        self._grams: dict[str, torch.Tensor] = {}
        self._damping: dict[str, torch.Tensor] = {}
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._table_NLF = torch.empty(0)
        self._row_of: dict[str, int] = {}

    def build(self) -> nn.Module:
        """A new network for the features of the backbone."""
        return FeatureNetwork(self.config, self.backbone.channels, self.backbone.side)

    # --- training ---

    def begin(self, task: int, photos: Sequence[Photo]) -> None:
        """Compute the features once, because there is no augmentation; from the second task on, copy the weights."""
        super().begin(task, photos)
        middle = self.config.layers - 1
        self.extra["history"] = torch.zeros(middle, HISTORY, self.config.width, device=self.device)
        groups = batched(photos, AT_ONCE)
        self._table_NLF = torch.cat([self.backbone(self._prepared(group)) for group in groups])
        self._row_of = {photo.key: row for row, photo in enumerate(photos)}
        self._before, self._damping = [], {}
        if task > 0 and self._grams:
            tensors = [value for value in self.module.state_dict().values() if value.is_floating_point()]
            self._before = [(value, value.clone()) for value in tensors]
            weights_C = damping_weights(self.config.width)
            self._damping = {
                name: damping_matrix(directions_of_gram(gram), weights_C).float().to(self.device)
                for name, gram in self._grams.items()
            }

    def loss(self, step: Step) -> torch.Tensor:
        """Squared error and cross-entropy of the task; in the base stage also the share of small singular values."""
        config = self.config
        given = self._table_NLF[[self._row_of[photo.key] for photo in step.photos]]
        made, logits, middle = self.module(step.images, jittered(given, config.jitter))
        reconstruction = nn.functional.mse_loss(made.float(), given)
        target_N = torch.full((len(given),), self.task, device=self.device)
        discrimination = nn.functional.cross_entropy(logits.float(), target_N)
        compression = torch.zeros((), device=self.device)
        if self.task == 0:
            compression = self._compression(torch.stack([each.float().mean(dim=1) for each in middle]), step.index)
        self.log_parts(reconstruction, discrimination, compression, variety(made, given))
        return reconstruction + discrimination + config.compression * compression

    def _compression(self, rows_KNC: torch.Tensor, index: int) -> torch.Tensor:
        """The compression loss over the images of this epoch so far; only this batch has gradients."""
        count, history_KHC = rows_KNC.shape[1], self.extra["history"]
        earlier = min(index * self.config.batch, HISTORY - count)
        losses = [
            share_of_small_singular_values(torch.cat([old[HISTORY - earlier :], new]), SMALL / self.config.width)
            for old, new in zip(history_KHC, rows_KNC, strict=True)
        ]
        # The newest are at the end; the index of the step says how many are valid, so an epoch begins with none.
        history_KHC.copy_(history_KHC.roll(-count, dims=1))
        history_KHC[:, HISTORY - count :] = rows_KNC.detach()
        return torch.stack(losses).mean()

    def before_step(self, step: Step) -> None:
        """Clip the gradient, then ``G <- P G`` for the damped layers, whose rows are the channels of P.

        In this order, as in the original: the training loop would clip after the damping.
        """
        nn.utils.clip_grad_norm_(self.module.parameters(), self.config.clip)
        for name, damping_CC in self._damping.items():
            layer = self.module.get_submodule(name)
            for parameter in (layer.weight, layer.bias):
                if parameter.grad is not None:
                    parameter.grad.copy_(damping_CC @ parameter.grad)

    def after_step(self, step: Step) -> None:
        """``theta <- 0.05 before + 0.95 theta``, of running statistics too."""
        if self._before:
            values, before = zip(*self._before, strict=True)
            # theta + mix (before - theta), for all tensors in a few kernels instead of one each.
            get_ema_multi_avg_fn(1 - self.config.mix)(values, before, None)

    def end(self, photos: Sequence[Photo]) -> None:
        """Add to each damped layer's Gram matrix the mean output (over places) for every image of the task."""
        found = self._mean_outputs(photos)
        for name, outputs in found.items():
            rows_NC = torch.nan_to_num(torch.cat(outputs)).cpu().double()
            self._grams[name] = self._grams.get(name, 0) + rows_NC.T @ rows_NC
        self._table_NLF, self._row_of, self._before, self._damping = torch.empty(0), {}, [], {}

    def _mean_outputs(self, photos: Sequence[Photo]) -> dict[str, list[torch.Tensor]]:
        """The outputs of each damped layer, averaged over positions, in batches (N, C); collected by forward hooks."""
        found: dict[str, list[torch.Tensor]] = {}

        def keep(name: str) -> Any:
            return lambda _module, _inputs, output: found.setdefault(name, []).append(output.mean(dim=1))

        layers = self.module.eval().reconstructor.damped()
        handles = [layer.register_forward_hook(keep(name)) for name, layer in layers.items()]
        try:
            with torch.no_grad(), self.scoring_precision():
                for group in batched(photos, AT_ONCE):
                    rows = [self._row_of[photo.key] for photo in group]
                    self.module(to_images(self._prepared(group), self.device), self._table_NLF[rows])
        finally:
            for handle in handles:
                handle.remove()
        return found

    def kept(self) -> dict[str, torch.Tensor]:
        """The Gram matrices (C, C) float64 of the damped layers' outputs over all images of all tasks."""
        return self._grams

    def restore_kept(self, kept: Mapping[str, torch.Tensor]) -> None:
        """Restore the Gram matrices."""
        self._grams = {name: gram.cpu() for name, gram in kept.items()}

    def _prepared(self, photos: Sequence[Photo]) -> NDArray[np.uint8]:
        return self.workbench.cache.prepared(photos, self.config.size)

    # --- scoring ---

    def score(self, pixels: NDArray[np.uint8]) -> tuple[torch.Tensor, torch.Tensor]:
        """The distance of the reconstruction to the features (N, H, W), and its reduction by ``image_score``."""
        given = self.backbone(pixels)
        with self.scoring_precision():
            made, _, _ = self.module.eval()(to_images(pixels, self.device), given)
        map_NHW = torch.linalg.vector_norm(made - given, dim=2).unflatten(1, (self.backbone.side,) * 2)
        return image_score(map_NHW, self.config.image_score, self.config.size), map_NHW

    def parameters(self) -> Parameters:
        """The frozen backbone is counted, but not as trainable."""
        return Parameters(self.trainable() + self.backbone.parameters, self.trainable())

    def info(self) -> dict[str, Any]:
        """The description of the backbone."""
        return self.backbone.info() | {
            "precision": precision_words(self.config, self.workbench.device),
            "image_score": self.config.image_score,
        }


def jittered(features_NLF: torch.Tensor, scale: float) -> torch.Tensor:
    """Features with Gaussian noise of deviation ``scale |f| / F`` on every number of a token of length ``|f|``."""
    length_NL1 = torch.linalg.vector_norm(features_NLF, dim=2, keepdim=True)
    return features_NLF + torch.randn_like(features_NLF) * length_NL1 * (scale / features_NLF.shape[2])


def image_score(map_NHW: torch.Tensor, kind: str, size: int) -> torch.Tensor:
    """One number an image (N,) from the map at the size of the image: its mean, spread, or largest 16x16 mean."""
    full_NHW = nn.functional.interpolate(map_NHW[:, None], size=(size, size), mode="bilinear", align_corners=True)[:, 0]
    if kind == "max":
        window = min(POOL, size)
        return nn.functional.avg_pool2d(full_NHW[:, None], window, stride=1).flatten(1).amax(1)
    return full_NHW.flatten(1).mean(1) if kind == "mean" else full_NHW.flatten(1).std(1, correction=0)
