"""Reductions of expressions."""

import operator
from collections.abc import Iterable

from callboard.core.dtype import DTYPES, DTypeLike
from callboard.core.errors import ShapeError
from callboard.core.layout import layout_of
from callboard.core.op import Outputs
from callboard.core.operand import Out
from callboard.kernel.checks import refuse
from callboard.kernel.elementwise.map import Expressed, check_operands, kinds_of, shape_of_operands
from callboard.kernel.elementwise.promotion import ELEMENTS
from callboard.kernel.elementwise.reduction import Reduction, compiled_reduction

__all__ = ["Reduce", "as_axes", "axes_of", "reduction_of"]


class Reduce(Expressed, tag="elementwise.reduce"):
    """A reduction of an expression along some axes: ``"sum(x * y)"``.

    The last statement contains one call of ``sum``, ``prod``, ``mean``, ``min``, ``max``, ``any``, ``all``, ``argmin``
    or ``argmax``, and may compute with its result and numbers: ``"sqrt(sum(x * x))"``.

    Args:
        axes: Axes of the operands' common shape; negative ones count from the last. None: all of them. ``argmin`` and
            ``argmax`` take one axis or None, and with None return the position in row-major order.
        keepdims: Keep the axes, with an extent of 1.
        dtype: The dtype in which a sum, product or mean is accumulated and returned. None: i64 or u64 for integers,
            else the operand's own dtype; f16 and bf16 are accumulated in f32, the mean of integers in f64.
        out: The result's dtype and shape, any strides; a new row-major array when None.

    ``min`` and ``max`` of elements with a NaN are NaN. ``argmin`` and ``argmax`` return the first of equal elements,
    and the first NaN. Without elements the sum is 0, the product 1, the mean NaN, ``any`` False and ``all`` True. Terms
    are combined in an order that depends on layouts and device alone: equal calls give equal bits.
    """

    axes: tuple[int, ...] | None = None
    keepdims: bool = False
    dtype: DTypeLike | None = None
    out: Out | None = None

    def _check_integers(self) -> None:
        reduction_of(self).check(self.scalars)

    def infer(self) -> Outputs:
        reduction = reduction_of(self)
        shape = shape_of_operands(self)
        axes = axes_of(self, len(shape))
        if reduction.function.startswith("arg") and len(axes) not in (1, len(shape)):
            raise refuse(self, f"axes {axes}: {reduction.function} is taken along one axis, or along all")
        if reduction.function in ("min", "max", "argmin", "argmax") and any(shape[axis] == 0 for axis in axes):
            raise refuse(self, f"{reduction.function} of no elements: shape {shape}, axes {axes}")
        kept = tuple(1 if axis in axes else n for axis, n in enumerate(shape) if self.keepdims or axis not in axes)
        return {"out": layout_of(reduction.result, kept)}


def reduction_of(op: Reduce) -> Reduction:
    """The reduction with the dtypes of this message.

    Raises:
        ShapeError: See :func:`compiled_reduction`.
    """
    check_operands(op)
    dtype = None if op.dtype is None else DTYPES[str(op.dtype)]
    if dtype is not None and dtype not in ELEMENTS:
        raise refuse(op, f"dtype is {dtype}; there are {', '.join(d.name for d in ELEMENTS)}")
    return compiled_reduction(op.expression, tuple(one.dtype for one in op.operands), kinds_of(op), dtype)


def axes_of(op: Reduce, ndim: int) -> tuple[int, ...]:
    """The axes that are reduced, in order.

    Raises:
        ShapeError: One is out of range, or named twice.
    """
    if op.axes is None:
        return tuple(range(ndim))
    for axis in op.axes:
        if not -ndim <= axis < ndim:
            raise refuse(op, f"axis {axis} is out of range; the operands have {ndim} axes together")
    axes = sorted(axis % ndim for axis in op.axes)
    if len(set(axes)) < len(axes):
        raise refuse(op, f"axes {op.axes} name an axis twice")
    return tuple(axes)


def as_axes(axis: int | Iterable[int] | None) -> tuple[int, ...] | None:
    """Axes as a message has them.

    Raises:
        ShapeError: Neither an integer nor several.
    """
    if axis is None:
        return None
    try:
        return (operator.index(axis),)  # type: ignore[arg-type]
    except TypeError:
        pass
    try:
        return tuple(map(operator.index, axis))  # type: ignore[arg-type]
    except TypeError:
        raise ShapeError(f"axis {axis!r}: pass an int, a tuple of them, or None") from None
