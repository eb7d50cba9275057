"""Execution of reductions, scans and sorts: one reduction of an expression; scans and sorts along the last axis."""

from typing import Any, Literal

from callboard.arrays.fusion import call_of, fused
from callboard.arrays.handles import Ref, axes_of, axis_of, cast, submit
from callboard.arrays.manipulation import moveaxis
from callboard.core.dtype import DType
from callboard.core.ref import GpuRef
from callboard.kernel.cub import Scan
from callboard.kernel.elementwise import Reduce

__all__ = ["last", "reduced", "scanned"]


def reduced(function: str, text: str, axis: Any, keepdims: bool, dtype: DType | None = None, /, **given: Any) -> Any:
    """A reduction of an expression along some axes of its first array, which has the shape of them all.

    Args:
        function: Name of the function, for errors.
        text: ``"sum(x * y)"``.
        axis: One, several, or None for all.
        keepdims: Keep the axes, with the extent 1.
        dtype: The dtype in which a sum, product or mean is accumulated and returned; None leaves the choice to the
            engine.
        given: Arrays and numbers by name, in the order of their first place in the text.
    """
    x = next(one for one in given.values() if isinstance(one, GpuRef))
    axes = axes_of(function, x, axis)
    kept = None if dtype is None else dtype.name

    def made(text: str, operands: tuple[Ref, ...], fields: dict[str, Any]) -> Reduce:
        return Reduce(expression=text, operands=operands, axes=axes, keepdims=keepdims, dtype=kept, **fields)

    return fused(call_of(text, tuple(given)), tuple(given.values()), made)


def last(function: str, x: Ref, axis: Any) -> tuple[Ref, int]:
    """``x`` with an axis moved to the end, and which one it was."""
    along = axis_of(function, x, axis)
    return (x if along == x.ndim - 1 else moveaxis(x, along, -1)), along


def scanned(function: str, x: Ref, axis: int, operation: Literal["sum", "product"], dtype: DType) -> Ref:
    """Running sums or products along an axis."""
    line, along = last(function, cast(x, dtype), axis)
    found: Ref = submit(x, Scan(x=line, operation=operation))
    return found if along == x.ndim - 1 else moveaxis(found, -1, along)
