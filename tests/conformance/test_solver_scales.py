"""Very large and very small matrices: a routine that scales its operand also scales the result back.

The operands are multiplied by powers of two, so the results are those of the operand as it was, but for the exponent.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.linalg
from solver_lab import (
    FLOATS,
    Array,
    adjoint,
    check_residual,
    check_same,
    check_unitary,
    definite,
    exact,
    execute,
    hermitian,
    regular,
    values,
)

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.solver import (
    Geev,
    GeevValues,
    GesvdjBatched,
    LeastSquares,
    Svd,
    SvdValues,
    SyevBatched,
    Syevd,
    SyevdValues,
    SyevdxIndex,
    SyevdxRange,
    Sygvd,
    SygvdValues,
)

N = 12


class Scale(NamedTuple):
    """A dtype, and the exponent of the power of two by which operands are multiplied."""

    dtype: DType
    exponent: int

    def up(self, array: Array) -> Array:
        """The operand. Exact: no element leaves the range of the dtype."""
        return times(array, self.exponent)

    def down(self, array: Array) -> Array:
        """What the result would be of the operand as it was, in extended precision."""
        return times(exact(array), -self.exponent)


def times(array: Array, exponent: int) -> Array:
    """``array * 2**exponent``, whatever the range of numbers with which that can be written."""
    parts = np.ascontiguousarray(array)[..., None].view(array.real.dtype)
    return np.ldexp(parts, exponent).view(array.dtype)[..., 0]


SCALES = [
    pytest.param(Scale(DTYPES[name], exponent), id=f"{name} 2^{exponent}")
    for name in FLOATS
    for exponent in ((-95, -45, 45, 95) if DTYPES[name].real.itemsize == 4 else (-950, -470, 470, 950))
]
"""Beyond the limits of LAPACK (2^40 and 2^459, and their inverses) and near the ends of the range."""
every_scale = pytest.mark.parametrize("scale", SCALES)


def wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


@every_scale
def test_general_eigenvalues(session: Any, scale: Scale) -> None:
    a = values(scale.dtype, (N, N), 1)
    norm = float(np.linalg.norm(a))
    ref = session.put(scale.up(a))
    result = execute(session, Geev(a=ref))
    only = scale.down(session.get(execute(session, GeevValues(a=ref))))
    w, v = scale.down(session.get(result.w)), exact(session.get(result.v))
    check_same(exact(a) @ v, v * w, scale.dtype, norm)
    np.testing.assert_allclose(np.linalg.norm(v.astype(np.complex128), axis=0), 1, rtol=1e-5)
    for found in (w, only):
        check_same(np.asarray(found.sum()), np.trace(wide(a)), scale.dtype, norm)
        check_same(np.asarray((found**2).sum()), np.trace(wide(a) @ wide(a)), scale.dtype, norm**2)


@every_scale
def test_symmetric_eigenvalues(session: Any, scale: Scale) -> None:
    a = hermitian(scale.dtype, (N, N), 2)
    ref, want = session.put(scale.up(a)), np.linalg.eigvalsh(wide(a))
    check_same(scale.down(session.get(execute(session, SyevdValues(a=ref)))), want, scale.dtype)
    low, high = (np.ldexp((want[i] + want[i + 1]) / 2, scale.exponent) for i in (2, 8))
    for op, part in (
        (Syevd(a=ref), slice(None)),
        (Syevd(a=ref, method="syevj"), slice(None)),
        (SyevdxIndex(a=ref, start=3, stop=9), slice(3, 9)),
        (SyevdxRange(a=ref, low=low, high=high), slice(3, 9)),
    ):
        found = execute(session, op)
        check_symmetric(scale, a, want[part], session.get(found.w), session.get(found.v))
    found = execute(session, SyevBatched(a=session.put(scale.up(a)[None])))
    check_symmetric(scale, a, want, session.get(found.w)[0], session.get(found.v)[0])


def check_symmetric(scale: Scale, a: Array, want: Array, w: Array, v: Array) -> None:
    w, norm = scale.down(w), float(np.linalg.norm(a))
    check_same(w, want, scale.dtype, norm)
    check_unitary(v, scale.dtype)
    check_same(exact(a) @ exact(v), exact(v) * w, scale.dtype, norm)


@every_scale
def test_generalised_eigenvalues(session: Any, scale: Scale) -> None:
    a, b = hermitian(scale.dtype, (N, N), 3), definite(scale.dtype, (N, N), 4)
    b[range(N), range(N)] += 4 * N
    operands = {"a": session.put(scale.up(a)), "b": session.put(b)}
    want = scipy.linalg.eigh(wide(a), wide(b), eigvals_only=True)
    norm = float(np.linalg.norm(a) * np.linalg.norm(np.linalg.inv(wide(b))))
    for w in (execute(session, SygvdValues(**operands)), execute(session, Sygvd(**operands)).w):
        check_same(scale.down(session.get(w)), want, scale.dtype, norm)


@pytest.mark.parametrize("shape", [(N, N), (2 * N, N), (N, 3 * N)], ids=str)
@every_scale
def test_singular_values(session: Any, scale: Scale, shape: tuple[int, int]) -> None:
    a = values(scale.dtype, shape, 5)
    ref, want = session.put(scale.up(a)), np.linalg.svd(wide(a), compute_uv=False)
    norm = float(np.linalg.norm(a))
    for method in ("auto", "gesvd", "gesvdj"):
        only = session.get(execute(session, SvdValues(a=ref, method=method)))
        check_same(scale.down(only), want, scale.dtype, norm)
        found = execute(session, Svd(a=ref, method=method))
        check_svd(scale, a, *(session.get(x) for x in (found.u, found.s, found.vt)))
    found = execute(session, GesvdjBatched(a=session.put(scale.up(a)[None])))
    check_svd(scale, a, *(session.get(x)[0] for x in (found.u, found.s, found.vt)))


def check_svd(scale: Scale, a: Array, u: Array, s: Array, vt: Array) -> None:
    norm = float(np.linalg.norm(a))
    check_unitary(u, scale.dtype)
    check_unitary(adjoint(vt), scale.dtype)
    check_same(exact(u) * scale.down(s) @ exact(vt), exact(a), scale.dtype, norm)


@every_scale
def test_least_squares(session: Any, scale: Scale) -> None:
    """Where the matrix is scaled, and the right side with it, or the right side alone."""
    a, x = regular(scale.dtype, (2 * N, N), 6), values(scale.dtype, (N, 2), 7)
    b = (wide(a) @ wide(x)).astype(scale.dtype.np)
    right, up = session.put(scale.up(b)), session.put(scale.up(a))
    check_residual(a, session.get(execute(session, LeastSquares(a=up, b=right))), b, scale.dtype)
    found = session.get(execute(session, LeastSquares(a=session.put(a), b=right)))
    check_residual(a, scale.down(found), b, scale.dtype)
