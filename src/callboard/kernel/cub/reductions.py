"""Reductions along the last axis, and of segments of a line."""

from typing import Annotated, Any, ClassVar, Literal

from callboard.core.dtype import DTYPES, DType, DTypeLike, as_dtype
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs
from callboard.core.operand import In, Number, Out
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.cub.actor import CubActor
from callboard.kernel.cub.checks import (
    ORDERED,
    Operation,
    check_dtype,
    check_index,
    check_line,
    check_number,
    check_texts,
    rows_of,
)

__all__ = ["ArgReduce", "Reduce", "SegmentedReduce", "result_dtype"]

Result = Annotated[DTypeLike, Literal["f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"]]  # fmt: skip # noqa: E501
"""The dtype of a result."""

_RANK = {"bool": 0, "uint": 1, "int": 2, "float": 3}


def result_dtype(op: "Reduce | SegmentedReduce | Any", dtype: DType) -> DType:
    """The dtype of a reduction or a scan of numbers of ``dtype``; it must hold them."""
    result = dtype if op.dtype is None else as_dtype(op.dtype)
    if op.operation in ("sum", "product", "custom") and result.kind == "bool":
        raise refuse(op, f"x is {dtype} and the operation is {op.operation!r}; pass dtype='i64' (or another number's)")
    narrower = result.kind == dtype.kind and result.itemsize < dtype.itemsize
    if narrower or _RANK[result.kind] < _RANK[dtype.kind]:
        raise refuse(op, f"dtype is {result} and x is {dtype}; take one at least as wide, and floating if x is")
    return result


def _check(op: "Reduce | SegmentedReduce", n: int) -> DType:
    result = result_dtype(op, check_dtype(op, "x", op.x, ORDERED))
    check_texts(op, op.operation, op.cuda, op.python)
    if op.init is not None:
        check_number(op, "init", op.init, result)
    elif op.operation == "custom":
        raise refuse(op, "init is None; a custom operator needs it: the value that leaves others as they are")
    return result


class Reduce(Op[CubActor, GpuRef], tag="cub.reduce"):
    """Sum, product, minimum, maximum or a custom reduction along the last axis (``ReduceRequest``).

    Halves are combined in f32 and rounded once. Integers wrap around. A NaN makes ``"min"`` and ``"max"`` NaN, as in
    NumPy. The order of additions is the same in each run on one device with one shape, and another than NumPy's.

    Args:
        x: ``[..., n]``, f16, bf16, f32, f64, any integer or bool; bool is not added up without ``dtype``.
        out: ``[...]`` of ``dtype``; a new array when None.
        operation: ``"sum"``, ``"product"``, ``"min"``, ``"max"`` or ``"custom"``.
        init: A number that is combined with each result. Without it an empty row gives 0 or 1, and is refused by
            ``"min"`` and ``"max"``; a custom operator needs it.
        dtype: The dtype of the result, at least as wide as that of ``x``: ``"i64"`` sums i8 without overflow. None:
            that of ``x``.
        cuda: Body of a custom operator as CUDA C++, ``"return a > b ? a : b;"``; ``a``, ``b`` and the result are of
            type ``T``: f32 for halves, else ``dtype``. It must be associative and commutative.
        python: The same as a Python expression of arrays, ``"np.maximum(a, b)"``, for the CPU. A backend without its
            text answers ``UnsupportedOp``.
        determinism: ``"run_to_run"``, or ``"not_guaranteed"``, which lets CUB sum one row of 32 or 64 bits by atomics.
            The CPU's sums are always the same.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED

    x: In
    out: Out | None = None
    operation: Operation = "sum"
    init: Number | None = None
    dtype: Result | None = None
    cuda: str | None = None
    python: str | None = None
    determinism: Literal["run_to_run", "not_guaranteed"] = "run_to_run"

    def infer(self) -> Outputs:
        rows, n = rows_of(self, "x", self.x)
        result = _check(self, n)
        if n == 0 and self.init is None and self.operation in ("min", "max"):
            raise refuse(self, f"x is {self.x.layout!r}; the {self.operation} of nothing needs init")
        wide = result is self.x.dtype and result.itemsize >= 4
        if self.determinism == "not_guaranteed" and not (self.operation == "sum" and wide and not rows):
            what = f"the {self.operation} of {self.x.layout!r} in {result}"
            raise refuse(
                self, f"determinism is {self.determinism!r}, for sums of a line of 32 or 64 bits; this is {what}"
            )
        return {"out": layout_of(result, rows)}


class ArgReduce(Op[CubActor, GpuRef], tag="cub.arg_reduce"):
    """The index of the smallest or largest element along the last axis (``ArgMin``, ``ArgMax``).

    Ties return the first index. A NaN counts as the smallest and as the largest element, as in NumPy.

    Args:
        x: ``[..., n]``, n at least 1; f16, bf16, f32, f64, any integer or bool.
        out: ``[...]``, i64; a new array when None.
        operation: ``"min"`` or ``"max"``.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED

    x: In
    out: Out | None = None
    operation: Literal["min", "max"] = "max"

    def infer(self) -> Outputs:
        check_dtype(self, "x", self.x, ORDERED)
        rows, n = rows_of(self, "x", self.x)
        if n == 0:
            raise refuse(self, f"x is {self.x.layout!r}; nothing has no {self.operation}")
        return {"out": layout_of(DTYPES["i64"], rows)}


class SegmentedReduce(Op[CubActor, GpuRef], tag="cub.segmented_reduce"):
    """The reduction of each segment of a line (``SegmentedReduceRequest``); as :class:`Reduce`.

    An empty segment gives ``init``, else 0, 1, or for ``"min"`` and ``"max"`` the largest and the smallest value of
    the dtype (infinities of floating types).

    Args:
        x: ``[n]``.
        offsets: ``[segments + 1]``, i32 or i64: where each segment begins in ``x``, and where the last ends; never
            falling, between 0 and n. On CUDA wrong offsets are undefined behaviour.
        out: ``[segments]`` of ``dtype``; a new array when None.
        operation, init, dtype, cuda, python: See :class:`Reduce`.
    """

    dtypes: ClassVar[tuple[DType, ...]] = ORDERED

    x: In
    offsets: In
    out: Out | None = None
    operation: Operation = "sum"
    init: Number | None = None
    dtype: Result | None = None
    cuda: str | None = None
    python: str | None = None

    def infer(self) -> Outputs:
        result = _check(self, check_line(self, "x", self.x))
        segments = check_index(self, "offsets", self.offsets) - 1
        if segments < 0:
            raise refuse(self, f"offsets is {self.offsets.layout!r}; no segment is [0]")
        return {"out": layout_of(result, (segments,))}
