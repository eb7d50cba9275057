"""Solves with sparse triangular matrices."""

import ctypes
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas.scalars import factor_of, pointers
from callboard.backends.cuda.readback import CudaStatus
from callboard.backends.cuda.sparse.cusparse import CODES
from callboard.backends.cuda.sparse.descriptors import Matrix, by_rows, dense
from callboard.backends.cuda.sparse.kernels import SparseArgs, launcher
from callboard.core.library import plans
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import index_of, zero_pivot

if TYPE_CHECKING:
    from callboard.backends.cuda.sparse.library import CudaSparse
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Solve", "why_not"]

FILL_MODE, DIAG_TYPE = 0, 1
"""``cusparseSpMatAttribute_t``."""
NONE = 2**64 - 1


def why_not(op: "sparse.SpSv | sparse.SpSm") -> str | None:
    """CuSPARSE conjugates only what it transposes, and solves with rows: it takes columns for the transpose."""
    if isinstance(op.a, sparse.CscRef) and op.conj and op.a.values.dtype.is_complex:
        return "cuSPARSE conjugates only what it transposes, and takes a for a transpose; sparse.convert a to csr first"
    return None


@plans(sparse.SpSm, sparse.SpSv, refuses=why_not, captures=False)
class Solve:
    """A plan of ``SpSv`` or ``SpSm``. cuSPARSE's analysis of the matrix is repeated in each call.

    A ``CscRef`` is solved with as the ``CsrRef`` that its transpose is: the same arrays, upper for lower.

    Args:
        library: The handles: one that executes, and one for questions, on the thread of the prepare.
        op: The message.
    """

    def __init__(self, library: "CudaSparse", op: "sparse.SpSv | sparse.SpSm") -> None:
        cusparse, maker = library.cusparse, library.maker
        self._cusparse = cusparse
        self._op = op
        vector = isinstance(op, sparse.SpSv)
        b = op.x if isinstance(op, sparse.SpSv) else op.b
        out = op.infer()["out"] if op.out is None else op.out.layout
        dtype, n = op.a.values.dtype, op.a.shape[0]
        self._value = CODES[dtype.name]
        self._factors = pointers(cusparse, [factor_of(op.alpha, dtype)])  # type: ignore[arg-type]
        self._prefix = "sp_sv" if vector else "sp_sm"
        self._descriptors: list[tuple[str, int]] = []
        self._analyses: set[int] = set()
        self._cell = cusparse.device.allocate(8)
        self._args = SparseArgs(entries=op.a.nnz, major=n, coordinates=isinstance(op.a, sparse.CooRef))
        self._args.count = self._cell.address
        kernel = f"diagonal_{dtype.name}_{index_of(op.a).name}"
        self._look = None if op.unit else launcher(cusparse.device, kernel, n, self._args)
        self._empty = out.size == 0
        if self._empty:
            return
        dummy = maker.scratch(1)
        by_cols = isinstance(op.a, sparse.CscRef)
        self._matrix = Matrix(maker, op.a.T if isinstance(op.a, sparse.CscRef) else op.a, dummy)
        for attribute, value in ((FILL_MODE, int(op.lower == by_cols)), (DIAG_TYPE, int(op.unit))):
            cell = ctypes.c_int(value)
            maker.make("sp_mat_set_attribute", self._matrix.descriptor, attribute, ctypes.addressof(cell), 4)
        operation = 0 if op.transpose == by_cols else 2 if op.conj and dtype.is_complex else 1
        if vector:
            self._right = maker.make("create_dn_vec", n, dummy, self._value)
            self._result = maker.make("create_dn_vec", n, dummy, self._value)
            self._operations: tuple[int, ...] = (operation,)
        else:
            self._right, of_b = dense(maker, b.layout, n, dummy, by_rows(out))
            self._result, _ = dense(maker, out, n, dummy, by_rows(out))
            self._operations = (operation, of_b)
        kind = "dn_vec" if vector else "dn_mat"
        self._descriptors += [(kind, self._right), (kind, self._result)]
        self._set_values = getattr(cusparse.library, f"{kind}_set_values")
        at_factor = maker.question()
        question = maker.make(f"{self._prefix}_create_descr")
        try:
            size = maker.call(f"{self._prefix}_buffer_size", *self._arguments(at_factor), question)
        finally:
            maker.make(f"{self._prefix}_destroy_descr", question)
        self._scratch = maker.scratch(max(int(size), 1))

    def __call__(self, stream: "CudaStream", a: Sequence[int], b: int, out: int, alpha: Any) -> CudaStatus | None:
        """Enqueue it and return a status that raises ``NumericalError``."""
        if self._empty:
            return None
        cusparse, prefix = self._cusparse, self._prefix
        cusparse.bind(stream)
        self._matrix.point(a)
        self._set_values(self._right, b)
        self._set_values(self._result, out)
        (at_alpha,) = self._factors(alpha)
        arguments = self._arguments(at_alpha)
        analysis = cusparse.make(f"{prefix}_create_descr")
        self._analyses.add(analysis)
        cusparse.call(f"{prefix}_analysis", *arguments, analysis, self._scratch)
        cusparse.call(f"{prefix}_solve", *arguments, analysis)
        nbytes = self._look_for_zeros(a)

        def end(outcome: bytes) -> None:
            self._analyses.discard(analysis)
            cusparse.make(f"{prefix}_destroy_descr", analysis)
            if outcome and (row := struct.unpack("<Q", outcome)[0]) != NONE:
                raise zero_pivot(str(type(self._op).__struct_config__.tag), row)

        return CudaStatus(self._cell.address, nbytes, end)

    def close(self) -> None:
        """Destroy the descriptors; nothing uses them any more."""
        for analysis in self._analyses:
            self._cusparse.make(f"{self._prefix}_destroy_descr", analysis)
        for kind, descriptor in self._descriptors:
            self._cusparse.make(f"destroy_{kind}", descriptor)
        if not self._empty:
            self._matrix.close()
        self._cusparse.device.release(self._cell)

    def _arguments(self, at_alpha: int) -> tuple[int, ...]:
        return (*self._operations, at_alpha, self._matrix.descriptor, self._right, self._result, self._value, 0)

    def _look_for_zeros(self, a: Sequence[int]) -> int:
        """Enqueue the search for a 0 on the diagonal; returns the bytes of its result."""
        if self._look is None:
            return 0
        cusparse, args = self._cusparse, self._args
        driver, native = cusparse.driver, cusparse.stream.native
        args.src = a[0]
        args.first, args.second = (a[2], a[1]) if args.coordinates else (a[1], a[2])
        driver.check(driver.memset_8(self._cell.address, 255, 8, native), "cuMemsetD8Async")
        self._look(native)
        return 8
