"""The folder of an export: the model, its licence, a README with code to run it, and for TensorRT a build script.

Nothing of TensorRT could be run where this was written. So it is kept small: ONNX Runtime's own TensorRT provider opens
the same ``model.onnx``, and ``dinosaur export --check DIR`` compares it on the machine that has the GPU.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import onnx
from onnx import TensorProto, helper

from dinosaur_ad._atomic import make_folder, write_atomic
from dinosaur_ad.encoders.backends.exported import MODEL_FILES, STAMP, Manifest
from dinosaur_ad.encoders.graph.forms import copied
from dinosaur_ad.encoders.registry import get_spec, token_encoder
from dinosaur_ad.errors import InputError

_TEMPLATES = files("dinosaur_ad.export").joinpath("templates")


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
            write_atomic(folder / "build_engine.sh", _filled("build_engine.sh", size=manifest.size).encode())
        onnx.helper.set_model_props(model, stamps)
        write_atomic(folder / MODEL_FILES["onnx"][0], model.SerializeToString())
    write_atomic(folder / "LICENCE.txt", licence_text(manifest).encode())
    write_atomic(folder / "README.txt", readme_text(manifest).encode())


def licence_text(manifest: Manifest) -> str:
    """The licence of the weights inside the model, by name and address."""
    return _filled(
        "licence.txt",
        description=get_spec(manifest.encoder).describe(manifest.weights_source),
        licence=manifest.licence,
        licence_url=manifest.licence_url or "no address is recorded",
        weights_source=manifest.weights_source,
        weights_sha256=manifest.weights_sha256,
    )


def readme_text(manifest: Manifest) -> str:
    """Inputs, outputs, and a few lines of Python and C++ that run the model."""
    outputs = _outputs(manifest)
    names = list(outputs) if manifest.bank is None else ["score", "map", "anomalous", "unknown"]
    narrow = manifest.precision == "bfloat16"
    code = _filled(
        "openvino.txt" if manifest.kind == "openvino" else "onnx.txt",
        size=manifest.size,
        first=names[0],
        quoted=", ".join(f'"{name}"' for name in names),
        count=len(names),
        hint=', {"INFERENCE_PRECISION_HINT": "bf16"}' if narrow else "",
        cpp_hint=", ov::hint::inference_precision(ov::element::bf16)" if narrow else "",
    )
    engine = "\nTensorRT: sh build_engine.sh on the machine with the GPU; then compare it, as below.\n"
    return _filled(
        "readme.txt",
        description=get_spec(manifest.encoder).describe(manifest.weights_source),
        version=manifest.made["dinosaur-ad"],
        kind=manifest.kind,
        precision=manifest.precision,
        model=", ".join(MODEL_FILES[manifest.kind]),
        bank=_bank_line(manifest),
        size=manifest.size,
        outputs="\n".join(f"  {name:<10} {text}" for name, text in outputs.items()),
        tensorrt=engine if manifest.kind == "tensorrt" else "",
        code=code.rstrip(),
    )


def _filled(template: str, **values: Any) -> str:
    return Template(_TEMPLATES.joinpath(template).read_text("utf-8")).substitute(values)


def _outputs(manifest: Manifest) -> dict[str, str]:
    spec = token_encoder(get_spec(manifest.encoder))
    side, channels = manifest.size // spec.patch, len(manifest.layers) * spec.width + spec.tail
    tail = f", and {spec.tail} channels of the second network" if spec.tail else ""
    outputs = {
        "cls": f"float32 (N, {channels}): the CLS token of the layers {list(manifest.layers)}, side by side{tail}",
        "patches": f"float32 (N, {side}, {side}, {channels}): the patch tokens of the same layers",
    }
    if manifest.bank is not None:
        outputs = {
            "score": "float32 (N,): the anomaly score",
            "map": f"float32 (N, {side}, {side}): {_map_words(manifest.bank)}",
            "anomalous": "bool (N,): whether the score exceeds the threshold",
            "unknown": "bool (N,): whether the image shows none of the learned products; then that is the verdict",
        } | outputs
    return outputs


def _map_words(bank: Mapping[str, Any]) -> str:
    if len(bank["readings"]) > 1:
        return "how much each patch stands out, in the unit of the score: 1 is usual for a good part"
    return "the distance of each patch from everything normal near its place"


def _bank_line(manifest: Manifest) -> str:
    bank = manifest.bank
    if bank is None:
        return ""
    share = bank.get("inspected", 1.0)
    inspected = "" if share == 1 else f"Only {share:.0%} of the image is inspected; outside of it the map is zero.\n"
    return (
        f"It scores images of the task '{bank['task']}' in the graph; an image is anomalous above\n"
        f"{bank['threshold']:.6g} (false alarms asked for: {bank['false_alarms']:g}). "
        f"Images of other tasks must not be given to it.\n{inspected}"
    )
