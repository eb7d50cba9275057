"""Collectives on NVIDIA GPUs, through NCCL."""

from callboard.backends.cuda.collective.library import CudaCollective

__all__ = ["CudaCollective"]
