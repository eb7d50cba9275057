"""Sums of products: matrices, vectors, tensors; all are contractions of :mod:`callboard.kernel.tensor`."""

from collections.abc import Sequence
from typing import Any

from callboard.arrays.dtypes import together
from callboard.arrays.handles import Ref, axis_of, cast, check_array, submit
from callboard.arrays.manipulation import broadcast_to, expand_dims, moveaxis
from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.array.checks import broadcast_shape
from callboard.kernel.tensor import Contract

__all__ = ["computed_in", "converted", "matmul", "outer", "tensordot", "vecdot"]


def matmul(x1: GpuRef[Mode], x2: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The matrix product over the last two axes; the axes before them broadcast. A vector is a row, or a column.

    Integers wrap around.

    Raises:
        ShapeError: The inner extents differ; or an operand is 0-d.
    """
    check_array("matmul", "x1", x1)
    check_array("matmul", "x2", x2)
    if not x1.ndim or not x2.ndim:
        raise ShapeError(
            f"xp.matmul: x1 is {x1.layout!r} and x2 is {x2.layout!r}; each must have an axis (multiply: *)"
        )
    a = expand_dims(x1, axis=0) if x1.ndim == 1 else x1
    b = expand_dims(x2, axis=1) if x2.ndim == 1 else x2
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"xp.matmul: x1 is {x1.layout!r} and x2 is {x2.layout!r}: {a.shape[-1]} against {b.shape[-2]}")
    batch = broadcast_shape("xp.matmul", [a.shape[:-2], b.shape[:-2]])
    a, b = broadcast_to(a, (*batch, *a.shape[-2:])), broadcast_to(b, (*batch, *b.shape[-2:]))
    n = len(batch)
    over = tuple(range(n))
    found: Any = contracted(a, b, (*over, n, n + 1), (*over, n + 1, n + 2), (*over, n, n + 2))
    if x2.ndim == 1:
        found = found[..., 0]
    return found[..., 0, :] if x1.ndim == 1 and x2.ndim > 1 else found[..., 0] if x1.ndim == 1 else found  # type: ignore[no-any-return]


def vecdot(x1: GpuRef[Mode], x2: GpuRef[Mode], /, *, axis: int = -1) -> GpuRef[Mode]:
    """The sums of ``conj(x1) * x2`` along an axis; the other axes broadcast.

    An axis that is not negative counts from the first, of two arrays with as many axes.
    """
    check_array("vecdot", "x1", x1)
    check_array("vecdot", "x2", x2)
    if 0 <= axis < x1.ndim == x2.ndim:
        axis -= x1.ndim
    if not -min(x1.ndim, x2.ndim) <= axis < 0:
        raise ShapeError(f"xp.vecdot: axis is {axis}; it must be negative, and both arrays must have it")
    a, b = moveaxis(x1, axis, -1), moveaxis(x2, axis, -1)
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"xp.vecdot: x1 is {x1.layout!r} and x2 is {x2.layout!r}: along axis {axis} they differ")
    shape = broadcast_shape("xp.vecdot", [a.shape, b.shape])
    labels = tuple(range(len(shape)))
    found: GpuRef[Mode] = contracted(
        broadcast_to(a, shape), broadcast_to(b, shape), labels, labels, labels[:-1], conj=True
    )
    return found


def tensordot(
    x1: GpuRef[Mode], x2: GpuRef[Mode], /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> GpuRef[Mode]:
    """The sum of products over pairs of axes.

    Args:
        x1, x2: Arrays; nothing broadcasts.
        axes: The pairs, as the axes of ``x1`` and those of ``x2``; or how many: the last ones of ``x1`` with the first
            ones of ``x2``.
    """
    check_array("tensordot", "x1", x1)
    check_array("tensordot", "x2", x2)
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ShapeError(f"xp.tensordot: axes is {axes}; x1 is {x1.layout!r} and x2 is {x2.layout!r}")
        left, right = tuple(range(x1.ndim - axes, x1.ndim)), tuple(range(axes))
    else:
        left = tuple(axis_of("tensordot", x1, a) for a in axes[0])
        right = tuple(axis_of("tensordot", x2, a) for a in axes[1])
    if len(left) != len(right) or any(x1.shape[a] != x2.shape[b] for a, b in zip(left, right, strict=False)):
        raise ShapeError(f"xp.tensordot: axes is {axes}: the extents of x1 {x1.layout!r} and x2 {x2.layout!r} differ")
    labels = list(range(x1.ndim, x1.ndim + x2.ndim))
    for a, b in zip(left, right, strict=True):
        labels[b] = a
    out = (*(a for a in range(x1.ndim) if a not in left), *(m for m in labels if m >= x1.ndim))
    found: GpuRef[Mode] = contracted(x1, x2, tuple(range(x1.ndim)), tuple(labels), out)
    return found


def outer(x1: GpuRef[Mode], x2: GpuRef[Mode], /) -> GpuRef[Mode]:
    """The products of all pairs of elements of two vectors."""
    for name, x in (("x1", x1), ("x2", x2)):
        if check_array("outer", name, x).ndim != 1:
            raise ShapeError(f"xp.linalg.outer: {name} is {x.layout!r}; it must have 1 axis")
    found: GpuRef[Mode] = contracted(x1, x2, (0,), (1,), (0, 1))
    return found


def contracted(
    x1: Ref, x2: Ref, first: Sequence[int], second: Sequence[int], out: Sequence[int], *, conj: bool = False
) -> Any:
    """A contraction in the dtype that the arrays promote to."""
    a, b = together(x1, x2)
    dtype = a.dtype
    work = computed_in(dtype)
    a, b = converted(a, work), converted(b, work)
    found = submit(
        x1,
        Contract(
            a=a,
            b=b,
            modes_a=tuple(first),
            modes_b=tuple(second),
            modes_out=tuple(out),
            op_a="conj" if conj and dtype.is_complex else "identity",
        ),
    )
    return converted(found, dtype)


def computed_in(dtype: DType) -> DType:
    """Integers in those of 32 or 64 bits with a sign, whose bits are the same modulo their size."""
    if dtype.is_integer or dtype.kind == "bool":
        return DTYPES["i64" if dtype.itemsize == 8 else "i32"]
    return dtype


def converted(x: Ref, dtype: DType) -> Ref:
    """``x`` in another dtype; between integers of one size the same bits."""
    if x.dtype.is_integer and dtype.is_integer and x.dtype.itemsize == dtype.itemsize:
        return x if x.dtype is dtype else x.reinterpret(dtype) if x.ndim else cast(x, dtype)
    return cast(x, dtype)
