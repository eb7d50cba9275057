"""``MemoryActor``: allocation, fills, copies.

The face is the device handle itself (``dev.empty``, ``dev.fill``, ``dev.copy`` …).
"""

from typing import ClassVar

import numpy as np

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import HostIn, HostOut, In, Out, Scalar
from callboard.core.ref import GpuRef

__all__ = ["Copy", "Download", "Empty", "Fill", "MemoryActor", "Upload"]


class MemoryActor:
    """Serves the memory messages of a device."""


class Empty(Op["MemoryActor", GpuRef], tag="memory.empty"):
    """A new array, not initialised.

    Args:
        shape: Extents, each >= 0.
        dtype: Of the elements; kept by name.
        out: Left None.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    out: Out | None = None

    def infer(self) -> Outputs:
        if any(n < 0 for n in self.shape):
            raise ShapeError(f"memory.empty: shape {self.shape}: extents are >= 0")
        return {"out": layout_of(as_dtype(self.dtype), self.shape)}


class Fill(Op["MemoryActor", GpuRef], tag="memory.fill"):
    """Set every element of ``out`` to ``fill_value``, converted to its dtype as NumPy converts.

    Args:
        out: Any dtype, shape and strides.
        fill_value: A number; complex for complex arrays only. Integers beyond 2**53 are not exact. For integers its
            whole part counts, which the dtype must hold.
    """

    out: Out
    fill_value: Scalar = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out.dtype.is_integer and type(self.fill_value) is float:
            bounds = np.iinfo(self.out.dtype.np)
            if not bounds.min - 1 < self.fill_value < bounds.max + 1:  # nor is NaN
                raise ShapeError(
                    f"memory.fill: fill_value {self.fill_value} and out is {self.out.layout!r}: "
                    f"{self.out.dtype} holds {bounds.min} to {bounds.max}"
                )

    def infer(self) -> Outputs:
        if isinstance(self.fill_value, complex) and not self.out.dtype.is_complex:
            raise ShapeError(f"memory.fill: fill_value {self.fill_value} is complex and out is {self.out.layout!r}")
        return {"out": self.out.layout}


class Copy(Op["MemoryActor", GpuRef], tag="memory.copy"):
    """``out = src``, element by element, between any strides of one device and one dtype.

    Args:
        src: Any dtype, shape and strides.
        out: Same dtype and shape; a new row-major array when None. Must not overlap ``src``.
    """

    src: In
    out: Out | None = None

    def infer(self) -> Outputs:
        return {"out": layout_of(self.src.dtype, self.src.shape)}


class Upload(Op["MemoryActor", GpuRef], tag="memory.upload"):
    """``out = host``: from a region of an arena, row-major, to the device (``dev.put`` sends these).

    Args:
        host: Row-major region of an arena.
        out: Contiguous; same dtype and shape; a new array when None.
    """

    host: HostIn
    out: Out | None = None

    def infer(self) -> Outputs:
        if self.out is not None and not self.out.layout.contiguous:
            raise ShapeError(
                f"memory.upload: out is {self.out.layout!r}; it must be contiguous (copy into a view with dev.copy)"
            )
        return {"out": layout_of(self.host.dtype, self.host.shape)}


class Download(Op["MemoryActor", None], tag="memory.download"):
    """``host = src``: from the device to a region of an arena (``ref.get`` sends these).

    Args:
        src: Contiguous.
        host: Row-major region of an arena, same dtype and shape.
    """

    returns: ClassVar[tuple[str, ...]] = ()

    src: In
    host: HostOut

    def infer(self) -> Outputs:
        if not self.src.layout.contiguous:
            raise ShapeError(f"memory.download: src is {self.src.layout!r}; it must be contiguous (dev.copy first)")
        if self.src.dtype is not self.host.dtype or self.src.shape != self.host.shape:
            raise ShapeError(f"memory.download: src is {self.src.layout!r}, host {self.host.layout!r}")
        return {}
