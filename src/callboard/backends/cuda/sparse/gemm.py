"""Products of two sparse matrices."""

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.backends.cuda.blas.scalars import factor_of, pointers
from callboard.backends.cuda.sparse.cusparse import CODES, INDEX_CODES, Cusparse
from callboard.backends.cuda.sparse.descriptors import Matrix
from callboard.core.backend import Memory
from callboard.core.dtype import DType
from callboard.core.library import Extents, plans
from callboard.core.operand import Operand
from callboard.kernel import sparse
from callboard.kernel.sparse.checks import no_room

if TYPE_CHECKING:
    from callboard.backends.cuda.sparse.library import CudaSparse
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["SparseProduct", "why_not"]

REPEATABLE = 3
"""``CUSPARSE_SPGEMM_ALG1``, which gives the same bits each time according to NVIDIA."""


def why_not(op: sparse.SpGemm) -> str | None:
    """The reason why a product is unsupported."""
    if op.a.values.dtype.itemsize == 2 and isinstance(op.alpha, Operand):
        return "cuSPARSE takes the factor of a product of halves as a half; pass alpha as a number"
    return None


@plans(sparse.SpGemm, sizes=True, always=True, refuses=why_not, captures=False)
class SparseProduct:
    """A plan of ``SpGemm``: its size query computes the product, its launch copies it out.

    cuSPARSE requests buffers between the steps of a product, and reports the size of the result to the host. The
    product is therefore computed before the launch, on the helper's thread, even if the arrays of the result are given:
    by then it is known whether they have room (decision 0012).

    Args:
        library: Its handle for size queries and launches: never at the same time, but not all on one thread.
        op: The message.
    """

    def __init__(self, library: "CudaSparse", op: sparse.SpGemm) -> None:
        cusparse = library.sizer
        self._cusparse = cusparse
        self._op = op
        dtype: DType = op.a.values.dtype
        self._value, self._index = CODES[dtype.name], INDEX_CODES[op.a.indices.dtype.name]
        self._index_size = op.a.indices.dtype.itemsize
        if dtype.itemsize == 2:
            self._factors = _halves(cusparse, dtype)
        else:
            factors = [factor_of(op.alpha, dtype), factor_of(0.0, dtype)]
            self._factors = pointers(cusparse, factors)  # type: ignore[arg-type]
        self._algorithm = REPEATABLE if op.deterministic else 0
        self._empty = not (op.a.nnz and op.b.nnz)
        self._buffers: list[Memory] = []
        self._matrices: list[Matrix] = []
        self._descriptors: list[tuple[str, int]] = []
        self._state: tuple[Any, ...] = ()
        self._result = self._found = 0

    def query_size(
        self, stream: "CudaStream", a: Sequence[int], b: Sequence[int], out: Any, count: int | None, alpha: Any
    ) -> Extents:
        """Compute; on the helper's thread, with the stream idle."""
        self._cusparse.bind(stream)
        self._clear()
        self._found = 0 if self._empty else self._computed(a, b, alpha)
        if self._op.out is None:
            return [(self._found,), (self._found,)]
        room = self._op.out.nnz
        if self._found > room:
            raise no_room(self._op, self._found, room)
        return []

    def __call__(
        self,
        stream: "CudaStream",
        a: Sequence[int],
        b: Sequence[int],
        out: Sequence[int],
        count: int | None,
        alpha: Any,
    ) -> None:
        """Copy it out."""
        cusparse = self._cusparse
        cusparse.bind(stream)
        driver, native = cusparse.driver, stream.native
        if count is not None:
            for at, word in ((count, self._found & 0xFFFFFFFF), (count + 4, self._found >> 32)):
                driver.check(driver.memset_32(at, word, 1, native), "cuMemsetD32Async")
        values, indices, indptr = out
        if self._empty:
            nbytes = self._index_size * (self._op.a.shape[0] + 1)
            driver.check(driver.memset_8(indptr, 0, nbytes, native), "cuMemsetD8Async")
            return
        cusparse.make("csr_set_pointers", self._result, indptr, indices, values)
        at_alpha, at_zero = self._factors(alpha, 0.0)  # enters the pointer mode again
        left, right = self._state[3:5]
        cusparse.call("sp_gemm_copy", 0, 0, at_alpha, left, right, at_zero, *self._state[6:])

    def close(self) -> None:
        """Release everything; nothing uses it any more."""
        self._clear()

    def _computed(self, a: Sequence[int], b: Sequence[int], alpha: Any) -> int:
        """The number of entries of the product, which waits in buffers."""
        cusparse, op = self._cusparse, self._op
        for matrix, parts in ((op.a, a), (op.b, b)):
            self._matrices.append(Matrix(cusparse, matrix, parts[0]))
            self._matrices[-1].point(parts)
        left, right = (matrix.descriptor for matrix in self._matrices)
        kinds = (self._index, self._index, 0, self._value)
        self._result = cusparse.make("create_csr", op.a.shape[0], op.b.shape[1], 0, 0, 0, 0, *kinds)
        self._descriptors.append(("sp_mat", self._result))
        descriptor = cusparse.make("sp_gemm_create_descr")
        self._descriptors.append(("sp_gemm", descriptor))
        at_alpha, at_zero = self._factors(alpha, 0.0)
        self._state = (
            0, 0, at_alpha, left, right, at_zero, self._result, self._value, self._algorithm, descriptor,
        )  # fmt: skip
        size = cusparse.call("sp_gemm_work_estimation", *self._state, 0)
        cusparse.call("sp_gemm_work_estimation", *self._state, self._buffer(size))
        cell = ctypes.c_size_t()
        cusparse.call("sp_gemm_compute", *self._state, ctypes.addressof(cell), 0)
        buffer = self._buffer(cell.value)
        cusparse.call("sp_gemm_compute", *self._state, ctypes.addressof(cell), buffer)
        cusparse.stream.synchronize()
        return int(cusparse.make("sp_mat_get_size", self._result)[2])

    def _buffer(self, nbytes: int) -> int:
        memory = self._cusparse.device.allocate(max(int(nbytes), 1))
        self._buffers.append(memory)
        return memory.address

    def _clear(self) -> None:
        for kind, descriptor in self._descriptors:
            self._cusparse.make("sp_gemm_destroy_descr" if kind == "sp_gemm" else f"destroy_{kind}", descriptor)
        self._descriptors.clear()
        for matrix in self._matrices:
            matrix.close()
        self._matrices.clear()
        for memory in self._buffers:
            self._cusparse.device.release(memory)
        self._buffers.clear()


def _halves(cusparse: Cusparse, dtype: DType) -> Callable[..., tuple[int, ...]]:
    """Factors of halves, which are halves on the host."""
    cells = np.zeros(2, dtype.np)
    addresses = cells.ctypes.data, cells.ctypes.data + 2

    def factors(*values: Any) -> tuple[int, ...]:
        if cusparse.mode != 0:
            cusparse.point(0)
        cells[:] = values
        return addresses

    return factors
