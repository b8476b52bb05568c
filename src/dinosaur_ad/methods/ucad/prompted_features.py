"""UCAD's frozen network: patch features after the first blocks of a vision transformer, with or without a prompt.

A prompt steers the network without changing it, in one of two ways (``none``: there is no prompt):

* ``added``, the benchmark's paper: ``(L, C)``, row l is added to every token before block l;
* ``prefix``, the original: ``(L, 2, C)``, in block l one more key and one more value that every token attends to.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dinosaur_ad.errors import EncoderError
from dinosaur_ad.methods.shared.precision import deterministic, uses_tf32
from dinosaur_ad.methods.shared.torch_tools import import_torch
from dinosaur_ad.methods.shared.vit_base import POSITIONS, VisionTransformer, load_vit, sized, vit_name, vit_spec

if TYPE_CHECKING:
    import torch

    from dinosaur_ad.methods.ucad.ucad_method import UCADConfig

PromptKind = Literal["added", "prefix", "none"]


class PromptedFeatures:
    """Normalised images (N, 3, S, S) in, patch features (N, H * W, dim) out.

    The setting ``shifted`` leaves out CLS and moves every position by one, as the authors of the benchmark's paper run
    it. ``dim`` is another number of channels, made by averaging neighbouring ones.
    """

    def __init__(self, config: UCADConfig, device: str) -> None:
        self.spec = spec = sized(vit_spec(config.backbone), size=config.size, depth=config.blocks)
        if config.prompt == "prefix" and spec.family != "dinov2":
            raise EncoderError(f"'{spec.name}' rotates its keys by position, so no prefix fits; use prompt=added.")
        self._config, self._device, self.kind = config, device, config.prompt
        self.grid = (config.size // spec.patch,) * 2
        self.channels = spec.width if config.dim is None else config.dim
        shapes: dict[str, tuple[int, ...]] = {
            "added": (config.blocks, spec.width),
            "prefix": (config.blocks, 2, spec.width),
            "none": (0,),
        }
        self.prompt_shape = shapes[config.prompt]

    def __call__(self, images: torch.Tensor, prompt: torch.Tensor | None = None) -> torch.Tensor:
        """The features (N, P, dim), steered by ``prompt`` or plain."""
        torch, config = import_torch(), self._config
        added = prompt if self.kind == "added" else None
        if prompt is not None and self.kind == "prefix":
            self._prefixes.prompt_L2C = prompt
        # Otherwise cuDNN may round to TF32 and choose algorithms by speed, which is not reproducible.
        with deterministic(tf32=uses_tf32(config, self._device)):
            try:
                tokens_NTC = self.network.tokens(images, added, shifted=config.shifted)
            finally:
                if self.kind == "prefix":
                    self._prefixes.prompt_L2C = None
        patches_NPC = tokens_NTC if config.shifted else tokens_NTC[:, self.spec.prefix :]
        if self.channels == self.spec.width:
            return patches_NPC
        return torch.nn.functional.adaptive_avg_pool1d(patches_NPC, self.channels)

    @cached_property
    def network(self) -> VisionTransformer:
        """The frozen network, loaded with the first image."""
        config = self._config
        return load_vit(
            config.backbone,
            size=config.size,
            depth=config.blocks,
            weights=config.weights or None,
            device=self._device,
        )

    @cached_property
    def _prefixes(self) -> Prefixes:
        return Prefixes(self.network.module, self.spec.depth, self.spec.heads)

    def draw_prompt(self, seed: tuple[int, ...], spread: float = 1.0) -> torch.Tensor:
        """A new prompt, the same on every device: normal of deviation ``spread`` when added, uniform as a prefix."""
        generator = np.random.default_rng(seed)
        if self.kind == "added":
            drawn = spread * generator.standard_normal(self.prompt_shape)
        else:
            drawn = generator.uniform(-spread, spread, self.prompt_shape)
        return import_torch().from_numpy(drawn.astype(np.float32)).to(self._device)

    @property
    def parameters(self) -> int:
        """As the paper counts: the blocks, the patch projection and CLS; neither the positions nor the last norm."""
        uncounted = (POSITIONS, "norm.weight", "norm.bias")
        shapes = self.spec.tensor_shapes()
        return sum(int(np.prod(shape)) for name, shape in shapes.items() if name not in uncounted)


class Prefixes:
    """Adds one key and one value to the attention of each block, by hooks.

    Versions of ``transformers`` differ in how they split heads, but in all of them queries, keys and values are the
    outputs of three projections, and the attention output is the input of a fourth. Hooks on these compute the
    attention again.
    """

    def __init__(self, module: torch.nn.Module, blocks: int, heads: int) -> None:
        self.prompt_L2C: torch.Tensor | None = None
        self._heads = heads
        self._projected: dict[str, torch.Tensor] = {}
        found = {vit_name(f"{name}.weight"): layer for name, layer in module.named_modules()}
        for block in range(blocks):
            for part in "qkv":
                layer = found[f"layer.{block}.attention.{part}_proj.weight"]
                layer.register_forward_hook(self._keep(part))
            found[f"layer.{block}.attention.o_proj.weight"].register_forward_pre_hook(self._mix(block))

    def _keep(self, part: str) -> Any:
        def hook(_module: object, _inputs: object, output: torch.Tensor) -> None:
            if self.prompt_L2C is not None:
                self._projected[part] = output

        return hook

    def _mix(self, block: int) -> Any:
        def hook(_module: object, _inputs: object) -> tuple[torch.Tensor] | None:
            if self.prompt_L2C is None:
                return None
            torch = import_torch()
            prefix_2C = self.prompt_L2C[block].to(self._projected["q"].dtype)
            queries_NTC, keys_NTC, values_NTC = (self._projected.pop(part) for part in "qkv")
            keys_NTC, values_NTC = (
                torch.cat([row_C.expand(len(each_NTC), 1, -1), each_NTC], dim=1)
                for row_C, each_NTC in zip(prefix_2C, (keys_NTC, values_NTC), strict=True)
            )
            mixed_NHTD = torch.nn.functional.scaled_dot_product_attention(
                *(each.unflatten(2, (self._heads, -1)).transpose(1, 2) for each in (queries_NTC, keys_NTC, values_NTC))
            )
            return (mixed_NHTD.transpose(1, 2).flatten(2),)

        return hook
