"""MobileSAM: Segment Anything with the small image encoder TinyViT, from the official checkpoint ``mobile_sam.pt``.

Prompt encoder and mask decoder are those of ``transformers.SamModel``; the checkpoint's names are translated, and every
one of its tensors must find its place. The file is read with ``weights_only=True``: nothing in it is executed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dinosaur_ad.encoders.weights.weight_files import parsing
from dinosaur_ad.methods.ucad.tiny_vit import TinyViT

OFFICIAL = "6dbb90523a35330fedd7f1d3dfc66f995213d81b29a5ca8108dbcdd4e37d6c2f"  # sha256 of the published file
ENCODER, UNUSED = "image_encoder.", ("norm_head.", "head.")
POSITIONS = "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"
PLACES_OF_POSITIONS = ("shared_image_embedding", "prompt_encoder.shared_embedding")

_NAMES = (
    (r"^prompt_encoder\.point_embeddings\.", "prompt_encoder.point_embed."),
    (r"^prompt_encoder\.mask_downscaling\.0\.", "prompt_encoder.mask_embed.conv1."),
    (r"^prompt_encoder\.mask_downscaling\.1\.", "prompt_encoder.mask_embed.layer_norm1."),
    (r"^prompt_encoder\.mask_downscaling\.3\.", "prompt_encoder.mask_embed.conv2."),
    (r"^prompt_encoder\.mask_downscaling\.4\.", "prompt_encoder.mask_embed.layer_norm2."),
    (r"^prompt_encoder\.mask_downscaling\.6\.", "prompt_encoder.mask_embed.conv3."),
    (r"^mask_decoder\.output_upscaling\.0\.", "mask_decoder.upscale_conv1."),
    (r"^mask_decoder\.output_upscaling\.1\.", "mask_decoder.upscale_layer_norm."),
    (r"^mask_decoder\.output_upscaling\.3\.", "mask_decoder.upscale_conv2."),
    (r"(_mlps\.\d|iou_prediction_head)\.layers\.0\.", r"\1.proj_in."),
    (r"(_mlps\.\d|iou_prediction_head)\.layers\.1\.", r"\1.layers.0."),
    (r"(_mlps\.\d|iou_prediction_head)\.layers\.2\.", r"\1.proj_out."),
    (r"(mask_decoder\.transformer\..*)\bnorm(\d|_final_attn)\.", r"\1layer_norm\2."),
)


def renamed(name: str) -> str:
    """A name of the checkpoint as ``transformers.SamModel`` has it.

    >>> renamed("mask_decoder.transformer.layers.0.norm4.weight")
    'mask_decoder.transformer.layers.0.layer_norm4.weight'
    >>> renamed("mask_decoder.iou_prediction_head.layers.2.bias")
    'mask_decoder.iou_prediction_head.proj_out.bias'
    """
    for pattern, replacement in _NAMES:
        found, count = re.subn(pattern, replacement, name)
        if count:
            return found
    return name


def load_mobile_sam(path: Path, device: str) -> Any:
    """MobileSAM as a ``transformers.SamModel`` whose image encoder is a :class:`TinyViT`, frozen.

    :raises EncoderError: the file is damaged, or not MobileSAM's.
    """
    import transformers

    with parsing(path, "checkpoint of MobileSAM"):
        stored = torch.load(path, map_location="cpu", weights_only=True)
        encoder, rest = split_checkpoint(stored)
        # The encoder of `transformers` is replaced, so it is made as small as it can be.
        vision = {"hidden_size": 8, "num_hidden_layers": 0, "num_attention_heads": 1, "global_attn_indexes": []}
        model = transformers.SamModel(transformers.SamConfig(vision_config=vision))
        tiny = TinyViT()
        tiny.load_state_dict(encoder)
        # The plain module replaces the encoder before loading, so that a name that is left over is an error.
        model.vision_encoder = torch.nn.Identity()
        model.load_state_dict(rest)
    model.vision_encoder = tiny
    model.get_image_embeddings = tiny.forward
    return model.eval().requires_grad_(False).to(device)


def split_checkpoint(
    stored: Mapping[str, torch.Tensor],
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The tensors of the image encoder and those of the rest, by their names here."""
    encoder: dict[str, torch.Tensor] = {}
    rest: dict[str, torch.Tensor] = {}
    for name, value in stored.items():
        if name.startswith(ENCODER):
            own = name.removeprefix(ENCODER)
            if not own.startswith(UNUSED):
                encoder[own] = value
        elif name == POSITIONS:
            rest |= {f"{place}.positional_embedding": value for place in PLACES_OF_POSITIONS}
        else:
            rest[renamed(name)] = value
    return encoder, rest
