"""Parallel primitives on a GPU, through CUB."""

from callboard.backends.cuda.cub.library import CudaCub

__all__ = ["CudaCub"]
