"""The ops of filters: what a CPU computes, and CUDA (:mod:`.cuda`)."""

import itertools
from typing import Any

import numpy as np

from callboard.core.ref.handle import GpuRef
from callboard.kernel.nvrtc.decorated import Kernel, kernel
from callboard.realtime.base.cpu.engines import engine
from callboard.realtime.images.cuda import TEXT, THREADS, blocks_of

__all__ = ["OPS", "SHAPES", "SPLIT_OPS", "across", "correlated", "down", "split"]

PACKAGE = "callboard.realtime.images"


def _computed(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
    cpu = engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")
    cpu.correlate(image, weights, result, int(border), float(fill))


_shape = "b: i32, h: i32, w: i32, c: i32, ky: i32, kx: i32, border: i32, fill: f32"


def _made(k: int, c: int, split: bool = False) -> Kernel:
    """The op for kernels of ``k`` by ``k`` and images of ``c`` channels; 0: for any.

    Args:
        split: For outer products; the weights are a column and a row.
    """
    weights, extents = ("f32[pair, k]", "pair: i32, k: i32") if split else ("f32[ky, kx]", "ky: i32, kx: i32")

    @kernel(
        f"in image: T[b, h, w, c], in weights: {weights}, out result: T[b, h, w, c], b: i32, h: i32, w: i32, c: i32,"
        f"{extents}, border: i32, fill: f32",
        cuda=TEXT,
        name=f"filter<{{T}}, {{T}}, {k}, {c}, {str(split).lower()}>",
        grid=(lambda image, k: blocks_of(image, k, k)) if split else blocks_of,
        block=THREADS,
    )
    def correlated(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
        _computed(image, np.outer(*weights) if split else weights, result, border, fill)

    return correlated


SHAPES = tuple(itertools.product((3, 5), (1, 3, 4)))
"""Extents of kernels, and channels, with code of their own."""
OPS = {shape: _made(*shape) for shape in ((0, 0), *SHAPES)}
SPLIT_OPS: dict[tuple[int, int], Any] = {shape: _made(*shape, split=True) for shape in SHAPES}


def correlated(image: GpuRef, weights: GpuRef, border: int, fill: float) -> Any:
    """All products at once."""
    (ky, kx), c = weights.shape, image.shape[-1]
    return OPS.get((ky if ky == kx else 0, c), OPS[0, 0])(image, weights, border, fill)


def split(image: GpuRef, pair: GpuRef, border: int, fill: float) -> Any:
    """Both passes of a separable filter at once.

    Args:
        pair: The column and the row, f32 ``[2, k]``; ``(k, channels)`` is one of :data:`SHAPES`.
    """
    return SPLIT_OPS[pair.shape[1], image.shape[-1]](image, pair, border, fill)


@kernel(
    f"in image: T[b, h, w, c], in weights: f32[ky, kx], out result: f32[b, h, w, c], {_shape}",
    cuda=TEXT,
    name="filter<{T}, float, 0, 0, false>",
    grid=blocks_of,
    block=THREADS,
)
def across(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
    """The first pass of a separable filter, to f32."""
    _computed(image, weights, result, border, fill)


@kernel(
    f"in image: f32[b, h, w, c], in weights: f32[ky, kx], inout result: T[b, h, w, c], {_shape}",
    cuda=TEXT,
    name="filter<float, {T}, 0, 0, false>",
    grid=blocks_of,
    block=THREADS,
)
def down(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
    """The second pass of a separable filter."""
    _computed(image, weights, result, border, fill)
