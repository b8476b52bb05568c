"""Encoders on torch through ``transformers``: the reference for the ONNX graphs, and the way to use a GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from dinosaur_ad.encoders.backends.setup import Setup
from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD, Encoder, Floats, Layer, Reduce, blocks_needed
from dinosaur_ad.encoders.specs import EncoderSpec
from dinosaur_ad.encoders.weights.convert import canonical_name
from dinosaur_ad.errors import EncoderError

PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class OnTorch(Encoder):
    """Encoders whose tokens are tensors on a device, and are reduced there before they are copied."""

    backend = "torch"

    def _tokens(self, pixels: NDArray[np.uint8]) -> tuple[torch.Tensor, torch.Tensor]:
        """CLS (N, C) and patch tokens (N, H, W, C), still on the device."""
        raise NotImplementedError

    def _run(self, pixels: NDArray[np.uint8]) -> tuple[Floats, Floats]:
        cls, patches = self._tokens(pixels)
        return cls.cpu().numpy(), patches.cpu().numpy()

    def _reduced(self, pixels: NDArray[np.uint8], reduce: Reduce) -> tuple[Floats, Floats]:
        cls, patches = map(reduce, self._tokens(pixels))
        return cls.cpu().numpy(), patches.cpu().numpy()


class TorchEncoder(OnTorch):
    """``Dinov2Model`` or ``DINOv3ViTModel`` built from its configuration and the canonical weights."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.weights, setup.layers, setup.size)
        device, precision = setup.device, setup.precision
        check_device(device)
        if precision not in PRECISIONS or (precision != "float32" and not device.startswith("cuda")):
            raise EncoderError(
                f"Precision must be float32, or on a GPU float16 or bfloat16, got '{precision}' on '{device}'."
            )
        if setup.threads is not None:
            torch.set_num_threads(setup.threads)  # torch knows only one number for the whole process
        self.provider = device
        self.precision = precision
        self._device = torch.device(device)
        depth = blocks_needed(self.layers, self.spec.depth)
        self._model = _build_model(self.spec, setup.weights.tensors(), depth).to(self._device)
        self._mean = torch.tensor(IMAGE_MEAN, device=self._device)
        self._std = torch.tensor(IMAGE_STD, device=self._device)
        self._taps: dict[Layer, torch.Tensor] = {}
        self._hook_blocks(depth)

    def _hook_blocks(self, depth: int) -> None:
        """Tap the blocks themselves: versions of ``transformers`` differ in what they call hidden states."""
        lists = (module for module in self._model.modules() if isinstance(module, torch.nn.ModuleList))
        blocks = next(module for module in lists if len(module) == depth)
        for layer in self.layers:
            if layer != "final":
                blocks[layer].register_forward_hook(self._keep(layer))

    def _keep(self, layer: Layer) -> Any:
        def hook(_module: object, _inputs: object, output: Any) -> None:
            self._taps[layer] = output[0] if isinstance(output, tuple) else output

        return hook

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == "float32":
            return nullcontext()
        context: AbstractContextManager[object] = torch.autocast("cuda", dtype=PRECISIONS[self.precision])
        return context

    def _tokens(self, pixels: NDArray[np.uint8]) -> tuple[torch.Tensor, torch.Tensor]:
        """CLS (N, C) and patch tokens (N, H, W, C), still on the device."""
        with torch.inference_mode(), self._autocast():
            raw = torch.from_numpy(np.ascontiguousarray(pixels)).to(self._device)
            normalised = (raw.float() / 255 - self._mean) / self._std
            final = self._model(pixel_values=normalised.permute(0, 3, 1, 2)).last_hidden_state
            taps = self._taps | {"final": final}
            tokens = torch.cat([taps[layer] for layer in self.layers], dim=-1).float()
        self._taps.clear()
        patches = tokens[:, self.spec.prefix :].reshape(len(pixels), *self.grid, self.channels)
        return tokens[:, 0], patches


def check_device(device: str) -> None:
    """Raise when ``device`` is a GPU and torch sees none."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise EncoderError(f"The device '{device}' was asked for but torch sees no GPU here; use device='cpu'.")


def _build_model(spec: EncoderSpec, tensors: dict[str, Floats], depth: int) -> Any:
    shared = {
        "hidden_size": spec.width,
        "num_hidden_layers": depth,
        "num_attention_heads": spec.heads,
        "patch_size": spec.patch,
        "image_size": spec.native_size,
        "layer_norm_eps": spec.eps,
    }
    if spec.family == "dinov2":
        model = transformers.Dinov2Model(transformers.Dinov2Config(**shared, mlp_ratio=4))
    else:
        config = transformers.DINOv3ViTConfig(
            **shared, intermediate_size=4 * spec.width, num_register_tokens=spec.registers, key_bias=True
        )
        model = transformers.DINOv3ViTModel(config)
    # The model's own names differ between versions of transformers; each has one canonical spelling.
    state = model.state_dict()
    for name, value in state.items():
        if not name.endswith("mask_token"):
            value.copy_(torch.tensor(tensors[canonical_name(name)]))
    return model.eval()
