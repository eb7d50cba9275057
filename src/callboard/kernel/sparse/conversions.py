"""Conversions between dense and sparse, and between sparse formats; and a check of the arrays' contents."""

from typing import Annotated, ClassVar, Literal

from callboard.core.dtype import DType, as_dtype
from callboard.core.layout import BoundedExtent, layout_of
from callboard.core.op import Op, Outputs, StructOutputs
from callboard.core.operand import In, Out, Role
from callboard.core.ref import GpuRef
from callboard.kernel.checks import refuse
from callboard.kernel.sparse.actor import SparseActor
from callboard.kernel.sparse.checks import VALUES, checked, dense_of, index_of
from callboard.kernel.sparse.formats import INDEX_LIMIT, AnyRef, BlockedEllRef, BsrRef, CooRef, CscRef, CsrRef, Index
from callboard.kernel.sparse.results import FORMATS, block_of, result_of, stored_block

__all__ = ["Check", "Convert", "FromDense", "ToDense", "Transpose"]


class ToDense(Op[SparseActor, GpuRef], tag="sparse.to_dense"):
    """The matrix with its zeros (``SparseToDense``).

    Args:
        a: Values in f16, bf16, f32, f64, c64 or c128. Entries (blocks) that are stored more than once and are adjacent,
            as :class:`callboard.kernel.sparse.Sort` and ``from_scipy`` leave them, are added up in their order, halves
            in f32. On CUDA, duplicates that are not adjacent are not added up: ``out`` gets one of them.
        out: Same shape and dtype, row- or column-major; a new row-major array when None.
    """

    dtypes: ClassVar[tuple[DType, ...]] = VALUES

    a: CsrRef | CscRef | CooRef | BsrRef | BlockedEllRef
    out: Out | None = None

    def infer(self) -> Outputs:
        shape = checked(self, "a", self.a)
        if self.out is not None:
            dense_of(self, "out", self.out, self.a.values.dtype)
        return {"out": layout_of(self.a.values.dtype, shape)}


class FromDense(Op[SparseActor, AnyRef], tag="sparse.from_dense"):
    """The entries that are not 0, or the blocks with some, as a matrix of ``format``; await it for their number.

    A NaN is an entry, -0.0 is not. The number of entries depends on the data: without ``out`` it is known when the
    result is awaited. A blocked-ELL matrix becomes as wide as its fullest block row.

    Args:
        dense: f16, bf16, f32, f64, c64 or c128; row- or column-major.
        format: ``"csr"``, ``"csc"``, ``"coo"``, ``"bsr"`` or ``"blocked_ell"``; indices are sorted.
        index: dtype of the indices, i32 or i64.
        block: ``(rows, columns)`` of a block, which divide those of ``dense``: with ``"bsr"``, and with
            ``"blocked_ell"``, where both are equal.
        out: Matrix of that format and shape whose arrays have room for the entries, given together with ``count``. The
            part after the last entry is unchanged, or padding. If there are more entries, the op fails and the error
            names the number needed.
        count: 0-d i64: the number of entries (of blocks, with ``"bsr"``; of those in the fullest block row, with
            ``"blocked_ell"``).
    """

    dtypes: ClassVar[tuple[DType, ...]] = VALUES

    dense: In
    format: Literal["csr", "csc", "coo", "bsr", "blocked_ell"] = "csr"
    index: Index = "i32"
    block: tuple[int, int] | None = None
    out: Annotated[CsrRef | CscRef | CooRef | BsrRef | BlockedEllRef, Role.OUT] | None = None
    count: Out | None = None

    def infer(self) -> StructOutputs:
        if self.dense.dtype not in VALUES:
            names = ", ".join(d.name for d in VALUES)
            raise refuse(self, f"dense is {self.dense.layout!r}; its dtype must be one of {names}")
        shape = dense_of(self, "dense", self.dense, self.dense.dtype)
        index = as_dtype(self.index).name
        if max(*shape, self.dense.size) > INDEX_LIMIT[index]:
            raise refuse(self, f"dense is {self.dense.layout!r}; {index} indices do not reach that far, take i64")
        kinds = (self.dense.dtype.name, index)
        form = FORMATS[self.format]
        rows, cols = block = block_of(self, form, self.block, shape)
        most = shape[1] // cols if form is BlockedEllRef else self.dense.size // (rows * cols)
        return result_of(self, form, self.out, self.count, BoundedExtent(most), shape, kinds, block)


class Convert(Op[SparseActor, AnyRef], tag="sparse.convert"):
    """The same matrix in another format; await it for its extents if they depend on the data.

    There is no dense matrix in between.

    Between a ``CsrRef`` and a ``CooRef`` entries keep their order; if rows and columns are exchanged, the entries of a
    column are in the order of the rows, and vice versa. Blocks that are made of entries are in order within their block
    row; blocks made of blocks keep their order. Entries of blocks, zeros included, are ordered row by row and within a
    row block by block, in a ``CscRef`` in order. Padding is left out, or comes last in a block row: with the index -1,
    and zeros.

    Args:
        a: Values in f16, bf16, f32, f64, c64 or c128. Entries that are stored more than once are kept, except in blocks
            made of entries: there adjacent ones are added up as by :class:`ToDense`.
        format: ``"csr"``, ``"csc"``, ``"coo"``, ``"bsr"`` or ``"blocked_ell"``, other than the format of ``a``. Three
            numbers depend on the data and are known when the result is awaited: the blocks made of entries, the blocks
            of a ``padded`` ``BlockedEllRef`` that are not padding, and the width of a new ``BlockedEllRef``, which is
            that of its fullest block row.
        block: ``(rows, columns)`` of a block, which divide those of ``a``: with ``"bsr"``, and with ``"blocked_ell"``,
            where both are equal. From blocks to blocks it is that of ``a``, and can be left out.
        out: Matrix of that format and shape; a new one when None. If the number of entries depends on the data, it is
            given together with ``count`` and must have room for them; the part after the last entry is unchanged, or
            padding. If there are more entries, the op fails and the error names the number needed.
        count: 0-d i64, then: the number of entries (of blocks, with ``"bsr"``; of those in the fullest block row, with
            ``"blocked_ell"``).
    """

    dtypes: ClassVar[tuple[DType, ...]] = VALUES

    a: CsrRef | CscRef | CooRef | BsrRef | BlockedEllRef
    format: Literal["csr", "csc", "coo", "bsr", "blocked_ell"]
    block: tuple[int, int] | None = None
    out: Annotated[CsrRef | CscRef | CooRef | BsrRef | BlockedEllRef, Role.OUT] | None = None
    count: Out | None = None

    def infer(self) -> StructOutputs:
        a, form = self.a, FORMATS[self.format]
        shape = checked(self, "a", a)
        own = stored_block(a)
        makes_blocks = form is BsrRef or form is BlockedEllRef
        block = own if own and makes_blocks and self.block is None else block_of(self, form, self.block, shape)
        if own and makes_blocks and block != own:
            raise refuse(self, f"block is {block} and a has blocks of {own}; convert it to 'csr', and that to others")
        if isinstance(a, form):
            raise refuse(self, f"a is a {form.__name__} already; copy its arrays with dev.copy")
        if form is BlockedEllRef and block[0] != block[1]:
            raise refuse(self, f"a has blocks of {own}; those of a BlockedEllRef are square: convert it to 'csr' first")
        kinds = (a.values.dtype.name, index_of(a).name)
        return result_of(self, form, self.out, self.count, self._entries(form, block), shape, kinds, block)

    def _entries(self, form: type[AnyRef], block: tuple[int, int]) -> BoundedExtent | int:
        """The size of the result: entries, blocks, or blocks per row."""
        a, (rows, cols) = self.a, block
        height, width = a.shape[0] // rows, a.shape[1] // cols
        stored = a.indices.size if isinstance(a, BlockedEllRef) else a.values.shape[0]
        if form is BlockedEllRef:
            return BoundedExtent(min(stored, width))
        if isinstance(a, BsrRef | BlockedEllRef):
            made = stored if form is BsrRef else a.nnz
            return BoundedExtent(made) if isinstance(a, BlockedEllRef) and a.padded else made
        return BoundedExtent(min(stored, height * width)) if form is BsrRef else stored


class Transpose(Op[SparseActor, BsrRef], tag="sparse.transpose"):
    """The transpose of a matrix of blocks, its blocks in order.

    The transpose of a ``CsrRef`` or ``CscRef`` is ``a.T``, which shares the arrays.

    Args:
        a: Values in f16, bf16, f32, f64, c64 or c128.
        out: A ``BsrRef`` of the transposed shape with as many blocks, each ``[c, r]``; a new one when None.
    """

    dtypes: ClassVar[tuple[DType, ...]] = VALUES

    a: BsrRef
    out: Annotated[BsrRef, Role.OUT] | None = None

    def infer(self) -> StructOutputs:
        rows, cols = checked(self, "a", self.a)
        blocks, (down, across) = self.a.values.shape[0], self.a.block
        kinds = (self.a.values.dtype.name, index_of(self.a).name)
        return result_of(self, BsrRef, self.out, None, blocks, (cols, rows), kinds, (across, down))


class Check(Op[SparseActor, None], tag="sparse.check"):
    """Check that the arrays hold a matrix of their format; the reply fails with ``ShapeError`` otherwise.

    On CUDA no other op checks: use this for arrays whose indices may be wrong before they are used.

    ``indptr`` must rise from 0 to the number of entries (blocks), indices must be in range, and the rows of a
    ``CooRef`` must not fall. Other ops check this much themselves on the CPU, but not on CUDA.

    Args:
        a: The matrix.
        ordered: Indices must also be in order within each row (column of a ``CscRef``); padding comes last.
        duplicates: ``"refuse"`` or ``"keep"`` entries (blocks) that are stored more than once; needs ``ordered``.
            Duplicates among unordered entries are not detected here: :class:`callboard.kernel.sparse.Sort` finds them.
    """

    dtypes: ClassVar[tuple[DType, ...]] = VALUES
    returns: ClassVar[tuple[str, ...]] = ()

    a: CsrRef | CscRef | CooRef | BsrRef | BlockedEllRef
    ordered: bool = False
    duplicates: Literal["refuse", "keep"] = "refuse"

    def infer(self) -> Outputs:
        checked(self, "a", self.a)
        return {}
