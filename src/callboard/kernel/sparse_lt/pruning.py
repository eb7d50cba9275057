"""Pruning to the pattern, a look whether a matrix has it, and the compressed form."""

from typing import Annotated, ClassVar, Literal

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import layout_of
from callboard.core.op import Op, Outputs, StructOutputs
from callboard.core.operand import In, Out, Placeholder, Role
from callboard.core.ref import GpuRef
from callboard.kernel.blas_lt.checks import rows
from callboard.kernel.checks import refuse
from callboard.kernel.sparse_lt.actor import SparseLtActor
from callboard.kernel.sparse_lt.checks import checked, dense
from callboard.kernel.sparse_lt.structured import FACTORS, StructuredRef, compressed_bytes, group_of

__all__ = ["Check", "Compress", "Decompress", "Prune"]


class Prune(Op[SparseLtActor, GpuRef], tag="sparse_lt.prune"):
    """``x`` pruned by magnitude to a 2:4 pattern (f32: 1:2); pruned elements are 0.

    Args:
        x: ``[outer, k]`` or ``[batch, outer, k]``, row-major; f16, bf16, f32, i8, f8_e4m3 or f8_e5m2. ``k`` must be a
            multiple of 4 (f32: 2).
        out: Same shape and dtype, row-major; a new array when None. May be ``x``.
        algorithm: ``"strip"`` keeps the two largest magnitudes of each four neighbours in a row (f32: the larger one of
            two). ``"tile"`` keeps two in each row and two in each column of every tile of 4 x 4 (f32: one each, of
            2 x 2) such that the sum of magnitudes is largest, so that the transpose has the pattern, too; ``outer``
            must be a multiple of 4 (f32: 2).

    NaN counts as infinite. Among equal magnitudes the first are kept; among tiles with equal sums, which rounding may
    produce, any.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FACTORS
    overlaps: ClassVar[frozenset[tuple[str, str]]] = frozenset({("out", "x")})

    x: In
    out: Out | None = None
    algorithm: Literal["strip", "tile"] = "strip"

    def infer(self) -> Outputs:
        layout = dense(self, "x", self.x)
        size = group_of(layout.dtype).size
        if self.algorithm == "tile" and layout.shape[-2] % size:
            raise refuse(self, f"x is {layout!r}: tiles are {size} x {size}; pad its rows, or take algorithm 'strip'")
        if self.out is not None:
            rows(self, "out", self.out.layout)
        return {"out": layout_of(layout.dtype, layout.shape)}


class Check(Op[SparseLtActor, GpuRef], tag="sparse_lt.check"):
    """Test, on the device, if ``x`` is 2:4 (of f32: 1:2) along its rows; returns a number.

    Args:
        x: See :class:`Prune`.
        out: 0-d i32: 0 where it is, 1 where it is not; a new array when None.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FACTORS

    x: In
    out: Out | None = None

    def infer(self) -> Outputs:
        dense(self, "x", self.x)
        return {"out": layout_of(DTYPES["i32"], ())}


class Compress(Op[SparseLtActor, StructuredRef], tag="sparse_lt.compress"):
    """The compressed form of a matrix that is 2:4 (of f32: 1:2) along its rows.

    Any other matrix fails with ``ShapeError`` when it is awaited, and so do the ops enqueued on the result.

    Args:
        x: See :class:`Prune`.
        out: Matrix of the same dtype and shape; a new one when None.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FACTORS

    x: In
    out: Annotated[StructuredRef, Role.OUT] | None = None

    def infer(self) -> StructOutputs:
        layout = dense(self, "x", self.x)
        if self.out is not None:
            checked(self, "out", self.out)
        data = layout_of(DTYPES["u8"], (compressed_bytes(layout.dtype, layout.shape),))
        return {"out": StructuredRef(Placeholder(data), layout.dtype.name, layout.shape)}  # type: ignore[arg-type]


class Decompress(Op[SparseLtActor, GpuRef], tag="sparse_lt.decompress"):
    """The matrix with its zeros.

    Args:
        a: Matrix that :class:`Compress` returned.
        out: Same shape and dtype, row-major; a new array when None.
    """

    dtypes: ClassVar[tuple[DType, ...]] = FACTORS

    a: StructuredRef
    out: Out | None = None

    def infer(self) -> Outputs:
        dtype = checked(self, "a", self.a)
        if self.out is not None:
            rows(self, "out", self.out.layout)
        return {"out": layout_of(dtype, self.a.shape)}
