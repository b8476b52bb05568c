"""UCAD's frozen network: patch features after the first blocks of a vision transformer, with or without a prompt.

A prompt steers the network without changing it, in one of two ways:

* ``added``, the benchmark's paper: ``(L, C)``, row l is added to every token before block l;
* ``prefix``, the original: ``(L, 2, C)``, in block l one more key and one more value that every token attends to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dinosaur_ad.errors import EncoderError
from dinosaur_ad.methods.shared.precision import deterministic
from dinosaur_ad.methods.shared.torch_tools import import_torch
from dinosaur_ad.methods.shared.vit_base import POSITIONS, VisionTransformer, load_vit, sized, vit_name, vit_spec

if TYPE_CHECKING:
    import torch

PromptKind = Literal["added", "prefix"]


class PromptedFeatures:
    """Normalised images (N, 3, S, S) in, patch features (N, H * W, dim) out.

    ``shifted`` leaves out CLS and moves every position by one, as the authors of the benchmark's paper run it.
    ``dim`` brings features to another number of channels by averaging over neighbouring ones (None: as they are).
    With ``tf32`` a GPU rounds products to ten bits.
    """

    def __init__(
        self,
        backbone: str,
        *,
        weights: str,
        blocks: int,
        size: int,
        kind: PromptKind,
        shifted: bool,
        dim: int | None,
        device: str,
        tf32: bool = False,
    ) -> None:
        spec = sized(vit_spec(backbone), size=size, depth=blocks)
        if kind == "prefix" and spec.family != "dinov2":
            raise EncoderError(f"'{backbone}' rotates its keys by position, so no prefix fits; use prompt=added.")
        self.spec, self.kind = spec, kind
        self.grid = (size // spec.patch,) * 2
        self.channels = spec.width if dim is None else dim
        self.prompt_shape = (blocks, spec.width) if kind == "added" else (blocks, 2, spec.width)
        self._load: Callable[[], VisionTransformer] = lambda: load_vit(
            backbone, size=size, depth=blocks, weights=weights or None, device=device
        )
        self._shifted, self._device, self._tf32 = shifted, device, tf32

    def __call__(self, images: torch.Tensor, prompt: torch.Tensor | None = None) -> torch.Tensor:
        """The features (N, P, dim), steered by ``prompt`` or plain."""
        torch = import_torch()
        added = prompt if self.kind == "added" else None
        if prompt is not None and self.kind == "prefix":
            self._prefixes.prompt_L2C = prompt
        # Otherwise cuDNN would round to TF32 unasked and pick its algorithms by their speed, which cannot be repeated.
        with deterministic(tf32=self._tf32):
            try:
                tokens_NTC = self.network.tokens(images, added, shifted=self._shifted)
            finally:
                if self.kind == "prefix":
                    self._prefixes.prompt_L2C = None
        patches_NPC = tokens_NTC if self._shifted else tokens_NTC[:, self.spec.prefix :]
        if self.channels == self.spec.width:
            return patches_NPC
        return torch.nn.functional.adaptive_avg_pool1d(patches_NPC, self.channels)

    @cached_property
    def network(self) -> VisionTransformer:
        """The frozen network, loaded when the first image comes."""
        return self._load()

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
    """One more key and value in each block.

    How a model splits its heads differs between versions of ``transformers``; that queries, keys and values come out of
    three projections and their mixture goes into a fourth does not. So the mixture is computed again before the fourth.
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
