"""What runs an encoder: ONNX Runtime, OpenVINO, torch, or an exported graph."""
