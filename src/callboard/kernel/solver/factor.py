"""A sparse matrix that is solved with again and again."""

from collections.abc import Callable
from typing import Any, Generic, Literal

from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.solver.sparse import SparseCholesky, SparseLu, SparseQr
from callboard.kernel.sparse.conversions import Convert
from callboard.kernel.sparse.formats import CooRef, CscRef, CsrRef
from callboard.kernel.sparse.ordering import Sort

__all__ = ["Method", "SparseFactor"]

Method = Literal["lu", "cholesky", "qr"]
OPS: dict[str, Any] = {"lu": SparseLu, "cholesky": SparseCholesky, "qr": SparseQr}


class SparseFactor(Generic[Mode]):
    """A square sparse matrix, and its transpose, to solve systems with; of ``dev.solver.sparse_factor``.

    The first :meth:`solve` factors. Later ones with the same matrix only substitute, unless another sparse system of
    the device was solved between them: the last factorisation is cached (on the CPU the last two), and ``method="qr"``
    on CUDA caches none. The matrix and its transpose have a factorisation each. The object holds a copy of the matrix,
    so later writes to the arrays of ``a`` have no effect.

    Attributes:
        a: The matrix, as a ``CsrRef`` in order.
        method: Factorisation method.
    """

    def __init__(self, submit: Callable[[Any], Any], a: CsrRef | CscRef | CooRef, method: Method) -> None:
        if method not in OPS:
            raise ShapeError(f"solver.sparse_factor: method is {method!r}; 'lu', 'cholesky' or 'qr'")
        if a.shape[0] != a.shape[1]:
            raise ShapeError(f"solver.sparse_factor: a.shape is {a.shape}; it must be square")
        self._submit = submit
        self.method = method
        ordered = submit(Sort(a=a))
        self.a: CsrRef = ordered if isinstance(ordered, CsrRef) else submit(Convert(a=ordered, format="csr"))
        self._turned: CsrRef | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.a.shape

    def solve(self, b: GpuRef[Mode], *, transpose: bool = False, conj: bool = False) -> GpuRef[Mode]:
        """The ``x`` with ``op(a) @ x = b``.

        Args:
            b: ``[n]`` or ``[n, columns]``, dtype of the matrix.
            transpose: ``op(a)`` is ``a.T``.
            conj: ``op(a)`` is the conjugate of ``a``; with ``transpose``, its conjugate transpose.

        Raises:
            ShapeError: ``b`` does not fit.
            NumericalError: At the await: as the op of the method, :class:`SparseLu` for one.
        """
        if not self.a.values.dtype.is_complex:
            conj = False
        if transpose and self.method == "cholesky":  # of a Hermitian matrix, it is the conjugate
            transpose, conj = False, not conj and self.a.values.dtype.is_complex
        right = _conjugate(b) if conj else b
        found = self._submit(OPS[self.method](a=self._transposed() if transpose else self.a, b=right))
        return _conjugate(found) if conj else found  # type: ignore[no-any-return]

    def _transposed(self) -> CsrRef:
        turned = self._turned
        if turned is None:
            turned = self._turned = self._submit(Convert(a=self.a.T, format="csr"))
        return turned

    def __repr__(self) -> str:
        return f"<SparseFactor of {self.a.values.dtype}{list(self.shape)} by {self.method}>"


def _conjugate(x: Any) -> Any:
    return x._port.services.xp.conj(x)
