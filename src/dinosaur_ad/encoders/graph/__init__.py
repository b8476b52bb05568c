"""The encoder as an ONNX graph, built from its weights."""
