"""Products that only ``xp.linalg`` has: powers of matrices, cross products of vectors."""

from typing import Any

from callboard.arrays.elementwise import apply
from callboard.arrays.handles import check_array, device_of
from callboard.arrays.linalg.equations import inv
from callboard.arrays.manipulation import broadcast_to, moveaxis, reshape, roll
from callboard.arrays.products.contracting import matmul
from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef

__all__ = ["cross", "matrix_power"]


def matrix_power(x: GpuRef[Mode], n: int, /) -> GpuRef[Mode]:
    """The product of ``n`` equal matrices, in about ``log2(n)`` products; of inverses where ``n`` is negative."""
    check_array("linalg.matrix_power", "x", x)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"xp.linalg.matrix_power: x is {x.layout!r}; it must be [..., n, n]")
    if n < 0:
        return matrix_power(inv(x), -n)
    if n == 0:
        eye = device_of(x).eye(x.shape[-1], dtype=x.dtype)
        return reshape(broadcast_to(eye, x.shape), x.shape, copy=True)
    result: Any = None
    square: Any = x
    while n:
        if n & 1:
            result = square if result is None else matmul(result, square)
        n >>= 1
        if n:
            square = matmul(square, square)
    return result  # type: ignore[no-any-return]


def cross(x1: GpuRef[Mode], x2: GpuRef[Mode], /, *, axis: int = -1) -> GpuRef[Mode]:
    """The cross products of vectors of three elements along an axis; the other axes broadcast."""
    check_array("linalg.cross", "x1", x1)
    check_array("linalg.cross", "x2", x2)
    if not -min(x1.ndim, x2.ndim) <= axis < min(x1.ndim, x2.ndim):
        raise ShapeError(f"xp.linalg.cross: axis is {axis}; x1 is {x1.layout!r} and x2 is {x2.layout!r}")
    a, b = (moveaxis(x, axis, -1) for x in (x1, x2))
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ShapeError(
            f"xp.linalg.cross: x1 is {x1.layout!r} and x2 is {x2.layout!r}: axis {axis} must have 3 elements"
        )
    a1, a2, b1, b2 = (roll(x, shift, axis=-1) for x in (a, b) for shift in (-1, -2))
    found = apply("a1 * b2 - a2 * b1", a1=a1, b2=b2, a2=a2, b1=b1)
    return moveaxis(found, -1, axis)
