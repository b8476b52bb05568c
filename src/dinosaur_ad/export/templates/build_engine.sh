#!/bin/sh
# Builds an engine for the GPU of this machine; it works on no other. Not tried where this file was written:
# compare what comes out with float32 before you use it (dinosaur export --check, see README.txt).
cd "$$(dirname "$$0")" || exit 1
trtexec --onnx=model.onnx --saveEngine=model.engine --stronglyTyped \
  --minShapes=images:1x${size}x${size}x3 \
  --optShapes=images:1x${size}x${size}x3 \
  --maxShapes=images:8x${size}x${size}x3
