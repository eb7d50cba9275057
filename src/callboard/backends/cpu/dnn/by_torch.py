"""Convolutions by PyTorch's CPU kernels (oneDNN), if it is installed and the work repays importing it."""

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.dnn.images import Array
from callboard.kernel.dnn.conv import Geometry

__all__ = ["convolution", "is_better"]

WORTH = 2e9
"""Floating-point operations from which on PyTorch is asked: importing it takes seconds, once in a process."""


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("torch") is not None


def is_better(g: Geometry, wide: Any) -> bool:
    """True if PyTorch executes a convolution in this type. Depends on its size only, so equal calls give equal bits."""
    return g.flops >= WORTH and wide is np.float32 and _installed()


def convolution(kind: str, g: Geometry) -> Callable[[Array, Array], Array]:
    """The work of a kind, as :data:`callboard.backends.cpu.dnn.conv.COMPUTED` has it; imports PyTorch."""
    torch = importlib.import_module("torch")
    functional = torch.nn.functional
    pads = [n for pair in reversed(g.padding) for n in pair]
    plain = all(before == after for before, after in g.padding)
    padding = [before if plain else 0 for before, _ in g.padding]
    axes = len(g.window)
    inner = (slice(None), slice(None), *(slice(b, b + n) for n, (b, _) in zip(g.image.spatial, g.padding, strict=True)))
    spatial = [n + (0 if plain else sum(pair)) for n, pair in zip(g.image.spatial, g.padding, strict=True)]
    convolve = getattr(functional, f"conv{axes}d")
    settings = (list(g.stride), padding, list(g.dilation), False, [0] * axes, g.groups)

    def tensor(array: Array) -> Any:
        return torch.from_numpy(np.ascontiguousarray(array, np.float32))

    def padded(array: Array) -> Any:
        return tensor(array) if plain else functional.pad(tensor(array), pads)

    def found(one: Array, other: Array) -> Array:
        with torch.no_grad():
            if kind == "forward":
                result = convolve(padded(one), tensor(other), None, g.stride, padding, g.dilation, g.groups)
            elif kind == "backward_data":
                blank = torch.empty((g.image.batch, g.image.channels, *spatial))
                result = torch.ops.aten.convolution_backward(
                    tensor(one), blank, tensor(other), None, *settings, [True, False, False]
                )[0][inner if not plain else ...]
            else:
                blank = torch.empty((g.result.channels, g.image.channels // g.groups, *g.window))
                result = torch.ops.aten.convolution_backward(
                    tensor(other), padded(one), blank, None, *settings, [False, True, False]
                )[1]
            array: Array = result.numpy()
            return array

    return found
