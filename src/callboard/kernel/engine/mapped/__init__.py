"""callboard's own engine: ONNX graphs mapped onto the ops of a device."""
