"""Published forms of weights, made from canonical ones, and a comparison of tokens."""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from dinosaur_ad.encoders.registry import EncoderSpec

Tensors = dict[str, NDArray[np.float32]]


def cosine(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Return the smallest cosine similarity between corresponding tokens."""
    u, v = (x.reshape(-1, x.shape[-1]).astype(np.float64) for x in (a, b))
    return float(((u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)).min())


def original_form(spec: EncoderSpec, tensors: Tensors) -> Tensors:
    """Imitate the original checkpoints: fused qkv, other names, what only pre-training needs."""
    out: Tensors = {"mask_token": np.ones((1, spec.width), np.float32)}
    tops = {
        "embeddings.cls_token": "cls_token",
        "embeddings.register_tokens": "storage_tokens",
        "embeddings.position_embeddings": "pos_embed",
        "embeddings.patch_embeddings.weight": "patch_embed.proj.weight",
        "embeddings.patch_embeddings.bias": "patch_embed.proj.bias",
    }
    for name, value in tensors.items():
        if name in tops or name.startswith("norm."):
            out[tops.get(name, name)] = value
    for index in range(spec.depth):
        get = {key.removeprefix(f"layer.{index}."): value for key, value in tensors.items() if f"layer.{index}." in key}
        block: Tensors = {f"attn.proj.{kind}": get[f"attention.o_proj.{kind}"] for kind in ("weight", "bias")}
        for kind in ("weight", "bias"):
            block[f"attn.qkv.{kind}"] = np.concatenate([get[f"attention.{p}_proj.{kind}"] for p in "qkv"])
            block |= {f"{norm}.{kind}": get[f"{norm}.{kind}"] for norm in ("norm1", "norm2")}
            block |= {
                f"mlp.fc1.{kind}": get[f"mlp.up_proj.{kind}"],
                f"mlp.fc2.{kind}": get[f"mlp.down_proj.{kind}"],
            }
        block |= {f"ls{i}.gamma": get[f"layer_scale{i}.lambda1"] for i in (1, 2)}
        if spec.family == "dinov3":
            width = spec.width
            block["attn.qkv.bias"][width : 2 * width] = 5.0  # masked away by the model, so it must be here as well
            block["attn.qkv.bias_mask"] = np.repeat(np.array([1, 0, 1], np.float32), width)
        out |= {f"blocks.{index}.{name}": value for name, value in block.items()}
    if spec.family == "dinov3":
        out["rope_embed.periods"] = np.ones(spec.width // spec.heads // 4, np.float32)
    return out


def transformers_form(spec: EncoderSpec, tensors: Tensors, newer: bool) -> Tensors:
    """Imitate the checkpoints of ``transformers``: the hub's names, or those that newer versions save."""
    out: Tensors = {"embeddings.mask_token": np.ones((1, spec.width), np.float32)}
    for name, value in tensors.items():
        if spec.family == "dinov3":
            if not name.endswith("k_proj.bias"):
                out[f"model.{name}" if newer and name.startswith("layer.") else name] = value
            continue
        name = name.replace("patch_embeddings.", "patch_embeddings.projection.").replace("norm.", "layernorm.")
        name = name.replace("up_proj", "fc1").replace("down_proj", "fc2")
        if name.startswith("layer."):
            name = f"encoder.{name}"
        if not newer:
            for short, long in {"q": "query", "k": "key", "v": "value"}.items():
                name = name.replace(f"attention.{short}_proj", f"attention.attention.{long}")
            name = name.replace("attention.o_proj", "attention.output.dense")
        out[name] = value
    return out


def export_like(spec: EncoderSpec, tensors: Tensors) -> onnx.ModelProto:
    """Imitate an ONNX export: linear weights transposed and nameless, the position embedding in two parts."""
    nodes, initialisers = [], []

    def store(name: str, value: NDArray[np.float32]) -> None:
        initialisers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))

    for name, value in transformers_form(spec, tensors, newer=False).items():
        if name.endswith("position_embeddings"):
            store("onnx::Concat_1", value[:, :1])
            store("onnx::Reshape_2", value[:, 1:])
        elif value.ndim == 2 and name.startswith("encoder."):
            hidden = f"onnx::MatMul_{len(initialisers)}"
            store(hidden, value.T)
            path = "/backbone/" + name.removesuffix(".weight").replace(".", "/").replace("layer/", "layer.")
            nodes.append(helper.make_node("MatMul", ["x", hidden], [hidden + "_y"], name=f"{path}/MatMul"))
        else:
            store(f"backbone.{name}", value)
    store("decoder.final.weight", np.ones((1, 1), np.float32))
    return helper.make_model(helper.make_graph(nodes, "export", [], [], initialisers))
