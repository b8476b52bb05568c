"""The folder of an export: the model, its licence, a README with code to run it, and for TensorRT a build script.

Nothing of TensorRT could be run where this was written. So it is kept small: ONNX Runtime's own TensorRT provider opens
the same ``model.onnx``, and ``dinosaur export --check DIR`` compares it on the machine that has the GPU.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from dinosaur_ad._atomic import make_folder, write_atomic
from dinosaur_ad.encoders.backends.exported import MODEL_FILES, STAMP, Manifest
from dinosaur_ad.encoders.graph.forms import copied
from dinosaur_ad.encoders.registry import get_spec, token_encoder
from dinosaur_ad.errors import InputError

# --- TensorRT ---


SCRIPT = "build_engine.sh"
MOST_IMAGES = 8
"""The largest batch that the engine is built for."""


def for_tensorrt(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with the pixels made float first: TensorRT takes bytes as an input but cannot move them around."""
    changed = copied(model)
    nodes = list(changed.graph.node)
    late = next(node for node in nodes if node.op_type == "Cast")
    for node in nodes:
        node.input[:] = ["pixels" if name == "images" else name for name in node.input]
        node.input[:] = [late.input[0] if name == late.output[0] else name for name in node.input]
    first = helper.make_node("Cast", ["images"], ["pixels"], to=TensorProto.FLOAT)
    kept = [first, *(node for node in nodes if node is not late)]
    del changed.graph.node[:]
    changed.graph.node.extend(kept)
    return changed


def build_script(size: int) -> str:
    """A shell script for the target that turns ``model.onnx`` into ``model.engine``.

    >>> "--optShapes=images:1x224x224x3" in build_script(224)
    True
    """
    shapes = {"min": 1, "opt": 1, "max": MOST_IMAGES}
    options = " \\\n  ".join(f"--{key}Shapes=images:{count}x{size}x{size}x3" for key, count in shapes.items())
    return (
        "#!/bin/sh\n"
        "# Builds an engine for the GPU of this machine; it works on no other. Not tried where this file was written:\n"
        "# compare what comes out with float32 before you use it (dinosaur export --check, see README.txt).\n"
        'cd "$(dirname "$0")" || exit 1\n'
        "trtexec --onnx=model.onnx --saveEngine=model.engine --stronglyTyped \\\n"
        f"  {options}\n"
    )


# --- the folder ---


_PYTHON = {
    "onnx": """\
    import numpy as np, onnxruntime
    session = onnxruntime.InferenceSession("model.onnx")
    values = session.run({outputs}, {{"images": images}})
""",
    "openvino": """\
    import numpy as np, openvino
    model = openvino.Core().compile_model("model.xml", "CPU"{hint})
    values = model({{"images": images}})  # values["{first}"] and so on
""",
}
_CPP = {
    "onnx": """\
    Ort::Env env;
    Ort::Session session(env, "model.onnx", Ort::SessionOptions{{}});
    std::vector<int64_t> shape{{1, {size}, {size}, 3}};
    auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    auto input = Ort::Value::CreateTensor<uint8_t>(memory, rgb, {size} * {size} * 3, shape.data(), 4);
    const char* inputs[] = {{"images"}};
    const char* outputs[] = {{{quoted}}};
    auto values = session.Run(Ort::RunOptions{{}}, inputs, &input, 1, outputs, {count});
""",
    "openvino": """\
    auto model = ov::Core().compile_model("model.xml", "CPU"{cpp_hint});
    auto request = model.create_infer_request();
    request.set_tensor("images", ov::Tensor(ov::element::u8, {{1, {size}, {size}, 3}}, rgb));
    request.infer();
    const float* first = request.get_tensor("{first}").data<float>();
""",
}


_TELEMETRY = {
    "onnx": "ONNX Runtime reports its use to its maker unless ORT_DISABLE_TELEMETRY=1 is set before it is loaded.\n",
    "openvino": "The Python package openvino reports its use to its maker; opt_in_out --opt_out switches that off.\n",
}
"""For people who run an export without this package, which switches both off."""


def refuse_occupied(out: Path) -> None:
    """Raise unless an export can be made at ``out``."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"'{out}' is there already and not an empty folder; choose another folder for --out.")


@contextmanager
def in_the_making(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` that becomes ``out`` in one rename, or goes."""
    make_folder(out.parent)
    folder = out.parent / f".dinosaur-export-{uuid.uuid4().hex}"
    folder.mkdir()
    try:
        yield folder
        if out.exists():
            out.rmdir()  # empty, as was seen before; a file that came since is not removed but stops this
        folder.rename(out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def write_files(folder: Path, model: onnx.ModelProto, manifest: Manifest) -> None:
    """Write everything but the manifest; the metadata of the model repeats the fingerprint, licence and threshold."""
    stamps = {
        STAMP: manifest.fingerprint,
        "dinosaur_licence": manifest.licence,
        "dinosaur_precision": manifest.precision,
    }
    if manifest.bank is not None:
        stamps |= {f"dinosaur_{key}": str(value) for key, value in manifest.bank.items()}
    if manifest.kind == "openvino":
        import openvino

        converted = openvino.Core().read_model(model.SerializeToString())
        for key, value in stamps.items():
            converted.set_rt_info(value, key)
        openvino.save_model(converted, folder / MODEL_FILES["openvino"][0], compress_to_fp16=False)
    else:
        if manifest.kind == "tensorrt":
            model = for_tensorrt(model)
            write_atomic(folder / SCRIPT, build_script(manifest.size).encode())
        onnx.helper.set_model_props(model, stamps)
        write_atomic(folder / MODEL_FILES["onnx"][0], model.SerializeToString())
    write_atomic(folder / "LICENCE.txt", licence_text(manifest).encode())
    write_atomic(folder / "README.txt", readme_text(manifest).encode())


def licence_text(manifest: Manifest) -> str:
    """The licence of the weights inside the model, by name and address."""
    spec = get_spec(manifest.encoder)
    address = manifest.licence_url or "no address is recorded"
    return (
        f"The model in this folder holds the weights of: {spec.describe(manifest.weights_source)}.\n\n"
        f"Licence: {manifest.licence}\n"
        f"Its text and terms: {address}\n"
        f"Where the weights came from: {manifest.weights_source}\n"
        f"SHA-256 of the weights: {manifest.weights_sha256}\n\n"
        "Whoever passes this folder on passes the weights on, and has to keep the terms of that licence; keep this "
        "file with it.\n"
    )


def readme_text(manifest: Manifest) -> str:
    """What goes in, what comes out, and a few lines that run it."""
    kind = "openvino" if manifest.kind == "openvino" else "onnx"
    spec = get_spec(manifest.encoder)
    size, outputs = manifest.size, _outputs(manifest)
    names = list(outputs) if manifest.bank is None else ["score", "map", "anomalous"]
    narrow = manifest.precision == "bfloat16"
    values = {
        "size": size,
        "outputs": str(names),
        "first": names[0],
        "quoted": ", ".join(f'"{name}"' for name in names),
        "count": len(names),
        "hint": ', {"INFERENCE_PRECISION_HINT": "bf16"}' if narrow else "",
        "cpp_hint": ", ov::hint::inference_precision(ov::element::bf16)" if narrow else "",
    }
    described = "\n".join(f"  {name:<10} {text}" for name, text in outputs.items())
    trt = "\nTensorRT: sh build_engine.sh on the machine with the GPU; then compare it, as below.\n"
    return (
        f"{spec.describe(manifest.weights_source)}\n"
        f"exported by dinosaur-ad {manifest.made['dinosaur-ad']} for {manifest.kind} in {manifest.precision}: "
        f"{', '.join(MODEL_FILES[manifest.kind])}.\n"
        f"{_bank_line(manifest)}\n"
        "Input\n"
        f"  images     uint8 (N, {size}, {size}, 3): RGB, 0-255, rows from the top. Resize the whole image to "
        f"{size} x {size}, bilinear with\n"
        "             antialiasing, without keeping its aspect ratio (Pillow's BILINEAR); nothing else: normalisation "
        "is inside.\n"
        f"Outputs\n{described}\n"
        f"{trt if manifest.kind == 'tensorrt' else ''}\n"
        f"Python\n{_PYTHON[kind].format(**values)}\n"
        f"C++ (rgb: a pointer to the pixels)\n{_CPP[kind].format(**values)}\n"
        f"{_TELEMETRY[kind]}"
        "With dinosaur-ad: dinosaur inspect IMAGES --store STORE --export DIR runs it as the store's encoder, and\n"
        "dinosaur export --check DIR compares it with float32 on this machine. Keep LICENCE.txt with "
        "it.\n"
    )


def _outputs(manifest: Manifest) -> dict[str, str]:
    spec = token_encoder(get_spec(manifest.encoder))
    side, channels = manifest.size // spec.patch, len(manifest.layers) * spec.width
    outputs = {
        "cls": f"float32 (N, {channels}): the CLS token of the layers {list(manifest.layers)}, side by side",
        "patches": f"float32 (N, {side}, {side}, {channels}): the patch tokens of the same layers",
    }
    if manifest.bank is not None:
        outputs = {
            "score": "float32 (N,): the anomaly score",
            "map": f"float32 (N, {side}, {side}): the distance of each patch from everything normal near its place",
            "anomalous": "bool (N,): whether the score exceeds the threshold",
        } | outputs
    return outputs


def _bank_line(manifest: Manifest) -> str:
    bank = manifest.bank
    if bank is None:
        return ""
    return (
        f"It scores images of the task '{bank['task']}' in the graph; an image is anomalous above\n"
        f"{bank['threshold']:.6g} (false alarms asked for: {bank['false_alarms']:g}). "
        "Images of other tasks must not be given to it.\n"
    )
