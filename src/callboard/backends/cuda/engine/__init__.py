"""ONNX models on a GPU, by the CUDA build of ONNX Runtime."""

from callboard.backends.cuda.engine.library import CudaEngine

__all__ = ["CudaEngine"]
