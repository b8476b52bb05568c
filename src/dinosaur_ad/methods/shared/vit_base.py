"""The plain vision transformer that DNE fine-tunes and UCAD prompts, or a registered token encoder in its place.

``vit-base`` is the ViT-B/16 of both (see :mod:`~dinosaur_ad.methods.shared.vit_weights`), ``tiny-vit`` a small random
one for tests. Any token encoder of :mod:`dinosaur_ad.encoders` works as a substitute; ``info`` then says so. A position
table for another image size is resampled once, when the network is built, and trained in that form.

torch is imported when a network is loaded, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dinosaur_ad.encoders import EncoderSpec
from dinosaur_ad.encoders.providers import require_torch
from dinosaur_ad.encoders.weights.convert import Floats
from dinosaur_ad.encoders.weights.local import Weights, ensure, from_file
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.methods.shared.vit_weights import (
    PATCHES,
    POSITIONS,
    ViTSpec,
    find_vit_weights,
    sized,
    vit_name,
    vit_spec,
)

if TYPE_CHECKING:
    import torch

__all__ = ["PATCHES", "POSITIONS", "ViTSpec", "VisionTransformer", "load_vit", "sized", "vit_name", "vit_spec"]


def load_vit(
    name: str = "vit-base",
    *,
    size: int = 224,
    depth: int | None = None,
    weights: str | Path | None = None,
    device: str = "cpu",
    train: bool = False,
) -> VisionTransformer:
    """Return the network ``name`` for images of ``size`` pixels on ``device``, or its first ``depth`` blocks.

    ``weights`` takes them from a file or folder. ``train`` lets them change: all but the patch projection, which both
    papers keep as it is.
    """
    spec = vit_spec(name)
    built = sized(spec, size=size, depth=depth)  # before reading weights, not after
    require_torch(name, device)
    if isinstance(spec, ViTSpec):
        found = find_vit_weights(spec, weights)
    else:
        found = ensure(name) if weights is None else from_file(name, weights)
    return VisionTransformer(found, built, device, train)


class VisionTransformer:
    """A vision transformer as a torch module that can be trained; images are (B, 3, S, S), normalised like ImageNet.

    ``module`` is the ``transformers`` model. Prompts and outputs use hooks on its blocks: how a model calls its blocks
    differs between architectures and versions of ``transformers``, but all call them one after the other.
    """

    def __init__(self, weights: Weights, spec: EncoderSpec, device: str, train: bool) -> None:
        self.spec = spec
        self.width, self.prefix = spec.width, spec.prefix
        self.grid = (spec.native_size // spec.patch,) * 2
        self.weights_sha256, self._source, self._device = weights.sha256, weights.source, device
        self.module = _build(spec, _resampled(spec, weights.tensors())).to(device)
        for name, parameter in self.module.named_parameters():
            frozen = vit_name(name).startswith(PATCHES) or name.endswith("mask_token")
            parameter.requires_grad_(train and not frozen)
        self._prompts_LC: torch.Tensor | None = None
        self._shifted = False
        self._stream: torch.Tensor | None = None
        self._hook()

    def cls(self, images: torch.Tensor) -> torch.Tensor:
        """The CLS token after the last norm, (B, C)."""
        state: torch.Tensor = self.module(pixel_values=images).last_hidden_state
        self._stream = None
        return state[:, 0]

    def tokens(
        self, images: torch.Tensor, prompts_LC: torch.Tensor | None = None, *, shifted: bool = False
    ) -> torch.Tensor:
        """All tokens after the last block, (B, ``prefix`` + H * W, C), without the last norm.

        Row k of ``prompts_LC`` is added to every token before block k; there are as many rows as blocks. ``shifted``
        leaves the CLS token out and gives every patch the position before its own, the first one that of CLS,
        (B, H * W, C): so the paper's authors ran UCAD.
        """
        if prompts_LC is not None and tuple(prompts_LC.shape) != (self.spec.depth, self.width):
            raise InputError(
                f"Expected prompts of shape ({self.spec.depth}, {self.width}), one row a block, "
                f"got {tuple(prompts_LC.shape)}."
            )
        if shifted and self.spec.family != "dinov2":
            raise EncoderError(f"'{self.spec.name}' has no table of positions to shift; use it without.")
        self._prompts_LC, self._shifted = prompts_LC, shifted
        try:
            self.module(pixel_values=images)
            assert self._stream is not None
            return self._stream
        finally:
            self._prompts_LC, self._shifted, self._stream = None, False, None

    def _hook(self) -> None:
        import torch

        lists = (module for module in self.module.modules() if isinstance(module, torch.nn.ModuleList))
        blocks = next(module for module in lists if len(module) == self.spec.depth)
        for row, block in enumerate(blocks):
            block.register_forward_pre_hook(self._add_prompt(row))
        blocks[-1].register_forward_hook(self._keep_stream)
        self.module.embeddings.register_forward_hook(self._shift)

    def _add_prompt(self, row: int) -> Any:
        def hook(_module: object, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
            return None if self._prompts_LC is None else (inputs[0] + self._prompts_LC[row], *inputs[1:])

        return hook

    def _keep_stream(self, _module: object, _inputs: object, output: Any) -> None:
        self._stream = output[0] if isinstance(output, tuple) else output

    def _shift(self, module: Any, _inputs: object, tokens: Any) -> Any:
        if not self._shifted:
            return None
        table = module.position_embeddings
        return tokens[:, 1:] - table[:, 1:] + table[:, :-1]

    def info(self) -> dict[str, object]:
        """The pretrained network, as JSON."""
        description = self.spec.describe(self._source)
        if self.spec.name != "vit-base":
            description = f"a substitute for ViT-B/16: {description}"
        return {
            "encoder": self.spec.name,
            "description": description,
            "backend": "torch",
            "provider": self._device,
            "precision": "float32",
            "size": self.spec.native_size,
            "blocks": self.spec.depth,
            "channels": self.width,
            "weights_source": self._source,
            "weights_sha256": self.weights_sha256,
            "licence": self.spec.licence,
        }


def _resampled(spec: EncoderSpec, tensors: Mapping[str, Floats]) -> dict[str, Floats]:
    """The weights with the position table for the size at hand: resampled now and not in every step of a training."""
    from dinosaur_ad.encoders.graph.vit_graph import interpolate_positions

    if spec.family != "dinov2":
        return dict(tensors)
    table = interpolate_positions(tensors[POSITIONS][0].astype(np.float64), spec.native_size // spec.patch)
    return {**tensors, POSITIONS: table[None].astype(np.float32)}


def _build(spec: EncoderSpec, tensors: dict[str, Floats]) -> Any:
    from dinosaur_ad.encoders.backends.torch_backend import _build_model

    if not isinstance(spec, ViTSpec):
        return _build_model(spec, tensors, spec.depth)
    import torch
    import transformers

    config = transformers.ViTConfig(
        hidden_size=spec.width,
        num_hidden_layers=spec.depth,
        num_attention_heads=spec.heads,
        intermediate_size=4 * spec.width,
        patch_size=spec.patch,
        image_size=spec.native_size,
        layer_norm_eps=spec.eps,
    )
    model = transformers.ViTModel(config, add_pooling_layer=False)
    for name, value in model.state_dict().items():
        value.copy_(torch.from_numpy(tensors[vit_name(name)]))
    return model.eval()
