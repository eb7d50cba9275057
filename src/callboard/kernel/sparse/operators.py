"""Operators of sparse matrices: products with arrays, with other sparse matrices and with numbers, and sums."""

from typing import TYPE_CHECKING, Any, Self, overload

import msgspec
import numpy as np

from callboard.core.errors import ShapeError
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.memory import Copy

if TYPE_CHECKING:
    from callboard.kernel.sparse.formats import CsrRef

__all__ = ["SparseOperators"]

NUMBERS = (int, float, complex, np.number)
METHODS = {
    "dot": "a @ x",
    "get": "dev.sparse.to_scipy(a)",
    "sum": "a @ xp.ones(n)",
    "toarray": "dev.sparse.to_dense(a)",
    "todense": "dev.sparse.to_dense(a)",
    "transpose": "a.T",
    **{f"to{form}": f"dev.sparse.convert(a, {form!r})" for form in ("coo", "csc", "csr", "bsr")},
}
"""What there is in place of a method of SciPy's and CuPy's matrices."""


class SparseOperators:
    """``a @ x``, ``x @ a``, ``a + b``, ``a - b``, ``a * 2``, ``a / 2`` and ``-a``, as those of SciPy's sparse arrays.

    Matrix and array are promoted to one dtype by the standard's rules; one that sparse libraries do not have (an
    integer) is refused. Other settings are those of the messages:
    :class:`SpMv <callboard.kernel.sparse.SpMv>`, :class:`SpMm <callboard.kernel.sparse.SpMm>`,
    :class:`SpGemm <callboard.kernel.sparse.SpGemm>` and, of sums, :class:`Sort <callboard.kernel.sparse.Sort>`.
    """

    __slots__ = ()
    __array_ufunc__ = None  # NumPy's scalars leave their products to these

    values: Any
    shape: tuple[int, int]

    @overload
    def __matmul__(self, other: GpuRef[Mode]) -> GpuRef[Mode]: ...
    @overload
    def __matmul__(self, other: "SparseOperators") -> "CsrRef": ...
    def __matmul__(self, other: Any) -> Any:
        """With ``[n]`` or ``[n, columns]`` an array; with a sparse matrix a ``CsrRef``, to be awaited for its entries.

        Raises:
            ShapeError: Shapes do not fit, or sparse libraries do not support the dtype that both promote to.
            TypeError: Blocks times a sparse matrix.
        """
        if not isinstance(self.values, GpuRef):  # an array, in a turn of a resident actor
            return NotImplemented
        if isinstance(other, SparseOperators):
            return self._times_sparse(other)
        return self._times(other, transpose=False) if isinstance(other, GpuRef) else self._not_beside("@", other)

    def __rmatmul__(self, other: GpuRef[Mode]) -> GpuRef[Mode]:
        if not isinstance(other, GpuRef):
            return self._not_beside("@", other)
        found = self._times(other.T if other.ndim == 2 else other, transpose=True)
        return found.T if other.ndim == 2 else found  # type: ignore[no-any-return]

    def __add__(self, other: "SparseOperators") -> "CsrRef":
        """With a sparse matrix of this shape, to be awaited for its entries; those that cancel to 0 are stored.

        Raises:
            ShapeError: Shapes differ, or sparse libraries do not support the dtype that both promote to.
            TypeError: A number or a dense array, or a matrix of blocks.
        """
        return self._sum("+", other)  # type: ignore[no-any-return]

    def __sub__(self, other: "SparseOperators") -> "CsrRef":
        return self._sum("-", other)  # type: ignore[no-any-return]

    if not TYPE_CHECKING:  # only to refuse: type checkers do so where there is no such method

        def __radd__(self, other: Any) -> Any:
            return self._not_added("+", other)

        def __rsub__(self, other: Any) -> Any:
            return self._not_added("-", other)

    def __mul__(self, number: Any) -> Self:
        if not isinstance(number, NUMBERS):
            return NotImplemented
        return self._with(self.values * number)

    __rmul__ = __mul__

    def __truediv__(self, number: Any) -> Self:
        if not isinstance(number, NUMBERS):
            return NotImplemented
        return self._with(self.values / number)

    def __neg__(self) -> Self:
        return self._with(-self.values)

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            instead = f"; use {METHODS[name]}" if name in METHODS else ""
            raise AttributeError(f"{type(self).__name__} has no {name!r}{instead}", name=name, obj=self)

    def _not_beside(self, sign: str, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            kind, put = "an array", "dev.put(array)"
            if sign != "@":
                put += "; the result is dense, so take dev.sparse.to_dense(a) instead of a"
        elif type(other).__module__.startswith("scipy.sparse"):
            kind, put = "a matrix", "dev.sparse.from_scipy(matrix)"
        else:
            return NotImplemented
        raise TypeError(
            f"{sign} of {self._shown} and {kind} of the host ({other.dtype}{list(other.shape)}): "
            f"put that on the device first, {put}"
        )

    def _not_added(self, sign: str, other: Any) -> Any:
        if isinstance(other, (*NUMBERS, GpuRef)):
            raise TypeError(
                f"{sign} of {self._shown} and {other!r}: the result is dense; take dev.sparse.to_dense(a) instead of a"
            )
        return self._not_beside(sign, other)

    def astype(self, dtype: Any) -> Self:
        """The matrix with its values in another dtype, by the same indices."""
        return self if self.values.dtype is dtype else self._with(self.values.astype(dtype))

    def _with(self, values: Any) -> Self:
        found: Any = msgspec.structs.replace(self, values=values)  # type: ignore[type-var] # of all that have these
        return found  # type: ignore[no-any-return]

    def _times(self, x: Any, *, transpose: bool) -> Any:
        from callboard.kernel.sparse.products import SpMm, SpMv  # which read the formats, which have these operators

        if x.ndim not in (1, 2):
            raise ShapeError(f"@: the other operand of {self._shown} is {x.layout!r}; it must have 1 or 2 axes")
        xp = x._port.services.xp
        dtype = xp.result_type(self.values, x)
        a: Any = self.astype(dtype)
        x = xp.astype(x, dtype, copy=False)
        if not (x.layout.contiguous or x.T.layout.contiguous):
            x = x._port.services.submit(Copy(src=x))
        op = SpMv(a=a, x=x, transpose=transpose) if x.ndim == 1 else SpMm(a=a, b=x, transpose=transpose)
        return x._port.services.submit(op)

    def _times_sparse(self, other: "SparseOperators") -> Any:
        from callboard.kernel.sparse.products import SpGemm

        services = self.values._port.services
        dtype = services.xp.result_type(self.values, other.values)
        a: Any = self.astype(dtype)._rows()
        b: Any = other.astype(dtype)._rows()
        return services.submit(SpGemm(a=a, b=b))

    def _sum(self, sign: str, other: Any) -> Any:
        """The entries of both by rows; those of one place are added up."""
        if not isinstance(self.values, GpuRef):
            return NotImplemented
        if not isinstance(other, SparseOperators):
            return self._not_added(sign, other)
        from callboard.kernel.sparse.conversions import Convert
        from callboard.kernel.sparse.formats import CooRef, SparseRef
        from callboard.kernel.sparse.ordering import Sort

        if other.shape != self.shape:
            raise ShapeError(f"{sign}: {self._shown} and {other._shown}; both must have the same shape")
        for matrix in (self, other):
            if not isinstance(matrix, SparseRef):
                raise TypeError(
                    f"{sign}: {matrix._shown} consists of blocks: dev.sparse.convert it to 'csr' and await it"
                )
        services = self.values._port.services
        xp = services.xp
        dtype = xp.result_type(self.values, other.values)
        terms: list[Any] = [self.astype(dtype), other.astype(dtype) if sign == "+" else -other.astype(dtype)]
        both = [a if isinstance(a, CooRef) else services.submit(Convert(a=a, format="coo")) for a in terms]
        values, rows, cols = (xp.concat([getattr(a, part) for a in both]) for part in ("values", "rows", "cols"))
        return services.submit(Sort(a=CooRef(values, rows, cols, self.shape)._rows(), duplicates="sum"))

    def _rows(self) -> Any:
        from callboard.kernel.sparse.conversions import Convert
        from callboard.kernel.sparse.formats import CooRef, CscRef, CsrRef
        from callboard.kernel.sparse.ordering import Sort

        if isinstance(self, CsrRef):
            return self
        if not isinstance(self, CscRef | CooRef):
            raise TypeError(f"@: {self._shown} with a sparse matrix: dev.sparse.convert it to 'csr' and await it")
        submit = self.values._port.services.submit
        return submit(Convert(a=submit(Sort(a=self)) if isinstance(self, CooRef) else self, format="csr"))

    @property
    def _shown(self) -> str:
        return f"a {type(self).__name__} of shape {self.shape}"
