"""Collectives on NVIDIA's GPUs, by NCCL."""

from callboard.backends.cuda.collective.library import CudaCollective

__all__ = ["CudaCollective"]
