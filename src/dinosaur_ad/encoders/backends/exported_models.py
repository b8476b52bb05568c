"""What a model file of an export may contain, looked at before a run time opens it.

The graphs that are exported here are a chain of standard operators with their weights inside. A model that refers to
other files, brings operators of its own, or loops, is none of them: the first would read what was not hashed, the
others can take any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

MOST_NODES = 20_000
"""Of the largest graph here there is a tenth."""

_LOOPS = {b"Loop", b"TensorIterator", b"If", b"ReadValue", b"Assign"}


def model_problem(kind: str, contents: Sequence[bytes]) -> str | None:
    """Why the model of an export is no plain graph in one piece; None when it is."""
    return _openvino_problem(contents[0]) if kind == "openvino" else _onnx_problem(contents[0])


def _onnx_problem(content: bytes) -> str | None:
    import onnx
    from onnx import TensorProto

    try:
        model = onnx.load_model_from_string(content)
    except Exception:  # the parser has errors of its own
        return "it is no readable ONNX model"
    graph = model.graph
    if len(graph.node) > MOST_NODES or len(graph.initializer) > MOST_NODES:
        return f"it has more than {MOST_NODES} nodes or tensors"
    if model.functions or graph.sparse_initializer or any(node.domain not in ("", "ai.onnx") for node in graph.node):
        return "it brings operators of its own"
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    if any(attribute.HasField("g") or attribute.graphs for attribute in attributes):
        return "it contains loops or branches"
    if any(each.data_location == TensorProto.EXTERNAL or each.external_data for each in _tensors(graph, attributes)):
        return "it takes weights from other files"
    return None


def _tensors(graph: Any, attributes: Sequence[Any]) -> Iterator[Any]:
    yield from graph.initializer
    for attribute in attributes:
        yield attribute.t
        yield from attribute.tensors


def _openvino_problem(xml: bytes) -> str | None:
    if b"<!DOCTYPE" in xml or b"<!ENTITY" in xml:
        return "its description defines entities"
    kinds = re.findall(rb'<layer\b[^>]*\btype\s*=\s*["\']([^"\']*)["\']', xml)
    if len(kinds) > MOST_NODES:
        return f"it has more than {MOST_NODES} layers"
    return "it contains loops or branches" if _LOOPS & set(kinds) else None
