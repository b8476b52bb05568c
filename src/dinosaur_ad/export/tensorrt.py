"""TensorRT: a graph that it takes, and the command that builds an engine of it on the target.

None of this could be run where it was written. So it is kept small: ONNX Runtime's own TensorRT provider opens the same
``model.onnx`` (see :mod:`~dinosaur_ad.encoders.backends.exported`), and ``dinosaur export --check DIR``
holds it to the same limits on the machine that has the GPU.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from dinosaur_ad.encoders.graph.rewrite import copied

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
