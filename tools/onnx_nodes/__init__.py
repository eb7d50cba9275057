"""ONNX's own suite of nodes against ``dev.engine``."""
