"""Products of a sparse and a dense matrix, and of two sparse ones."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from callboard.backends.cuda.blas.scalars import factor_of, pointers
from callboard.backends.cuda.copies import Copier, copier
from callboard.backends.cuda.sparse.cusparse import CODES, INDEX_CODES, Cusparse, compute_dtype
from callboard.core.backend import Memory
from callboard.core.dtype import DType
from callboard.core.layout import Layout
from callboard.core.library import Extents
from callboard.core.operand import Operand
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import index_of, leading

__all__ = ["COLS", "ROWS", "DenseProduct", "SparseProduct", "by_rows", "dense", "describe"]

ROWS, COLS = 2, 1
"""``cusparseOrder_t``."""


def describe(cusparse: Cusparse, a: sparse.SparseRef, dummy: int) -> tuple[int, Callable[[Sequence[int]], None]]:
    """A descriptor of a sparse matrix, and a function that gives it its arrays."""
    value, index = CODES[a.values.dtype.name], INDEX_CODES[index_of(a).name]
    rows, cols = a.shape
    if isinstance(a, sparse.CooRef):
        made = cusparse.make("create_coo", rows, cols, a.nnz, dummy, dummy, dummy, index, 0, value)
        point = cusparse.library.coo_set_pointers
        return made, lambda parts: point(made, parts[1], parts[2], parts[0])
    form = "csr" if isinstance(a, sparse.CsrRef) else "csc"
    made = cusparse.make(f"create_{form}", rows, cols, a.nnz, dummy, dummy, dummy, index, index, 0, value)
    point = getattr(cusparse.library, f"{form}_set_pointers")
    return made, lambda parts: point(made, parts[2], parts[1], parts[0])


class DenseProduct:
    """A plan of ``SpMv`` or ``SpMm``: descriptors, scratch memory, and how the addend comes into the result.

    Args:
        cusparse: The handle that executes.
        maker: A handle for questions, on the thread of the prepare.
        op: The message.
    """

    def __init__(self, cusparse: Cusparse, maker: Cusparse, op: "sparse.SpMv | sparse.SpMm") -> None:
        self._cusparse = cusparse
        self._descriptors: list[tuple[str, int]] = []
        vector = isinstance(op, sparse.SpMv)
        b, c = (op.x, op.y) if isinstance(op, sparse.SpMv) else (op.b, op.c)
        out = op.infer()["out"] if op.out is None else op.out.layout
        dtype = op.a.values.dtype
        self._compute = CODES[compute_dtype(dtype).name]
        factors = [factor_of(value, compute_dtype(dtype)) for value in (op.alpha, op.beta)]
        self._factors = pointers(cusparse, factors)  # type: ignore[arg-type] # what it asks of cuBLAS, cuSPARSE has too
        self._empty = out.size == 0
        if self._empty:
            return
        dummy = maker.scratch(1)
        k = b.shape[0]
        if op.a.nnz == 0 or k == 0:
            # Any matrix without entries: nothing is multiplied, and the addend is scaled.
            zeros = cusparse.device.allocate(8 * (out.shape[0] + 1))
            self._zeros: Memory | None = zeros
            driver, native = cusparse.driver, cusparse.stream.native
            driver.check(driver.memset_8(zeros.address, 0, zeros.nbytes, native), "cuMemsetD8Async")
            k = max(k, 1)
            at = (zeros.address, dummy, dummy)
            matrix = maker.make("create_csr", out.shape[0], k, 0, *at, 3, 3, 0, CODES[dtype.name])
            self._point: Callable[[Sequence[int]], None] = lambda parts: None
            operation = 0
        else:
            self._zeros = None
            matrix, self._point = describe(maker, op.a, dummy)
            operation = 0 if not op.transpose else 2 if op.conj and dtype.is_complex else 1
        self._keep("sp_mat", matrix)
        of_b = 0
        if vector:
            right = maker.make("create_dn_vec", k, dummy, CODES[dtype.name])
            result = maker.make("create_dn_vec", out.size, dummy, CODES[dtype.name])
        else:
            right, of_b = dense(maker, b.layout, k, dummy, by_rows(out))
            result, _ = dense(maker, out, out.shape[0], dummy, by_rows(out))
        kind = "dn_vec" if vector else "dn_mat"
        self._keep(kind, right)
        self._keep(kind, result)
        self._set_values = getattr(cusparse.library, f"{kind}_set_values")
        self._name = "sp_mv" if vector else "sp_mm"
        self._operations = (operation,) if vector else (operation, of_b)
        self._right, self._matrix, self._result = right, matrix, result
        maker.point(1)  # factors are not looked at
        size = maker.call(
            f"{self._name}_buffer_size", *self._operations, dummy, matrix, right, dummy, result, self._compute, 0
        )
        self._scratch = maker.scratch(max(int(size), 1))
        self._beta_is_array = isinstance(op.beta, Operand)
        self._copy: Copier | None = None
        if c is not None:
            self._copy = copier(cusparse.driver, cusparse.device.kernels, c.layout, out)

    def __call__(self, a: Sequence[int], b: int, out: int, c: int | None, alpha: Any, beta: Any) -> None:
        """Enqueue it."""
        if self._empty:
            return
        cusparse = self._cusparse
        if self._copy is not None and c is not None and c != out and (self._beta_is_array or beta != 0):
            self._copy(cusparse.stream.native, c, out)
        at_alpha, at_beta = self._factors(alpha, beta)
        self._point(a)
        self._set_values(self._right, b)
        self._set_values(self._result, out)
        cusparse.call(
            self._name, *self._operations, at_alpha, self._matrix, self._right, at_beta, self._result, self._compute, 0,
            self._scratch,
        )  # fmt: skip

    def close(self) -> None:
        """Destroy the descriptors; nothing uses them any more."""
        for kind, descriptor in self._descriptors:
            self._cusparse.make(f"destroy_{kind}", descriptor)
        self._descriptors.clear()
        if not self._empty and self._zeros is not None:
            self._cusparse.device.release(self._zeros)
            self._zeros = None

    def _keep(self, kind: str, descriptor: int) -> None:
        self._descriptors.append((kind, descriptor))


def by_rows(layout: Layout) -> bool:
    """Whether a matrix is row-major."""
    found = leading(layout)
    assert found is not None
    return found[0]


def dense(maker: Cusparse, layout: Layout, rows: int, dummy: int, row_major: bool) -> tuple[int, int]:
    """A descriptor in the wanted order, and the operation that makes it the matrix again."""
    found = leading(layout)
    assert found is not None
    own, step = found
    cols, value = layout.shape[1], CODES[layout.dtype.name]
    step = max(step, cols if own else rows)
    if own == row_major:
        return maker.make("create_dn_mat", rows, cols, step, dummy, value, ROWS if own else COLS), 0
    return maker.make("create_dn_mat", cols, rows, step, dummy, value, ROWS if row_major else COLS), 1


class SparseProduct:
    """A plan of ``SpGemm``: its measure computes the product, its launch copies it out.

    Args:
        cusparse: A handle that this plan's measures and launches alone use: never at the same time, but not all on one
            thread.
        op: The message.
    """

    def __init__(self, cusparse: Cusparse, op: sparse.SpGemm) -> None:
        self._cusparse = cusparse
        self._op = op
        dtype: DType = op.a.values.dtype
        self._value, self._index = CODES[dtype.name], INDEX_CODES[op.a.indices.dtype.name]
        self._index_size = op.a.indices.dtype.itemsize
        self._factors = pointers(cusparse, [factor_of(op.alpha, dtype), factor_of(0.0, dtype)])  # type: ignore[arg-type]
        self._empty = not (op.a.nnz and op.b.nnz)
        self._buffers: list[Memory] = []
        self._descriptors: list[tuple[str, int]] = []
        self._state: tuple[Any, ...] = ()
        self._result = 0

    def measure(self, a: Sequence[int], b: Sequence[int], alpha: Any) -> Extents:
        """Compute; on the helper's thread, with the stream idle."""
        self._clear()
        if self._empty:
            return [(0,), (0,)]
        cusparse, op = self._cusparse, self._op
        left, point_left = describe(cusparse, op.a, a[0])
        self._descriptors.append(("sp_mat", left))
        right, point_right = describe(cusparse, op.b, b[0])
        self._descriptors.append(("sp_mat", right))
        point_left(a)
        point_right(b)
        kinds = (self._index, self._index, 0, self._value)
        self._result = cusparse.make("create_csr", op.a.shape[0], op.b.shape[1], 0, 0, 0, 0, *kinds)
        self._descriptors.append(("sp_mat", self._result))
        descriptor = cusparse.make("sp_gemm_create_descr")
        self._descriptors.append(("sp_gemm", descriptor))
        at_alpha, at_zero = self._factors(alpha, 0.0)
        self._state = (0, 0, at_alpha, left, right, at_zero, self._result, self._value, 0, descriptor)
        size = cusparse.call("sp_gemm_work_estimation", *self._state, 0)
        cusparse.call("sp_gemm_work_estimation", *self._state, self._buffer(size))
        cell = ctypes.c_size_t()
        cusparse.call("sp_gemm_compute", *self._state, ctypes.addressof(cell), 0)
        buffer = self._buffer(cell.value)
        cusparse.call("sp_gemm_compute", *self._state, ctypes.addressof(cell), buffer)
        cusparse.stream.synchronize()
        n = int(cusparse.make("sp_mat_get_size", self._result)[2])
        return [(n,), (n,)]

    def launch(self, out: Sequence[int], alpha: Any) -> None:
        """Copy it out."""
        cusparse = self._cusparse
        values, indices, indptr = out
        if self._empty:
            driver, nbytes = cusparse.driver, self._index_size * (self._op.a.shape[0] + 1)
            driver.check(driver.memset_8(indptr, 0, nbytes, cusparse.stream.native), "cuMemsetD8Async")
            return
        cusparse.make("csr_set_pointers", self._result, indptr, indices, values)
        at_alpha, at_zero = self._factors(alpha, 0.0)  # enters the pointer mode again
        left, right = self._state[3:5]
        cusparse.call("sp_gemm_copy", 0, 0, at_alpha, left, right, at_zero, *self._state[6:])

    def close(self) -> None:
        """Give everything back; nothing uses it any more."""
        self._clear()

    def _buffer(self, nbytes: int) -> int:
        memory = self._cusparse.device.allocate(max(int(nbytes), 1))
        self._buffers.append(memory)
        return memory.address

    def _clear(self) -> None:
        for kind, descriptor in self._descriptors:
            self._cusparse.make("sp_gemm_destroy_descr" if kind == "sp_gemm" else f"destroy_{kind}", descriptor)
        self._descriptors.clear()
        for memory in self._buffers:
            self._cusparse.device.release(memory)
        self._buffers.clear()
