"""The CUDA backend: NVIDIA GPUs, through the driver API, NVIDIA's libraries and NVRTC."""

from callboard.backends.cuda.cuda_backend import CudaBackend

__all__ = ["backend"]

backend = CudaBackend()
"""The object named by the entry point ``cuda``."""
