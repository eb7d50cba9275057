"""Solves with sparse triangular matrices, and dense products at the entries of a sparse one."""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from callboard.backends.cuda.blas.scalars import factor_of, pointers
from callboard.backends.cuda.sparse.cusparse import CODES, Cusparse
from callboard.backends.cuda.sparse.kernels import SparseArgs, launcher
from callboard.backends.cuda.sparse.products import COLS, ROWS, by_rows, dense, describe
from callboard.core.layout import Layout
from callboard.core.operand import Operand
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import index_of, leading, zero_pivot

__all__ = ["Sampled", "Solve", "no_terms"]

FILL_MODE, DIAG_TYPE = 0, 1
"""``cusparseSpMatAttribute_t``."""
NONE = 2**64 - 1


class Solve:
    """A plan of ``SpSv`` or ``SpSm``. What cuSPARSE finds out about a matrix is found out anew in each call.

    Args:
        cusparse: The handle that executes.
        maker: A handle for questions, on the thread of the prepare.
        op: The message.
    """

    def __init__(self, cusparse: Cusparse, maker: Cusparse, op: "sparse.SpSv | sparse.SpSm") -> None:
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
        self._matrix, self._point = describe(maker, op.a, dummy)
        self._descriptors.append(("sp_mat", self._matrix))
        for attribute, value in ((FILL_MODE, int(not op.lower)), (DIAG_TYPE, int(op.unit))):
            cell = ctypes.c_int(value)
            maker.make("sp_mat_set_attribute", self._matrix, attribute, ctypes.addressof(cell), 4)
        operation = 0 if not op.transpose else 2 if op.conj and dtype.is_complex else 1
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
        maker.point(1)  # factors are not looked at
        question = maker.make(f"{self._prefix}_create_descr")
        try:
            size = maker.call(f"{self._prefix}_buffer_size", *self._arguments(dummy), question)
        finally:
            maker.make(f"{self._prefix}_destroy_descr", question)
        self._scratch = maker.scratch(max(int(size), 1))

    def __call__(self, a: Sequence[int], b: int, out: int, alpha: Any) -> Callable[[], None] | None:
        """Enqueue it; gives what raises ``NumericalError``."""
        if self._empty:
            return None
        cusparse, prefix = self._cusparse, self._prefix
        self._point(a)
        self._set_values(self._right, b)
        self._set_values(self._result, out)
        (at_alpha,) = self._factors(alpha)
        arguments = self._arguments(at_alpha)
        analysis = cusparse.make(f"{prefix}_create_descr")
        self._analyses.add(analysis)
        cusparse.call(f"{prefix}_analysis", *arguments, analysis, self._scratch)
        cusparse.call(f"{prefix}_solve", *arguments, analysis)
        singular = self._singular(a)

        def end() -> None:
            self._analyses.discard(analysis)
            cusparse.make(f"{prefix}_destroy_descr", analysis)
            singular()

        return end

    def close(self) -> None:
        """Destroy the descriptors; nothing uses them any more."""
        for analysis in self._analyses:
            self._cusparse.make(f"{self._prefix}_destroy_descr", analysis)
        for kind, descriptor in self._descriptors:
            self._cusparse.make(f"destroy_{kind}", descriptor)
        self._cusparse.device.release(self._cell)

    def _arguments(self, at_alpha: int) -> tuple[int, ...]:
        return (*self._operations, at_alpha, self._matrix, self._right, self._result, self._value, 0)

    def _singular(self, a: Sequence[int]) -> Callable[[], None]:
        """Look for a 0 on the diagonal."""
        if self._look is None:
            return lambda: None
        cusparse, args = self._cusparse, self._args
        driver, native = cusparse.driver, cusparse.stream.native
        args.src = a[0]
        args.first, args.second = (a[2], a[1]) if args.coordinates else (a[1], a[2])
        driver.check(driver.memset_8(self._cell.address, 255, 8, native), "cuMemsetD8Async")
        self._look(native)
        found = cusparse.device.read_back(cusparse.stream, self._cell.address, 8)

        def look() -> None:
            (row,) = struct.unpack("<Q", found.take())
            if row != NONE:
                raise zero_pivot(str(type(self._op).__struct_config__.tag), row)

        return look


def no_terms(op: sparse.Sddmm) -> str | None:
    """Why cuSPARSE cannot do it."""
    return "cuSPARSE has no product of no terms (a has no columns)" if op.a.shape[1] == 0 else None


class Sampled:
    """A plan of ``Sddmm``."""

    def __init__(self, cusparse: Cusparse, maker: Cusparse, op: sparse.Sddmm) -> None:
        self._cusparse = cusparse
        self._nbytes = op.c.values.nbytes
        self._descriptors: list[tuple[str, int]] = []
        dtype = op.c.values.dtype
        self._factors = pointers(cusparse, [factor_of(v, dtype) for v in (op.alpha, op.beta)])  # type: ignore[arg-type]
        self._beta_is_array = isinstance(op.beta, Operand)
        if not self._nbytes:
            return
        dummy = maker.scratch(1)
        self._matrix, self._point = describe(maker, op.c, dummy)
        self._descriptors.append(("sp_mat", self._matrix))
        self._sides = [_own(maker, layout, dummy) for layout in (op.a.layout, op.b.layout)]
        self._descriptors += [("dn_mat", side) for side in self._sides]
        self._value = CODES[dtype.name]
        maker.point(1)  # factors are not looked at
        cell = ctypes.c_size_t()
        maker.call("sddmm_buffer_size", *self._arguments(dummy, dummy), ctypes.addressof(cell))
        self._scratch = maker.scratch(max(cell.value, 1))

    def __call__(self, a: int, b: int, c: Sequence[int], out: int, alpha: Any, beta: Any) -> None:
        """Enqueue it."""
        if not self._nbytes:
            return
        cusparse = self._cusparse
        if c[0] != out and (self._beta_is_array or beta != 0):
            code = cusparse.driver.memcpy_dtod(out, c[0], self._nbytes, cusparse.stream.native)
            cusparse.driver.check(code, "cuMemcpyDtoDAsync")
        at_alpha, at_beta = self._factors(alpha, beta)
        self._point((out, c[1], c[2]))
        for side, address in zip(self._sides, (a, b), strict=True):
            cusparse.library.dn_mat_set_values(side, address)
        cusparse.call("sddmm", *self._arguments(at_alpha, at_beta), self._scratch)

    def close(self) -> None:
        """Destroy the descriptors; nothing uses them any more."""
        for kind, descriptor in self._descriptors:
            self._cusparse.make(f"destroy_{kind}", descriptor)
        self._descriptors.clear()

    def _arguments(self, at_alpha: int, at_beta: int) -> tuple[int, ...]:
        return (0, 0, at_alpha, *self._sides, at_beta, self._matrix, self._value, 0)


def _own(maker: Cusparse, layout: Layout, dummy: int) -> int:
    found = leading(layout)
    assert found is not None
    order, step = found
    made: int = maker.make(
        "create_dn_mat", *layout.shape, step, dummy, CODES[layout.dtype.name], ROWS if order else COLS
    )
    return made
