"""Layouts: dtype, shape and strides of an array, without its memory."""

import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from callboard.core.dtype import BY_CODE, DType
from callboard.core.errors import ShapeError

__all__ = [
    "UNBOUNDED",
    "BoundedExtent",
    "HasLayout",
    "Layout",
    "OpenLayout",
    "Rows",
    "layout_of",
    "rows_of",
    "shape_of",
]

UNBOUNDED = 1 << 48
"""Bound of an extent of which nothing is known before."""


class BoundedExtent(NamedTuple):
    """An extent that depends on data: ``layout_of(dtype, (BoundedExtent(n),))`` has at most ``n`` elements."""

    bound: int


TOO_LARGE = 2**63
"""Bytes that no buffer can have; larger extents and strides do not fit into messages either."""


class Layout:
    """The layout of elements in a buffer. Immutable; equal layouts are usually one object (see :func:`layout_of`).

    Attributes:
        dtype: Element type.
        shape: Extent of each axis.
        strides: Step of each axis in *elements*; may be 0 or negative (a view).
        size: Number of elements.
        nbytes: ``size * itemsize``.
        first, last: Lowest and highest element offset reached, relative to element 0; ``(0, -1)`` when empty.
        contiguous: Row-major without gaps.
        wire: The layout as MessagePack; its identity wherever layouts are compared or sent.
        raw: ``wire`` in the form in which it can be embedded in another message.

    Raises:
        ShapeError: The array would have 2**63 bytes or more.
    """

    __slots__ = ("contiguous", "dtype", "first", "last", "nbytes", "ndim", "raw", "shape", "size", "strides", "wire")

    def __init__(self, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.ndim = len(shape)
        self.size = math.prod(shape)
        self.nbytes = self.size * dtype.itemsize
        if math.prod([n for n in shape if n]) * dtype.itemsize >= TOO_LARGE:  # an extent of 0 does not make it small
            raise ShapeError(f"{dtype}[{', '.join(map(str, shape))}] is too large: no array has 2**63 bytes or more")
        if self.size:
            reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
            self.first = sum(r for r in reach if r < 0)
            self.last = sum(r for r in reach if r > 0)
        else:
            self.first, self.last = 0, -1
        dense = c_strides(shape)
        self.contiguous = self.size == 0 or all(n == 1 or s == d for n, s, d in zip(shape, strides, dense, strict=True))
        self.wire: bytes = _encode((dtype.code, shape, () if strides == dense else strides))
        self.raw = msgspec.Raw(self.wire)

    @property
    def span(self) -> tuple[int, int]:
        """First byte reached and the byte after the last one, relative to element 0."""
        return self.first * self.dtype.itemsize, (self.last + 1) * self.dtype.itemsize

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Layout) and self.wire == other.wire)

    def __hash__(self) -> int:
        return hash(self.wire)

    def __repr__(self) -> str:
        dense = "" if self.contiguous else f", strides {self.strides}"
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{dense}"


_encode = msgspec.msgpack.Encoder().encode


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    out: list[int] = []
    step = 1
    for n in reversed(shape):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


class OpenLayout(Layout):
    """A row-major layout that has only bounds until its op has been executed.

    Args:
        wait: Waits for the op and returns the layout of its result; None if that is no longer possible.

    Attributes:
        extents: The extent of each axis; at least one is a :class:`BoundedExtent`.

    Raises:
        ShapeError: A property that depends on the extents (``shape``, ``size``, ``nbytes`` …) is read, and there is no
            ``wait``.
    """

    __slots__ = ("_wait", "extents")

    def __init__(
        self, dtype: DType, extents: "tuple[int | BoundedExtent, ...]", wait: Callable[[], Layout | None] | None = None
    ) -> None:
        self.dtype = dtype
        self.extents = extents
        self.ndim = len(extents)
        self._wait = wait

    def closed(self, shape: Sequence[int]) -> Layout:
        """The layout, now that the extents are known.

        Raises:
            ValueError: The extents exceed the announced bounds.
        """
        fits = len(shape) == self.ndim and all(
            0 <= n <= e.bound if isinstance(e, BoundedExtent) else n == e
            for n, e in zip(shape, self.extents, strict=True)
        )
        if not fits:
            raise ValueError(f"extents {tuple(shape)}, announced as {self!r}")
        return layout_of(self.dtype, tuple(shape))

    def __getattr__(self, name: str) -> Any:
        if name not in Layout.__slots__:  # of these, those that were not set
            raise AttributeError(name)
        known = None if self._wait is None else self._wait()
        if known is None:
            raise ShapeError(f"{self!r}: extents depend on data; await it first")
        return getattr(known, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpenLayout) and self.dtype is other.dtype and self.extents == other.extents

    def __hash__(self) -> int:
        return hash((self.dtype.code, self.extents))

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(_told, self.extents))}]"


def _told(extent: "int | BoundedExtent") -> str:
    if not isinstance(extent, BoundedExtent):
        return str(extent)
    return f"<={extent.bound}" if extent.bound < UNBOUNDED else "?"


class HasLayout:
    """Base of classes that describe an array.

    Attributes:
        layout: dtype, shape and strides.
    """

    __slots__ = ()

    layout: Layout

    @property
    def dtype(self) -> DType:
        return self.layout.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Step of each axis, in elements."""
        return self.layout.strides

    @property
    def ndim(self) -> int:
        return self.layout.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.layout.size

    @property
    def nbytes(self) -> int:
        return self.layout.nbytes


@lru_cache(maxsize=16384)
def layout_of(dtype: DType, shape: "tuple[int | BoundedExtent, ...]", strides: tuple[int, ...] | None = None) -> Layout:
    """The layout; row-major without gaps when ``strides`` (in elements) is None.

    With a :class:`BoundedExtent` among the extents it is an :class:`OpenLayout`.
    """
    fixed = tuple(n for n in shape if not isinstance(n, BoundedExtent))
    if len(fixed) != len(shape):
        return OpenLayout(dtype, shape)
    return Layout(dtype, fixed, c_strides(fixed) if strides is None else strides)


def shape_of(shape: Any, name: str = "shape") -> tuple[int, ...]:
    """The extents that a caller means: an int, or a sequence or array of them; NumPy's integers, too.

    Raises:
        ShapeError: It is neither; names the argument.
    """
    try:
        return (operator.index(shape),)
    except TypeError:
        pass
    try:
        return tuple(map(operator.index, shape))
    except TypeError:
        raise ShapeError(f"{name} {shape!r}: pass an int or a sequence of ints") from None


def layout_from_wire(code: int, shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """The layout that :attr:`Layout.wire` holds, decoded.

    Raises:
        ValueError: The bytes are not a layout.
    """
    if not 0 <= code < len(BY_CODE):
        raise ValueError(f"unknown dtype code {code}")
    if any(type(n) is not int for n in (*shape, *strides)) or min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}, strides {strides}: not those of an array")
    if strides and len(strides) != len(shape):
        raise ValueError(f"shape {shape} has {len(shape)} axes, strides {strides}")
    return layout_of(BY_CODE[code], tuple(shape), tuple(strides) if strides or not shape else None)


MIN_ROW = 64
"""Bytes of a row below which the cost of each row exceeds that of packing them first."""
MAX_PITCH = 1 << 31
"""Bytes between rows; CUDA's copies take less than this (``CU_DEVICE_ATTRIBUTE_MAX_PITCH``)."""


class Rows(NamedTuple):
    """A transfer of ``depth`` slices of ``height`` rows, each of ``width`` adjacent bytes.

    Attributes:
        src_pitch, out_pitch: Bytes from row to row.
        src_rows, out_rows: Rows from slice to slice.
    """

    width: int
    height: int
    depth: int
    src_pitch: int
    out_pitch: int
    src_rows: int
    out_rows: int


def rows_of(src: Layout, out: Layout) -> Rows | None:
    """The transfer between two layouts of one dtype and shape; None if it is not one of rows.

    Adjacent axes that both layouts traverse without a gap count as one. At most three axes may remain: the last is
    contiguous in both layouts, in ascending order, with rows of at least 64 bytes, and slices are a whole number of
    rows apart. These transfers are ``cuMemcpyAsync``, ``cuMemcpy2DAsync`` and ``cuMemcpy3DAsync``.
    """
    item = src.dtype.itemsize
    if not src.size:
        return Rows(0, 0, 0, 0, 0, 0, 0)
    axes: list[tuple[int, int, int]] = []  # (extent, step of src, step of out), the last axis first
    for extent, step, out_step in zip(reversed(src.shape), reversed(src.strides), reversed(out.strides), strict=True):
        if extent == 1:
            continue
        if step <= 0 or out_step <= 0:
            return None
        if axes:
            inner, inner_step, inner_out = axes[-1]
            if step == inner * inner_step and out_step == inner * inner_out:
                axes[-1] = (inner * extent, inner_step, inner_out)
                continue
        axes.append((extent, step, out_step))
    if not axes or axes[0][1:] != (1, 1):
        axes.insert(0, (1, 1, 1))
    if len(axes) > 3:
        return None
    width = axes[0][0] * item
    if len(axes) == 1:
        return Rows(width, 1, 1, width, width, 1, 1)
    height, pitch, out_pitch = axes[1][0], axes[1][1] * item, axes[1][2] * item
    if width < MIN_ROW or min(pitch, out_pitch) < width or max(pitch, out_pitch) >= MAX_PITCH:
        return None
    if len(axes) == 2:
        return Rows(width, height, 1, pitch, out_pitch, height, height)
    depth, plane, out_plane = axes[2][0], axes[2][1] * item, axes[2][2] * item
    if plane % pitch or out_plane % out_pitch or min(plane // pitch, out_plane // out_pitch) < height:
        return None
    return Rows(width, height, depth, pitch, out_pitch, plane // pitch, out_plane // out_pitch)
