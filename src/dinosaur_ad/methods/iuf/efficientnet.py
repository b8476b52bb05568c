"""EfficientNet-B4, whose features the published IUF reconstructs, through ``transformers``.

The weights are those of the hub's google/efficientnet-b4. Nothing is downloaded here: they are taken from a file or
folder, or from the hub's own cache if they are in it. ``tiny-efficientnet`` is random and needs none.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch

from dinosaur_ad._atomic import sha256_file
from dinosaur_ad.errors import EncoderError

HUB = "google/efficientnet-b4"
FILE = "model.safetensors"
SUBSTITUTES = "--set iuf.backbone=resnet50-v1 or dinov2s-focus (variants original-resnet50 and original-vit)"
STRIDES = (2, 4, 8, 16)
# depthwise_padding: the hub's list is made for 380 pixels; maps of a multiple of 16 are even, and then it is empty.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "efficientnet-b4": {
        "width_coefficient": 1.4,
        "depth_coefficient": 1.8,
        "hidden_dim": 1792,
        "image_size": 380,
        "dropout_rate": 0.4,
        "depthwise_padding": [],
    },
    "tiny-efficientnet": {
        "width_coefficient": 0.25,
        "depth_coefficient": 0.3,
        "hidden_dim": 320,
        "image_size": 64,
        "depthwise_padding": [],
    },
}


class EfficientNetMaps:
    """A frozen EfficientNet: the last map of each resolution from 1/2 to 1/16 of the image.

    Of B4 these are the outputs of blocks 1, 5, 9 and 21 (from 0), with 24, 32, 56 and 160 channels.
    """

    def __init__(self, name: str, weights: str, device: torch.device) -> None:
        self.name, self._device = name, device
        random = name.startswith("tiny")
        self._path = None if random else find_weights(weights)
        self._model = build(name)
        if self._path is None:
            draw(self._model)
        else:
            fill(self._model, self._path)
        self._model.to(device).eval().requires_grad_(False)

    def __call__(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Maps (N, C, S/2, S/2) to (N, C, S/16, S/16) of normalised images (N, 3, S, S), the finest first."""
        exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        with torch.no_grad(), exact:
            return maps_of(self._model, images)

    def info(self) -> dict[str, Any]:
        """What the network is, and the hash of its weights."""
        if self._path is None:
            content = b"".join(value.cpu().numpy().tobytes() for value in self._model.state_dict().values())
            return {
                "encoder": self.name,
                "description": "a small random EfficientNet for tests: it has learned nothing",
                "weights_source": "random",
                "weights_sha256": hashlib.sha256(content).hexdigest(),
            }
        return {
            "encoder": self.name,
            "description": f"EfficientNet-B4 for ImageNet-1k, maps at 1/2 to 1/16, as on the hub ({HUB})",
            "weights_source": f"file:{self._path.name}",
            "weights_sha256": sha256_file(self._path),
        }


def build(name: str) -> Any:
    """The network without its classifier, on torch's current default device."""
    import transformers

    return transformers.EfficientNetModel(transformers.EfficientNetConfig(**ARCHITECTURES[name]))


def maps_of(model: Any, images: torch.Tensor) -> list[torch.Tensor]:
    """The last map of each resolution down to 1/16; later blocks are not computed."""
    found: dict[int, torch.Tensor] = {}
    hidden = model.embeddings(images)
    for block in model.encoder.blocks:
        hidden = block(hidden)
        stride = images.shape[-1] // hidden.shape[-1]
        if stride > STRIDES[-1]:
            break
        found[stride] = hidden
    return list(found.values())


def channels_and_parameters(name: str) -> tuple[int, int]:
    """The channels of the four maps together, and the network's parameters, without allocating them.

    >>> channels_and_parameters("efficientnet-b4")
    (272, 17548616)
    """
    with torch.device("meta"):
        model = build(name).eval()
        maps = maps_of(model, torch.empty(1, 3, 64, 64))
    return sum(each.shape[1] for each in maps), sum(parameter.numel() for parameter in model.parameters())


def draw(model: Any) -> None:
    """Draw random weights with a fixed seed, and batch-norm statistics of noise, which keep activations in scale."""
    generator = torch.Generator().manual_seed(5)
    model.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.weight.data.normal_(0, module.weight[0].numel() ** -0.5, generator=generator)
            if module.bias is not None:
                module.bias.data.zero_()
        elif isinstance(module, torch.nn.BatchNorm2d):
            module.weight.data.fill_(1)
            module.train().momentum = 1.0
    with torch.no_grad():
        model(torch.randn(8, 3, 64, 64, generator=generator))


def find_weights(weights: str) -> Path:
    """The file of weights: the one named, the one in the folder named, or the one in the hub's cache."""
    if weights:
        path = Path(weights)
        path = path / FILE if path.is_dir() else path
        if path.is_file():
            return path
        raise EncoderError(f"There are no weights of EfficientNet-B4 in {weights}; name a {FILE} of {HUB}.")
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        found = None
    else:
        found = try_to_load_from_cache(HUB, FILE)
    if isinstance(found, str):
        return Path(found)
    raise EncoderError(
        f"The weights of EfficientNet-B4 are not on this machine; fetch them with 'hf download {HUB} {FILE}', or name "
        f"a copy of that file with --set iuf.weights=FILE, or use other features: {SUBSTITUTES}."
    )


def fill(model: Any, path: Path) -> None:
    """Copy the weights of a safetensors file into the network; its classifier is left out."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        stored = {name.removeprefix("efficientnet."): value for name, value in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise EncoderError(f"{path} cannot be read as safetensors ({error}); fetch {FILE} of {HUB} again.") from error
    state = model.state_dict()
    for name, value in state.items():
        if name.endswith("num_batches_tracked"):
            continue
        if name not in stored or stored[name].shape != value.shape:
            raise EncoderError(f"{path} has no '{name}' of shape {tuple(value.shape)}: it is not EfficientNet-B4.")
        value.copy_(stored[name])
