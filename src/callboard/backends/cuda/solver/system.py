"""A sparse system in the workspace, looked through."""

import numpy as np

from callboard.backends.cuda.solver.jobs import Job
from callboard.backends.cuda.solver.lu import right_hand_side
from callboard.backends.cuda.solver.plans import BAD_INDICES, DIAGONAL, FAILED, HOLLOW, NOT_FINITE, STATUS, ZEROS
from callboard.core.dtype import DTYPES
from callboard.core.operand import Operand
from callboard.kernel.solver.failures import bad_indices, not_finite, not_hermitian, sparse_indefinite
from callboard.kernel.solver.transversal import Array, transversal
from callboard.kernel.sparse.formats import CsrRef

__all__ = ["System"]


class System:
    """``a @ x = b`` with a square CSR matrix.

    Args:
        job: Job of the plan.
        a: The matrix.
        b: One right-hand side or several.
        hermitian: It must be symmetric or Hermitian.

    Attributes:
        count: Stored elements.
        hermitian: Whether it must be symmetric or Hermitian.
        values, structure: The elements; offsets and indices as i32.
        b, x: Right-hand sides and solutions, by columns.
        zeros: True if there are zeros among the elements; known when it is loaded.
        hollow: True if there are zeros on the diagonal, stored or not; likewise.
    """

    def __init__(self, job: Job, a: CsrRef, b: Operand, hermitian: bool) -> None:
        self._solver, self._tag = job.solver, job.tag
        self.count, self.hermitian = a.nnz, hermitian
        n, dtype = a.shape[0], a.values.dtype
        self.values, self._load_values = job.load(a.values)
        self._offsets, self._load_offsets = job.load(a.indptr)
        self._indices, self._load_indices = job.load(a.indices)
        self.b, self._load_b = right_hand_side(job, b)
        self.x = job.array(dtype, *self.b.layout.shape)
        self.structure = job.array(DTYPES["i32"], n + 1 + self.count)
        wide = int(a.indptr.dtype is DTYPES["i64"])
        self._check = job.kernel("csr_check", max(n + 1, self.count), rows=n, cols=self.count, mode=wide)
        self._ascending = job.kernel("csr_ascending", n, rows=n, cols=self.count)
        self._zeros = job.kernel(f"csr_zeros_{dtype}", n, rows=n)
        self.zeros = self.hollow = False
        self._mirrored = job.kernel(f"csr_mirrored_{dtype}", n, rows=n, cols=self.count) if hermitian else None

    def load(self, native: int, base: int, at_a: list[int], at_b: int) -> None:
        """Copy the system into the workspace, and check it; waits.

        Raises:
            NumericalError: The arrays are not such a system.
        """
        values, indices, offsets = at_a
        self._load_values(native, base, values)
        self._load_indices(native, base, indices)
        self._load_offsets(native, base, offsets)
        self._load_b(native, base, at_b)
        lists = base + self.structure.at
        self._check(native, base, x=base + self._offsets.at, y=base + self._indices.at, z=lists)
        self._ascending(native, base, x=lists)
        if self._mirrored is not None:
            self._mirrored(native, base, x=base + self.values.at, y=lists)
        self._zeros(native, base, x=base + self.values.at, y=lists)
        status = self.status(base)
        self.zeros, self.hollow = status[ZEROS] > 0, status[HOLLOW] > 0
        if status[NOT_FINITE]:
            raise not_finite(self._tag, status[NOT_FINITE])
        if status[BAD_INDICES] or status[FAILED]:
            raise bad_indices(self._tag, status[BAD_INDICES] + status[FAILED], "offsets and indices")
        if status[DIAGONAL]:
            raise not_hermitian(self._tag, status[DIAGONAL])

    def transversal(self, native: int, base: int, start: Array | None) -> Array | None:
        """Elements in different rows and columns that are not 0; None: those of the diagonal. Waits.

        Factorisations do not detect a structurally singular matrix: cuDSS does not set the pivot of a row without
        elements, and rounding errors can turn zeros into other numbers.

        Raises:
            NumericalError: There are none, so the matrix is singular; or not positive definite, with zeros on the
                diagonal.
        """
        if not self.hollow:
            return None
        if self.hermitian:
            raise sparse_indefinite(self._tag, 1)
        n = self.x.layout.shape[0]
        lists, values = np.empty(n + 1 + self.count, np.int32), np.empty(self.count, self.values.layout.dtype.np)
        driver = self._solver.driver
        for array, at in ((lists, self.structure.at), (values, self.values.at)):
            driver.check(driver.memcpy_dtoh(array.ctypes.data, base + at, array.nbytes, native), "cuMemcpyDtoHAsync")
        self._solver.stream.synchronize()
        return transversal(self._tag, lists[: n + 1], lists[n + 1 :], values, start)

    def status(self, base: int) -> list[int]:
        """The words of the status; waits for the stream."""
        readback = self._solver.device.read_back(self._solver.stream, base, 4 * STATUS)
        self._solver.stream.synchronize()
        words: list[int] = np.frombuffer(readback.take(), np.int32).tolist()
        return words
