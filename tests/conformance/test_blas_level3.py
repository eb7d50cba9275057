"""Level 3 but ``gemm``: sums, triangles, symmetric and triangular matrices."""

from typing import Any

import numpy as np
import pytest
from blas_lab import (
    MATRIX_LAYOUTS,
    SHARED,
    Array,
    attempt,
    complex_factors,
    dtypes,
    execute,
    extents,
    factors,
    matrix_layouts,
    place_matrix,
    poisoned,
    seeds,
    turned,
    values,
    wide,
)
from hypothesis import assume, given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.blas import Geam, Hemm, Herk, Symm, Syrk, Trmm, Trsm
from callboard.testing.tolerances import assert_close

BLAS = ("f32", "f64", "c64", "c128")
EVERY = [pytest.param(DTYPES[name], id=name) for name in BLAS]
COMPLEX = [pytest.param(DTYPES[name], id=name) for name in BLAS[2:]]


def number_for(dtype: DType) -> Any:
    return complex_factors() if dtype.is_complex else factors()


def triangle(n: int, lower: bool) -> Array:
    """Where a triangle lies, the diagonal included."""
    return np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T


# -- geam --------------------------------------------------------------------------------------------------------------


@SHARED
@given(data=st.data(), dtype=dtypes(*BLAS), m=extents, n=extents, seed=seeds)
def test_geam(session: Any, data: st.DataObject, dtype: DType, m: int, n: int, seed: int) -> None:
    transposes = [data.draw(st.booleans()) for _ in range(2)]
    a, b = (values(dtype, (n, m) if t else (m, n), seed + i) for i, t in enumerate(transposes))
    at_a, at_b = (place_matrix(session, x, data.draw(matrix_layouts)) for x in (a, b))
    out = None
    if data.draw(st.booleans()):
        out = place_matrix(session, poisoned(dtype, (m, n)), data.draw(matrix_layouts))
    alpha, beta = data.draw(number_for(dtype)), data.draw(number_for(dtype))
    op = Geam(
        a=at_a.ref,
        b=at_b.ref,
        out=None if out is None else out.ref,
        alpha=alpha.of(session, dtype),
        beta=beta.of(session, dtype),
        transpose_a=transposes[0],
        transpose_b=transposes[1],
    )
    x, y = (turned(wide(array), t, False) for array, t in zip((a, b), transposes, strict=True))
    scale = abs(alpha.value) * abs(x) + abs(beta.value) * abs(y)
    assert_close(session.get(execute(session, op)), alpha.value * x + beta.value * y, dtype, 2, scale=scale)
    if out is not None:
        out.check_surroundings(session)


@pytest.mark.parametrize("other", MATRIX_LAYOUTS)
@pytest.mark.parametrize("dtype", EVERY)
def test_geam_in_place(session: Any, dtype: DType, other: str) -> None:
    """``out`` may be either operand, next to a transposed other one."""
    a, b = values(dtype, (5, 4), 1), values(dtype, (5, 4), 2)
    at_a, at_b = place_matrix(session, a, "padded rows"), place_matrix(session, b, other)
    execute(session, Geam(a=at_a.ref, b=at_b.ref, out=at_a.ref, beta=-1))
    assert_close(session.get(at_a.ref), wide(a) - wide(b), dtype, 2, scale=abs(wide(a)) + abs(wide(b)))
    at_a.check_surroundings(session)
    at_a, at_b = place_matrix(session, a, "padded rows"), place_matrix(session, b, other)
    execute(session, Geam(a=at_a.ref, b=at_b.ref, out=at_b.ref, beta=-1))
    assert_close(session.get(at_b.ref), wide(a) - wide(b), dtype, 2, scale=abs(wide(a)) + abs(wide(b)))


@pytest.mark.parametrize("dtype", EVERY)
def test_geam_does_not_read_what_0_multiplies(session: Any, dtype: DType) -> None:
    a, nan = session.put(values(dtype, (3, 4), 1)), session.put(poisoned(dtype, (3, 4)))
    np.testing.assert_array_equal(session.get(execute(session, Geam(a=a, b=nan, beta=0))), session.get(a))
    np.testing.assert_array_equal(session.get(execute(session, Geam(a=nan, b=a, alpha=0))), session.get(a))


@pytest.mark.parametrize("dtype", COMPLEX)
def test_geam_conjugates(session: Any, dtype: DType) -> None:
    a, b = values(dtype, (4, 3), 1), values(dtype, (3, 4), 2)
    op = Geam(a=session.put(a), b=session.put(b.T.copy()).T, transpose_a=True, conj_a=True, conj_b=True)
    assert_close(session.get(execute(session, op)), wide(a).conj().T + wide(b).conj(), dtype, 2, scale=8)
    with pytest.raises(ShapeError, match=r"conj of b without a transposition .* pass dev.copy\(b.T\)"):
        session.submit(Geam(a=session.put(b), b=session.put(b), conj_b=True))


# -- syrk, herk --------------------------------------------------------------------------------------------------------


@SHARED
@given(data=st.data(), dtype=dtypes(*BLAS), n=extents, k=extents, seed=seeds, lower=st.booleans())
def test_rank_k_updates(
    session: Any, data: st.DataObject, dtype: DType, n: int, k: int, seed: int, lower: bool
) -> None:
    cls = data.draw(st.sampled_from([Syrk, Herk])) if dtype.is_complex else Syrk
    transpose = data.draw(st.booleans())
    a = values(dtype, (k, n) if transpose else (n, k), seed)
    at_a = place_matrix(session, a, data.draw(matrix_layouts))
    real = dtype.real if cls is Herk else dtype
    alpha, beta = (data.draw(number_for(real)) for _ in range(2))
    c = values(dtype, (n, n), seed + 1)
    if cls is Herk:
        c[np.diag_indices(n)] = c.diagonal().real
    c[~triangle(n, lower)] = np.nan  # not to be read, nor written
    if beta.value == 0:
        c[...] = np.nan
    at_c = place_matrix(session, c, data.draw(matrix_layouts))
    assume(cls is Syrk or at_a.columns == at_c.columns or a.size == 0 or n * k == 1)
    op = cls(
        a=at_a.ref,
        c=at_c.ref,
        alpha=alpha.of(session, real),
        beta=beta.of(session, real),
        transpose=transpose,
        lower=lower,
    )
    result, refused = attempt(session, op)
    if refused:  # one row or column is row-major whatever lies around it
        assert cls is Herk
        assert "both must be row-major or both column-major" in refused
        assert min(a.shape) <= 1 or n <= 1
        return
    left = turned(wide(a), transpose, transpose and cls is Herk)
    right = left.conj().T if cls is Herk else left.T
    want, scale = alpha.value * (left @ right), abs(alpha.value) * (abs(left) @ abs(right))
    if beta.value != 0:
        want, scale = want + beta.value * wide(c), scale + abs(beta.value) * abs(wide(c))
    inside = triangle(n, lower)
    got = session.get(result)
    assert_close(got[inside], want[inside], dtype, k + 2, scale=scale[inside])
    assert np.isnan(got[~inside]).all(), "the other triangle is written"
    if cls is Herk and n and not np.isnan(got.diagonal()).any():
        np.testing.assert_array_equal(got.diagonal().imag, 0)
    at_c.check_surroundings(session)


def test_herk_refuses_different_orders_by_name(session: Any) -> None:
    a, c = session.put(values(DTYPES["c64"], (4, 3), 1)), session.put(np.zeros((4, 4), np.complex64))
    with pytest.raises(ShapeError, match=r"blas.herk: a is .* and c is .*; copy a first \(dev.copy\)"):
        session.submit(Herk(a=a, c=c.T))


# -- symm, hemm --------------------------------------------------------------------------------------------------------


@SHARED
@given(data=st.data(), dtype=dtypes(*BLAS), m=extents, n=extents, seed=seeds, left=st.booleans(), lower=st.booleans())
def test_products_with_symmetric_matrices(
    session: Any, data: st.DataObject, dtype: DType, m: int, n: int, seed: int, left: bool, lower: bool
) -> None:
    cls = data.draw(st.sampled_from([Symm, Hemm])) if dtype.is_complex else Symm
    order = m if left else n
    a, b = values(dtype, (order, order), seed), values(dtype, (m, n), seed + 1)
    kept = triangle(order, lower)
    full = np.where(kept, wide(a), (wide(a).conj() if cls is Hemm else wide(a)).T)
    if cls is Hemm:
        full[np.diag_indices(order)] = full.diagonal().real
    a[~kept] = np.nan  # not to be read
    columns = data.draw(st.booleans(), "columns")
    suffix = "columns" if columns else "rows"
    of_b = data.draw(st.sampled_from([suffix, f"padded {suffix}"]))
    at_b = place_matrix(session, b, of_b)
    at_a = place_matrix(session, a, of_b if cls is Hemm else data.draw(matrix_layouts))
    out = place_matrix(session, poisoned(dtype, (m, n)), of_b) if columns or data.draw(st.booleans()) else None
    alpha, beta = data.draw(number_for(dtype)), data.draw(number_for(dtype))
    c = values(dtype, (m, n), seed + 2) if beta.on_device or beta.value != 0 else None
    at_c = None if c is None else place_matrix(session, c, data.draw(matrix_layouts))
    op = cls(
        a=at_a.ref,
        b=at_b.ref,
        out=None if out is None else out.ref,
        c=None if at_c is None else at_c.ref,
        alpha=alpha.of(session, dtype),
        beta=beta.of(session, dtype),
        left=left,
        lower=lower,
    )
    result, refused = attempt(session, op)
    if refused:
        assert "both must be row-major or both column-major" in refused
        assert min(m, n, order) <= 1, refused
        return
    x, y = (full, wide(b)) if left else (wide(b), full)
    want, scale = alpha.value * (x @ y), abs(alpha.value) * (abs(x) @ abs(y))
    if c is not None and beta.value != 0:
        want, scale = want + beta.value * wide(c), scale + abs(beta.value) * abs(wide(c))
    assert_close(session.get(result), want, dtype, order + 2, scale=scale)
    if out is not None:
        out.check_surroundings(session)


@pytest.mark.parametrize("cls", [Symm, Hemm])
def test_symm_in_place_of_c(session: Any, cls: Any) -> None:
    dtype = DTYPES["c128"]
    a, b, c = values(dtype, (4, 4), 1), values(dtype, (4, 3), 2), values(dtype, (4, 3), 3)
    a = a + (a.conj().T if cls is Hemm else a.T)
    ref = session.put(c)
    execute(session, cls(a=session.put(a), b=session.put(b), c=ref, out=ref, beta=2))
    assert_close(session.get(ref), wide(a) @ wide(b) + 2 * wide(c), dtype, 6, scale=abs(a) @ abs(b) + 2 * abs(c))


def test_hemm_refuses_different_orders_by_name(session: Any) -> None:
    a, b = session.put(np.eye(4, dtype="c8")), session.put(np.ones((4, 3), "c8"))
    with pytest.raises(ShapeError, match=r"blas.hemm: a is .* and b is .*; copy a first \(dev.copy\)"):
        session.submit(Hemm(a=a.T, b=b))


def test_symm_refuses_different_orders_by_name(session: Any) -> None:
    a, b = session.put(np.eye(4, dtype="f4")), session.put(np.ones((3, 4), "f4"))
    with pytest.raises(ShapeError, match=r"blas.symm: b is .*, column-major, and out is not; .* copy b first"):
        session.submit(Symm(a=a, b=b.T))
    with pytest.raises(ShapeError, match=r"blas.symm: b is .*, row-major, and out is not; give an out that is row-maj"):
        session.submit(Symm(a=a, b=session.put(np.ones((4, 3), "f4")), out=b.T))


# -- trsm, trmm --------------------------------------------------------------------------------------------------------


@SHARED
@given(
    data=st.data(),
    cls=st.sampled_from([Trsm, Trmm]),
    dtype=dtypes(*BLAS),
    m=extents,
    n=extents,
    seed=seeds,
    flags=st.fixed_dictionaries(
        {name: st.booleans() for name in ("left", "lower", "transpose", "conj", "unit_diagonal")}
    ),
)
def test_triangular_matrices(
    session: Any, data: st.DataObject, cls: Any, dtype: DType, m: int, n: int, seed: int, flags: dict[str, bool]
) -> None:
    order = m if flags["left"] else n
    a, b = values(dtype, (order, order), seed), values(dtype, (m, n), seed + 1)
    a = (a / (2 * max(order, 1)) + 2 * np.eye(order)).astype(dtype.np)  # well conditioned
    kept = triangle(order, flags["lower"])
    full = np.where(kept, wide(a), 0)
    if flags["unit_diagonal"]:
        full[np.diag_indices(order)] = 1
        kept = kept & ~np.eye(order, dtype=bool)
    full = turned(full, flags["transpose"], flags["conj"])
    a[~kept] = np.nan  # not to be read
    at_a, at_b = (
        place_matrix(session, a, data.draw(matrix_layouts)),
        place_matrix(session, b, data.draw(matrix_layouts)),
    )
    alpha = data.draw(number_for(dtype))
    result, refused = attempt(session, cls(a=at_a.ref, b=at_b.ref, alpha=alpha.of(session, dtype), **flags))
    if refused:
        assert "conj of a without a transposition" in refused
        assert flags["conj"]
        assert dtype.is_complex
        assert not (at_a.columns ^ flags["transpose"] ^ at_b.columns) or min(m, n) <= 1
        return
    right = alpha.value * wide(b)
    if cls is Trmm:
        want = full @ right if flags["left"] else right @ full
        scale = abs(full) @ abs(right) if flags["left"] else abs(right) @ abs(full)
        assert_close(session.get(result), want, dtype, order + 2, scale=scale)
    else:
        want = np.linalg.solve(full, right) if flags["left"] else np.linalg.solve(full.T, right.T).T
        assert_close(session.get(result), want, dtype, order + 2, kind="solve")
    at_b.check_surroundings(session)


@pytest.mark.parametrize("dtype", EVERY)
def test_trsm_by_a_singular_matrix_gives_infinities_and_no_error(session: Any, dtype: DType) -> None:
    a, b = session.put(np.diag([1, 0, 1]).astype(dtype.np)), session.put(np.ones((3, 2), dtype.np))
    got = wide(session.get(execute(session, Trsm(a=a, b=b))))
    np.testing.assert_array_equal(got[0], 1)
    assert not np.isfinite(got[1]).any()


@pytest.mark.parametrize("dtype", EVERY)
def test_trsm_spreads_nan(session: Any, dtype: DType) -> None:
    b = np.ones((3, 2), dtype.np)
    b[1, 0] = np.nan
    got = session.get(execute(session, Trsm(a=session.put(np.tri(3, dtype=dtype.np)), b=session.put(b))))
    np.testing.assert_array_equal(np.isnan(got), [[False, False], [True, False], [True, False]])
