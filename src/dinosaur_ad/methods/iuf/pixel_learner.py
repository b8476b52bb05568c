"""The paper's IUF: three small vision transformers on pixels, trained from scratch.

Tokens of the encoder (N, L, C) are decoded to pixels; the discriminator classifies the task of an image, and its
features multiply the encoder's queries. Nearly all parameters are those of the discriminator's head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dinosaur_ad.methods.contract import Parameters, Photo, Workbench
from dinosaur_ad.methods.iuf.iuf_networks import PixelNetwork
from dinosaur_ad.methods.iuf.learner import Learner, variety
from dinosaur_ad.methods.iuf.rules import (
    damping_matrix,
    damping_weights,
    directions_of_rows,
    tail_of_singular_values,
)
from dinosaur_ad.methods.shared.precision import precision_words
from dinosaur_ad.methods.shared.torch_tools import to_images

if TYPE_CHECKING:
    from dinosaur_ad.methods.iuf.iuf_config import PixelIUFConfig
    from dinosaur_ad.methods.training import Step

CONSTRAINED = ("encoder.", "decoder.", "to_pixels.")


def _set_gradients(parameters: Sequence[torch.nn.Parameter], values: torch.Tensor) -> None:
    """Give each parameter its part of ``values``, which are in the order of the parameters, as gradient."""
    for parameter, part in zip(parameters, values.split([each.numel() for each in parameters]), strict=True):
        parameter.grad = part.view_as(parameter)


class PixelLearner(Learner):
    """The paper's network: its losses, damped gradients, and the pull towards the weights of the task before."""

    config: PixelIUFConfig

    def __init__(self, config: PixelIUFConfig, workbench: Workbench) -> None:
        super().__init__(config, workbench)
        self._directions_CC: torch.Tensor | None = None
        self._damping_CC: torch.Tensor | None = None
        self._before: dict[str, torch.Tensor] = {}

    def build(self) -> nn.Module:
        """A new network."""
        return PixelNetwork(self.config)

    def constrained(self) -> dict[str, torch.nn.Parameter]:
        """The parameters that are damped and pulled: encoder and decoder, not the discriminator and its large head."""
        named = self.module.named_parameters()
        return {name: parameter for name, parameter in named if name.startswith(CONSTRAINED)}

    # --- training ---

    def begin(self, task: int, photos: Sequence[Photo]) -> None:
        """From the second task on: copy the constrained weights (2 MB of 2.5 GB) and compute the damping matrix."""
        super().begin(task, photos)
        self.extra["latent"] = torch.zeros(self.config.batch, self.config.width, device=self.device)
        self._before, self._damping_CC = {}, None
        if task > 0 and self._directions_CC is not None:
            self._before = {name: value.detach().clone() for name, value in self.constrained().items()}
            weights_C = damping_weights(self.config.width, normalised=self.config.normalised)
            self._damping_CC = damping_matrix(self._directions_CC, weights_C).float().to(self.device)

    def loss(self, step: Step) -> torch.Tensor:
        """Mean absolute error, cross-entropy of the task, and singular values beyond the first, weighted."""
        config, images = self.config, step.images
        made = self.module(images, classify=True)
        reconstruction = (images - made.images).abs().mean()
        target_N = torch.full((len(images),), self.task, device=self.device)
        discrimination = nn.functional.cross_entropy(made.logits.float(), target_N)
        latent_NC = made.tokens.float().mean(dim=1)
        compression = tail_of_singular_values(latent_NC, config.directions)
        self.extra["latent"].zero_()[: len(images)] = latent_NC.detach()
        self.log_parts(reconstruction, discrimination, compression, variety(made.images, images))
        return (
            config.reconstruction * reconstruction
            + config.discrimination * discrimination
            + config.compression * compression
        )

    def before_step(self, step: Step) -> None:
        """``G <- G P`` where the last axis is that of the tokens' channels, then ``G <- G + beta (theta - before)``."""
        if self._damping_CC is None:
            return
        # The decoder's patch projection is counted, but never used in a forward pass: it has no gradient.
        moved = {name: each for name, each in self.constrained().items() if each.grad is not None}
        damped = [each for each in moved.values() if each.shape[-1] == self.config.width]
        # All together: one parameter at a time would launch hundreds of tiny kernels.
        rows_RC = torch.cat([each.grad.reshape(-1, self.config.width) for each in damped]) @ self._damping_CC
        _set_gradients(damped, rows_RC.flatten())
        before = torch.cat([self._before[name].flatten() for name in moved])
        _set_gradients(
            list(moved.values()),
            torch.cat([each.grad.flatten() for each in moved.values()])
            + self.config.pull * (torch.cat([each.detach().flatten() for each in moved.values()]) - before),
        )

    def end(self, photos: Sequence[Photo]) -> None:
        """Keep the directions of the last batch; rows of zeros below a short one change nothing."""
        self._directions_CC = directions_of_rows(self.extra["latent"])
        self._before = {}

    def kept(self) -> dict[str, torch.Tensor]:
        """The directions of the last batch of the last task, (C, C) float64."""
        return {} if self._directions_CC is None else {"directions": self._directions_CC}

    def restore_kept(self, kept: Mapping[str, torch.Tensor]) -> None:
        """Restore the directions."""
        self._directions_CC = kept["directions"].cpu() if "directions" in kept else None

    # --- scoring ---

    def score(self, pixels: NDArray[np.uint8]) -> tuple[torch.Tensor, torch.Tensor]:
        """The error of each pixel, averaged over channels (N, S, S), and its reduction by ``image_score``."""
        images = to_images(pixels, self.device)
        with self.scoring_precision():
            error_NCHW = (images - self.module.eval()(images).images).abs()
        map_NHW = error_NCHW.mean(dim=1)
        patch_NHW = nn.functional.avg_pool2d(map_NHW[:, None], self.config.patch)[:, 0]
        image_N = {
            "max": lambda: patch_NHW.flatten(1).amax(1),
            "mean": lambda: map_NHW.flatten(1).mean(1),
            "std": lambda: map_NHW.flatten(1).std(1),
            "sum": lambda: error_NCHW.flatten(1).sum(1),
        }[self.config.image_score]()
        return image_N, map_NHW

    def parameters(self) -> Parameters:
        """All of them are trained."""
        return Parameters(self.trainable(), self.trainable())

    def info(self) -> dict[str, Any]:
        """The network, which has no pretrained weights."""
        config = self.config
        return {
            "description": f"encoder, decoder and discriminator of {config.layers} transformer blocks of width "
            f"{config.width} on pixels, trained from scratch",
            "weights_sha256": "",
            "precision": precision_words(config, self.workbench.device),
            "image_score": config.image_score,
        }
