"""Scans along the last axis."""

from typing import ClassVar

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Number, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.cub.actor import CubActor
from callboard.kernel.cub.checks import ORDERED, Operation, check_dtype, check_number, check_texts, rows_of
from callboard.kernel.cub.reductions import Result, result_dtype

__all__ = ["Scan"]


class Scan(Op[CubActor, GpuRef], tag="cub.scan"):
    """Running sums, products, minima or maxima along the last axis, or those of a custom operator (``ScanRequest``).

    Halves are combined in f32, each result rounded once. Integers wrap around. Behind a NaN, ``"min"`` and ``"max"``
    are NaN, as in NumPy. On CUDA the last bits of floating-point sums may differ from run to run: each tile adds those
    sums of earlier tiles that are available by then.

    Args:
        x: ``[..., n]``, f16, bf16, f32, f64, any integer or bool; bool is not added up without ``dtype``.
        out: Same shape, of ``dtype``; a new array when None.
        operation: ``"sum"``, ``"product"``, ``"min"``, ``"max"`` or ``"custom"``.
        exclusive: Element i is combined from those before i, the first is ``init``; else element i is among them.
        init: A number that each row begins with. None: 0 or 1, or for ``"min"`` and ``"max"`` the largest and the
            smallest value of the dtype (infinities of floating types); a custom operator needs it.
        dtype: The dtype of the result, at least as wide as that of ``x``; None: that of ``x``.
        cuda, python: A custom operator, as of :class:`Reduce`; it must be associative.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED

    x: In
    out: Out | None = None
    operation: Operation = "sum"
    exclusive: bool = False
    init: Number | None = None
    dtype: Result | None = None
    cuda: str | None = None
    python: str | None = None

    def infer(self) -> Outputs:
        result = result_dtype(self, check_dtype(self, "x", self.x, ORDERED))
        rows_of(self, "x", self.x)
        check_texts(self, self.operation, self.cuda, self.python)
        if self.init is not None:
            check_number(self, "init", self.init, result)
        elif self.operation == "custom":
            raise refuse(self, "init is None; a custom operator needs it: the value that leaves others as they are")
        return {"out": layout_of(result, self.x.shape)}
