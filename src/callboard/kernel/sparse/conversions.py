"""Conversions between dense and sparse, and between sparse formats; and a look at what the arrays hold."""

from typing import Annotated, ClassVar, Literal

from callboard.core.layout import Upto, layout_of
from callboard.core.op import CompoundOutputs, Op, Outputs
from callboard.core.operand import In, Out, Role
from callboard.core.ref import GpuRef
from callboard.kernel.sparse.actor import SparseActor
from callboard.kernel.sparse.checks import VALUES, checked, dense_of, index_of, refuse
from callboard.kernel.sparse.formats import INDEX_LIMIT, CooRef, CscRef, CsrRef
from callboard.kernel.sparse.products import result_of

__all__ = ["FORMATS", "Check", "Convert", "FromDense", "ToDense"]

FORMATS: dict[str, type[CsrRef] | type[CscRef] | type[CooRef]] = {"csr": CsrRef, "csc": CscRef, "coo": CooRef}


class ToDense(Op[SparseActor, GpuRef], tag="sparse.to_dense"):
    """The matrix with its zeros (``SparseToDense``).

    Args:
        a: Values in f16, bf16, f32, f64, c64 or c128; no entry twice.
        out: Same shape and dtype, row- or column-major; a new row-major array when None.
    """

    a: CsrRef | CscRef | CooRef
    out: Out | None = None

    def infer(self) -> Outputs:
        shape = checked(self, "a", self.a)
        if self.out is not None:
            dense_of(self, "out", self.out, self.a.values.dtype)
        return {"out": layout_of(self.a.values.dtype, shape)}


class FromDense(Op[SparseActor, CsrRef | CscRef | CooRef], tag="sparse.from_dense"):
    """The entries of a matrix that are not 0 (``DenseToSparse``); NaN is an entry, -0.0 is none.

    How many there are depends on the data: without ``out`` they are known when the result is awaited.

    Args:
        dense: f16, bf16, f32, f64, c64 or c128; row- or column-major.
        format: ``"csr"``, ``"csc"`` or ``"coo"``; indices are sorted.
        index: dtype of the indices, ``"i32"`` or ``"i64"``.
        out: With ``count``: a matrix of that format and shape whose arrays of entries have room. What is left of them
            stays as it was. If there is no room, the op fails and says how much would do.
        count: 0-d i64: the number of entries.
    """

    dense: In
    format: Literal["csr", "csc", "coo"] = "csr"
    index: Literal["i32", "i64"] = "i32"
    out: Annotated[CsrRef | CscRef | CooRef, Role.OUT] | None = None
    count: Out | None = None

    def infer(self) -> CompoundOutputs:
        if self.dense.dtype not in VALUES:
            names = ", ".join(d.name for d in VALUES)
            raise refuse(self, f"dense is {self.dense.layout!r}; its dtype must be one of {names}")
        shape = dense_of(self, "dense", self.dense, self.dense.dtype)
        if max(*shape, self.dense.size) > INDEX_LIMIT[self.index]:
            raise refuse(self, f"dense is {self.dense.layout!r}; {self.index} indices do not reach that far, take i64")
        kinds = (self.dense.dtype.name, self.index)
        return result_of(self, FORMATS[self.format], self.out, self.count, Upto(self.dense.size), shape, kinds)


class Convert(Op[SparseActor, CsrRef | CscRef | CooRef], tag="sparse.convert"):
    """The same matrix in another format (``SparseActor``'s conversions). Entries of a row or column keep their order.

    Args:
        a: Values in f16, bf16, f32, f64, c64 or c128.
        format: ``"csr"``, ``"csc"`` or ``"coo"``; not that of ``a``.
        out: A matrix of that format, shape and number of entries; a new one when None.
    """

    a: CsrRef | CscRef | CooRef
    format: Literal["csr", "csc", "coo"]
    out: Annotated[CsrRef | CscRef | CooRef, Role.OUT] | None = None

    def infer(self) -> CompoundOutputs:
        shape = checked(self, "a", self.a)
        form = FORMATS[self.format]
        if isinstance(self.a, form):
            raise refuse(self, f"a is a {form.__name__} already; copy its arrays with dev.copy")
        kinds = (self.a.values.dtype.name, index_of(self.a).name)
        return result_of(self, form, self.out, None, self.a.values.size, shape, kinds)


class Check(Op[SparseActor, None], tag="sparse.check"):
    """See that the arrays hold a matrix of their format; the op fails with ``ShapeError`` that says what is wrong.

    ``indptr`` must rise from 0 to the number of entries, indices must be in range, and the rows of a CooRef must not
    fall.

    Args:
        a: The matrix.
        ordered: Indices must also rise within each row (column of a CscRef), which leaves no room for duplicates.
    """

    returns: ClassVar[tuple[str, ...]] = ()

    a: CsrRef | CscRef | CooRef
    ordered: bool = False

    def infer(self) -> Outputs:
        checked(self, "a", self.a)
        return {}
